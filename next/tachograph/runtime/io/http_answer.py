"""Send one GET over a connection and read its answer with h11, strictly and within limits."""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import h11
from msgspec import Struct

from ..clock import monotonic_ns
from ..resources.redirects import REDIRECTS

MAX_HEAD: Final = 65_536  # several times what servers and browsers keep to
MAX_HEADERS: Final = 200
MAX_INTERIM: Final = 16

_HEADERS: Final = (
    ("User-Agent", "tachograph"), ("Accept", "*/*"), ("Accept-Encoding", "gzip, identity"), ("Connection", "close"),
)  # fmt: skip
_REFUSED: Final = re.compile(rb"\n[ \t]|\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ZEROS: Final = re.compile(rb"\0*")
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # as zlib counts them
_PIECE: Final = 16_384


class Response(Struct, frozen=True):
    """A complete answer.

    Attributes:
        status: The status code.
        headers: Names in lower case -> values as sent, repeats joined by ", ".
        body: The body, decoded.
    """

    status: int
    headers: dict[str, str]
    body: bytes


def left(deadline: float) -> float:
    """Return the seconds until `deadline`, more than zero. Raises TimeoutError when there are none."""
    if (left := deadline - monotonic_ns() / 1e9) > 0:
        return left
    raise TimeoutError("request timed out")


@contextmanager
def waiting(connection: socket.socket, deadline: float, failure: str) -> Iterator[None]:
    """Bound one call that may wait on the socket by the deadline, and raise errors with our texts."""
    try:
        connection.settimeout(left(deadline))
        yield
    except TimeoutError:
        raise TimeoutError("request timed out") from None
    except ValueError:  # only a handshake raises it: the certificate is not trusted, or not that host's
        raise ConnectionError("certificate refused") from None
    except OSError:
        raise ConnectionError(failure) from None


class Answer:
    """One request and its answer. Each wait is bounded by `deadline`, all bytes that come by the limits of `read`.

    What is not body (`_framing`) may hold no folded line, bare carriage return or control character, which h11
    lets pass: where readers differ about an answer, another can be smuggled inside it.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._framing = bytearray()
        self._room = 0

    def send(self, target: str, host: str) -> None:
        """Send the request."""
        request = h11.Request(method="GET", target=target, headers=[("Host", host), *_HEADERS])
        sent = self._parser.send(request) or b""
        with waiting(self._connection, self._deadline, "connection lost"):
            self._connection.sendall(sent)
        self._parser.send(h11.EndOfMessage())

    def read(self, max_bytes: int, max_decoded_bytes: int) -> Response:
        """Return the answer, with its body decoded."""
        self._room = 8 * max_bytes + 16 * MAX_HEAD  # room for framing, but not any
        status, headers = self._head()
        if status in (204, 304):  # those two never have a body
            return Response(status, headers, b"")
        skipped = (status in REDIRECTS and "location" in headers) or status == 429 or status >= 500
        if skipped:
            return Response(status, headers, b"")  # nobody would read it
        if int(headers.get("content-length", 0)) > max_bytes:
            raise OSError("response too large")
        sent = bytearray()
        while isinstance(event := self._event(), h11.Data):
            sent += event.data
            if len(sent) > max_bytes:
                raise OSError("response too large")
        body = _decoded(bytes(sent), headers.get("content-encoding", "").lower(), max_decoded_bytes)
        if len(body) > max_decoded_bytes:
            raise OSError("response too large")
        return Response(status, headers, body)

    def _head(self) -> tuple[int, dict[str, str]]:
        """Return status and headers of the answer behind the interim ones."""
        for _ in range(MAX_INTERIM + 1):
            event = self._event()
            if not event.http_version.startswith(b"1."):
                raise ConnectionError("malformed response")
            if isinstance(event, h11.Response):
                return event.status_code, _headers(event.headers)
        raise OSError("too many interim answers")

    def _event(self) -> Any:
        """Return the next event of the answer, receiving as much as it takes."""
        event: Any = h11.NEED_DATA
        while event is h11.NEED_DATA:
            before = self._parser.trailing_data[0]
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as error:
                if error.error_status_hint == 431:
                    raise OSError("response head too large") from None
                raise ConnectionError("malformed response") from None
            used = len(before) - len(self._parser.trailing_data[0])
            self._framing += before[: used - len(getattr(event, "data", b""))]
            if event is h11.NEED_DATA:
                with waiting(self._connection, self._deadline, "connection lost"):
                    data = self._connection.recv(_PIECE)
                self._room -= len(data)
                if self._room < 0:
                    raise OSError("response too large")
                self._parser.receive_data(data)
        if not isinstance(event, h11.Data):
            if _REFUSED.search(self._framing):
                raise ConnectionError("malformed response")
            if len(event.headers) > MAX_HEADERS:  # an end of message has them too, as trailers
                raise OSError("too many response headers")
        return event


def _headers(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the values by lower-case name, repeats joined; a repeated location counts once."""
    headers: dict[str, list[str]] = {}
    for name, value in fields:
        headers.setdefault(name.decode("ascii"), []).append(value.decode("latin-1"))
    # readers differ about which of the two framings holds
    if "transfer-encoding" in headers and "content-length" in headers:
        raise ConnectionError("malformed response")
    if "location" in headers:
        headers["location"] = list(dict.fromkeys(headers["location"]))
    return {name: ", ".join(values) for name, values in headers.items()}


def _decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the body without its encoding, inflated no further than one byte past `limit`."""
    if not body or encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise OSError("unsupported content encoding")
    try:
        return _inflated(body, _WINDOWS[encoding], limit)
    except zlib.error:
        raise ConnectionError("malformed response") from None


def _inflated(body: bytes, window: int, limit: int) -> bytes:
    """Inflate one stream, or for gzip several, with zeros behind, piece by piece."""
    out, at, view = bytearray(), 0, memoryview(body)
    while at < len(body) and len(out) <= limit:
        if at and window == 15:
            raise ConnectionError("malformed response")
        inflater = zlib.decompressobj(window)
        while not inflater.eof and len(out) <= limit:
            if at == len(body):
                raise ConnectionError("response truncated")
            piece = view[at : at + _PIECE]
            out += inflater.decompress(piece, limit + 1 - len(out))
            at += len(piece) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
        if zeros := _ZEROS.match(body, at) if window != 15 else None:
            at = zeros.end()
    return bytes(out)
