"""GETs over IPv6, from servers of our own on ::1; skipped where the machine has no IPv6 loopback."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.policy.gate import Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import USES
from tachograph.runtime.workspace.http import AddressRefused, Response
from tachograph.runtime.workspace.tool_io import IO
from tachograph.runtime.workspace.workspace import Workspace
from tests.runtime.workspace.test_http import Server, get, made_certificate, ok

V4, V6 = "127.0.0.1", "::1"


def _has_ipv6() -> bool:
    with suppress(OSError), socket.create_server((V6, 0), family=socket.AF_INET6):
        return True
    return False


pytestmark = pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 loopback on this machine")
Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server on one loopback address."""
    servers: list[Server] = []

    def start(address: str = V6, answer: bytes = ok(b"here"), **how: Any) -> Server:
        servers.append(Server(lambda peer: peer.sendall(answer), address=address, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def fetch(port: int, host: str = V6, answers: list[str] | None = None, **how: Any) -> Response:
    how = {"allowed": lambda address: True, "timeout_s": 3.0, "resolve": lambda *_: answers or [], **how}
    return get(how.pop("scheme", "http"), host, port, "/", **how)


def untouched(*servers: Server) -> bool:
    time.sleep(0.1)
    return all(server.connections == 0 for server in servers)


# ---- one GET -----------------------------------------------------------------------------------------------


def test_a_literal_address_stands_in_brackets_in_the_request(serve: Serve) -> None:
    server = serve()
    asked: list[str] = []
    assert fetch(server.port, allowed=lambda address: not asked.append(address)).body == b"here"
    assert asked == [V6]
    assert f"\r\nHost: [::1]:{server.port}\r\n".encode() in server.requests[0]


def test_rules_see_one_spelling_of_an_address(serve: Serve) -> None:
    for spelling in (V6, "0:0:0:0:0:0:0:1", "::0001"):
        server = serve()
        asked: list[str] = []
        found = fetch(server.port, "six.test", [spelling], allowed=lambda a, asked=asked: not asked.append(a))
        assert (found.body, asked, server.connections) == (b"here", [V6], 1)
        assert f"\r\nHost: six.test:{server.port}\r\n".encode() in server.requests[0]


def test_an_ipv4_address_dressed_up_is_asked_about_and_connected_to_as_what_it_is(serve: Serve) -> None:
    server = serve(V4)
    asked: list[str] = []
    dressed = ["::ffff:127.0.0.1", "::ffff:7f00:1"]
    found = fetch(server.port, "v4.test", dressed, allowed=lambda address: not asked.append(address))
    assert (found.body, set(asked), server.connections) == (b"here", {V4}, 1)


@pytest.mark.parametrize("answers", [[V6, V4], [V4, V6]])
@pytest.mark.parametrize("listening", [V4, V6])
def test_the_other_family_is_tried_when_one_does_not_answer(
    serve: Serve, answers: list[str], listening: str
) -> None:
    server = serve(listening)
    assert fetch(server.port, "both.test", answers).body == b"here"


@pytest.mark.parametrize("answers", [[V6, V4], [V4, V6]])
@pytest.mark.parametrize("refused", [V4, V6])
def test_one_refused_family_refuses_the_name(serve: Serve, answers: list[str], refused: str) -> None:
    six = serve()
    servers = [six]
    with suppress(OSError):  # the same port may be taken on the other loopback
        servers.append(serve(V4, port=six.port))
    with pytest.raises(AddressRefused) as caught:
        fetch(six.port, "both.test", answers, allowed=lambda address: address != refused)
    assert caught.value.address == refused and untouched(*servers)


def test_what_is_no_plain_ipv6_address_is_not_connected_to(serve: Serve) -> None:
    server = serve()
    for address in ("::1%lo", "::1%1", "[::1]", "::1 ", "::1/128"):
        with pytest.raises(AddressRefused) as caught:
            fetch(server.port, "odd.test", [address])
        assert caught.value.address == address
    assert untouched(server)


def test_another_ipv6_peer_than_the_checked_one_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Diverted(socket.socket):
        peer = ("fd00::1", 1, 0, 0)

        def getpeername(self) -> tuple[str, int, int, int]:
            return self.peer

    server = serve()
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Diverted)
        for peer in (("fd00::1", server.port, 0, 0), (V6, 1, 0, 0), ("fe80::1%lo", server.port, 0, 0)):
            Diverted.peer = peer
            with pytest.raises(AddressRefused) as caught:
                fetch(server.port)
            assert caught.value.address == f"{peer[0]} port {peer[1]} instead of ::1 port {server.port}"
    assert server.requests == []


# ---- TLS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "trusted"), [("IP:::1", True), ("IP:127.0.0.1", False), ("DNS:[::1],DNS:*.test", False)]
)
def test_a_certificate_must_name_the_address_as_an_address(
    serve: Serve, tmp_path: Path, names: str, trusted: bool
) -> None:
    certificate = made_certificate(tmp_path, "-addext", f"subjectAltName={names}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    client = ssl.create_default_context(cafile=str(certificate))
    said: list[str | None] = []
    context.sni_callback = lambda _peer, name, _context: said.append(name)
    server = serve(context=context)
    if trusted:
        assert fetch(server.port, scheme="https", ssl_context=client).body == b"here"
        assert said == [None]  # an address is no server name
    else:
        with pytest.raises(ConnectionError, match="certificate refused"):
            fetch(server.port, scheme="https", ssl_context=client)
        assert server.requests == []


# ---- under a policy ----------------------------------------------------------------------------------------


def way_out(entries: list[str], networks: list[str]) -> IO:
    """The `io` of a run whose policy allows these URLs and networks."""
    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["probe"]},
            "url_allowlist": entries,
            "private_networks": networks,
        }
    )
    gate = Gate(policy, {})

    def late(check: dict[str, Any], _keep: bool) -> Decision:
        return gate.decide_late(check)

    return Workspace({}).io(late, "key", USES["network"])


def test_a_loopback_address_needs_its_network_named(serve: Serve) -> None:
    server = serve()
    url = f"http://[::1]:{server.port}/page"
    io = way_out([url], ["::1/128"])
    found = io.get(url)
    assert (found.text, found.url, io.denied) == ("here", url, False)
    for networks in ([], ["127.0.0.0/8"], ["fc00::/7"], ["fd00::1/128"]):
        io = way_out([url], networks)
        with pytest.raises(PermissionError):
            io.get(url)
        assert io.denied
        assert io.checks == [{"rule": "url_allowlist", "target": url, "hop": 0, "address": V6}]
    assert server.connections == 1


@pytest.mark.parametrize(
    "spelling", ["[0::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1%25lo]", "[::1%lo]", "[::127.0.0.1]"]
)
def test_other_spellings_in_a_url_or_a_redirect_are_denied(serve: Serve, spelling: str) -> None:
    six = serve()
    disguised = f"http://{spelling}:{six.port}/"
    redirecting = serve(V6, f"HTTP/1.1 302 Found\r\nLocation: {disguised}\r\n\r\n".encode())
    entries = [f"http://[::1]:{six.port}/", f"http://[::1]:{redirecting.port}/"]
    for url, hop in ((disguised, 0), (f"http://[::1]:{redirecting.port}/", 1)):
        io = way_out(entries, ["127.0.0.0/8", "::1/128"])
        with pytest.raises(PermissionError):
            io.get(url)
        assert io.denied
        assert io.checks[-1] == {"rule": "url_allowlist", "target": disguised, "hop": hop}
    assert untouched(six)


def test_a_redirect_between_the_families_is_a_hop_of_its_own(serve: Serve) -> None:
    six = serve()
    to = f"http://[::1]:{six.port}/there"
    four = serve(V4, f"HTTP/1.1 302 Found\r\nLocation: {to}\r\n\r\n".encode())
    start = f"http://127.0.0.1:{four.port}/"
    io = way_out([start, to], ["127.0.0.0/8", "::1/128"])
    assert io.get(start).url == to
    assert io.checks == [{"rule": "url_allowlist", "target": to, "hop": 1}]
    io = way_out([start], ["127.0.0.0/8", "::1/128"])
    with pytest.raises(PermissionError):
        io.get(start)
    assert io.denied and six.connections == 1
