"""Sends the spans of a recorded run to an OTLP receiver: the same ids every time, whole, within a time.

Nothing of the environment takes part, save that OpenSSL looks for its roots where SSL_CERT_FILE and
SSL_CERT_DIR say. What a receiver answers is untrusted text, cut short and without the headers that were sent.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..fail.errors import InputError
from ..runtime.core.clock import SystemClock, epoch_ns
from ..runtime.formats.escape import truncate
from . import otlp_json
from .endpoint import GRPC, HTTP, JSON, target
from .export import Accepted, Connection, Headers, NotDelivered, load_exporter
from .spans import Span

PROTOCOLS: Final = (GRPC, HTTP, JSON)
BATCH_BYTES: Final = 3_000_000  # of OTLP/JSON, which protobuf never exceeds; receivers take 4 MB by default
MAX_WORDS: Final = 300
_OURS: Final = ("content-type", "content-length", "content-encoding", "host", "user-agent", "te")
_OURS_TOO: Final = ("connection", "transfer-encoding", "expect", "trailer", "upgrade")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class Receipt(NamedTuple):
    """What became of one trace: its spans, the requests that it took, the spans refused, the receiver's words."""

    spans: int
    requests: int
    rejected: int
    message: str


def batches(spans: Sequence[Span], limit: int) -> Iterator[list[Span]]:
    """Split the spans into pieces of at most `limit` bytes of OTLP/JSON, parents before their children.

    A span that is larger by itself goes alone.
    """
    piece: list[Span] = []
    size = 0
    for span in [*spans[-1:], *spans[:-1]]:  # the root comes last in a trace, and each other parent first
        length = len(otlp_json.span_text(span).encode("utf-8")) + 2
        if piece and size + length > limit:
            yield piece
            piece, size = [], 0
        piece.append(span)
        size += length
    if piece:
        yield piece


class Sender:
    """Sends traces to one receiver; `shown` is its address for people.

    Args:
        endpoint: an address as `tracing.endpoint` reads it.
        protocol: one of PROTOCOLS; None means gRPC at a grpc(s) address and protobuf over HTTP at an http(s) one.
        headers: names and values sent with each request.
        timeout_s: how long one trace may take, repeats included.

    Raises InputError.
    """

    def __init__(
        self, endpoint: str, *, protocol: str | None = None, headers: Headers = (), timeout_s: float = 30.0
    ) -> None:
        self._target = target(endpoint, protocol, known=PROTOCOLS, credentials="a header (--header)")
        self.shown = self._target.shown
        if not 0 < timeout_s <= 86_400:
            raise InputError(
                "the timeout must be above 0 and at most 86400 seconds",
                remedy="give a number such as 30",
            )
        self.protocol = GRPC if self._target.grpc else protocol or HTTP
        self._headers = _checked(headers, self._target.grpc)
        self._timeout_s = timeout_s
        try:
            load_exporter(grpc=self._target.grpc)
        except ValueError as error:
            raise InputError(
                f"the OpenTelemetry SDK cannot read a variable: {error}", remedy="unset it, or correct it"
            ) from None

    def send(self, spans: Sequence[Span], document: bytes | None = None) -> Receipt:
        """Send one trace. `document` is its `trace.json`: what is sent as http/json where it fits one request.

        Raises NotDelivered; then the receiver may have a part of the trace, and sending it again is no harm.
        """
        # in a thread of its own: no look-up of a name and no slow peer outlasts the time
        box: queue.SimpleQueue[Receipt | Exception] = queue.SimpleQueue()
        work = threading.Thread(
            target=self._work, args=(box, spans, document), name="tachograph-push", daemon=True
        )
        work.start()
        try:
            outcome = box.get(timeout=self._timeout_s)
        except queue.Empty:
            raise NotDelivered(f"no answer within {self._timeout_s:g} s") from None
        if isinstance(outcome, NotDelivered):
            raise NotDelivered(outcome.reason, self._without_secrets(outcome.words)) from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _work(
        self, box: queue.SimpleQueue[Receipt | Exception], spans: Sequence[Span], document: bytes | None
    ) -> None:
        connection = None
        try:
            connection = Connection(self._target, self.protocol, self._timeout_s, self._headers)
            answers = [connection.export(piece, body) for piece, body in self._requests(spans, document)]
            box.put(self._receipt(spans, answers))
        except Exception as error:  # noqa: BLE001 - raised again by `send`
            box.put(error)
        finally:
            if connection is not None:
                connection.close()
                connection.restore_logging()

    def _requests(
        self, spans: Sequence[Span], document: bytes | None
    ) -> Iterator[tuple[Sequence[Span], bytes | None]]:
        if self.protocol == JSON:
            data = otlp_json.document(spans) if document is None else document
            if len(data) <= BATCH_BYTES:
                yield spans, data
                return
        for piece in batches(spans, BATCH_BYTES):
            yield piece, otlp_json.document(piece) if self.protocol == JSON else None

    def _receipt(self, spans: Sequence[Span], answers: list[Accepted]) -> Receipt:
        message = next((answer.message for answer in answers if answer.message), "")
        rejected = min(sum(answer.rejected for answer in answers), len(spans))
        return Receipt(len(spans), len(answers), rejected, self._without_secrets(message))

    def _without_secrets(self, text: str) -> str:
        """Return words of the receiver's, on one line, cut short, without what it was sent in headers."""
        for name, value in self._headers:
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= 4:
                    text = text.replace(secret, f"({name})")
        return truncate(" ".join(text.split()), MAX_WORDS)


def _checked(headers: Headers, grpc: bool) -> list[tuple[str, str]]:
    """Return the headers as they are sent. Raises InputError, which holds no value."""
    checked = []
    for name, value in headers:
        known = name.lower() in (*_OURS, *_OURS_TOO) or (grpc and name.lower().startswith(("grpc-", ":")))
        if not _NAME.fullmatch(name) or known or (grpc and name.lower().endswith("-bin")):
            raise InputError(f"the header {name[:40]!r} cannot be set", remedy="write --header NAME=VALUE")
        if not _VALUE.fullmatch(value):
            raise InputError(
                f"the value of the header {name[:40]!r} is not printable ASCII",
                remedy="write --header NAME=VALUE",
            )
        checked.append((name.lower() if grpc else name, value))
    return checked


def now_ns() -> int:
    """Return the wall clock's time in nanoseconds since 1970."""
    return epoch_ns(SystemClock().start)
