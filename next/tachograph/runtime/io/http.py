"""One GET of one already decided target, connected to the very address that was checked.

No redirect is followed; no proxy, netrc or environment variable is read, save that OpenSSL looks for its roots
where SSL_CERT_FILE and SSL_CERT_DIR say. Every error is a builtin, or AddressRefused, with a short text of
ours: nothing a server sent is in it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from ..clock import monotonic_ns
from ..resources.url import Target
from .decoding import text_of_body
from .http_answer import Answer, left, waiting
from .http_answer import Response as Response

if TYPE_CHECKING:
    import ssl

HOSTS_FILE: Final = "/etc/hosts"
PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{0,252}[A-Za-z0-9:]")  # no final dot: a name has one spelling
_PATH: Final = re.compile(r"/[\x21\x22\x24-\x7e]{0,8191}")  # no fragment; the request fits one TLS record
Resolver = Callable[[str, int], list[str]]


class AddressRefused(PermissionError):
    """An address of the target is refused or is not an IP address, or the connection has another peer.

    `address` is the address as it was asked about, else a text that no rule can allow.
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
    opened: Callable[[socket.socket], None] = lambda _: None,
) -> Response:
    """Return the answer to one GET; it has no body if it is a redirect, 429 or 5xx.

    Args:
        scheme: `http` or `https`.
        host: An ASCII name or a literal address; a name is resolved as it stands, in no search domain.
        port: The port to connect to.
        path_and_query: The target of the request, as it is sent.
        allowed: Asked about every address, in canonical text, before anything is connected.
        timeout_s: Seconds for all of it.
        max_bytes: Bound of the body as sent.
        max_decoded_bytes: Bound of the body as returned.
        resolve: Resolves a name and port to addresses, instead of the system.
        ssl_context: Used instead of the default; it must verify certificate and host name.
        until: A deadline of `later`, which may end it sooner.
        opened: Told each connection before it is made, so that it can be shut from another thread.

    Raises:
        ValueError: A malformed argument, or a context that does not verify.
        AddressRefused: An address is not allowed; nothing was sent.
        ConnectionRefusedError: No address answers; nothing was sent.
        TimeoutError: The time is up.
        ConnectionError: The connection was reset, or the answer is truncated or malformed, or TLS failed.
        OSError: The answer is too large, or has an encoding that was not asked for.
    """
    literal = _check_target(scheme, host, port, path_and_query)
    if not 0 < timeout_s <= 86_400 or min(max_bytes, max_decoded_bytes) < 0:
        raise ValueError("a limit is out of range")
    deadline = later(timeout_s) if until is None else min(later(timeout_s), until)
    context = _tls_context(ssl_context) if scheme == "https" else None
    addresses = [host] if literal else _resolved(resolve, host, port, deadline)
    connection = _connected(_checked(addresses, allowed), port, deadline, opened)
    try:
        if context is not None:
            with waiting(connection, deadline, "TLS handshake failed"):
                # an end TLS did not announce may be someone else's cut: not the end of a body
                secure = context.wrap_socket(
                    connection,
                    server_hostname=host,
                    suppress_ragged_eofs=False,
                    do_handshake_on_connect=False,
                )
                connection = secure
                opened(secure)  # it took over from the connection below it
                secure.do_handshake()
        where = (f"[{host}]" if ":" in host else host) + ("" if port == PORTS[scheme] else f":{port}")
        answer = Answer(connection, deadline)
        answer.send(path_and_query, where)
        return answer.read(max_bytes, max_decoded_bytes)
    finally:
        connection.close()


def fetch(
    target: Target,
    *,
    allowed: Callable[[str], bool],
    opened: Callable[[socket.socket], None],
    until: float,
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of the answer to one GET; see `get` for what it raises.

    Args:
        target: What is asked for.
        allowed: Asked about every address before anything is connected.
        opened: Told each connection before it is made.
        until: The deadline.
    """
    path = target.path + ("" if target.query is None else f"?{target.query}")
    try:
        response = get(
            target.scheme, target.host, target.port, path, allowed=allowed, until=until, opened=opened
        )
    except AddressRefused as refused:
        allowed(refused.address)  # no plain address, or another peer: no rule was asked about it yet
        raise PermissionError("denied by url_allowlist") from None
    return response.status, response.headers, text_of_body(response.body, response.headers)


def later(seconds: float) -> float:
    """Return a deadline for the `until` of `get`, which several requests may share."""
    return monotonic_ns() / 1e9 + seconds


def _check_target(scheme: str, host: str, port: int, path: str) -> bool:
    """Return whether `host` is a literal address. Raises ValueError for what could not be sent unchanged."""
    if scheme not in PORTS or not 1 <= port <= 65_535:
        raise ValueError("not an http or https port")
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(path):
        raise ValueError("host or path has a character it may not have, or is too long")
    literal = ":" in host or host.replace(".", "").isdigit()
    if literal:
        ipaddress.ip_address(host)  # ValueError too: other ways to write a number are no names
    return literal


def _resolved(resolve: Resolver | None, host: str, port: int, deadline: float) -> list[str]:
    """Resolve a name once, in a thread, as the system's resolver knows no deadline."""
    answer: list[str] = []

    def ask() -> None:
        with suppress(OSError, UnicodeError):
            answer[:] = _addresses(host.lower(), port) if resolve is None else resolve(host, port)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(left(deadline))
    if asking.is_alive():
        raise TimeoutError("name resolution timed out")
    if not answer:
        raise ConnectionRefusedError("name does not resolve")
    return answer


def _addresses(name: str, port: int) -> list[str]:
    """Return the addresses of a name in the hosts file, else those of the resolver.

    The final dot makes the name absolute. Without it a resolver that finds nothing goes on to that name below
    its search domains, which is another name, and one that no policy allowed.
    """
    if listed := _listed(name):
        return listed
    if name == "localhost":
        return ["127.0.0.1", "::1"]
    answers = socket.getaddrinfo(f"{name}.", port, type=socket.SOCK_STREAM)
    return [str(to[0]) for *_, to in answers]


def _listed(name: str) -> list[str]:
    with suppress(OSError), open(HOSTS_FILE, encoding="ascii", errors="replace") as table:
        rows = [line.partition("#")[0].lower().split() for line in table]
        return [row[0] for row in rows if name in row[1:]]
    return []


def _canonical(text: str) -> str:
    """Return an address in canonical text; IPv4 mapped to IPv6 becomes IPv4, so that it evades no rule."""
    if "%" in text:
        raise ValueError("a scope names an interface of this very machine")
    address = ipaddress.ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _checked(resolved: list[str], allowed: Callable[[str], bool]) -> list[str]:
    """Return the addresses in order, canonical, each once. Raises AddressRefused unless all are allowed."""
    addresses: dict[str, None] = {}
    for text in map(str, resolved):
        try:
            address = _canonical(text)
        except ValueError:
            raise AddressRefused(text) from None
        if not allowed(address):
            raise AddressRefused(address)
        addresses[address] = None
    return list(addresses)


def _connected(
    addresses: list[str], port: int, deadline: float, opened: Callable[[socket.socket], None]
) -> socket.socket:
    """Connect to the first address that answers; each gets an equal share of the time left."""
    timed_out = False
    for tried, address in enumerate(addresses):
        try:
            with ExitStack() as on_failure:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                connection = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
                opened(connection)
                connection.settimeout(left(deadline) / (len(addresses) - tried))
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
