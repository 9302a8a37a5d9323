"""Sends the spans of a run to an OpenTelemetry collector while the run is under way.

The spans are those of `trace.json`: same ids, times, attributes, status, resource and scope. They pass
through the OpenTelemetry SDK and its OTLP exporters in a thread of their own; a collector that is dead, slow
or hostile costs spans and a bounded wait at the end, never the run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from ..runtime.driver.ports import RunEvent
from .endpoint import GRPC, HTTP, target
from .export import Connection, NotDelivered, load_exporter
from .spans import Projector, Span

QUEUE_SPANS: Final = 4096
BATCH_SPANS: Final = 512
LINGER_S: Final = 0.1  # lets a quick run leave in one request instead of one for each step
GRACE_S: Final = 0.3  # what an exporter gets to let go of its connection once the time is up


class LiveExport:
    """A listener that exports the spans of the runs that it is notified of.

    `endpoint` is `http[s]://host[:port][/path]` (OTLP over HTTP, `/v1/traces` unless there is a path) or
    `grpc[s]://host[:port]`; `protocol`, `grpc` or `http/protobuf`, decides for an http(s) URL. `timeout_s` is
    the time for a request, and how long `close` waits. `on_problem` is called with at most one line,
    by `close`. Raises InputError for a malformed endpoint and where the exporters are not installed.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        protocol: str | None = None,
        on_problem: Callable[[str], None] | None = None,
        timeout_s: float = 2.5,
    ) -> None:
        self._target = target(endpoint, protocol)
        with suppress(ValueError):  # an OTEL_* variable that the SDK cannot read; the thread reports it
            load_exporter(grpc=self._target.grpc)  # ahead of the run: `close` has no time for imports
        self._on_problem = on_problem
        self._timeout_s = timeout_s
        self._no_answer = f"no answer within {timeout_s:g} s"
        self._projector: Projector | None = None
        self._waiting: deque[Span] = deque()
        self._change = threading.Condition()
        self._closing = self._given_up = False
        self._total = self._delivered = self._no_room = 0
        self._lost: int | None = None
        self._reason = ""
        self._connection: Connection | None = None
        self._worker = threading.Thread(target=self._work, name="tachograph-export", daemon=True)
        self._worker.start()

    def __call__(self, notice: RunEvent) -> None:
        """Queue the spans of a ledger line and return at once."""
        line = notice.line
        if notice.what != "line" or line is None:
            return
        if line["type"] == "run":
            self._projector = Projector(line)
        elif self._projector is not None:
            self._put(self._projector.step(line) if line["type"] == "step" else [self._projector.end(line)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> bool:
        """Send what is left and shut down, in little more than `timeout_s`; True if all was delivered."""
        if self._lost is None:
            with self._change:
                self._closing = True
                self._change.notify_all()
            self._worker.join(self._timeout_s)
            if self._worker.is_alive():
                self._give_up()
            self._lost = self._total - self._delivered
            if self._lost and self._on_problem is not None:
                self._on_problem(self._problem(self._lost))
        return self._lost == 0

    def _problem(self, lost: int) -> str:
        room = f", {self._no_room} of them for want of room" if self._no_room else ""
        counts = f"{lost} of {self._total} spans lost{room}"
        return f"traces were not delivered to {self._target.shown}: {self._reason or 'full queue'} ({counts})"

    def _give_up(self) -> None:
        self._given_up = True
        self._reason = self._reason or self._no_answer
        if self._connection is not None:
            self._connection.close(GRACE_S / 2)
        self._worker.join(GRACE_S / 2)

    def _put(self, spans: list[Span]) -> None:
        with self._change:
            if self._closing:
                return
            room = QUEUE_SPANS - len(self._waiting)
            self._total += len(spans)
            self._no_room += max(len(spans) - room, 0)
            self._waiting.extend(spans[:room])
            self._change.notify_all()

    def _take(self) -> list[Span]:
        """Wait for the next batch and return it; it is empty once there will be none."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closing)
            self._change.wait_for(lambda: self._closing or len(self._waiting) >= BATCH_SPANS, LINGER_S)
            count = 0 if self._given_up else min(BATCH_SPANS, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)]

    def _work(self) -> None:
        try:
            protocol = GRPC if self._target.grpc else HTTP
            self._connection = Connection(self._target, protocol, self._timeout_s, headers=None)
            while batch := self._take():
                self._send(self._connection, batch)
            if not self._given_up:
                self._connection.close()
        except Exception as error:  # noqa: BLE001 - what the libraries raise may surface nowhere else
            self._reason = f"{type(error).__name__}: {str(error)[:100]!r}"
        finally:
            if self._connection is not None:  # this late: a request that was given up logs when it fails
                self._connection.restore_logging()

    def _send(self, connection: Connection, batch: list[Span]) -> None:
        try:
            rejected = min(connection.export(batch).rejected, len(batch))
        except NotDelivered as error:
            if not self._given_up:
                self._reason = error.reason  # without the receiver's own words
            return
        self._delivered += len(batch) - rejected
        if rejected:
            self._reason = "it rejected some"
