"""One GET of one already decided target, connected to the very address that was checked.

No redirect is followed; no proxy, netrc or environment variable is read, save that OpenSSL looks for its roots where
SSL_CERT_FILE and SSL_CERT_DIR say. Every error is a builtin with a short text of ours: nothing a server sent is in it.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from ..clock import in_time, left
from ..resources.url import Target
from .decoding import text_of_body
from .http_answer import Exchange, waiting

if TYPE_CHECKING:
    import ssl

Opened = Callable[[socket.socket], None]
"""Is told a connection before it is made."""
HOSTS_FILE: Final = "/etc/hosts"
_MAX_TOLD: Final = 128


def fetch(
    target: Target, decide_address: Callable[[str], bool], deadline: int, opened: Opened = lambda _: None
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of the answer to one GET; there is no text if it is a redirect, 429 or 5xx.

    Args:
        target: What is asked for; its name is resolved once and as it stands, in no search domain.
        decide_address: Asked about every address, in canonical text, before anything is connected; and about what is
            no plain address, which is refused whatever it says.
        deadline: As `clock.later` returns it.
        opened: Told each connection before it is made, so that it can be shut from another thread.

    Raises:
        PermissionError: An address is refused, or the connection has another peer; nothing was sent.
        ConnectionRefusedError: The name does not resolve, or no address answers; nothing was sent.
        TimeoutError: The time is up.
        ConnectionError: The connection was lost, or the answer is truncated or malformed, or TLS failed.
        OSError: The answer is too large, or has an encoding that was not asked for.
    """
    found = [target.host] if _canonical(target.host) else _resolved(target, deadline)
    connection, stranger = _connected(_checked(found, decide_address), target.port, deadline, opened)
    try:
        if stranger:
            raise _refusal(stranger, decide_address)
        if target.scheme == "https":
            with waiting(connection, deadline, "TLS handshake failed"):
                # an end that TLS did not announce may be someone else's cut: not the end of a body
                secure = _tls_context().wrap_socket(
                    connection,
                    server_hostname=target.host,
                    suppress_ragged_eofs=False,
                    do_handshake_on_connect=False,
                )
                connection = secure
                opened(secure)  # it took over from the connection below it
                secure.do_handshake()
        exchange = Exchange(connection, deadline)
        exchange.send(target)
        status, headers, body = exchange.read()
    finally:
        connection.close()
    return status, headers, text_of_body(body, headers)


def _resolved(target: Target, deadline: int) -> list[str]:
    """Resolve a name once, in a thread, as the system's resolver knows no deadline."""
    try:
        if found := in_time(_addresses, (target.host, target.port), left(deadline)):
            return found
    except TimeoutError:
        raise TimeoutError("name resolution timed out") from None
    except (OSError, UnicodeError):
        pass
    raise ConnectionRefusedError("name does not resolve")


def _addresses(name: str, port: int) -> list[str]:
    """Return the addresses of a name in the hosts file, else those of the resolver.

    The final dot makes the name absolute. Without it a resolver that finds nothing goes on to that name below
    its search domains, which is another name, and one that no policy allowed.
    """
    with suppress(OSError), open(HOSTS_FILE, encoding="ascii", errors="replace") as table:
        rows = [line.partition("#")[0].lower().split() for line in table]
        if listed := [row[0] for row in rows if name in row[1:]]:
            return listed
    if name == "localhost":
        return ["127.0.0.1", "::1"]
    return [str(to[0]) for *_, to in socket.getaddrinfo(f"{name}.", port, type=socket.SOCK_STREAM)]


def _canonical(text: str) -> str:
    """Return an address in canonical text; IPv4 mapped to IPv6 becomes IPv4, so that it evades no rule.

    For what is not a plain address this is "". A scope (`%`) names an interface of this very machine.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return "" if "%" in text else str(getattr(address, "ipv4_mapped", None) or address)


def _checked(found: list[str], decide_address: Callable[[str], bool]) -> list[str]:
    """Return the addresses in order, canonical, each once. Raises PermissionError unless all are allowed."""
    addresses: dict[str, None] = {}
    for text in found:
        address = _canonical(text)
        if not address:
            raise _refusal(text, decide_address)
        if address not in addresses and not decide_address(address):
            raise PermissionError("an address is refused")
        addresses[address] = None
    return list(addresses)


def _refusal(text: str, decide_address: Callable[[str], bool]) -> PermissionError:
    """Tell whoever decides about what no rule can allow, and return the exception."""
    decide_address(text[:_MAX_TOLD] or "none")
    return PermissionError("an address is refused")


def _connected(addresses: list[str], port: int, deadline: int, opened: Opened) -> tuple[socket.socket, str]:
    """Connect to the first address that answers; each gets an equal share of the time left.

    Returns:
        The connection, and whom it reached where that is not the address; else "".
    """
    timed_out = False
    for tried, address in enumerate(addresses):
        try:
            with ExitStack() as on_failure:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                connection = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
                opened(connection)
                connection.settimeout(left(deadline) / (len(addresses) - tried))
                connection.connect((address, port))
                peer, peer_port = connection.getpeername()[:2]
                on_failure.pop_all()
        except OSError as error:
            timed_out = timed_out or isinstance(error, TimeoutError)
        else:
            is_same = (_canonical(peer), peer_port) == (address, port)
            return connection, "" if is_same else f"{peer} port {peer_port} instead of {address} port {port}"
    raise TimeoutError("connect timed out") if timed_out else ConnectionRefusedError("connection refused")


def _tls_context() -> ssl.SSLContext:
    """Return the default context, but for SSLKEYLOGFILE, which `create_default_context` obeys."""
    import ssl  # slow to import

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False  # a name counts where it stands as a name
    context.load_default_certs()
    return context
