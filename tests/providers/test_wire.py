"""A call without an SDK: its deadline, its interrupt, what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tachograph import Agent, Policy, Scope
from tachograph.fail.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidModelOutput,
    ModelError,
    TransientModelError,
)
from tachograph.runtime.core.stopping import STOPPING
from tachograph.runtime.models.providers.wire import MAX_BYTES, Call, Options
from tachograph.runtime.models.types import LLMOutput
from tests.support import policy_data, tool

OUTPUT = LLMOutput(final_answer="done")


def call(on_text: Any = None, total_s: float = 0.3) -> Call:
    return Call(Options(on_text, 1.0, total_s, 100, True), "host.test")


class SyncByteStream:
    """Named as the HTTP libraries name theirs."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.closed = False

    def __iter__(self) -> Any:
        return iter(self.chunks)

    def close(self) -> None:
        self.closed = True


def answer(under_way: Call, *chunks: bytes, status: int = 200, **headers: str) -> Any:
    """An HTTP answer of which the call has taken note."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = SimpleNamespace(status_code=status, headers=named, stream=SyncByteStream(*chunks))
    (hook,) = under_way.hooks(lambda _request: None)["response"]
    hook(response)
    return response


def test_text_is_shown_in_order_in_the_caller_s_thread() -> None:
    shown: list[tuple[str, threading.Thread]] = []
    under_way = call(lambda text: shown.append((text, threading.current_thread())))

    def work() -> LLMOutput:
        for text in ("a", "", "\ud800b", "c"):
            under_way.say(text)
        return OUTPUT

    assert under_way.run(work) is OUTPUT
    assert shown == [(text, threading.current_thread()) for text in ("a", "?b", "c")]


def test_nothing_is_left_running() -> None:
    before = set(threading.enumerate())
    for _ in range(5):
        call().run(lambda: OUTPUT)
    assert set(threading.enumerate()) == before


def test_the_deadline_holds_whatever_the_work_does() -> None:
    released, finished = threading.Event(), []

    def work() -> LLMOutput:
        released.wait(30)
        finished.append(True)
        return OUTPUT

    with pytest.raises(TimeoutError, match=r"^host.test gave no reply within 0.3 s$") as caught:
        call().run(work)
    assert not finished
    assert caught.value.__context__ is None
    released.set()


def test_the_deadline_holds_against_a_trickle() -> None:
    shown: list[str] = []
    under_way = call(shown.append)

    def work() -> LLMOutput:
        under_way.begun = True
        while not under_way._over.wait(0.01):
            under_way.say("x")
        return OUTPUT

    with pytest.raises(ModelError, match="in the middle of a reply: out of time"):
        under_way.run(work)
    assert len(shown) > 5


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_not_kept_waiting() -> None:
    released, finished = threading.Event(), []

    def work() -> LLMOutput:
        released.wait(30)
        finished.append(True)
        return OUTPUT

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call(total_s=60).run(work)
        assert not finished
    finally:
        timer.cancel()
        released.set()


@pytest.mark.parametrize("by", ["cancel", "event", "deadline"])
def test_what_stops_the_run_ends_the_call(by: str) -> None:
    """The deadline of the call is a minute, so that only what stops the run can end it."""
    event = threading.Event()
    scope = Scope(event if by == "event" else None)
    asked, released, connection = threading.Event(), threading.Event(), socket.socketpair()
    under_way = call(total_s=60)
    finished = []

    def work() -> LLMOutput:
        under_way._connection = connection[0]
        if by == "deadline":
            scope.limit(0.1)
        asked.set()
        released.wait(10)
        finished.append(True)
        return OUTPUT

    def stop() -> None:
        asked.wait(30)
        time.sleep(0.1)  # until the caller waits for the reply
        {"cancel": scope.cancel, "event": event.set, "deadline": lambda: None}[by]()

    stopping = threading.Thread(target=stop)
    stopping.start()
    token = STOPPING.set(scope)
    try:
        with pytest.raises(DeadlineExceeded if by == "deadline" else Cancelled) as caught:
            under_way.run(work)
    finally:
        STOPPING.reset(token)
        stopping.join()
    assert not finished and caught.value.__context__ is None and scope.open_below == 0
    connection[1].settimeout(30)
    assert connection[1].recv(1) == b""  # the worker's connection is shut, so that it can end
    released.set()
    for end in connection:
        end.close()


def test_a_cancelled_run_does_not_wait_for_its_model() -> None:
    asked, released = threading.Event(), threading.Event()
    scope = Scope()

    def work() -> LLMOutput:
        asked.set()
        released.wait(10)
        return OUTPUT

    def stop() -> None:
        asked.wait(30)
        time.sleep(0.1)
        scope.cancel()

    stopping = threading.Thread(target=stop)
    stopping.start()
    agent = Agent(
        lambda _asked: call(total_s=60).run(work), [tool(), tool("echo")], Policy.from_dict(policy_data())
    )
    result = agent.run("What now?", cancel=scope)
    assert result.ending == "cancelled" and not released.is_set()
    released.set()
    stopping.join()


def test_an_interrupt_raised_while_text_is_shown_passes_through() -> None:
    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    under_way = call(interrupted)
    with pytest.raises(KeyboardInterrupt):
        under_way.run(lambda: (under_way.say("x"), OUTPUT)[1])


def test_what_showing_raises_is_never_a_reason_to_ask_again() -> None:
    def broken(_text: str) -> None:
        raise BrokenPipeError

    under_way = call(broken)
    with pytest.raises(ModelError, match="on_text raised BrokenPipeError") as caught:
        under_way.run(lambda: (under_way.say("x"), OUTPUT)[1])
    assert type(caught.value) is ModelError


def test_a_failure_comes_without_the_exception_behind_it() -> None:
    def work() -> LLMOutput:
        raise ConnectionResetError("sk-ant-IN-THE-TEXT")

    with pytest.raises(TransientModelError) as caught:
        call().run(work)
    assert "sk-ant" not in repr(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


# ---- what is received ------------------------------------------------------------------------------------------


def test_bodies_are_counted_and_capped() -> None:
    under_way = call()
    response = answer(under_way, b"ab", b"c")
    assert list(response.stream) == [b"ab", b"c"]
    response.stream.close()
    response = answer(under_way, *[bytes(2**20)] * 40)

    def work() -> LLMOutput:
        received = sum(len(chunk) for chunk in response.stream)
        raise AssertionError(f"{received} bytes were read")

    with pytest.raises(InvalidModelOutput, match=f"larger than {MAX_BYTES} bytes"):
        under_way.run(work)


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip", "GZIP"])
def test_compressed_bodies_are_refused(coding: str) -> None:
    under_way = call()
    with pytest.raises(InvalidModelOutput, match="compressed, which was not asked for"):
        under_way.run(lambda: (answer(under_way, b"x", content_encoding=coding), OUTPUT)[1])
    under_way = call()
    assert list(answer(under_way, b"x", content_encoding="Identity").stream) == [b"x"]


def test_nothing_at_all_is_an_early_end() -> None:
    def work(under_way: Call, *chunks: bytes) -> LLMOutput:
        list(answer(under_way, *chunks).stream)
        raise ValueError("no JSON")

    under_way = call()
    with pytest.raises(TransientModelError, match="ended the reply before it began"):
        under_way.run(lambda: work(under_way))
    second = call()
    with pytest.raises(InvalidModelOutput, match="cannot be read"):
        second.run(lambda: work(second, b"x"))


def test_an_abandoned_worker_reads_no_further() -> None:
    class Endless(SyncByteStream):
        def __iter__(self) -> Any:
            while True:
                time.sleep(0.01)
                yield b"x"

    under_way = call(total_s=0.1)
    taken: list[bytes] = []
    response = SimpleNamespace(status_code=200, headers={}, stream=Endless())
    under_way.hooks(lambda _request: None)["response"][0](response)

    def work() -> LLMOutput:
        taken.extend(response.stream)
        return OUTPUT

    before = set(threading.enumerate())
    with pytest.raises(TimeoutError):
        under_way.run(work)
    assert set(threading.enumerate()) == before


def test_the_connection_is_closed_under_a_worker_that_waits() -> None:
    under_way = call(total_s=0.1)
    closed = threading.Event()
    ended = threading.Event()
    fake = SimpleNamespace(shutdown=lambda how: closed.set())
    stream = SimpleNamespace(get_extra_info=lambda name: fake if name == "socket" else None)
    request = SimpleNamespace(extensions={"timeout": 1})

    def work() -> LLMOutput:
        hook, _ = under_way.hooks(lambda _request: None)["request"]
        hook(request)
        request.extensions["trace"]("connection.connect_tcp.complete", {"return_value": stream})
        closed.wait(5)
        ended.set()
        return OUTPUT

    with pytest.raises(TimeoutError):
        under_way.run(work)
    assert ended.is_set() and request.extensions["timeout"] == 1
