"""The SDKs' async clients: one for each event loop, no threads, and a cancelled request is gone."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from tachograph import Agent, Policy, open_model
from tachograph.runtime.models.providers.async_wire import LoopClients
from tests.providers.asking import asked
from tests.providers.protocols import WHOLE, Turn
from tests.providers.servers import BASES
from tests.support import policy_data, tool


class Service:
    """A service in the same event loop, so that it needs no thread; it answers when `answers` is set."""

    def __init__(self, provider: str) -> None:
        self.answers = asyncio.Event()
        self.asked = asyncio.Semaphore(0)
        self.left = asyncio.Event()
        self.connections = 0
        self.document = json.dumps(WHOLE[provider](Turn("done"), "some-model")).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._head(reader):
                await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
                self.asked.release()
                answers = asyncio.ensure_future(self.answers.wait())
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answers, gone}, return_when=asyncio.FIRST_COMPLETED)
                answers.cancel()
                if gone.done():
                    break
                gone.cancel()
                await asyncio.wait({gone})
                length = f"Content-Length: {len(self.document)}\r\n\r\n"
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}".encode())
                writer.write(self.document)
        finally:
            self.left.set()
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> str:
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""


@asynccontextmanager
async def _served(provider: str) -> AsyncIterator[tuple[Service, str]]:
    service = Service(provider)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    try:
        yield service, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{BASES[provider]}"
    finally:
        server.close()


def _agent(provider: str, url: str) -> Agent:
    model = open_model(f"{provider}:some-model", base_url=url, timeout_s=20)
    return Agent(model, [tool(), tool("echo")], Policy.from_dict(policy_data()))


def test_cancelling_a_run_ends_its_request(provider: str) -> None:
    async def main() -> str:
        async with _served(provider) as (service, url):
            run = asyncio.ensure_future(_agent(provider, url).arun("What now?"))
            await asyncio.wait_for(service.asked.acquire(), 20)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            await asyncio.wait_for(service.left.wait(), 20)
            return "left"

    assert asyncio.run(main()) == "left"


def test_closing_a_stream_ends_its_request(provider: str) -> None:
    async def main() -> str:
        async with _served(provider) as (service, url):
            events = _agent(provider, url).stream("What now?")
            async for event in events:
                if event.what == "attempt_started":
                    break
            await asyncio.wait_for(service.asked.acquire(), 20)
            await events.aclose()
            await asyncio.wait_for(service.left.wait(), 20)
            return "left"

    assert asyncio.run(main()) == "left"


def test_a_hundred_runs_ask_at_the_same_time_without_a_hundred_threads(provider: str) -> None:
    async def main() -> tuple[int, list[Any]]:
        async with _served(provider) as (service, url):
            agent = _agent(provider, url)
            runs = [asyncio.ensure_future(agent.arun(f"What is {n}?")) for n in range(100)]
            for _ in runs:  # none is answered before all have asked
                await asyncio.wait_for(service.asked.acquire(), 60)
            threads = threading.active_count()
            service.answers.set()
            return threads, [result.answer for result in await asyncio.gather(*runs)]

    before = threading.active_count()
    threads, answers = asyncio.run(main())
    assert answers == ["done"] * 100
    assert (
        threads - before < 40
    )  # of the event loop's own, for what is imported; none of them waits for a reply


def test_calls_in_an_event_loop_share_a_client_and_it_is_closed_when_the_loop_ends(provider: str) -> None:
    made: list[Any] = []

    async def main(model: Any, url: Callable[[str], Any]) -> int:
        async with _served(provider) as (service, address):
            service.answers.set()
            model = url(address)
            build = model.client
            model.client = lambda *given: made.append(build(*given)) or made[-1]
            for _ in range(3):
                assert (await model.ask_async(asked())).final_answer == "done"
            assert not made[-1].is_closed()
            return service.connections

    def opened(address: str) -> Any:
        return open_model(f"{provider}:some-model", base_url=address)

    assert asyncio.run(main(None, opened)) == 1
    assert len(made) == 1 and made[0].is_closed()
    assert asyncio.run(main(None, opened)) == 1
    assert len(made) == 2 and made[1].is_closed()


class _Client:
    """A client that says whether it was closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


def test_a_forked_process_neither_uses_nor_closes_a_client_of_its_parent() -> None:
    clients = LoopClients()
    with closing(asyncio.new_event_loop()) as loop:
        mine = loop.run_until_complete(clients.of_this_loop(_Client))
        assert loop.run_until_complete(clients.of_this_loop(_Client)) is mine
        child = os.fork()
        if child == 0:
            code = 9
            try:
                other = loop.run_until_complete(clients.of_this_loop(_Client))
                loop.run_until_complete(loop.shutdown_asyncgens())
                code = 1 if other is mine else 2 if mine.closed else 0 if other.closed else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        loop.run_until_complete(loop.shutdown_asyncgens())
    assert mine.closed


def test_clients_of_loops_that_are_gone_are_forgotten() -> None:
    clients = LoopClients()
    seen = [asyncio.run(clients.of_this_loop(_Client)) for _ in range(3)]
    assert len({id(client) for client in seen}) == 3 and all(client.closed for client in seen)
    assert len(clients._of) == 1
