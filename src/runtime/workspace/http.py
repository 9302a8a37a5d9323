"""One HTTP GET to one already decided target, connected to the very address that was checked.

No redirect is followed; no proxy, netrc or environment variable is read, save that OpenSSL looks for its roots
where SSL_CERT_FILE and SSL_CERT_DIR say. Every error is a builtin, or AddressRefused, with a short text of
ours: nothing a server sent is in it.
"""

from __future__ import annotations

import io
import ipaddress
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..resources.redirects import REDIRECTS

if TYPE_CHECKING:
    import ssl

MAX_LINE: Final = 65_536
MAX_HEADERS: Final = 200
MAX_INTERIM: Final = 16
HOSTS_FILE: Final = "/etc/hosts"
PORTS: Final = {"http": 80, "https": 443}
_FIXED: Final = (
    "\r\nUser-Agent: tachograph\r\nAccept: */*"
    "\r\nAccept-Encoding: gzip, identity\r\nConnection: close\r\n\r\n"
)

_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{0,252}[A-Za-z0-9:]")  # no final dot: a name has one spelling
_PATH: Final = re.compile(r"/[\x21\x22\x24-\x7e]{0,8191}")  # no fragment; the request fits one TLS record
_TEXT: Final = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_STATUS: Final = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: " + _TEXT + rb")?")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):(" + _TEXT + rb")")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;" + _TEXT + rb")?")
_LENGTH: Final = re.compile(rb"([0-9]{1,1000})(?:[ \t]*,[ \t]*\1)*")  # a repeat must agree
_ZEROS: Final = re.compile(rb"\0*")
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # as zlib counts them
_PIECE: Final = 16_384
Resolver = Callable[[str, int], list[str]]


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer: header names in lower case, values as sent, repeats joined by ", "; body decoded."""

    status: int
    headers: dict[str, str]
    body: bytes


class AddressRefused(PermissionError):
    """The target has an address that may not be connected to, or that is no plain address, or another peer.

    `address` is the address as it was asked about, else a text that is no address: no rule can allow it.
    """

    def __init__(self, address: str) -> None:
        self.address: Final = address[:128]
        super().__init__(f"address refused: {self.address!a}")


def get(
    scheme: str,
    host: str,
    port: int,
    path_and_query: str,
    *,
    allowed: Callable[[str], bool],
    timeout_s: float = 30.0,
    max_bytes: int = 8_000_000,
    max_decoded_bytes: int = 8_000_000,
    resolve: Resolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
    until: float | None = None,
) -> Response:
    """GET `path_and_query` from `host`, an ASCII name or a literal address, all of it within `timeout_s`.

    `until`, a moment of `later`, may end it sooner. A name is asked for as it stands, in no search domain.
    `allowed` is asked about every address, in canonical text, before anything is connected. `max_bytes`
    bounds the body as sent, `max_decoded_bytes` as returned; of a redirect, 429 or 5xx none is read.
    ValueError: a malformed argument, or a context that does not verify. ConnectionRefusedError: nothing was
    sent. TimeoutError. ConnectionError: reset, truncated, malformed, TLS. OSError: too large, or an encoding
    not asked for. AddressRefused.
    """
    literal = _check_target(scheme, host, port, path_and_query)
    if not 0 < timeout_s <= 86_400 or min(max_bytes, max_decoded_bytes) < 0:
        raise ValueError("a limit is out of range")
    deadline = later(timeout_s) if until is None else min(later(timeout_s), until)
    context = _tls_context(ssl_context) if scheme == "https" else None
    found = [host] if literal else _resolved(resolve, host, port, deadline)
    connection = _connected(_checked(found, allowed), port, deadline)
    try:
        if context is not None:
            with _waiting(connection, deadline, "TLS handshake failed"):
                # an end TLS did not announce may be someone else's cut: not the end of a body
                connection = context.wrap_socket(connection, server_hostname=host, suppress_ragged_eofs=False)
        where = (f"[{host}]" if ":" in host else host) + ("" if port == PORTS[scheme] else f":{port}")
        with _waiting(connection, deadline, "connection lost"):
            connection.sendall(f"GET {path_and_query} HTTP/1.1\r\nHost: {where}{_FIXED}".encode("ascii"))
        raw = _Wire(connection, deadline, 8 * max_bytes + 16 * MAX_LINE)  # room for framing, but not any
        return _response(io.BufferedReader(raw, MAX_LINE), max_bytes, max_decoded_bytes)
    finally:
        connection.close()


def later(seconds: float) -> float:
    """A moment by which several requests together are to be over: `until` of `get`."""
    return time.monotonic() + seconds


def _check_target(scheme: str, host: str, port: int, path: str) -> bool:
    """Whether `host` is a literal address; ValueError for anything that could not be sent as it stands."""
    if scheme not in PORTS or not 1 <= port <= 65_535:
        raise ValueError("not an http or https port")
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(path):
        raise ValueError("host or path has a character it may not have, or is too long")
    literal = ":" in host or host.replace(".", "").isdigit()
    if literal:
        ipaddress.ip_address(host)  # ValueError too: other ways to write a number are no names
    return literal


def _left(deadline: float) -> float:
    """Seconds until `deadline`, more than zero; TimeoutError when there are none."""
    if (left := deadline - time.monotonic()) > 0:
        return left
    raise TimeoutError("request timed out")


@contextmanager
def _waiting(connection: socket.socket, deadline: float, failure: str) -> Iterator[None]:
    """One call that may wait on the socket; what it raises gets our texts."""
    try:
        connection.settimeout(_left(deadline))
        yield
    except TimeoutError:
        raise TimeoutError("request timed out") from None
    except ValueError:  # only a handshake raises it: the certificate is not trusted, or not that host's
        raise ConnectionError("certificate refused") from None
    except OSError:
        raise ConnectionError(failure) from None


def _resolved(resolve: Resolver | None, host: str, port: int, deadline: float) -> list[str]:
    """The addresses of a name, asked for once; in a thread, as the system's resolver knows no deadline."""
    answer: list[str] = []

    def ask() -> None:
        with suppress(OSError, UnicodeError):
            answer[:] = _addresses(host.lower(), port) if resolve is None else resolve(host, port)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_left(deadline))
    if asking.is_alive():
        raise TimeoutError("name resolution timed out")
    if not answer:
        raise ConnectionRefusedError("name does not resolve")
    return answer


def _addresses(name: str, port: int) -> list[str]:
    """What the machine's table of hosts says of a name, else the resolver.

    The final dot makes the name absolute. Without it a resolver that finds nothing goes on to that name below
    its search domains, which is another name, and one that no policy allowed.
    """
    if listed := _listed(name):
        return listed
    if name == "localhost":
        return ["127.0.0.1", "::1"]
    found = socket.getaddrinfo(f"{name}.", port, type=socket.SOCK_STREAM)
    return [str(to[0]) for *_, to in found]


def _listed(name: str) -> list[str]:
    with suppress(OSError), open(HOSTS_FILE, encoding="ascii", errors="replace") as table:
        rows = [line.partition("#")[0].lower().split() for line in table]
        return [row[0] for row in rows if name in row[1:]]
    return []


def _canonical(text: str) -> str:
    """IPv4 dressed up as IPv6 is what it is: a rule for the one form is not evaded by the other."""
    if "%" in text:
        raise ValueError("a scope names an interface of this very machine")
    address = ipaddress.ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _checked(found: list[str], allowed: Callable[[str], bool]) -> list[str]:
    """The addresses in order, canonical, each once; AddressRefused unless every one of them is allowed."""
    addresses: dict[str, None] = {}
    for text in map(str, found):
        try:
            address = _canonical(text)
        except ValueError:
            raise AddressRefused(text) from None
        if not allowed(address):
            raise AddressRefused(address)
        addresses[address] = None
    return list(addresses)


def _connected(addresses: list[str], port: int, deadline: float) -> socket.socket:
    """A socket connected to the first address that answers; each gets an equal share of the time left."""
    timed_out = False
    for tried, address in enumerate(addresses):
        try:
            with ExitStack() as on_failure:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                connection = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
                connection.settimeout(_left(deadline) / (len(addresses) - tried))
                connection.connect((address, port))
                _check_peer(connection, address, port)
                on_failure.pop_all()
                return connection
        except AddressRefused:
            raise
        except OSError as error:
            timed_out = timed_out or isinstance(error, TimeoutError)
    raise TimeoutError("connect timed out") if timed_out else ConnectionRefusedError("connection refused")


def _check_peer(connection: socket.socket, address: str, port: int) -> None:
    host, at = connection.getpeername()[:2]
    with suppress(ValueError):
        if _canonical(host) == address and at == port:
            return
    raise AddressRefused(f"{host} port {at} instead of {address} port {port}")


def _tls_context(given: ssl.SSLContext | None) -> ssl.SSLContext:
    import ssl

    if given is None:  # as create_default_context, which however also obeys SSLKEYLOGFILE
        given = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        given.hostname_checks_common_name = False  # a name counts where it stands as a name
        given.load_default_certs()
    if given.verify_mode != ssl.CERT_REQUIRED or not given.check_hostname:
        raise ValueError("ssl_context must verify certificate and host name")
    return given


class _Wire(io.RawIOBase):
    """The receiving half of a connection: each wait is bounded by the deadline, the bytes by `room`."""

    def __init__(self, connection: socket.socket, deadline: float, room: int) -> None:
        self._connection, self._deadline, self._room = connection, deadline, room

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _waiting(self._connection, self._deadline, "connection lost"):
            count = self._connection.recv_into(buffer)
        self._room -= count
        if self._room < 0:
            raise OSError("response too large")
        return count


def _response(wire: io.BufferedReader, max_bytes: int, max_decoded_bytes: int) -> Response:
    status, headers = _head(wire)
    if status in (204, 304):  # those two never have a body
        return Response(status, headers, b"")
    if (status in REDIRECTS and "location" in headers) or status == 429 or status >= 500:
        return Response(status, headers, b"")  # nobody would read it
    sent = _body(wire, headers, max_bytes)
    body = _decoded(sent, headers.get("content-encoding", "").lower(), max_decoded_bytes)
    if len(body) > max_decoded_bytes:
        raise OSError("response too large")
    return Response(status, headers, body)


def _head(wire: io.BufferedReader) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer behind the interim ones."""
    for _ in range(MAX_INTERIM + 1):
        status = int(_parsed(_STATUS, _line(wire))[0])
        headers = _headers(wire)
        if status >= 200:
            return status, headers
        if status == 101:  # nobody asked for another protocol
            raise ConnectionError("malformed response")
    raise OSError("too many interim answers")


def _line(wire: io.BufferedReader) -> bytes:
    line = wire.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        raise OSError("response line too long") if len(line) == MAX_LINE else ConnectionError("truncated")
    return line[:-1].removesuffix(b"\r")


def _parsed(pattern: re.Pattern[bytes], text: bytes) -> tuple[bytes, ...]:
    if match := pattern.fullmatch(text):
        return match.groups()
    raise ConnectionError("malformed response")


def _headers(wire: io.BufferedReader) -> dict[str, str]:
    """The lines up to an empty one.

    A folded line, and a blank in or behind a name, are malformed: where readers differ about a header, one
    answer can be smuggled inside another.
    """
    headers: dict[str, list[str]] = {}
    for _ in range(MAX_HEADERS + 1):
        if not (line := _line(wire)):
            headers["location"] = list(dict.fromkeys(headers.get("location", ())))  # said twice is said
            return {name: ", ".join(values) for name, values in headers.items() if values}
        name, value = (part.strip(b" \t").decode("latin-1") for part in _parsed(_HEADER, line))
        headers.setdefault(name.lower(), []).append(value)
    raise OSError("too many response headers")


def _body(wire: io.BufferedReader, headers: dict[str, str], max_bytes: int) -> bytes:
    """The body as sent, without its framing. What follows its end is never read."""
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is None and length is None:
        body = wire.read(max_bytes + 1)
        return _exactly(io.BytesIO(body), len(body), max_bytes)
    if coding is None:
        return _exactly(wire, int(_parsed(_LENGTH, str(length).encode("latin-1"))[0]), max_bytes)
    if coding.lower() != "chunked" or length is not None:  # of two framings two readers take different ones
        raise ConnectionError("malformed response")
    chunks = bytearray()
    while size := int(_parsed(_CHUNK, _line(wire))[0], 16):
        chunks += _exactly(wire, size, max_bytes - len(chunks))
        if _line(wire):
            raise ConnectionError("malformed response")
    _headers(wire)  # trailers come too late to say anything about the body
    return bytes(chunks)


def _exactly(wire: io.BufferedIOBase, size: int, most: int) -> bytes:
    if size > most:
        raise OSError("response too large")
    data = wire.read(size)
    if len(data) < size:
        raise ConnectionError("response truncated")
    return data


def _decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its encoding; inflated no further than one byte past `limit`."""
    if not body or encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise OSError("unsupported content encoding")
    try:
        return _inflated(body, _WINDOWS[encoding], limit)
    except zlib.error:
        raise ConnectionError("malformed response") from None


def _inflated(body: bytes, window: int, limit: int) -> bytes:
    """One stream, or as gzip has it several, with zeros behind; fed in pieces, as each gives back its rest."""
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
