"""One GET against servers of our own on loopback, well behaved and otherwise."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import zlib
from pathlib import Path

import pytest

from tachograph.runtime import clock
from tachograph.runtime.clock import later
from tachograph.runtime.io import http, http_answer
from tachograph.runtime.resources.url import parse_url
from tests.servers import (
    LOOPBACK,
    PATIENCE,
    Serve,
    Server,
    certificate,
    chunked,
    made_certificate,
    ok,
    serve,
    server_context,
    unused_port,
)

__all__ = ["certificate", "serve"]  # fixtures
Answer = tuple[int, dict[str, str], str]


def yes(address: str) -> bool:
    return True


def get(
    port: int, path: str = "/", *, host: str = LOOPBACK, scheme: str = "http", s: float = PATIENCE
) -> Answer:
    return http.fetch(parse_url(f"{scheme}://{host}:{port}{path}"), yes, later(s))


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every name resolves to."""
    found = [LOOPBACK]
    monkeypatch.setattr(http, "_addresses", lambda name, port: list(found))
    return found


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_a_plain_answer_and_the_request_it_answers(serve: Serve) -> None:
    server = serve(ok(b"hello", "X-Two: a", "x-two:  b ", "Server: s"))
    found = get(server.port, "/p?q=%20'")
    assert found == (200, {"x-two": "a, b", "server": "s", "content-length": "5"}, "hello")
    assert server.requests[0].decode().split("\r\n") == [
        "GET /p?q=%20' HTTP/1.1", f"Host: {LOOPBACK}:{server.port}", "User-Agent: tachograph", "Accept: */*",
        "Accept-Encoding: gzip, identity", "Connection: close", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [204, 302, 304, 404, 429, 500, 503, 999])
def test_every_status_is_an_answer_and_no_redirect_is_followed(serve: Serve, status: int) -> None:
    fields = "Location: /elsewhere\r\nRetry-After: 7\r\nContent-Length: 0\r\n"
    server = serve(f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode())
    found = get(server.port)
    assert (found[0], found[2], found[1]["retry-after"]) == (status, "", "7")
    server.stop()
    assert server.connections == 1


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 9\r\n\r\nabc",
        "Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\nzz",
    ],
)
def test_a_body_that_nobody_wants_is_not_read(serve: Serve, framing: str) -> None:
    server = serve(b"")
    for status in (301, 302, 303, 307, 308, 429, 500):
        server.answer = f"HTTP/1.1 {status} X\r\nLocation: /x\r\n{framing}".encode()
        found = get(server.port)
        assert (found[0], found[1]["location"], found[2]) == (status, "/x", "")
    server.answer = f"HTTP/1.1 200 X\r\nLocation: /x\r\n{framing}".encode()
    with pytest.raises(OSError, match=r"malformed|unsupported|truncated"):
        get(server.port)


def test_a_location_said_twice_is_said_once(serve: Serve) -> None:
    for said, found in (("/x", "/x"), ("/y", "/x, /y")):
        head = f"HTTP/1.1 302 X\r\nLocation: /x\r\nA: a\r\nlocation:{said} \r\nA: a\r\n\r\n"
        assert get(serve(head.encode()).port)[1] == {"location": found, "a": "a, a"}


PACKED = gzip.compress(b"abcde")
EARLY = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
GZIP = "Content-Encoding: gzip"
GOOD = {
    "chunked": chunked(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n"),
    "until the end": b"HTTP/1.0 200 OK\r\n\r\nabcde",
    "without a reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nabcde",
    "same length twice": ok(b"abcde", "Content-Length: 5"),
    "bytes after the end": ok(b"abcdeXXX", length=5),
    "interim answers": EARLY * 16 + ok(b"abcde"),
    "as many headers as are allowed": ok(b"abcde", *(f"H{number}: v" for number in range(199))),
    "a redirect to nowhere": b"HTTP/1.1 302 X\r\nContent-Length: 5\r\n\r\nabcde",
    "no redirect": b"HTTP/1.1 300 X\r\nLocation: /x\r\nContent-Length: 5\r\n\r\nabcde",
    "identity": ok(b"abcde", "Content-Encoding: identity"),
    "gzip": ok(PACKED, GZIP),
    "x-gzip": ok(PACKED, "Content-Encoding: X-GZIP"),
    "gzip in parts": ok(gzip.compress(b"ab") + gzip.compress(b"") + gzip.compress(b"cde"), GZIP),
    "gzip and zeros": ok(PACKED + b"\0" * 40_000, GZIP),
    "gzip, zeros, gzip": ok(gzip.compress(b"ab") + b"\0\0" + gzip.compress(b"cde"), GZIP),
    "a charset": ok("abcde".encode("utf-16-be"), "Content-Type: text/plain; charset=utf-16be"),
}
# ConnectionError
BROKEN = {
    "nothing": b"",
    "no http": b"\x00\x01 not http\r\n\r\n",
    "bad status": b"HTTP/1.1 2x0 OK\r\n\r\n",
    "status below all": b"HTTP/1.1 099 OK\r\n\r\n",
    "other version": b"HTTP/2 200\r\n\r\n",
    "head cut": b"HTTP/1.1 200 OK\r\nContent-Le",
    "head without end": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "space before colon": b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
    "space in a name": b"HTTP/1.1 200 OK\r\nX Y: b\r\nContent-Length: 0\r\n\r\n",
    "other protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + ok(b""),
    "folded": ok(b"", "A: b\r\n c"),
    "bare return": ok(b"", "A: b\rC: d"),
    "truncated": ok(b"abc", length=9),
    "negative length": ok(b"", length=-1),
    "absurd length": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 900 + b"\r\n\r\n",
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
    "absurd chunk": chunked(b"7fffffffffffff\r\nabc"),
    "line feed alone in a chunk's frame": chunked(b"3\nabc\r\n0\r\n\r\n"),
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
    "redirect with a bad length": b"HTTP/1.1 302 X\r\nLocation: /x\r\nContent-Length: x\r\n\r\n",
    "redirect with two framings": b"HTTP/1.1 302 X\r\nLocation: /x\r\nContent-Length: 0\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip cut": ok(PACKED[:-3], GZIP),
    "gzip wrong sum": ok(PACKED[:-8] + b"\x00" * 8, GZIP),
    "gzip not at all": ok(b"\x1f\x8bnot", GZIP),
    "gzip and more": ok(PACKED + b"more", GZIP),
    "gzip, zeros and more": ok(PACKED + b"\0\0more", GZIP),
    "second gzip cut": ok(PACKED + PACKED[:-1], GZIP),
}
# OSError, where a body may have 1,000 bytes
TOO_MUCH = {
    "declared": ok(b"", length=1001),
    "until the end": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
    "chunks": chunked(b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\ny\r\n0\r\n\r\n"),
    "one header": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 200_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "one header more": ok(b"", *(f"H{number}: v" for number in range(200))),
    "trailers": chunked(b"0\r\n" + b"A: b\r\n" * 201 + b"\r\n"),
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000 + ok(b""),
    "one interim answer more": EARLY * 17 + ok(b""),
    "framing": chunked(b"1;" + b"x" * 60_000 + b"\r\ny\r\n") + (b"1;" + b"x" * 60_000 + b"\r\ny\r\n") * 30,
    "bomb": ok(gzip.compress(b"0" * 500_000), GZIP),
    "bomb in parts": ok(gzip.compress(b"0" * 501) * 2, GZIP),
    "unknown encoding": ok(b"x", "Content-Encoding: br"),
    "an encoding that was not asked for": ok(zlib.compress(b"x"), "Content-Encoding: deflate"),
    "encoding twice": ok(b"x", GZIP, GZIP),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_body_in_every_framing(serve: Serve, kind: str) -> None:
    assert get(serve(GOOD[kind]).port)[2] == "abcde"


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_answer_is_a_connection_error(serve: Serve, kind: str) -> None:
    with pytest.raises(ConnectionError) as caught:
        get(serve(BROKEN[kind]).port)
    assert type(caught.value) is ConnectionError
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_too_much_or_not_asked_for_is_an_os_error(
    serve: Serve, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_answer, "MAX_BODY", 1000)
    with pytest.raises(OSError, match=r"too|unsupported") as caught:
        get(serve(TOO_MUCH[kind]).port)
    assert type(caught.value) is OSError


def test_exactly_the_limit_is_allowed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_answer, "MAX_BODY", 1000)
    for answer in (ok(b"z" * 1000), ok(gzip.compress(b"z" * 500) * 2, GZIP),
                   b"HTTP/1.0 200 OK\r\n\r\n" + b"z" * 1000):  # fmt: skip
        assert get(serve(answer).port)[2] == "z" * 1000


def test_answers_in_small_pieces_are_read_as_a_whole(serve: Serve) -> None:
    def by_the_byte(peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(answer)):
            peer.sendall(answer[at : at + 1])

    server, answer = serve(by_the_byte), GOOD["chunked"]
    assert get(server.port)[2] == "abcde"
    for kind in ("folded", "folded trailer", "return in a chunk's extension"):
        answer = BROKEN[kind]
        with pytest.raises(ConnectionError):
            get(server.port)


def test_an_endless_body_is_left_early(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            peer.sendall(b"x" * 65_536)

    monkeypatch.setattr(http_answer, "MAX_BODY", 100_000)
    with pytest.raises(OSError, match="response too large"):
        get(serve(flood).port)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"])
def test_a_reset_is_a_connection_error(serve: Serve, first: bytes) -> None:
    def reset(peer: socket.socket) -> None:
        peer.sendall(first)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with pytest.raises(ConnectionError) as caught:
        get(serve(reset).port)
    assert type(caught.value) is ConnectionError


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_a_trickle_does_not_outlast_the_deadline(
    serve: Serve, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the client looks at the clock a second is over, and one more byte comes."""
    turn, now = threading.Semaphore(0), [0]

    def tick() -> int:
        now[0] += 1_000_000_000
        turn.release()
        return now[0]

    def trickle(peer: socket.socket) -> None:
        peer.sendall(start)
        while not server.stopped.is_set() and turn.acquire(timeout=PATIENCE):
            peer.sendall(b"y")

    server = serve(trickle)
    monkeypatch.setattr(clock, "monotonic_ns", tick)
    with pytest.raises(TimeoutError):
        get(server.port)
    turn.release(PATIENCE)
    assert now[0] >= PATIENCE * 1_000_000_000


def test_a_deadline_that_is_over_ends_the_request_before_it_begins(serve: Serve, resolves: list[str]) -> None:
    server = serve(ok(b"x"))
    for host in (LOOPBACK, "name.test"):
        with pytest.raises(TimeoutError):
            get(server.port, host=host, s=0)
    server.stop()
    assert server.connections == 0


def test_what_never_answers_does_not_outlast_the_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = serve(lambda peer: silent.stopped.wait(PATIENCE))
    for scheme in ("http", "https"):
        with pytest.raises(TimeoutError):
            get(silent.port, scheme=scheme, s=0.05)
    monkeypatch.setattr(http, "_addresses", lambda name, port: [LOOPBACK] * silent.stopped.wait(PATIENCE))
    with pytest.raises(TimeoutError, match="name resolution"):
        get(silent.port, host="slow.test", s=0.05)


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trusted(certificate: Path, resolves: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return certificate


def secure(server: Server, host: str = "name.test") -> Answer:
    return get(server.port, host=host, scheme="https")


def test_tls_with_a_trusted_certificate(
    serve: Serve, trusted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, names = server_context(trusted), list[str | None]()
    context.sni_callback = lambda _peer, name, _context: names.append(name)
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    assert secure(serve(ok(b"secret"), context))[2] == "secret"
    assert names == ["name.test"] and not (tmp_path / "keys").exists()


def test_tls_refuses_other_names_unknown_issuers_and_common_names(
    serve: Serve, trusted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = made_certificate(tmp_path, "name.test")
    names = [(trusted, trusted, host) for host in ("other.test", LOOPBACK)]
    for issuer, shown, host in [*names, *((nameless, it, "name.test") for it in (trusted, nameless))]:
        monkeypatch.setenv("SSL_CERT_FILE", str(issuer))
        server = serve(ok(b"secret"), server_context(shown))
        with pytest.raises(ConnectionError, match="certificate refused"):
            secure(server, host)
        assert server.requests == []


def test_tls_does_not_take_a_cut_for_an_end(serve: Serve, trusted: Path) -> None:
    context = server_context(trusted)
    with pytest.raises(ConnectionError):
        secure(serve(b"HTTP/1.1 200 OK\r\n\r\npart of it", context))
    polite = serve(lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n\r\nall") or peer.unwrap(), context)  # type: ignore[attr-defined,func-returns-value]
    assert secure(polite)[2] == "all"


def test_tls_needs_a_server_that_speaks_it(serve: Serve, trusted: Path) -> None:
    with pytest.raises(ConnectionError, match="TLS"):
        secure(serve(b"HTTP/1.1 400 Bad Request\r\n\r\n"))


def test_sockets_are_closed(serve: Serve, trusted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    good, bad, refusing = serve(ok(b"x")), serve(BROKEN["truncated"]), unused_port()
    safe, unnamed = serve(ok(b"x"), server_context(trusted)), serve(ok(b"x"), server_context(trusted))
    for port, scheme, host in ((good.port, "http", LOOPBACK), (bad.port, "http", LOOPBACK),
                               (refusing, "http", LOOPBACK), (safe.port, "https", "name.test"),
                               (unnamed.port, "https", "other.test")):  # fmt: skip
        try:
            http.fetch(parse_url(f"{scheme}://{host}:{port}/"), yes, later(PATIENCE), made.append)
        except ConnectionError:
            continue
    assert [each.fileno() for each in made] == [-1] * 7
