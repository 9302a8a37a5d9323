"""Send one GET over a connection and read its answer with h11, strictly and within limits."""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import h11

from ..clock import left
from ..resources.url import REDIRECTS, Target
from .safe_open import MAX_FILE_BYTES

MAX_BODY = MAX_FILE_BYTES  # as sent, and as unpacked
MAX_HEAD: Final = 65_536  # several times what servers and browsers keep to
MAX_HEADERS: Final = 200
MAX_INTERIM: Final = 16

_HEADERS: Final = (
    ("User-Agent", "tachograph"), ("Accept", "*/*"), ("Accept-Encoding", "gzip, identity"), ("Connection", "close"),
)  # fmt: skip
_REFUSED: Final = re.compile(rb"\n[ \t]|\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ZEROS: Final = re.compile(rb"\0*")
_GZIP: Final = 31  # as zlib counts windows
_PIECE: Final = 16_384


@contextmanager
def waiting(connection: socket.socket, deadline: int, failure: str) -> Iterator[None]:
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


class Exchange:
    """One request and its answer. Each wait is bounded by the deadline, and all bytes that come by limits.

    What is not body (`_framing`) may hold no folded line, bare carriage return or control character, which h11
    lets pass: where readers differ about an answer, another can be smuggled inside it.
    """

    def __init__(self, connection: socket.socket, deadline: int) -> None:
        self._connection, self._deadline = connection, deadline
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._framing = bytearray()
        self._room = 8 * MAX_BODY + 16 * MAX_HEAD  # bytes that may still come, with those of the framing

    def send(self, target: Target) -> None:
        """Send the request."""
        host, path = target.origin.partition("://")[2], target.url.removeprefix(target.origin)
        request = h11.Request(method="GET", target=path, headers=[("Host", host), *_HEADERS])
        sent = self._parser.send(request) or b""
        with waiting(self._connection, self._deadline, "connection lost"):
            self._connection.sendall(sent)
        self._parser.send(h11.EndOfMessage())

    def read(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers by name in lower case, and the body, unpacked; none that nobody would read."""
        status, headers = self._head()
        is_skipped = (status in REDIRECTS and "location" in headers) or status == 429 or status >= 500
        if is_skipped or status in (204, 304):  # those two never have a body
            return status, headers, b""
        _check_size(int(headers.get("content-length", 0)))
        sent = bytearray()
        while isinstance(event := self._event(), h11.Data):
            sent += event.data
            _check_size(len(sent))
        encoding = headers.get("content-encoding", "").lower()
        if not sent or encoding in ("", "identity"):
            return status, headers, bytes(sent)
        if encoding not in ("gzip", "x-gzip"):
            raise OSError("unsupported content encoding")
        return status, headers, _unpacked(bytes(sent))

    def _head(self) -> tuple[int, dict[str, str]]:
        """Return status and headers of the answer behind the interim ones."""
        for _ in range(MAX_INTERIM + 1):
            event = self._event()
            if not event.http_version.startswith(b"1."):
                raise ConnectionError("malformed response")
            if isinstance(event, h11.Response):
                return event.status_code, _by_name(event.headers)
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


def _check_size(size: int) -> None:
    if size > MAX_BODY:
        raise OSError("response too large")


def _by_name(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
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


def _unpacked(body: bytes) -> bytes:
    """Unpack one or several gzip members, with zeros behind, piece by piece and within the limit."""
    out, at, view = bytearray(), 0, memoryview(body)
    while at < len(body):
        inflater = zlib.decompressobj(_GZIP)
        while not inflater.eof:
            if at == len(body):
                raise ConnectionError("response truncated")
            piece = view[at : at + _PIECE]
            try:
                out += inflater.decompress(piece, MAX_BODY + 1 - len(out))
            except zlib.error:
                raise ConnectionError("malformed response") from None
            _check_size(len(out))
            at += len(piece) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
        zeros = _ZEROS.match(body, at)
        at = zeros.end() if zeros else at
    return bytes(out)
