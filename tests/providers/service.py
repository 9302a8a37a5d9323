"""A service on loopback that gives canned answers, and the two languages that it speaks."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgspec
import pytest

from tachograph.runtime.log.values import ToolOffer
from tachograph.runtime.models.providers import model_of
from tachograph.runtime.models.types import LLMInput, Messages

PATIENCE = 20  # seconds that nothing here outlasts
SECRET = "sk-test-0123456789-abcdefghij"
Answer = bytes | Callable[[Any, socket.socket], object]
TOOL = ToolOffer("look", "Look it up", "read", {"type": "object", "additionalProperties": False})


class Service:
    """Gives one answer for each request, the last one again and again; each ends its connection.

    Attributes:
        answers: Those that are still to be given.
        requests: The path, the headers and the body of each request; of one in JSON its data.
        peers: The client's side of each connection.
        hung_up: Set once a client has closed a connection on which `silence` was kept.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.peers: set[Any] = set()
        self.hung_up = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            timeout, protocol_version = PATIENCE, "HTTP/1.1"

            def do_POST(self) -> None:
                with suppress(OSError):
                    service._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        if handler.headers["content-type"] == "application/json":
            body = json.loads(body)
        self.requests.append((handler.path, {k.lower(): v for k, v in handler.headers.items()}, body))
        self.peers.add(handler.client_address)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        handler.close_connection = callable(answer) or not answer.endswith(b"0\r\n\r\n")
        if callable(answer):
            answer(self, handler.connection)
        else:
            handler.connection.sendall(answer)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


def answer(body: bytes, *headers: str, status: int = 200) -> bytes:
    """Return an answer that ends with its connection; a stream of events unless headers say otherwise."""
    fields = "".join(f"{header}\r\n" for header in headers or ("Content-Type: text/event-stream",))
    return f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode() + body


def chunked(body: bytes, *, is_whole: bool) -> bytes:
    """Return an answer in small chunks; one that is not whole is cut off where more would come."""
    pieces = [body[i : i + 5] for i in range(0, len(body), 5)] + [b""] * is_whole
    framed = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return answer(framed, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")


def silence(after: bytes) -> Answer:
    """Return an answer that goes silent, until the client hangs up."""

    def answer(service: Service, connection: socket.socket) -> None:
        connection.sendall(after)
        with suppress(ConnectionError):
            connection.recv(1)  # a time-out sets nothing
        service.hung_up.set()

    return answer


class Anthropic:
    """Events of the Messages API."""

    package, name, variable = "anthropic", "anthropic:claude", "ANTHROPIC_API_KEY"
    path, end = "/v1/messages", b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
    words: ClassVar = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}

    @staticmethod
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    def start(self) -> bytes:
        usage = {"input_tokens": 5, "output_tokens": 1}
        return self.event("message_start", message={"model": "claude-1", "usage": usage})

    def block(self, index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
        begun = self.event("content_block_start", index=index, content_block=block)
        pieces = [self.event("content_block_delta", index=index, delta=delta) for delta in deltas]
        return b"".join([begun, *pieces, self.event("content_block_stop", index=index)])

    def said(self, *pieces: str, index: int = 0) -> bytes:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        return self.block(index, {"type": "text", "text": ""}, *deltas)

    def call(self, index: int, name: str, *pieces: str) -> bytes:
        block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        return self.block(index, block, *deltas)

    def stopped(self, word: str | None, written: int = 7) -> bytes:
        stop = {"stop_reason": self.words.get(str(word), word), "stop_sequence": None}
        return self.event("message_delta", delta=stop, usage={"output_tokens": written})


class OpenAI:
    """Chunks of chat completions."""

    package, name, variable = "openai", "openai:gpt", "OPENAI_API_KEY"
    path, end = "/v1/chat/completions", b"data: [DONE]\n\n"
    words: ClassVar = {"refusal": "content_filter"}

    @staticmethod
    def chunk(delta: Any = None, finish: str | None = None, **fields: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return f"data: {json.dumps({'model': 'gpt-1', 'choices': choices, **fields})}\n\n".encode()

    def start(self) -> bytes:
        return self.chunk({"role": "assistant", "content": ""})

    def said(self, *pieces: str, index: int = 0) -> bytes:
        return b"".join(self.chunk({"content": piece}) for piece in pieces)

    def call(self, index: int, name: str, *pieces: str, **more: Any) -> bytes:
        first = {"index": index, "id": f"call_{index}", "type": "function", **more}
        parts = [{**first, "function": {"name": name, "arguments": ""}}]
        parts += [{"index": index, "function": {"arguments": piece}} for piece in pieces]
        return b"".join(self.chunk({"tool_calls": [part]}) for part in parts)

    def stopped(self, word: str | None, written: int = 7) -> bytes:
        usage = {"prompt_tokens": 5, "completion_tokens": written}
        return self.chunk({}, self.words.get(str(word), word)) + self.chunk(usage=usage)


A, O = Anthropic(), OpenAI()  # noqa: E741 - short names make the tables readable
LANGUAGES = [A, O]


def whole(language: Any, *parts: bytes, stop: str = "stop") -> bytes:
    """Return the body of a whole reply."""
    return b"".join([language.start(), *parts, language.stopped(stop), language.end])


def model(language: Any, service: Service | str, **more: Any) -> Any:
    """Return a model at a service; skips the test where there is no SDK for it."""
    pytest.importorskip(language.package, reason=f"the package {language.package} is not installed")
    url = service if isinstance(service, str) else service.url
    return model_of(language.name, base_url=url, **{"timeout_s": PATIENCE, **more})


def asked(*messages: Any, tools: Any = (TOOL,), limit: int = 1000, instructions: str = "") -> LLMInput:
    """Return a request; a text is what the user says."""
    given = [{"role": "user", "content": part} if isinstance(part, str) else part for part in messages]
    texts = [msgspec.json.encode(part) for part in given]
    return LLMInput("run", 1, Messages(texts), tuple(tools), limit, instructions)
