"""Sends the spans of a run to an OpenTelemetry collector while the run is under way.

The spans are those of `trace.json`: same ids, times, attributes, status, resource and scope. They pass
through the OpenTelemetry SDK and its OTLP exporters in a thread of their own; a collector that is dead, slow
or hostile costs spans and a bounded wait at the end, never the run.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from ..fail.errors import InputError
from ..runtime.driver.ports import Notice
from .endpoint import target
from .otlp_json import SCOPE, SCOPE_VERSION, SERVICE_NAME
from .spans import Projector, Span

QUEUE_SPANS: Final = 4096
BATCH_SPANS: Final = 512
LINGER_S: Final = 0.1  # lets a quick run leave in one request instead of one for each step
GRACE_S: Final = 0.3  # what an exporter gets to let go of its connection once the time is up

_LIBRARIES: Final = ("opentelemetry", "grpc", "requests", "urllib3")


class LiveExport:
    """A listener that exports the spans of the runs it hears of.

    `endpoint` is `http[s]://host[:port][/path]` (OTLP over HTTP, `/v1/traces` unless there is a path) or
    `grpc[s]://host[:port]`; `protocol`, `grpc` or `http/protobuf`, decides for an http(s) URL. `timeout_s` is
    what the collector has for a request and what `close` waits for it. `on_problem` hears at most one line,
    from `close`. Raises InputError for a malformed endpoint and where the exporters are not installed.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        protocol: str | None = None,
        on_problem: Callable[[str], None] | None = None,
        timeout_s: float = 2.5,
    ) -> None:
        self._grpc, self._url, self._shown = target(endpoint, protocol)
        with suppress(ValueError):  # an OTEL_* variable that the SDK cannot read; the thread reports it
            _import_exporter(self._grpc)
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
        self._exporter: Any = None
        self._worker = threading.Thread(target=self._work, name="tachograph-export", daemon=True)
        self._worker.start()

    def __call__(self, notice: Notice) -> None:
        """Take note of a ledger line; returns at once."""
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
        return f"traces were not delivered to {self._shown}: {self._reason or 'full queue'} ({counts})"

    def _give_up(self) -> None:
        self._given_up = True
        self._reason = self._reason or self._no_answer
        # in a thread, because some releases wait here for the request under way
        stopper = threading.Thread(target=self._stop, daemon=True)
        stopper.start()
        stopper.join(GRACE_S / 2)
        self._worker.join(GRACE_S / 2)

    def _stop(self) -> None:
        with suppress(Exception):
            self._exporter.shutdown()

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
        """The next batch; empty once there will be none."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closing)
            self._change.wait_for(lambda: self._closing or len(self._waiting) >= BATCH_SPANS, LINGER_S)
            count = 0 if self._given_up else min(BATCH_SPANS, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)]

    def _work(self) -> None:
        hush = _Hush()
        try:
            encode = _Encoder()
            # headers, certificates and compression are those of OTEL_EXPORTER_OTLP_*
            factory = _import_exporter(self._grpc).OTLPSpanExporter
            options = {"insecure": self._url.startswith("http:")} if self._grpc else {}
            options |= _no_metrics(factory)
            self._exporter = factory(endpoint=self._url, timeout=self._timeout_s, **options)
            hush.cover()
            while batch := self._take():
                self._send([encode(span) for span in batch], hush)
            if not self._given_up:
                self._exporter.shutdown()
        except Exception as error:  # noqa: BLE001 - what the libraries raise may surface nowhere else
            self._reason = f"{type(error).__name__}: {str(error)[:100]!r}"
        finally:
            hush.lift()  # this late: a request that was given up still logs when it fails in the end

    def _send(self, batch: list[Any], hush: _Hush) -> None:
        began = time.monotonic()
        if self._exporter.export(batch).name == "SUCCESS":
            self._delivered += len(batch)
        elif not self._given_up:
            silent = time.monotonic() - began > 0.95 * self._timeout_s
            self._reason = self._no_answer if silent else hush.hint or "it did not take them"


def _import_exporter(grpc: bool) -> Any:
    """The module of the exporter. Called ahead of the run too: `close` has no time for imports."""
    try:
        importlib.import_module("opentelemetry.sdk.trace")
        kind = "grpc" if grpc else "http"
        return importlib.import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter")
    except ImportError as error:
        remedy = "pip install opentelemetry-sdk opentelemetry-exporter-otlp"
        raise InputError(f"traces need a missing package ({error.name})", remedy=remedy) from None


def _no_metrics(factory: Callable[..., object]) -> dict[str, Any]:
    """Keeps the SDK from making or using a global meter provider, in the releases that would."""
    from opentelemetry.metrics import NoOpMeterProvider

    known = "meter_provider" in inspect.signature(factory).parameters
    return {"meter_provider": NoOpMeterProvider()} if known else {}


class _Encoder:
    """Spans -> SDK spans, through a tracer provider of its own that no OTEL_* variable reaches."""

    def __init__(self) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.id_generator import IdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        class Ids(IdGenerator):
            trace_id = span_id = 0

            def generate_trace_id(self) -> int:
                return self.trace_id

            def generate_span_id(self) -> int:
                return self.span_id

        self._ids = Ids()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource({"service.name": SERVICE_NAME}),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(*[SpanLimits.UNSET] * 8),
            **_no_metrics(TracerProvider),
        )
        # OTEL_SDK_DISABLED=true makes every span a silent no-op; who names an endpoint wants them sent
        provider._disabled = False
        self._tracer = provider.get_tracer(SCOPE, SCOPE_VERSION)

    def __call__(self, span: Span) -> Any:
        from opentelemetry import trace
        from opentelemetry.context import Context

        self._ids.trace_id, self._ids.span_id = int(span.trace_id, 16), int(span.span_id, 16)
        around = Context()
        if span.parent_id is not None:
            parent = trace.SpanContext(self._ids.trace_id, int(span.parent_id, 16), is_remote=False)
            around = trace.set_span_in_context(trace.NonRecordingSpan(parent), around)
        started = self._tracer.start_span(
            span.name,
            context=around,
            kind=trace.SpanKind(span.kind - 1),  # the API counts from 0, OTLP from 1
            attributes={key: span.attributes[key] for key in sorted(span.attributes)},
            start_time=span.start_ns,
        )
        if not started.is_recording():
            raise RuntimeError("the OpenTelemetry SDK is switched off, see OTEL_SDK_DISABLED")
        if span.error_type is not None:
            started.set_status(trace.Status(trace.StatusCode.ERROR))
        started.end(end_time=span.end_ns)
        return started


class _Hush(logging.Filter):
    """Drops what the libraries log in the thread that makes it, and keeps `hint`, why a request failed."""

    def __init__(self) -> None:
        super().__init__()
        self.hint: str | None = None
        self._thread = threading.get_ident()
        self._covered: list[logging.Logger] = []
        self.cover()

    def cover(self) -> None:
        """Attach to all loggers that the libraries have by now: a filter does not reach child loggers."""
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if isinstance(logger, logging.Logger) and name.partition(".")[0] in _LIBRARIES:
                logger.addFilter(self)  # once, however often it is added
                self._covered.append(logger)

    def lift(self) -> None:
        for logger in self._covered:
            logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if threading.get_ident() != self._thread:
            return True
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, Exception):
                self.hint = f"no connection ({type(value).__name__})"
            elif type(value).__name__ == "StatusCode" or (isinstance(value, int) and 400 <= value < 600):
                self.hint = f"status {getattr(value, 'name', value)}"
        return False
