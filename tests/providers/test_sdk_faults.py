"""The official SDKs over a server of ours that fails: before a reply begins, and in the middle of one."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tachograph.fail.errors import InvalidModelOutput, ModelError, TransientModelError
from tests.providers.asking import LONG, asked, failing, one_call, opened
from tests.providers.protocols import Turn
from tests.providers.servers import Broken, Raw, Server, Status, body

pytestmark = pytest.mark.usefixtures("way")

# ---- faults before a reply begins --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [429, 500, 503, 529])
def test_busy_services(provider: str, code: int) -> None:
    word = b'{"type": "error", "error": {"type": "overloaded_error"}}'
    error = failing(provider, TransientModelError, Status(code, {"Retry-After": "3"}, word))
    assert isinstance(error, TransientModelError) and error.retry_after_ms == 3000


def test_a_call_is_one_attempt(provider: str) -> None:
    with Server([Status(503), Turn("x")]) as server:
        adapter = opened(provider, server.base_url(provider))
        with pytest.raises(TransientModelError):
            one_call(adapter, asked())
        assert len(server.requests) == 1
        assert one_call(adapter, asked()).final_answer == "x"


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413])
def test_lasting_refusals(provider: str, code: int) -> None:
    failing(provider, ModelError, Status(code, {"Retry-After": "3"}))


def test_spent_money_is_not_asked_for_again() -> None:
    pytest.importorskip("openai")
    failing("openai", ModelError, Status(429, body=b'{"error": {"code": "insufficient_quota"}}'))
    failing("openai", ModelError, Status(429, {"x-should-retry": "false"}))


def test_nobody_there(provider: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(TransientModelError, match="failed or was lost"):
        one_call(opened(provider, f"http://127.0.0.1:{port}"), asked())


@pytest.mark.parametrize("stream", [True, False])
def test_silence_before_the_head(provider: str, stream: bool) -> None:
    total_s = 3.0 if stream else 0.3
    options = {"timeout_s": 0.2, "total_s": total_s, "stream": stream}
    error = failing(provider, TimeoutError, Raw(b"", then="stall"), **options)
    assert str(error).endswith("was silent for too long" if stream else "gave no reply within 0.3 s")
    limit = time.monotonic() + 30
    while "tachograph-model" in {thread.name for thread in threading.enumerate()}:
        assert time.monotonic() < limit, "a worker is stuck"
        time.sleep(0.02)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_service_is_silent(provider: str) -> None:
    with Server([Raw(b"", then="stall")]) as server:
        adapter = opened(provider, server.base_url(provider), timeout_s=90, total_s=90)
        timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                adapter(asked())
        finally:
            timer.cancel()
        assert time.monotonic() - begun < 60, "the interrupt waited for the service"


def test_lost_connections(provider: str) -> None:
    failing(provider, TransientModelError, Raw(b"", then="reset"))
    failing(provider, TransientModelError, Raw(b"HTTP/1.1 200 OK\r\nContent-Le"))


def test_empty_bodies_and_empty_streams(provider: str) -> None:
    failing(provider, TransientModelError, Raw(body(b"")))
    failing(provider, TransientModelError, Broken(LONG, 0, "end"))


NO_REPLIES = {
    "html": body(b"<html>Sign in</html>", "text/html"),
    "html as events": body(b"<html>Sign in</html>\n\n", "text/event-stream"),
    "wrong type": body(b"data: {}\n\n", "application/json"),
    "list": body(b"[]"),
    "null": body(b"null"),
    "no choices": body(b'{"choices": [], "content": null, "message": null, "done": true}'),
    "latin-1": body(b'{"x": "\xe9\xff"}'),
    "deep": body(b"[" * 100_000),
    "bomb": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    + gzip.compress(b"0" * 20_000_000, 1),
}


@pytest.mark.parametrize("name", NO_REPLIES)
def test_what_is_no_reply(provider: str, name: str) -> None:
    if name == "html as events":  # a stream without an event
        failing(provider, TransientModelError, Raw(NO_REPLIES[name]))
    else:
        failing(provider, InvalidModelOutput, Raw(NO_REPLIES[name]))


def test_a_huge_body_is_not_read_to_its_end(provider: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    with Server([Raw(head, b"x" * 2**20, times=64)]) as server:
        adapter = opened(provider, server.base_url(provider), total_s=8)
        with pytest.raises(InvalidModelOutput, match="larger than 33554432 bytes"):
            one_call(adapter, asked())


def test_a_huge_error_is_not_read_to_its_end(provider: str) -> None:
    head = b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    with Server([Raw(head, b"x" * 2**20, times=64)]) as server:
        adapter = opened(provider, server.base_url(provider), total_s=8)
        with pytest.raises(InvalidModelOutput, match="larger than"):
            one_call(adapter, asked())


def test_an_error_in_the_place_of_a_reply(provider: str) -> None:
    failing(provider, TransientModelError, Raw(body(b'{"error": {"type": "overloaded_error"}}')))
    failing(provider, ModelError, Raw(body(b'{"error": {"message": "quota"}}')))
    failing(provider, TransientModelError, Broken(LONG, 0, "overloaded_error"))
    failing(provider, ModelError, Broken(LONG, 0, "invalid_request_error"))


# ---- faults in mid-stream ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["end", "drop", "reset", "stall", "overloaded_error", "rate_limit_error"])
def test_once_a_reply_has_begun_nothing_is_asked_again(provider: str, how: str) -> None:
    error = failing(provider, ModelError, Broken(LONG, 6, how), timeout_s=0.2)
    assert str(error).endswith("broke off in the middle of a reply")


@pytest.mark.parametrize("how", ["end", "drop", "reset", "stall"])
def test_before_it_has_begun_it_may_be(how: str) -> None:
    for provider in ("openai", "anthropic"):
        pytest.importorskip(provider)
        kind = TimeoutError if how == "stall" else TransientModelError
        failing(provider, kind, Broken(LONG, 1, how), timeout_s=0.2)  # only the head of the reply has come


@pytest.mark.parametrize("after", [1, 6])
def test_a_corrupt_event_is_no_reply(provider: str, after: int) -> None:
    failing(provider, InvalidModelOutput, Broken(LONG, after, "corrupt"))


def test_a_trickle_ends_at_the_deadline(provider: str) -> None:
    def trickle() -> Iterator[Turn]:
        yield Turn("x" * 100_000)

    with Server(trickle()) as server:
        adapter = opened(provider, server.base_url(provider), total_s=0.3, on_text=lambda _: time.sleep(0.01))
        with pytest.raises(ModelError, match="out of time"):
            one_call(adapter, asked())
