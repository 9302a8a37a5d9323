"""Make one call to a service, limited in time and size, and hand on visible text as it arrives.

The SDK works in a thread of its own, so that nothing in it (a name that does not resolve, headers that
trickle) outlasts the deadline, and an interrupt reaches the caller at once.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ....fail.errors import InvalidModelOutput, ModelError
from ...core.stopping import STOPPING
from ..types import LLMOutput
from .failures import Answered, Cut, Refused, failure_of, retry_after_ms

MAX_BYTES: Final = 32 * 2**20
_KEPT_HEADERS: Final = ("retry-after", "retry-after-ms", "date", "x-should-retry")
_TEXT, _DONE, _FAILED, _STOPPED = "text", "done", "failed", "stopped"
_UNREAD: Final = (ValueError, InvalidModelOutput)
_PARTING_S: Final = 0.2  # a worker that is not stuck needs far less to end


JsonObject = dict[str, Any]
"""An object of JSON that a service is sent or has answered with; only its own documentation gives its keys."""

OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to speak with any provider; `open_model` has them as parameters.

    Attributes:
        on_text: Called with each piece of visible text.
        timeout_s: Seconds to wait for the next bytes.
        total_s: Seconds for a whole reply.
        max_tokens: Tokens that a reply may have.
        stream: Whether replies are streamed; None for those to whose text somebody listens.
        extra: Sent with each request.
    """

    on_text: OnText | None
    timeout_s: float
    total_s: float
    max_tokens: int
    stream: bool | None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Gather(Protocol):
    """What puts a streamed reply together. `begun`: some of it has come; `done`: the stream is complete."""

    begun: bool
    done: bool

    def feed(self, event: str, data: str) -> str:
        """Take the next event and return the visible text in it, if any."""

    def message(self) -> JsonObject:
        """Return the reply as the service sends it unstreamed. Raises Cut unless it is whole."""


class Call:
    """A call under way. `run` is the caller's side; `hooks`, `say` and `begun` are for the worker."""

    def __init__(self, options: Options, host: str, on_text: OnText | None = None) -> None:
        self._options = options
        self._listeners = [each for each in (options.on_text, on_text) if each is not None]
        self._host = host
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._connection: socket.socket | None = None
        self._answered: Answered | None = None
        self._refused: str | None = None
        self._received = 0
        self.begun = False
        self.streams = False

    def run(self, work: Callable[[], LLMOutput]) -> LLMOutput:
        """Run `work` in a thread and return its outcome by the deadline, or raise an error of ours.

        Raises Cancelled where the run that waits for it is stopped first.
        """
        deadline = time.monotonic() + self._options.total_s
        worker = threading.Thread(target=self._work, args=(work,), name="tachograph-model", daemon=True)
        worker.start()
        stopping = STOPPING.get()
        forget = None if stopping is None else stopping.on_cancel(lambda: self._events.put((_STOPPED, None)))
        try:
            while (left := deadline - time.monotonic()) > 0:
                if stopping is not None and (stopped := stopping.stopped()) is not None:
                    raise stopped
                again = None if stopping is None else stopping.wait_s()
                try:
                    kind, value = self._events.get(timeout=left if again is None else min(left, again))
                except queue.Empty:
                    continue
                if kind == _DONE:
                    return value  # type: ignore[no-any-return]
                if kind == _FAILED:
                    raise value
                if kind == _TEXT:
                    self._show(value)
        finally:
            self._abandon()
            worker.join(_PARTING_S)
            if forget is not None:
                forget()
        raise self._out_of_time()

    def _out_of_time(self) -> Exception:
        if self.begun:
            return ModelError(f"{self._host} broke off in the middle of a reply: out of time")
        return TimeoutError(f"{self._host} gave no reply within {self._options.total_s:g} s")

    def _show(self, text: str) -> None:
        for listener in self._listeners:
            try:
                listener(text)
            except Exception as error:
                raise ModelError(f"on_text raised {type(error).__name__}") from error

    def _abandon(self) -> None:
        """Let the worker end soon, wherever it is; after a finished call this changes nothing."""
        self._over.set()
        self._hang_up()

    def _hang_up(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _work(self, work: Callable[[], LLMOutput]) -> None:
        try:
            self._events.put((_DONE, work()))
        except BaseException as error:  # noqa: BLE001 - becomes a failure of ours, raised by the caller's side
            self._events.put((_FAILED, self._failure(error)))

    def _failure(self, error: BaseException) -> Exception:
        if self._refused is not None:
            error = Refused(self._refused)
        elif self._answered is not None and self._received == 0 and isinstance(error, _UNREAD):
            error = Cut()  # an unreadable answer without a body counts as none
        return failure_of(error, self._answered, self._host, self.begun)

    def say(self, text: str) -> None:
        """Hand visible text on, if anybody listens."""
        if text and self._listeners:
            self._events.put((_TEXT, shown(text)))

    def take(self, gather: Gather, event: str, data: str) -> None:
        """Take the next event of a streamed reply."""
        text = gather.feed(event, data)
        self.begun = self.begun or gather.begun
        self.say(text)

    def hooks(self, own_headers: Callable[[Any], None]) -> dict[str, list[Callable[[Any], None]]]:
        """Return what the HTTP client calls before a request and after the head of its answer."""
        return {"request": [self._asking, own_headers], "response": [self.answering]}

    def _asking(self, request: Any) -> None:
        request.extensions = {**request.extensions, "trace": self._trace}

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        """Learn the connection as soon as there is one, so that it can be closed under a worker that waits."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._connection = info["return_value"].get_extra_info("socket")
            if self._over.is_set():
                self._hang_up()

    def answering(self, response: Any) -> None:
        """Take note of the head of an answer, and bound its body."""
        headers = response.headers
        self._answered = Answered(
            response.status_code,
            retry_after_ms({name: headers[name] for name in _KEPT_HEADERS if name in headers}, time.time()),
            headers.get("x-should-retry") != "false",
        )
        self.streams = headers.get("content-type", "").split(";")[0].strip().lower() == "text/event-stream"
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            self._refuse("compressed, which was not asked for")
        response.stream = self._bounded(response.stream)

    def _bounded(self, stream: Any) -> Any:
        return _bounded(stream, self._count)

    def _count(self, size: int) -> None:
        self._received += size
        if self._over.is_set():
            self._refuse("no longer waited for")
        if self._received > MAX_BYTES:
            self._refuse(f"larger than {MAX_BYTES} bytes")

    def _refuse(self, reason: str) -> None:
        self._refused = reason  # the SDKs wrap what is raised inside them
        raise Refused(reason)


def _bounded(stream: Any, count: Callable[[int], None]) -> Any:
    """Return `stream` with its bytes counted as they come, as a subclass of the HTTP library's own stream."""
    base = next(cls for cls in type(stream).__mro__ if cls.__name__ == "SyncByteStream")

    class Bounded(base):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[bytes]:
            for chunk in stream:
                count(len(chunk))
                yield chunk

        def close(self) -> None:
            stream.close()

    return Bounded()


def read(response: Any, gather: Gather, call: Call) -> JsonObject:
    """Read the reply from an SDK's raw response, streamed or in one piece, whatever was asked for."""
    if not call.streams:
        return parsed(response.read())
    for event, data in events(response.iter_bytes()):
        call.take(gather, event, data)
        if gather.done:
            break
    return gather.message()


def shown(text: str) -> str:
    """Return a text that a terminal can show: without half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


def parsed(text: str | bytes) -> JsonObject:
    """Parse a JSON object of the service. Raises InvalidModelOutput for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidModelOutput("the reply is no JSON") from None
    if not isinstance(value, dict):
        raise InvalidModelOutput("the reply is no JSON object")
    return value


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the server-sent events in `chunks` as (event, data), without one that was cut off."""
    reader = EventReader()
    for chunk in chunks:
        yield from reader.feed(chunk)


class EventReader:
    """Reads server-sent events from chunks of a stream.

    Lines end at a line feed alone: in JSON text other separators are ordinary characters.
    """

    def __init__(self) -> None:
        self._event = ""
        self._data: list[str] = []
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Take the next chunk and yield the events that it completes, as (event, data)."""
        for line in self._lines(chunk):
            if not line:
                if self._data:
                    yield self._event, "\n".join(self._data)
                self._event, self._data = "", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                self._data.append(value)
            elif field == "event":
                self._event = value

    def _lines(self, chunk: bytes) -> Iterator[str]:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            self._begun.append(line)
            try:
                yield b"".join(self._begun).removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError:
                raise InvalidModelOutput("the reply is no UTF-8") from None
            self._begun = []
        self._begun.append(rest)
