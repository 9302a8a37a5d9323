"""A small internet of our own for the real client: made-up names and addresses, servers on loopback behind them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tachograph import ToolCall
from tachograph.runtime.tools.loader import load_named
from tachograph.runtime.workspace import http, web_io
from tests.runtime.workspace.test_http import LOOPBACK, Server
from tests.support import Ran, answer, ask, perform, policy_data

HOST = "fixtures.local"
PUBLIC = "93.184.216.34"
REASONS = {200: "OK", 301: "Moved", 302: "Found", 303: "See Other", 308: "Permanent Redirect"}


class Internet:
    """Servers on loopback behind made-up addresses. `asked`, `connected` and `requests` say what was done."""

    def __init__(self) -> None:
        self.plain = Server(self._answer)
        self.secure: Server | None = None
        self.proxy = Server(lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy"))
        self.over = threading.Event()
        self.reset({}, {})

    def reset(self, names: dict[str, Any], pages: dict[str, bytes]) -> None:
        """`names`: name -> answers in turn, the last one for ever, or "timeout". `pages`: path -> answer."""
        self.names, self.pages = names, pages
        self.asked: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.server_names: list[str | None] = []
        self.plain.requests.clear()
        if self.secure is not None:
            self.secure.requests.clear()

    @property
    def requests(self) -> list[str]:
        both = [*self.plain.requests, *(self.secure.requests if self.secure is not None else [])]
        return [request.decode() for request in both]

    def _answer(self, peer: socket.socket) -> None:
        server = self.secure if isinstance(peer, ssl.SSLSocket) else self.plain
        assert server is not None
        request = server.requests[-1]
        missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        peer.sendall(self.pages.get(request.split()[1].decode(), missing))

    def resolve(self, host: str, port: int, **_: Any) -> list[Any]:
        """What the client takes for `getaddrinfo`. A final dot makes a name absolute, and is no other name."""
        host = host.removesuffix(".")
        self.asked.append(host)
        answers = self.names.get(host)
        if answers == "timeout":
            self.over.wait(5)
            answers = [[PUBLIC]]
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        found = answers[min(self.asked.count(host), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    def speak_tls(self, certificate: Path) -> ssl.SSLContext:
        """A secure server too; returns a context for clients that trusts it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda _peer, name, _context: self.server_names.append(name)
        self.secure = Server(self._answer, context)
        return ssl.create_default_context(cafile=str(certificate))

    def module(self) -> Any:
        """What the client takes for the module `socket`."""
        net = self

        class Diverted(socket.socket):
            """Connects to loopback, and says that it is connected where it was told to."""

            wanted: tuple[str, int]

            def connect(self, address: Any) -> None:
                net.connected.append(address)
                self.wanted = address
                if self.family != socket.AF_INET:
                    raise ConnectionRefusedError
                server = net.secure if address[1] == 443 and net.secure is not None else net.plain
                super().connect((LOOPBACK, server.port))

            def getpeername(self) -> Any:
                return self.wanted

        class Module:
            socket = Diverted
            getaddrinfo = staticmethod(net.resolve)

            def __getattr__(self, name: str) -> Any:
                return getattr(socket, name)

        return Module()

    def stop(self) -> None:
        self.over.set()
        for server in (self.plain, self.proxy, self.secure):
            if server is not None:
                server.stop()


@contextmanager
def opened(home: Path) -> Iterator[Internet]:
    """An internet that the client is led to, and an environment full of advice that must not be taken."""
    net = Internet()
    lines = f"machine {HOST} login root password CANARY\ndefault login root password CANARY\n"
    for name in ("netrc", ".netrc"):
        (home / name).write_text(lines)
        (home / name).chmod(0o600)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(http, "socket", net.module())
        patched.setattr(web_io, "HTTP_S", 3.0)
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            for written in (name, name.upper()):
                patched.setenv(written, f"http://{LOOPBACK}:{net.proxy.port}")
        patched.setenv("no_proxy", "")
        patched.setenv("NETRC", str(home / "netrc"))
        patched.setenv("HOME", str(home))
        yield net
    net.stop()


def page(status: int, body: str = "", location: str | None = None) -> bytes:
    """An answer as it goes over the wire."""
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Length: {len(body)}\r\n"
    if location is not None:
        head += f"Location: {location}\r\n"
    narrow = all(c <= "\xff" for c in head)
    return f"{head}\r\n{body}".encode("latin-1" if narrow else "utf-8")


def fetched(url: str, *, hosts: Sequence[str] = (HOST,), **sections: Any) -> Ran:
    """A run that fetches a URL and then answers; `hosts` are allowed on http and https."""
    entries = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    data = policy_data(tool_registry={"allowed": ["fetch"], "denied": []}, url_allowlist=entries, **sections)
    return perform([ask(ToolCall("fetch", {"url": url})), answer()], [load_named("fetch")], data)
