"""Servers of our own on loopback, well behaved and otherwise, and a small internet of made-up names before them."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

LOOPBACK = "127.0.0.1"
PUBLIC = "93.184.216.34"
PATIENCE = 20  # seconds that nothing here outlasts
Handler = Callable[[socket.socket], object]


class Server:
    """Answers every connection, one at a time, and keeps the request of each.

    Attributes:
        port: Its port, which was free.
        requests: What was asked, in order.
        connections: How many there were; complete once the server is stopped.
        stopped: Set when the server stops, for handlers that wait.
    """

    def __init__(self, answer: Handler | bytes, context: ssl.SSLContext | None = None) -> None:
        self.answer, self.context = answer, context
        self.requests: list[bytes] = []
        self.connections = 0
        self.stopped = threading.Event()
        self._last: Any = None
        self._listening = socket.create_server((LOOPBACK, 0))
        self._listening.settimeout(PATIENCE)
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(TimeoutError):
            while True:
                accepted, peer = self._listening.accept()
                with accepted:
                    if peer == self._last:
                        return
                    self.connections += 1
                    accepted.settimeout(PATIENCE)
                    with suppress(OSError):
                        self._serve_one(accepted)

    def _serve_one(self, accepted: socket.socket) -> None:
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
            if isinstance(self.answer, bytes):
                accepted.sendall(self.answer)
            else:
                self.answer(accepted)

    def stop(self) -> None:
        """Stop once every connection that was made is served. May be called twice."""
        self.stopped.set()
        if self._thread.is_alive():
            with socket.socket() as last, suppress(OSError):
                last.bind((LOOPBACK, 0))
                self._last = last.getsockname()
                last.connect((LOOPBACK, self.port))
                self._thread.join(PATIENCE)
        self._listening.close()
        assert not self._thread.is_alive()


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(answer: Handler | bytes, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(answer, context))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def ok(body: bytes, *headers: str, length: int | None = None) -> bytes:
    fields = "".join(f"{header}\r\n" for header in headers)
    size = len(body) if length is None else length
    return f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {size}\r\n\r\n".encode() + body


def chunked(framed: bytes, *headers: str) -> bytes:
    fields = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n".encode() + framed


def page(status: int, body: str = "", location: str | None = None) -> bytes:
    """Return an answer as it goes over the wire."""
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
    if location is not None:
        head += f"Location: {location}\r\n"
    is_narrow = all(character <= "\xff" for character in head)
    return f"{head}\r\n{body}".encode("latin-1" if is_narrow else "utf-8")


def unused_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as free:
        return int(free.getsockname()[1])


def made_certificate(folder: Path, name: str, *more: str) -> Path:
    """Make a self-signed certificate with a common name, with its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate with")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}".split()
    words += [*more, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words], check=True, capture_output=True, timeout=PATIENCE)
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the two names that tests speak TLS with."""
    names = "subjectAltName=DNS:name.test,DNS:fixtures.local"
    return made_certificate(tmp_path_factory.mktemp("tls"), "name.test", "-addext", names)


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


class Internet:
    """Two servers on loopback behind made-up addresses, one of which speaks TLS.

    Attributes:
        names: What each name resolves to: answers in turn, the last one for ever; `timeout` for one that never comes.
        pages: The answer for each path.
        asked: The names that were looked up.
        connected: Where connections led.
        server_names: The names that were asked for in TLS.
    """

    def __init__(self, certificate: Path) -> None:
        self.names: dict[str, Any] = {}
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.server_names: list[str | None] = []
        context = server_context(certificate)
        context.sni_callback = lambda _peer, name, _context: self.server_names.append(name)
        self.plain = Server(lambda peer: self._answer(peer, self.plain))
        self.secure = Server(lambda peer: self._answer(peer, self.secure), context)
        self.proxy = Server(ok(b"proxy"))

    def _answer(self, peer: socket.socket, server: Server) -> None:
        peer.sendall(self.pages.get(server.requests[-1].split()[1].decode(), page(404)))

    @property
    def requests(self) -> list[str]:
        return [request.decode() for request in (*self.plain.requests, *self.secure.requests)]

    def resolve(self, host: str, port: int, **_: Any) -> list[Any]:
        """Stand for `getaddrinfo`. A final dot makes a name absolute, and is not another name."""
        assert host.endswith(".")
        self.asked.append(host[:-1])
        answers = self.names.get(host[:-1])
        if answers == "timeout":
            self.plain.stopped.wait(PATIENCE)
        if not isinstance(answers, list) or not answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        found = answers[min(self.asked.count(host[:-1]), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    def module(self) -> Any:
        """Return what stands for the module `socket` in the client."""
        net = self

        class Diverted(socket.socket):
            """Connects to loopback, and says that it is connected where it was told to."""

            wanted: tuple[str, int]

            def connect(self, address: Any) -> None:
                net.connected.append(address)
                self.wanted = address
                super().connect((LOOPBACK, (net.secure if address[1] == 443 else net.plain).port))

            def getpeername(self) -> Any:
                return self.wanted

        class Module:
            socket = Diverted
            getaddrinfo = staticmethod(net.resolve)

            def __getattr__(self, name: str) -> Any:
                return getattr(socket, name)

        return Module()

    def stop(self) -> None:
        for server in (self.plain, self.secure, self.proxy):
            server.stop()


class McpOverHttp(BaseHTTPRequestHandler):
    """An MCP server over streamable HTTP that answers in JSON, or `half` in an event.

    `huge` is an answer without end, some are errors.
    """

    errors: ClassVar = {"keylost": -32001, "keywrong": -32603, "keyodd": -32001}

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["x-key"] is None:
            return self.send_error(401)
        result: dict[str, Any] = {}
        match asked["method"]:
            case "initialize":
                version = asked["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}}
                result["serverInfo"] = {"name": "test", "version": "1"}
            case "tools/list":
                schema = {"type": "object", "properties": {"text": {"type": "string"}}}
                name = "again" if "cursor" in (asked.get("params") or {}) else "note"
                result = {"tools": [{"name": name, "inputSchema": schema}], "nextCursor": ""}
            case "tools/call":
                text = asked["params"]["arguments"]["text"]
                result = {"content": [{"type": "text", "text": self.headers["x-key"] + text}]}
        answer: dict[str, Any] = {"result": result}
        said = result.get("content", [{}])[0].get("text", "")
        if said in self.errors:
            answer = {"error": {"code": self.errors[said], "message": said}}
        self.rfile.read(1 if said == "keyhangs" else 0)  # until the client has gone
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **answer}).encode()
        is_huge, is_event = said == "keyhuge", said in ("keyended", "keyhalf")
        framing = ("content-length", str(10**12 if is_huge else len(body)))
        if said == "keyhalf":  # each byte by itself
            event = b"data: " + body.replace(b"half", rb"hal\uD83D") + b"\n\n"
            body = b"".join(b"1\r\n%c\r\n" % byte for byte in event) + b"0\r\n\r\n"
            framing = ("transfer-encoding", "chunked")
        answered = {"keylost": 404, "keyfails": 500}.get(said, 200 if result else 404)
        self.send_response(answered if "id" in asked else 202)
        self.send_header("content-type", "text/event-stream" if is_event else "application/json")
        self.send_header("mcp-session-id", "1")
        encoding = {"keyzipped": "gzip", "keydeflated": "deflate"}.get(said, "identity")
        self.send_header("content-encoding", encoding)
        self.send_header(*framing)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)
            while is_huge:
                self.wfile.write(b" " * 1_000_000)

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        pass
