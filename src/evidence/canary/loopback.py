"""A server on this machine: it plays the model, in one piece or in many, a web page, and an OTLP receiver."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

MODEL: Final = "/model"
TRACES: Final = "/v1/traces"
_WAIT_S: Final = 20.0
_PIECE: Final = 7  # characters of a piece of a stream: every marked value is split


class Loopback:
    """The server, on a free port of 127.0.0.1; it is gone when its `with` block ends.

    Args:
        turns: What the model replies, by step from 0.
        pages: Path -> (status, headers, body).
    """

    def __init__(
        self, turns: Sequence[Mapping[str, Any]], pages: Mapping[str, tuple[int, Mapping[str, str], str]]
    ) -> None:
        self.bodies: list[bytes] = []  # what the OTLP receiver was sent
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Say nothing on standard error."""

            def do_GET(self) -> None:
                self._answer(*pages.get(self.path, (404, {}, "there is no such page")))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == MODEL:
                    asked = json.loads(body)
                    self._answer(*_reply(turns[asked["step"]], asked["attempt"]))
                else:
                    owner.bodies.append(body)
                    self._answer(200, {"Content-Type": "application/x-protobuf"}, "")

            def _answer(self, status: int, headers: Mapping[str, str], text: str) -> None:
                data = text.encode("utf-8")
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _reply(turn: Mapping[str, Any], attempt: int) -> tuple[int, Mapping[str, str], str]:
    if attempt == 1 and "error" in turn:
        return 503, {}, json.dumps({"error": turn["error"]})
    return 200, {}, json.dumps({key: value for key, value in turn.items() if key != "error"})


def ask(
    address: str, step: int, attempt: int, on_piece: Callable[[str], None] | None
) -> tuple[int, dict[str, Any]]:
    """Ask the model of a server; return the status and the body of its answer. `on_piece` gets its text in pieces."""
    connection = http.client.HTTPConnection(address, timeout=_WAIT_S)
    try:
        connection.request("POST", MODEL, json.dumps({"step": step, "attempt": attempt}))
        answer = connection.getresponse()
        body: dict[str, Any] = json.loads(answer.read())
    finally:
        connection.close()
    for text in (body.get("text"), body.get("answer")):
        for begin in range(0, len(text or ""), _PIECE) if on_piece is not None else ():
            on_piece(str(text)[begin : begin + _PIECE])  # type: ignore[misc]
    return answer.status, body
