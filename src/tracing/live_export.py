"""Send the spans of a run to an OTLP receiver while it goes on: those of a step at its end, the root at the end.

Steps during which an agent is at work in the background are sent when it has ended.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Self

from ..fail.errors import InputError, warn
from ..runtime.log.addresses import place_of
from ..runtime.log.events import AgentEnded, AgentStarted, Event, RunEnded, RunStarted, StepEnded
from ..runtime.log.steps import steps_of
from .push import check_endpoint, push
from .spans import Span, spans_of
from .viewers import for_viewers

_PATIENCE_S = 1.0  # beyond the time that the receiver has for what is under way


class LiveExport:
    """A listener of a run, from its first line on; to be used as a context manager.

    A receiver that takes no spans is told of once, by the logger `tachograph`; the run goes on, and its trace has them
    all. Leaving waits until what has not been sent is sent, for as long as one request may take.

    Args:
        endpoint: The URL of the receiver, such as `http://127.0.0.1:4318/v1/traces`.
        headers: HTTP headers, such as a key.
        timeout_s: Seconds in which the receiver has to take the spans of a step, retries included.

    Raises:
        InputError: The address is none of a receiver.
    """

    def __init__(
        self, endpoint: str, headers: Mapping[str, str] | None = None, *, timeout_s: float = 10
    ) -> None:
        check_endpoint(endpoint)
        self._endpoint, self._headers, self._timeout_s = endpoint, headers, timeout_s
        self._events: list[Event] = []
        self._step: list[Event] = []  # lines of the step under way
        self._began = 0  # when it began, in nanoseconds since the run did
        self._open = 0  # agents that calls have started
        self._sent: set[str] = set()
        self._waiting: queue.SimpleQueue[Sequence[Span] | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, name="tachograph-export", daemon=True)

    def __enter__(self) -> Self:
        self._sender.start()
        return self

    def __call__(self, event: Event) -> None:
        """Take the next line of the log."""
        self._events.append(event)
        self._step.append(event)
        if isinstance(event, RunEnded):
            self._put(spans_of(self._events))
        self._open += isinstance(event, AgentStarted) - isinstance(event, AgentEnded)
        if isinstance(event, StepEnded) and not place_of(event.at) and not self._open:
            # the step alone, since a long run has many
            head, steps = self._events[0], steps_of(self._step, self._began)
            assert isinstance(head, RunStarted)
            *spans, _ = spans_of([head, RunEnded(at="end", ending="", sha256="")], steps)
            self._put(spans)
            self._step, self._began = [], steps[-1].ended

    def _put(self, spans: Sequence[Span]) -> None:
        self._waiting.put([span for span in for_viewers(spans) if span.span_id not in self._sent])
        self._sent.update(span.span_id for span in spans)

    def _send(self) -> None:
        while (spans := self._waiting.get()) is not None:
            try:
                push(spans, self._endpoint, self._headers, self._timeout_s)
            except InputError as error:
                warn("%s; no more spans of this run are sent", error)
                return

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._sender.join(self._timeout_s + _PATIENCE_S)
        if self._sender.is_alive():
            warn("%s: some spans were not sent in time", self._endpoint)
