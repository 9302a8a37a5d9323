"""A tool's `io` works while its attempt lasts: what is under way is awaited, what comes later does nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.agent import Agent
from tachograph.runtime.policy.policy import Policy
from tests.runtime.workspace.test_http import Server
from tests.support import Script, answer, ask, perform, policy_data, probe, tool

LOOPBACK = "127.0.0.1"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: https://denied.test/\r\nContent-Length: 0\r\n\r\n"


class Background:
    """Calls of `io` in threads, as a tool leaves them behind; keeps what each returned or raised."""

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.threads: list[threading.Thread] = []

    def start(self, call: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                self.came.append(call())
            except Exception as error:  # noqa: BLE001 - looked at by the test
                self.came.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self) -> list[Any]:
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        return self.came


@pytest.fixture
def asked() -> Iterator[Callable[[bytes | None], tuple[Server, threading.Event]]]:
    """A server that tells when it was asked, and answers a little later, or never."""
    servers: list[Server] = []

    def start(reply: bytes | None) -> tuple[Server, threading.Event]:
        was_asked = threading.Event()

        def handle(peer: socket.socket) -> None:
            was_asked.set()
            if reply is not None:
                time.sleep(0.1)
                peer.sendall(reply)
                return
            peer.settimeout(60)
            with suppress(OSError):
                peer.recv(1)  # until the other side is gone

        servers.append(Server(handle))
        return servers[-1], was_asked

    yield start
    for server in servers:
        server.stop()


def _policy(server: Server) -> dict[str, Any]:
    return policy_data(url_allowlist=[f"http://{LOOPBACK}:{server.port}/"], private_networks=["127.0.0.0/8"])


def _agent(replies: Any, run: Any, server: Server, **more: Any) -> Agent:
    model = replies if callable(replies) else Script(replies)
    return Agent(model, [tool(run=run), tool("echo")], Policy.from_dict(_policy(server)), **more)


def test_a_write_after_the_attempt_does_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    back, go_on = Background(), threading.Event()

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        def later() -> None:
            assert go_on.wait(20)
            io.write("box/late", "x")

        back.start(later)
        back.start(later)
        return {"said": "ok"}

    (tmp_path / "box").mkdir()
    with caplog.at_level(logging.WARNING, "tachograph"):

        def model(model_input: Any) -> Any:
            if model_input.step_index == 1:
                return ask(probe())
            go_on.set()
            back.join()
            return answer()

        ran = perform(
            model, [tool(run=run, effect="write")], mounts={"box": tmp_path / "box"}, policy=policy_data()
        )
    assert [type(error) for error in back.came] == [PermissionError] * 2
    assert list((tmp_path / "box").iterdir()) == []
    assert ran.result.answer == "done" and b"late" not in ran.state
    assert [record.args for record in caplog.records] == [("write", 1), ("write", 2)]


def test_a_denial_met_by_a_thread_belongs_to_the_attempt(asked: Any) -> None:
    server, was_asked = asked(REDIRECT)
    back = Background()

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        back.start(lambda: io.get(f"http://{LOOPBACK}:{server.port}/"))
        assert was_asked.wait(20)
        return {"said": "ok"}

    ran = perform([ask(probe()), answer()], [tool(run=run)], _policy(server))
    assert [type(error) for error in back.join()] == [PermissionError]
    assert (ran.result.ending, ran.result.mode) == ("policy_denial_terminal", None)
    late = [d for d in ran.decisions if d["decision"] == "deny"]
    assert [(d["rule_id"], d["facts"]["hop"]) for d in late] == [("url_allowlist", 1)]


@pytest.mark.parametrize("effect", ["network", "external"])
def test_what_outlasts_the_time_of_the_attempt_is_shut(asked: Any, effect: str) -> None:
    server, was_asked = asked(None)
    back = Background()

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        back.start(lambda: io.get(f"http://{LOOPBACK}:{server.port}/"))
        assert was_asked.wait(20)
        return {"said": "ok"}

    late = replace(tool(run=run, effect=effect), timeout_s=0.5)
    ran = perform([ask(probe()), answer()], [late], _policy(server))
    assert {type(error) for error in back.join()} == {ConnectionError}
    assert ran.results[0]["attempts"][0]["fault"]["exception"] == "TimeoutError"


def test_a_call_that_was_given_up_has_its_connection_shut(asked: Any) -> None:
    server, was_asked = asked(None)
    raised: list[BaseException] = []

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        try:
            io.get(f"http://{LOOPBACK}:{server.port}/")
        except BaseException as error:
            raised.append(error)
            raise
        return {"said": "ok"}

    async def main() -> None:
        agent = _agent([ask(probe())], run, server)
        running = asyncio.create_task(agent.arun("What now?"))
        await asyncio.to_thread(was_asked.wait, 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while not raised:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 8))
    assert [type(error) for error in raised] == [ConnectionError]


def test_a_coroutine_tool_waits_for_its_threads_too(asked: Any) -> None:
    server, was_asked = asked(REDIRECT)
    left: list[asyncio.Task[Any]] = []

    async def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        left.append(asyncio.create_task(asyncio.to_thread(io.get, f"http://{LOOPBACK}:{server.port}/")))
        await asyncio.to_thread(was_asked.wait, 20)
        return {"said": "ok"}

    async def main() -> Any:
        agent = _agent([ask(probe()), answer()], run, server)
        result = await agent.arun("What now?")
        assert isinstance((await asyncio.gather(*left, return_exceptions=True))[0], PermissionError)
        return result

    result = asyncio.run(main())
    assert (result.ending, result.mode) == ("policy_denial_terminal", None)


def test_a_task_that_outlives_a_coroutine_tool_does_nothing(asked: Any, tmp_path: Path) -> None:
    server, _ = asked(REDIRECT)
    left: list[asyncio.Task[Any]] = []
    went_on, wrote = threading.Event(), threading.Event()

    def model(model_input: Any) -> Any:
        if model_input.step_index == 1:
            return ask(probe())
        went_on.set()
        assert wrote.wait(20)  # before the mounts of the run are closed
        return answer()

    async def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        async def later() -> None:
            while not went_on.is_set():
                await asyncio.sleep(0.005)
            try:
                io.write("box/late", "x")
            finally:
                wrote.set()

        left.append(asyncio.create_task(later()))
        return {"said": "ok"}

    async def main() -> Any:
        result = await _agent(model, run, server, mounts={"box": tmp_path}).arun("What now?")
        assert isinstance((await asyncio.gather(*left, return_exceptions=True))[0], PermissionError)
        return result

    assert asyncio.run(main()).answer == "done"
    assert list(tmp_path.iterdir()) == []


def test_a_coroutine_tool_that_is_cancelled_writes_nothing_while_it_cleans_up(
    asked: Any, tmp_path: Path
) -> None:
    server, _ = asked(REDIRECT)
    begun, met = asyncio.Event(), []

    async def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            try:
                io.write("box/late", "x")
            except PermissionError as error:
                met.append(error)
        return {"said": "ok"}

    async def main() -> None:
        agent = _agent([ask(probe())], run, server, mounts={"box": tmp_path})
        running = asyncio.create_task(agent.arun("What now?"))
        await asyncio.wait_for(begun.wait(), 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert [str(error) for error in met] == ["the attempt is over"] and list(tmp_path.iterdir()) == []
