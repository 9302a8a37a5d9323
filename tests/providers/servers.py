"""Loopback servers that speak OpenAI's chat completions and Anthropic's messages.

One server speaks both, by path, streamed or not, and answers from a script of replies: a `Turn`, an HTTP
`Status`, `Raw` bytes, or a turn that is `Broken` somewhere. Its ids and dates differ every time, as a real
service's do. `requests` holds what it was sent.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.providers.protocols import STREAM, WHOLE, Turn, error_event

LONGEST_STALL_S = 20
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/v1/chat/completions"}
BASES = {"openai": "/v1", "anthropic": "", "ollama": ""}


@dataclass(frozen=True)
class Status:
    """An HTTP error, or a redirect."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


@dataclass(frozen=True)
class Raw:
    """Exactly these bytes on the connection, the last part `times` times; then `then`: close, reset or stall."""

    data: bytes
    more: bytes = b""
    times: int = 1
    then: str = "close"


@dataclass(frozen=True)
class Broken:
    """A streamed turn of which `after` events arrive; then `then`.

    end (in good order), drop (the connection closes within the body), reset, stall, corrupt (an event that
    is no JSON), or a word, as which the service reports an error in the stream.
    """

    turn: Turn
    after: int
    then: str


Reply = Turn | Status | Raw | Broken
Script = Iterable[Reply | Callable[[dict[str, Any]], Reply]]


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def body(data: bytes, content_type: str = "application/json", status: str = "200 OK") -> bytes:
    """A whole HTTP answer, for `Raw`."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + data


class Server:
    """A running server; leave the `with` block and it is gone."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._script = iter(script)
        self._lock = threading.Lock()
        owner = self

        class Handler(_Handler):
            server_of_script = owner

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def base_url(self, provider: str) -> str:
        return f"http://127.0.0.1:{self.port}{BASES[provider]}"

    def next_reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            reply = next(self._script, Status(500, body=b'{"error": {"message": "the script has run out"}}'))
        return reply(request.body) if callable(reply) else reply


class _Handler(BaseHTTPRequestHandler):
    server_of_script: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, asked: dict[str, Any]) -> None:
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server_of_script.next_reply(Request(self.path, headers, asked))
        provider = next((name for name, path in PATHS.items() if path == self.path), None)
        try:
            if isinstance(reply, Raw):
                self._raw(reply)
            elif isinstance(reply, Status) or provider is None:
                self._status(reply if isinstance(reply, Status) else Status(404))
            elif asked.get("stream", False):
                self._stream(provider, reply)
            else:
                assert isinstance(reply, Turn), "only a stream can break in the middle"
                document = json.dumps(WHOLE[provider](reply, asked["model"])).encode()
                self.connection.sendall(body(document))
        except OSError:
            pass  # the client went away, as it should in many of these tests

    def _status(self, status: Status) -> None:
        self.send_response(status.code)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(status.body))}
        for name, value in (headers | dict(status.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(status.body)

    def _raw(self, raw: Raw) -> None:
        self.connection.sendall(raw.data)
        for _ in range(raw.times if raw.more else 0):
            self.connection.sendall(raw.more)
        self._end(raw.then)

    def _end(self, how: str) -> None:
        if how == "stall":
            self.server_of_script.closing.wait(LONGEST_STALL_S)
        elif how == "reset":
            time.sleep(0.05)  # what was sent before should arrive
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _stream(self, provider: str, reply: Turn | Broken) -> None:
        broken = reply if isinstance(reply, Broken) else None
        turn = broken.turn if broken else reply
        assert isinstance(turn, Turn)
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
        self.connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        for count, event in enumerate(STREAM[provider](turn)):
            if broken is not None and count == broken.after:
                self._break(provider, broken.then)
                return
            self._chunk(event)
        self._chunk(b"")

    def _break(self, provider: str, how: str) -> None:
        if how == "end":
            self._chunk(b"")
        elif how == "corrupt":
            self._chunk(b'data: {"type": "mess\n\n')
            self._chunk(b"")
        elif how in ("drop", "reset", "stall"):
            self._end(how)
        else:
            self._chunk(error_event(provider, how))
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.connection.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")
