"""Sends the spans of a recorded run to an OTLP receiver: the same ids every time, whole, within a time.

Nothing of the environment takes part: no OTEL_* variable, no proxy, no netrc; save that OpenSSL looks for its
roots where SSL_CERT_FILE and SSL_CERT_DIR say, for gRPC too. What a receiver answers is foreign text, cut
short and without the headers that were sent to it.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from ..fail.errors import InputError, TachographError
from ..runtime.core.clock import SystemClock, epoch_ns, nap, stopwatch
from . import otlp_json, otlp_proto
from .endpoint import GRPC, HTTP, JSON, target
from .spans import Span

PROTOCOLS: Final = (GRPC, HTTP, JSON)
BATCH_BYTES: Final = 3_000_000  # of OTLP/JSON, which protobuf never exceeds; receivers take 4 MB by default
MAX_ANSWER: Final = 65_536
MAX_WORDS: Final = 300
CONNECTS: Final = 3  # how often a receiver that is not there is tried
WAITS_S: Final = (0.5, 1.0, 2.0, 4.0, 5.0)
_TRANSIENT: Final = (429, 502, 503, 504)
_GRPC_TRANSIENT: Final = "CANCELLED DEADLINE_EXCEEDED ABORTED OUT_OF_RANGE UNAVAILABLE DATA_LOSS".split()
_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_OURS: Final = ("content-type", "content-length", "content-encoding", "host", "user-agent", "te")
_OURS_TOO: Final = ("connection", "transfer-encoding", "expect", "trailer", "upgrade")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")

Headers = Sequence[tuple[str, str]]


class NotDelivered(TachographError):
    """A receiver did not take spans. `why` may hold words of the receiver's: foreign text."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Receipt(NamedTuple):
    """What became of one trace: its spans, the requests that it took, the spans refused, the receiver's words."""

    spans: int
    requests: int
    rejected: int
    message: str


class _Answer(NamedTuple):
    """One answer. `accepted` None: refused, with `why`; `again`: worth another try, after `wait_s` if it says so."""

    accepted: otlp_proto.Accepted | None
    why: str = ""
    again: bool = False
    wait_s: float | None = None
    absent: bool = False  # nobody was there to answer


def batches(spans: Sequence[Span], limit: int) -> Iterator[list[Span]]:
    """The spans in pieces of at most `limit` bytes of OTLP/JSON, parents before their children.

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

    `endpoint` is as `tracing.endpoint` reads it; `protocol` one of PROTOCOLS, or None for gRPC at a grpc(s)
    address and protobuf over HTTP at an http(s) one. `timeout_s` is what one trace may take, repeats included.
    Raises InputError.
    """

    def __init__(
        self, endpoint: str, *, protocol: str | None = None, headers: Headers = (), timeout_s: float = 30.0
    ) -> None:
        self._grpc, self._url, self.shown = target(
            endpoint, protocol, known=PROTOCOLS, credentials="a header (--header)"
        )
        if not 0 < timeout_s <= 86_400:
            raise InputError("the time-out is no time", remedy="give seconds, such as 30")
        self.protocol = GRPC if self._grpc else protocol or HTTP
        self._headers = _checked(headers, self._grpc)
        self._timeout_s = timeout_s
        self._channel: Any = None
        if self.protocol != JSON:
            _needs(self._grpc)

    def send(self, spans: Sequence[Span], document: bytes | None = None) -> Receipt:
        """Send one trace. `document` is its `trace.json`: what is sent as http/json where it fits one request.

        Raises NotDelivered; then the receiver may have a part of the trace, and sending it again is no harm.
        """
        limit = stopwatch() + self._timeout_s
        requests = rejected = 0
        message = ""
        for body, count in self._bodies(spans, document):
            taken = self._patiently(body, limit)
            requests += 1
            rejected += min(taken.rejected, count)
            message = message or self._foreign(taken.message)
        return Receipt(len(spans), requests, rejected, message)

    def _bodies(self, spans: Sequence[Span], document: bytes | None) -> Iterator[tuple[bytes, int]]:
        """What is sent, request by request, and how many spans are in it."""
        if self.protocol == JSON:
            data = otlp_json.document(spans) if document is None else document
            if len(data) <= BATCH_BYTES:
                yield data, len(spans)
                return
        encode = otlp_json.document if self.protocol == JSON else otlp_proto.request
        for piece in batches(spans, BATCH_BYTES):
            yield encode(piece), len(piece)

    def close(self) -> None:
        """Let go of the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # ---- one request, until it is taken or the time is up ------------------------------------------------

    def _patiently(self, body: bytes, limit: float) -> otlp_proto.Accepted:
        tries = absent = 0
        while True:
            answer = self._once(body, limit - stopwatch())
            if answer.accepted is not None:
                return answer.accepted
            absent = absent + 1 if answer.absent else 0
            if not answer.again or absent >= CONNECTS:
                raise NotDelivered(answer.why)
            wait = max(WAITS_S[min(tries, len(WAITS_S) - 1)], answer.wait_s or 0)
            tries += 1
            if stopwatch() + wait >= limit:
                asked = f", asked to wait {answer.wait_s:g} s" if answer.wait_s else ""
                often = "one try" if tries == 1 else f"{tries} tries"
                raise NotDelivered(f"{answer.why}{asked}; no time is left after {often}")
            nap(wait)

    def _once(self, body: bytes, left: float) -> _Answer:
        stop: list[Callable[[], object]] = []  # what ends the request from outside

        def act() -> _Answer:
            return self._call(body, left) if self._grpc else self._post(body, left, stop)

        try:
            return _within(left, act)
        except TimeoutError:
            for end in stop:
                with suppress(OSError, AttributeError):  # it may be gone by now
                    end()
            return _Answer(None, f"no answer within {self._timeout_s:g} s")

    def _post(self, body: bytes, left: float, stop: list[Callable[[], object]]) -> _Answer:
        import http.client
        import ssl

        parts = urlsplit(self._url)
        host = parts.hostname or ""
        place = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
        place += f"?{quote(parts.query, safe='/?%:@!$&()*+,;=~-._')}" if parts.query else ""
        connection = (
            http.client.HTTPSConnection(host, parts.port, timeout=left, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=left)
        )
        kind = "application/json" if self.protocol == JSON else "application/x-protobuf"
        headers = {"Content-Type": kind, "User-Agent": "tachograph", "Connection": "close"}
        try:
            connection.connect()
        except ssl.SSLError as error:
            connection.close()
            return _Answer(None, f"no secure connection ({type(error).__name__})")
        except TimeoutError:
            raise
        except (OSError, UnicodeError) as error:
            return _Answer(None, f"no connection ({type(error).__name__})", again=True, absent=True)
        stop.append(lambda: connection.sock.shutdown(2))
        try:
            connection.request("POST", place, body, {**headers, **dict(self._headers)})
            response = connection.getresponse()
            data = response.read(MAX_ANSWER)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            hint = "; is it a gRPC port?" if type(error) is http.client.BadStatusLine else ""
            why = f"the connection broke ({type(error).__name__}){hint}"
            return _Answer(None, why, again=not hint, absent=True)
        finally:
            connection.close()
        return self._judged(response.status, response.headers, data)

    def _judged(self, status: int, headers: Any, data: bytes) -> _Answer:
        kind = headers.get("content-type") or ""
        if 200 <= status < 300:
            accepted = otlp_proto.read_answer(data, kind)
            why = f"status {status}, but the answer is none of an OTLP receiver; is the path right?"
            return _Answer(accepted, "" if accepted else why)
        words = self._foreign(otlp_proto.read_error(data, kind))
        why = f"status {status}" + (f": {words}" if words else "")
        if status == 415 and self.protocol == JSON:
            why += f"; try --protocol {HTTP}"
        if 300 <= status < 400:
            why += "; it points elsewhere, which is not followed"
        wait = _seconds(headers.get("retry-after") or "")
        return _Answer(None, why, again=status in _TRANSIENT, wait_s=wait)

    def _call(self, body: bytes, left: float) -> _Answer:
        import grpc

        if self._channel is None:
            self._channel = _channel(self._url)
        began = stopwatch()
        try:
            data = self._channel.unary_unary(_METHOD)(body, timeout=left, metadata=self._headers)
        except grpc.RpcError as error:
            name, details = error.code().name, error.details() or ""
            if name == "DEADLINE_EXCEEDED" and stopwatch() - began > 0.95 * left:
                raise TimeoutError from None
            wait = _retry_info(error.trailing_metadata() or ())
            absent = name == "UNAVAILABLE" and details.startswith(("failed to connect", "DNS resolution"))
            words = "" if absent else self._foreign(details)
            why = "no connection" if absent else f"status {name}" + (f": {words}" if words else "")
            again = name in _GRPC_TRANSIENT or (name == "RESOURCE_EXHAUSTED" and wait is not None)
            return _Answer(None, why, again=again, wait_s=wait, absent=absent)
        accepted = otlp_proto.read_answer(data, "application/x-protobuf")
        return _Answer(accepted, "" if accepted else "the answer is none of an OTLP receiver")

    def _foreign(self, text: str) -> str:
        """Words of the receiver's, on one line, cut short, without what it was sent in headers."""
        for name, value in self._headers:
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= 4:
                    text = text.replace(secret, f"({name})")
        line = " ".join(text.split())
        return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"


def _within(seconds: float, act: Callable[[], _Answer]) -> _Answer:
    """What `act` gives, in a thread of its own: no look-up of a name and no slow peer outlasts the time."""
    box: queue.SimpleQueue[_Answer | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            box.put(act())
        except BaseException as error:  # noqa: BLE001 - raised again below
            box.put(error)

    if seconds <= 0:
        raise TimeoutError
    threading.Thread(target=work, name="tachograph-push", daemon=True).start()
    try:
        found = box.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(found, BaseException):
        raise found
    return found


def _checked(headers: Headers, grpc: bool) -> list[tuple[str, str]]:
    """Headers as they are sent. Raises InputError, which holds no value."""
    made = []
    for name, value in headers:
        known = name.lower() in (*_OURS, *_OURS_TOO) or (grpc and name.lower().startswith(("grpc-", ":")))
        if not _NAME.fullmatch(name) or known or (grpc and name.lower().endswith("-bin")):
            raise InputError(f"the header {name[:40]!r} cannot be set", remedy="write --header NAME=VALUE")
        if not _VALUE.fullmatch(value):
            raise InputError(
                f"the value of the header {name[:40]!r} is no plain text", remedy="write --header NAME=VALUE"
            )
        made.append((name.lower() if grpc else name, value))
    return made


def _needs(grpc: bool) -> None:
    import importlib

    try:
        importlib.import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        if grpc:
            importlib.import_module("grpc")
    except ImportError as error:
        remedy = "pip install opentelemetry-exporter-otlp, or use --protocol http/json"
        raise InputError(f"traces need a missing package ({error.name})", remedy=remedy) from None


def _channel(url: str) -> Any:
    import grpc

    parts = urlsplit(url)
    options = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", MAX_ANSWER),
        ("grpc.primary_user_agent", "tachograph"),
    ]
    if parts.scheme == "http":
        return grpc.insecure_channel(parts.netloc, options)
    import ssl

    file = ssl.get_default_verify_paths().cafile
    roots = None
    with suppress(OSError):
        if file is not None:
            with open(file, "rb") as stream:
                roots = stream.read()
    return grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(roots), options)


def _seconds(retry_after: str) -> float | None:
    """`Retry-After` in seconds: a number, or a date less the time now."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(when - now_ns() / 1e9, 0.0)


def _retry_info(metadata: Sequence[tuple[str, Any]]) -> float | None:
    """How long a gRPC receiver asks to wait, where it does."""
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    info = error_details_pb2.RetryInfo()
    for key, value in metadata:
        with suppress(DecodeError, TypeError):
            if key == "google.rpc.retryinfo-bin":
                info.ParseFromString(value)
            elif key == "grpc-status-details-bin":
                for part in status_pb2.Status.FromString(value).details:
                    part.Unpack(info)
    delay: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return delay if delay > 0 else None


def now_ns() -> int:
    """Nanoseconds since 1970, of the wall clock."""
    return epoch_ns(SystemClock().start)
