"""One GET against servers of our own on loopback, well behaved and otherwise."""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tachograph.runtime.io import http
from tachograph.runtime.io.http import AddressRefused, Response, get, later
from tachograph.runtime.io.workspace import Workspace
from tachograph.runtime.log.events import Reach
from tachograph.runtime.policy.leaf import Question, Verdict

from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

LOOPBACK = "127.0.0.1"
Handler = Callable[[socket.socket], None]


class Server:
    """Answers every connection with `handler`, one at a time; keeps the request of each."""

    def __init__(
        self, handler: Handler, context: ssl.SSLContext | None = None, address: str = LOOPBACK, port: int = 0
    ) -> None:
        self.handler, self.context = handler, context
        self.requests: list[bytes] = []
        self.connections = 0
        self.stopped = threading.Event()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listening = socket.create_server((address, port), family=family)
        self.listening.settimeout(0.05)
        self.port: int = self.listening.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while not self.stopped.is_set():
            with suppress(OSError):
                accepted, _ = self.listening.accept()
                self.connections += 1
                accepted.settimeout(3)
                with accepted:
                    self.answer(accepted)

    def answer(self, accepted: socket.socket) -> None:
        if self.context is not None:
            accepted = self.context.wrap_socket(accepted, server_side=True)
        with accepted:
            request = b""
            while b"\r\n\r\n" not in request and request[:1] in (b"", b"G"):  # a handshake has no such end
                piece = accepted.recv(65_536)
                if not piece:
                    return
                request += piece
            self.requests.append(request)
            self.handler(accepted)

    def stop(self) -> None:
        self.stopped.set()
        with suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)  # wakes the accept
        self.thread.join(4)
        self.listening.close()
        assert not self.thread.is_alive()


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(answer: Handler | bytes, context: ssl.SSLContext | None = None) -> Server:
        handler: Handler = (lambda peer: peer.sendall(answer)) if isinstance(answer, bytes) else answer
        servers.append(Server(handler, context))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def fetch(
    server: Server, path: str = "/", host: str = LOOPBACK, scheme: str = "http", **how: Any
) -> Response:
    how = {"allowed": lambda address: True, "timeout_s": 3.0, **how}
    return get(scheme, host, server.port, path, **how)


def ok(body: bytes, *headers: str, length: int | None = None) -> bytes:
    fields = "".join(f"{header}\r\n" for header in headers)
    size = len(body) if length is None else length
    return f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {size}\r\n\r\n".encode() + body


def chunked(framed: bytes, *headers: str) -> bytes:
    fields = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n".encode() + framed


def unused_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as free:
        return int(free.getsockname()[1])


def test_a_plain_answer_and_the_request_it_answers(serve: Serve) -> None:
    server = serve(ok(b"hello", "X-Two: a", "x-two:  b ", "Server: s"))
    response = fetch(server, "/p?q=%20'\"")
    assert response == Response(200, {"x-two": "a, b", "server": "s", "content-length": "5"}, b"hello")
    assert server.requests[0].decode().split("\r\n") == [
        "GET /p?q=%20'\" HTTP/1.1",
        f"Host: {LOOPBACK}:{server.port}",
        "User-Agent: tachograph",
        "Accept: */*",
        "Accept-Encoding: gzip, identity",
        "Connection: close",
        "",
        "",
    ]


@pytest.mark.parametrize("status", [204, 302, 304, 404, 429, 500, 503])
def test_every_status_is_an_answer_and_no_redirect_is_followed(serve: Serve, status: int) -> None:
    fields = "Location: /elsewhere\r\nRetry-After: 7\r\nContent-Length: 0\r\n"
    server = serve(f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode())
    response = fetch(server)
    assert (response.status, response.body, response.headers["retry-after"]) == (status, b"", "7")
    assert server.connections == 1


def test_a_body_that_nobody_wants_is_not_read(serve: Serve) -> None:
    answers: list[bytes] = []
    server = serve(lambda peer: peer.sendall(answers[-1]))
    framings = ("Content-Length: 9\r\n\r\nabc", "Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc")
    for framing in (*framings, "Transfer-Encoding: chunked\r\n\r\nzz"):
        for status in (301, 302, 303, 307, 308, 429, 500, 503, 999):
            answers.append(f"HTTP/1.1 {status} X\r\nLocation: /x\r\n{framing}".encode())
            found = fetch(server)
            assert (found.status, found.headers["location"], found.body) == (status, "/x", b"")
        answers.append(f"HTTP/1.1 200 X\r\nLocation: /x\r\n{framing}".encode())
        with pytest.raises(OSError):
            fetch(server)


def test_a_redirect_to_nowhere_is_an_answer_with_a_body(serve: Serve) -> None:
    assert fetch(serve(b"HTTP/1.1 302 X\r\nContent-Length: 4\r\n\r\nhere")).body == b"here"
    assert fetch(serve(b"HTTP/1.1 300 X\r\nLocation: /x\r\nContent-Length: 4\r\n\r\nhere")).body == b"here"


def test_a_location_said_twice_is_said_once(serve: Serve) -> None:
    for said, found in (("/x", "/x"), ("/y", "/x, /y")):
        head = f"HTTP/1.1 302 X\r\nLocation: /x\r\nA: a\r\nlocation:{said} \r\nA: a\r\n\r\n"
        assert fetch(serve(head.encode())).headers == {"location": found, "a": "a, a"}


def test_as_many_headers_and_interim_answers_as_are_allowed(serve: Serve) -> None:
    headers = [f"H{i}: v" for i in range(199)]
    early = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" * 16
    assert len(fetch(serve(early + ok(b"", *headers))).headers) == 200
    for answer in (ok(b"", *headers, "One: more"), early + b"HTTP/1.1 100 X\r\n\r\n" + ok(b"")):
        with pytest.raises(OSError, match="too many"):
            fetch(serve(answer))


packed = gzip.compress(b"abcde")
BODIES = {
    "chunked": chunked(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n"),
    "until the end": b"HTTP/1.0 200 OK\r\n\r\nabcde",
    "without a reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nabcde",
    "same length twice": ok(b"abcde", "Content-Length: 5"),
    "bytes after the end": ok(b"abcdeXXX", length=5),
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + ok(b"abcde"),
    "gzip": ok(gzip.compress(b"abcde"), "Content-Encoding: gzip"),
    "x-gzip": ok(gzip.compress(b"abcde"), "Content-Encoding: X-GZIP"),
    "deflate": ok(zlib.compress(b"abcde"), "Content-Encoding: deflate"),
    "identity": ok(b"abcde", "Content-Encoding: identity"),
    "gzip in parts": ok(
        gzip.compress(b"ab") + gzip.compress(b"") + gzip.compress(b"cde"), "Content-Encoding: gzip"
    ),
    "gzip and zeros": ok(packed + b"\0" * 40_000, "Content-Encoding: gzip"),
    "gzip, zeros, gzip": ok(gzip.compress(b"ab") + b"\0\0" + gzip.compress(b"cde"), "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_in_every_framing(serve: Serve, kind: str) -> None:
    assert fetch(serve(BODIES[kind])).body == b"abcde"


def test_exactly_the_limits_are_allowed(serve: Serve) -> None:
    packed = gzip.compress(b"z" * 1000)
    server = serve(ok(packed, "Content-Encoding: gzip"))
    assert fetch(server, max_bytes=len(packed), max_decoded_bytes=1000).body == b"z" * 1000
    server = serve(ok(packed + packed, "Content-Encoding: gzip"))
    assert fetch(server, max_decoded_bytes=2000).body == b"z" * 2000
    assert fetch(serve(b"HTTP/1.0 200 OK\r\n\r\nabc"), max_bytes=3, max_decoded_bytes=3).body == b"abc"


BROKEN = {
    "nothing": b"",
    "no http": b"\x00\x01 not http\r\n\r\n",
    "bad status": b"HTTP/1.1 2x0 OK\r\n\r\n",
    "other version": b"HTTP/2 200\r\n\r\n",
    "head cut": b"HTTP/1.1 200 OK\r\nContent-Le",
    "head without end": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "space before colon": b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
    "space in a name": b"HTTP/1.1 200 OK\r\nX Y: b\r\nContent-Length: 0\r\n\r\n",
    "other protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + ok(b""),
    "folded": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "bare return": b"HTTP/1.1 200 OK\r\nA: b\rC: d\r\nContent-Length: 0\r\n\r\n",
    "truncated": ok(b"abc", length=9),
    "negative length": ok(b"", length=-1),
    "two lengths": ok(b"abc", "Content-Length: 2"),
    "two framings": chunked(b"0\r\n\r\n", "Content-Length: 0"),
    "unknown framing": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunk cut": chunked(b"9\r\nabc"),
    "chunk missing": chunked(b"3\r\nabc\r\n"),
    "chunk end missing": chunked(b"3\r\nabc\r\n0\r\n"),
    "chunk too long": chunked(b"3\r\nabcd\r\n0\r\n\r\n"),
    "chunk size": chunked(b"zz\r\n"),
    "chunk sign": chunked(b"-1\r\nabc\r\n0\r\n\r\n"),
    "chunk prefix": chunked(b"0x3\r\nabc\r\n0\r\n\r\n"),
    "length declared absurdly": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 900 + b"\r\n\r\n",
    "chunk declared absurdly": chunked(b"7fffffffffffff\r\nabc"),
    # what h11 lets pass
    "other version in full": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "old version": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "control in the reason": b"HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n",
    "control in a value": ok(b"abc", "A: b\x01c"),
    "control in an interim answer": b"HTTP/1.1 103 X\r\nA: b\x7f\r\n\r\n" + ok(b"abc"),
    "control in a chunk's extension": chunked(b"3;\x00\r\nabc\r\n0\r\n\r\n"),
    "return in a chunk's extension": chunked(b"3;\rx\r\nabc\r\n0\r\n\r\n"),
    "return in the last chunk's extension": chunked(b"3\r\nabc\r\n0;\r\r\n\r\n"),
    "folded trailer": chunked(b"3\r\nabc\r\n0\r\nA: b\r\n c\r\n\r\n"),
    # and what it refuses where our own reader did not
    "line feed alone in a chunk's frame": chunked(b"3\nabc\r\n0\r\n\r\n"),
    "redirect with a bad length": b"HTTP/1.1 302 X\r\nLocation: /x\r\nContent-Length: x\r\n\r\n",
    "redirect with two framings": b"HTTP/1.1 302 X\r\nLocation: /x\r\nContent-Length: 0\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip cut": ok(packed[:-3], "Content-Encoding: gzip"),
    "gzip wrong sum": ok(packed[:-8] + b"\x00" * 8, "Content-Encoding: gzip"),
    "gzip not at all": ok(b"\x1f\x8bnot", "Content-Encoding: gzip"),
    "gzip and more": ok(packed + b"more", "Content-Encoding: gzip"),
    "gzip, zeros and more": ok(packed + b"\0\0more", "Content-Encoding: gzip"),
    "second gzip cut": ok(packed + packed[:-1], "Content-Encoding: gzip"),
    "deflate twice": ok(zlib.compress(b"") + zlib.compress(b"x"), "Content-Encoding: deflate"),
    "deflate and zero": ok(zlib.compress(b"x") + b"\0", "Content-Encoding: deflate"),
}
TOO_MUCH = {
    "declared": ok(b"", length=2000),
    "until the end": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000,
    "chunks": chunked(b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\ny\r\n0\r\n\r\n"),
    "one header": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 200_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000 + ok(b""),
    "unknown encoding": ok(b"x", "Content-Encoding: br"),
    "encoding twice": ok(b"x", "Content-Encoding: gzip", "Content-Encoding: gzip"),
    "bomb": ok(gzip.compress(b"0" * 5_000_000), "Content-Encoding: gzip"),
    "bomb in parts": ok(gzip.compress(b"0" * 900) * 2, "Content-Encoding: gzip"),
    "deflate bomb": ok(zlib.compress(b"0" * 500_000), "Content-Encoding: deflate"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_answer_is_a_connection_error(serve: Serve, kind: str) -> None:
    with pytest.raises(ConnectionError) as caught:
        fetch(serve(BROKEN[kind]))
    assert type(caught.value) is ConnectionError
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_too_much_or_not_asked_for_is_an_os_error(serve: Serve, kind: str) -> None:
    with pytest.raises(OSError, match=r"too|unsupported") as caught:
        fetch(
            serve(TOO_MUCH[kind]), max_bytes=1000 if "bomb" not in kind else 100_000, max_decoded_bytes=1000
        )
    assert type(caught.value) is OSError


@pytest.mark.parametrize("answer", [TOO_MUCH["chunks"], b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001])
def test_a_body_is_bounded_as_it_is_sent(serve: Serve, answer: bytes) -> None:
    with pytest.raises(OSError, match="response too large"):
        fetch(serve(answer), max_bytes=1000)


def test_answers_in_small_pieces_are_read_as_a_whole(serve: Serve) -> None:
    def by_the_byte(answer: bytes) -> Handler:
        def send(peer: socket.socket) -> None:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(len(answer)):
                peer.sendall(answer[at : at + 1])

        return send

    assert fetch(serve(by_the_byte(BODIES["chunked"]))).body == b"abcde"
    for kind in ("folded", "folded trailer", "return in a chunk's extension"):
        with pytest.raises(ConnectionError):
            fetch(serve(by_the_byte(BROKEN[kind])))


def test_an_endless_body_is_left_early(serve: Serve) -> None:
    def flood(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            peer.sendall(b"x" * 65_536)

    with pytest.raises(OSError, match="response too large"):
        fetch(serve(flood), max_bytes=1_000_000)


def test_nobody_listening_is_refused() -> None:
    with pytest.raises(ConnectionRefusedError):
        get("http", LOOPBACK, unused_port(), "/", allowed=lambda address: True, timeout_s=2)


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_a_trickle_does_not_outlast_the_deadline(serve: Serve, start: bytes) -> None:
    over = threading.Event()

    def trickle(peer: socket.socket) -> None:
        peer.sendall(start)
        for _ in range(400):  # then the connection ends, which is another error
            if over.wait(0.05):
                break
            peer.sendall(b"y" if start else b"H")

    server = serve(trickle)
    try:
        with pytest.raises(TimeoutError):
            fetch(server, timeout_s=0.4)
    finally:
        over.set()


def test_a_deadline_that_is_over_ends_the_request_before_it_begins(serve: Serve) -> None:
    with pytest.raises(TimeoutError):
        fetch(serve(ok(b"x")), until=later(0))


def test_a_resolver_that_hangs_does_not_outlast_the_deadline() -> None:
    over, resolved = threading.Event(), []

    def hang(host: str, port: int) -> list[str]:
        over.wait(30)
        resolved.append(host)
        return [LOOPBACK]

    with pytest.raises(TimeoutError):
        get("http", "slow.test", 80, "/", allowed=lambda address: True, timeout_s=0.3, resolve=hang)
    assert not resolved
    over.set()


def test_a_name_without_address_is_refused() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    def empty(host: str, port: int) -> list[str]:
        return []

    for resolve in (unknown, empty):
        with pytest.raises(ConnectionRefusedError, match="name does not resolve"):
            get("http", "none.test", 80, "/", allowed=lambda address: True, resolve=resolve)


def test_a_name_is_asked_for_as_it_stands_and_below_no_search_domain(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server, asked = serve(ok(b"here")), []

    def resolver(name: str, port: int, **_: Any) -> list[Any]:
        asked.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (LOOPBACK, port))]

    table = tmp_path / "hosts"
    monkeypatch.setattr(http, "HOSTS_FILE", str(table))
    monkeypatch.setattr(http.socket, "getaddrinfo", resolver)
    for written in (None, "", "127.0.0.9 name.test.other # name.test\n\nname.test\n"):
        if written is not None:
            table.write_text(written)
        assert fetch(server, host="Name.test").body == b"here"
        assert fetch(server, host="name").body == b"here"
    assert asked == ["name.test.", "name."] * 3


def test_the_machines_own_table_of_hosts_comes_first(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checked: list[str] = []

    def allowed(address: str) -> bool:
        checked.append(address)
        return address in (LOOPBACK, "::1")

    def never(*_: Any, **__: Any) -> list[Any]:
        raise AssertionError("resolved")

    table = tmp_path / "hosts"
    table.write_bytes(b"\xff\n127.0.0.1\tOne.test  two.test\n::1 one.test # three.test\n10.0.0.1 four.test")
    monkeypatch.setattr(http, "HOSTS_FILE", str(table))
    monkeypatch.setattr(http.socket, "getaddrinfo", never)
    server = serve(ok(b"here"))
    for host, addresses in (
        ("one.test", [LOOPBACK, "::1"]),
        ("TWO.test", [LOOPBACK]),
        ("localhost", [LOOPBACK, "::1"]),
    ):
        checked.clear()
        assert fetch(server, host=host, allowed=allowed).body == b"here"
        assert checked == addresses
    with pytest.raises(AddressRefused):
        fetch(server, host="four.test", allowed=allowed)


def test_a_rebinding_name_is_asked_once_and_only_the_checked_address_is_used(serve: Serve) -> None:
    server, asked, checked = serve(ok(b"here")), [], []

    def rebind(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return [LOOPBACK] if len(asked) == 1 else ["127.0.0.9"]

    def allowed(address: str) -> bool:
        checked.append(address)
        return address == LOOPBACK

    assert fetch(server, host="name.test", resolve=rebind, allowed=allowed).body == b"here"
    assert (asked, checked) == ([("name.test", server.port)], [LOOPBACK])
    assert f"Host: name.test:{server.port}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize("answer", [["{ok}", "10.0.0.1"], ["10.0.0.1", "{ok}"], ["{ok}", "::ffff:10.0.0.1"]])
def test_one_refused_address_among_others_refuses_before_any_connection(
    serve: Serve, answer: list[str]
) -> None:
    server = serve(ok(b""))
    found = [address.format(ok=LOOPBACK) for address in answer]
    with pytest.raises(AddressRefused) as caught:
        fetch(
            server, host="mixed.test", resolve=lambda *_: found, allowed=lambda address: address == LOOPBACK
        )
    assert caught.value.address == "10.0.0.1"
    server.stop()
    assert server.connections == 0


@pytest.mark.parametrize("host", [LOOPBACK, "::ffff:127.0.0.1", "localhost"])
def test_a_refused_address_gets_no_connection(serve: Serve, host: str) -> None:
    server = serve(ok(b""))
    with pytest.raises(AddressRefused):
        fetch(server, host=host, allowed=lambda address: address not in (LOOPBACK, "::1"))
    server.stop()
    assert server.connections == 0


@pytest.mark.parametrize(
    "answer", ["fe80::1%1", "::ffff:127.0.0.1%1", "elsewhere.test", "", "127.1", "x" * 999]
)
def test_what_is_no_plain_address_is_refused(answer: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        get("http", "odd.test", 80, "/", allowed=lambda address: True, resolve=lambda *_: [answer])
    assert caught.value.address == answer[:128]


def test_the_next_address_is_tried_when_one_does_not_answer(serve: Serve) -> None:
    server = serve(ok(b"second"))
    assert fetch(server, host="two.test", resolve=lambda *_: ["127.0.0.77", LOOPBACK]).body == b"second"


def test_a_literal_address_is_not_resolved(serve: Serve) -> None:
    def never(host: str, port: int) -> list[str]:
        raise AssertionError("resolved")

    assert fetch(serve(ok(b"x")), resolve=never).body == b"x"


BAD = [
    "",
    "a b",
    "a\r\nX: y",
    "a\n",
    "a/b",
    "u@h",
    "a#b",
    "ä.test",
    "[::1]",
    "::1%lo",
    "1.2.3",
    "2130706433",
    "a.",
]


@pytest.mark.parametrize("host", BAD)
def test_a_host_that_could_inject_or_mislead_is_an_error(host: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        get(
            "http", host, 80, "/", allowed=lambda address: pytest.fail(address), resolve=lambda *_: [LOOPBACK]
        )


@pytest.mark.parametrize(
    "path", ["", "x", "/a b", "/\r\nX: y", "/\n", "/\x00", "/\x7f", "/ä", "/#f", "/" + "x" * 9000]
)
def test_a_path_that_could_inject_is_an_error_before_anything(serve: Serve, path: str) -> None:
    server = serve(ok(b""))
    with pytest.raises(ValueError, match="character"):
        fetch(server, path)
    server.stop()
    assert server.connections == 0


def test_other_arguments_out_of_range_are_errors() -> None:
    free: dict[str, Any] = {"allowed": lambda address: True}
    for scheme, port in (("ftp", 21), ("HTTP", 80), ("http", 0), ("http", 65_536)):
        with pytest.raises(ValueError, match="port"):
            get(scheme, LOOPBACK, port, "/", **free)
    for limit in ({"timeout_s": 0.0}, {"timeout_s": float("nan")}, {"timeout_s": 1e9}, {"max_bytes": -1}):
        with pytest.raises(ValueError, match="limit"):
            get("http", LOOPBACK, 80, "/", **free, **limit)


def test_proxy_variables_are_not_read(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = serve(ok(b"proxy")), serve(ok(b"direct"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{LOOPBACK}:{proxy.port}")
    assert fetch(server).body == b"direct"
    assert proxy.connections == 0


def made_certificate(folder: Path, *more: str) -> Path:
    """A self-signed certificate with the common name name.test, with its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate with")
    key, crt = folder / "key.pem", folder / "crt.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=name.test".split()
    words += [*more, "-keyout", str(key), "-out", str(crt)]
    subprocess.run([openssl, *words], check=True, capture_output=True, timeout=20)
    both = folder / "both.pem"
    both.write_text(key.read_text() + crt.read_text())
    return both


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for name.test."""
    return made_certificate(tmp_path_factory.mktemp("tls"), "-addext", "subjectAltName=DNS:name.test")


def tls(certificate: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context, and a client's that trusts it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=str(certificate))


def secure(server: Server, client: ssl.SSLContext | None, host: str = "name.test", **how: Any) -> Response:
    return fetch(server, host=host, scheme="https", ssl_context=client, resolve=lambda *_: [LOOPBACK], **how)


def test_tls_with_a_trusted_certificate_and_sni(serve: Serve, certificate: Path) -> None:
    context, client = tls(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda sock, name, _: names.append(name)
    assert secure(serve(ok(b"secret"), context), client).body == b"secret"
    assert names == ["name.test"]


def test_tls_refuses_other_names_and_unknown_issuers(serve: Serve, certificate: Path) -> None:
    context, client = tls(certificate)
    server = serve(ok(b"secret"), context)
    for trust, host in ((client, "other.test"), (client, LOOPBACK), (None, "name.test")):
        with pytest.raises(ConnectionError, match="certificate refused"):
            secure(server, trust, host)
    assert server.requests == []


def test_tls_trusts_the_roots_that_openssl_is_told_of(
    serve: Serve, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = tls(certificate)
    server = serve(ok(b"secret"), context)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert secure(server, None).body == b"secret"


def test_tls_takes_no_common_name_for_a_name(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = made_certificate(tmp_path)
    context, _ = tls(nameless)
    server = serve(ok(b"secret"), context)
    monkeypatch.setenv("SSL_CERT_FILE", str(nameless))
    with pytest.raises(ConnectionError, match="certificate refused"):
        secure(server, None)
    assert server.requests == []


def test_tls_does_not_take_a_cut_for_an_end(serve: Serve, certificate: Path) -> None:
    context, client = tls(certificate)
    with pytest.raises(ConnectionError):
        secure(serve(b"HTTP/1.1 200 OK\r\n\r\npart of it", context), client)
    polite = serve(lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n\r\nall") or peer.unwrap(), context)
    assert secure(polite, client).body == b"all"


def test_tls_needs_a_server_that_speaks_it_and_a_context_that_verifies(
    serve: Serve, certificate: Path
) -> None:
    _, client = tls(certificate)
    with socket.create_server((LOOPBACK, 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TimeoutError):
            get("https", LOOPBACK, port, "/", allowed=lambda _: True, ssl_context=client, timeout_s=0.3)
    with pytest.raises(ConnectionError, match="TLS"):
        secure(serve(b"HTTP/1.1 400 Bad Request\r\n\r\n"), client, timeout_s=2.0)
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    with pytest.raises(ValueError, match="verify"):
        get("https", LOOPBACK, 443, "/", allowed=lambda _: True, ssl_context=unverified)


def test_another_peer_than_the_checked_one_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    class Diverted(socket.socket):
        def getpeername(self) -> tuple[str, int]:
            return "10.0.0.1", server.port

    server = serve(ok(b""))
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Diverted)
        with pytest.raises(AddressRefused) as caught:
            fetch(server)
    # no address: a rule that allows 10.0.0.1 does not allow this
    assert caught.value.address == f"10.0.0.1 port {server.port} instead of {LOOPBACK} port {server.port}"
    assert server.requests == []


def test_a_tool_reaches_what_the_gate_allows(serve: Serve, tmp_path: Path) -> None:
    """The address is decided too, and a denial is kept for the run."""
    schema = {"type": "object", "additionalProperties": False}
    tool = Tool("t", "", schema, schema, "network", lambda arguments, io: {})
    for networks, expected in ((["127.0.0.0/8"], "hello"), ([], None)):
        server = serve(ok(b"hello", "Content-Type: text/plain"))
        url = f"http://{LOOPBACK}:{server.port}"
        data = {"schema": "policy/v1", "url_allowlist": [f"{url}/"], "private_networks": networks}
        gate = Gate(Policy.from_dict(data), [tool])
        with Workspace({}, fetch=http.fetch) as workspace:
            io = workspace.io(tool, lambda fact, gate=gate: gate.ask(Question(fact, "t")), "key")
            if expected is not None:
                assert (io.get(f"{url}/x").text, io.met) == (expected, [])
                continue
            with pytest.raises(PermissionError):
                io.get(f"{url}/x")
            assert io.met == [Reach(f"{url}/x", address=LOOPBACK)]
            server.stop()
            assert server.connections == 0


def test_the_end_of_an_attempt_shuts_its_connections(serve: Serve) -> None:
    """A thread that waits for an answer goes on as soon as the attempt is over."""
    asked, over, found = threading.Event(), threading.Event(), []

    def hang(peer: socket.socket) -> None:
        asked.set()
        over.wait(30)

    schema = {"type": "object", "additionalProperties": False}
    tool = Tool("t", "", schema, schema, "network", lambda arguments, io: {})
    server = serve(hang)
    with Workspace({}, fetch=http.fetch) as workspace:
        allow = Verdict("allow", "url_allowlist", "", "")
        io = workspace.io(tool, lambda fact: allow, "key")

        def wait() -> None:
            try:
                io.get(f"http://{LOOPBACK}:{server.port}/")
            except OSError as error:
                found.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert asked.wait(30)
        io.close()
        thread.join(30)
        over.set()
    assert [isinstance(error, ConnectionError) for error in found] == [True]


def test_sockets_are_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Noted(socket.socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if threading.current_thread() is threading.main_thread():  # the servers make some too
                made.append(self)

    good, bad, refusing = serve(ok(b"x")), serve(BROKEN["truncated"]), unused_port()
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Noted)
        fetch(good)
        for port in (bad.port, refusing):
            with pytest.raises(ConnectionError):
                get("http", LOOPBACK, port, "/", allowed=lambda _: True, timeout_s=2)
    assert [each.fileno() for each in made] == [-1, -1, -1]
