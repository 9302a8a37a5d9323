"""Each kind of fault of the shared fault server, met by each SDK: a classified failure, in bounded time."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tachograph.fail.errors import InvalidModelOutput, ModelError, TransientModelError
from tests.providers.asking import PACKAGES, PROVIDERS, asked, opened

_SUFFIX = re.compile(rb"/(?:v1/messages|(?:v1/)?chat/completions) HTTP/1\.1\r\n")


def _faults() -> ModuleType:
    corpora = os.environ.get("TACHOGRAPH_CORPORA")
    if not corpora:
        pytest.skip("TACHOGRAPH_CORPORA is not set")
    path = Path(corpora).parent / "faults" / "http_faults.py"
    if not path.is_file():
        pytest.skip("there is no fault server beside the corpora")
    spec = importlib.util.spec_from_file_location("http_faults", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Connection:
    """A connection that gives a whole request at once, and without the path that an SDK appends.

    The fault server looks for its fault in the path, and reads once: what it left unread would reset the
    connection under its answer.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def recv(self, size: int) -> bytes:
        request = b""
        while (chunk := self._connection.recv(size)) != b"":
            request += chunk
            head, end, body = request.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: ([0-9]+)", head)
            if end and len(body) >= (int(length[1]) if length else 0):
                break
        return _SUFFIX.sub(b" HTTP/1.1\r\n", request, count=1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


# path -> what comes of it: one word, or one for chat completions and one for messages where the protocol decides
EXPECTED: dict[str, str] = {
    "/ok": "reply invalid",
    "/status/400": "failure",
    "/status/401": "failure",
    "/status/403": "failure",
    "/status/404": "failure",
    "/status/413": "failure",
    "/status/408": "transient",
    "/status/429": "transient",
    "/status/500": "transient",
    "/status/503": "transient",
    "/status/529": "transient",
    "/flaky/1": "transient",
    "/429/sec": "transient",
    "/429/date": "transient",
    "/429/neg": "transient",
    "/429/huge": "transient",
    "/429/nan": "transient",
    "/429/empty": "transient",
    "/429/frac": "transient",
    "/429/junk": "transient",
    "/hang": "timeout",
    "/slowloris": "timeout",
    "/slowheaders": "timeout",
    "/rst": "transient",
    "/rst-mid": "transient",
    "/early-fin": "transient",
    "/no-length": "reply invalid",
    "/bad-chunk": "transient",
    "/cl-te": "invalid",
    "/huge": "invalid",
    "/gzip-bomb": "invalid",
    "/gzip-bad": "invalid",
    "/html": "invalid",
    "/empty": "transient",
    "/null": "invalid",
    "/nan": "invalid",
    "/latin1": "invalid",
    "/cut-utf8": "invalid",
    "/200-error": "failure",
    "/garbage": "transient",
    "/many-headers": "invalid",
    "/huge-header": "transient",
    "/100": "reply invalid",
    "/redirect-loop": "failure",
    "/redirect-off": "failure",
    "/sse-cut": "transient",
    "/sse-no-done": "transient",
    "/sse-trickle": "timeout",
}
RETRY_AFTER = {"/429/sec": 1000, "/429/frac": 500, "/429/huge": 99_999_999_999_000}
NO_RETRY_AFTER = ("/429/neg", "/429/nan", "/429/empty", "/429/junk", "/status/429")
# seconds for the next bytes and for the whole: short where nothing but waiting happens, else long enough
# for a machine under load
WAITING = {path: (0.5, 1.0) for path, words in EXPECTED.items() if "timeout" in words}
ENOUGH = (8.0, 12.0)
MARGIN_S = 60.0  # only what hangs is this late
Came = tuple[str, float, BaseException | None]


def came_of(provider: str, url: str, path: str) -> Came:
    """(what came, after how many seconds, the exception)."""
    timeout_s, total_s = WAITING.get(path, ENOUGH)
    begun = time.monotonic()
    error: BaseException | None = None
    try:
        opened(provider, url + path, timeout_s=timeout_s, total_s=total_s)(asked())
        what = "reply"
    except TransientModelError as caught:
        what, error = "transient", caught
    except TimeoutError as caught:
        what, error = "timeout", caught
    except InvalidModelOutput as caught:
        what, error = "invalid", caught
    except ModelError as caught:
        what, error = "failure", caught
    return what, time.monotonic() - begun, error


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], Came]:
    """What came of every path for every provider, asked at the same time: most of it is waiting."""
    faults = _faults()
    for provider in PROVIDERS:
        pytest.importorskip(PACKAGES[provider])
    # half a second of work for each connection, and the same bytes every time
    bomb = gzip.compress(b"0" * 50_000_000, 1)
    faults.gzip = SimpleNamespace(compress=lambda *_: bomb)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=faults.handle, args=(Connection(connection),), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    asked_for = [(provider, path) for path in EXPECTED for provider in PROVIDERS if path != "/flaky/1"]
    with listener, ThreadPoolExecutor(8) as pool:
        came = list(pool.map(lambda what: came_of(what[0], url, what[1]), asked_for))
        for provider in PROVIDERS:
            faults.COUNT.clear()
            asked_for.append((provider, "/flaky/1"))
            came.append(came_of(provider, url, "/flaky/1"))
        listener.shutdown(socket.SHUT_RDWR)
    return dict(zip(asked_for, came, strict=True))


def expected(provider: str, path: str) -> str:
    words = EXPECTED[path].split()
    return words[-1] if provider == "anthropic" else words[0]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("path", EXPECTED)
def test_a_fault_is_classified_in_bounded_time(
    provider: str, path: str, outcomes: dict[tuple[str, str], Came]
) -> None:
    what, seconds, error = outcomes[provider, path]
    assert what == expected(provider, path), error
    assert seconds < WAITING.get(path, ENOUGH)[1] + MARGIN_S
    if error is not None:
        assert error.__context__ is None and error.__cause__ is None, "an SDK's exception hangs on"
    if path in RETRY_AFTER or path in NO_RETRY_AFTER:
        assert isinstance(error, TransientModelError)
        assert error.retry_after_ms == RETRY_AFTER.get(path)


def test_every_kind_of_fault_is_met() -> None:
    corpora = os.environ.get("TACHOGRAPH_CORPORA")
    listed = Path(corpora or "/").parent / "faults" / "llm_http_paths.txt"
    if not corpora or not listed.is_file():
        pytest.skip("there is no list of faults beside the corpora")
    kinds = {word.strip("/").split("/")[0] for word in listed.read_text(encoding="utf-8").split()}
    assert {path.strip("/").split("/")[0] for path in EXPECTED} == kinds
