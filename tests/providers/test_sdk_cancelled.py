"""A run that waits for a live model and is cancelled: the request ends, and the record is whole."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Scope, arecord, open_model, record
from tests.providers.servers import BASES
from tests.support import policy_data, tool

WAIT_S = 30


class Silent:
    """A service that takes a request and never answers; `asked` and `left` say that the client came and went."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.left = threading.Event()
        self.url = ""
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        self.asked.set()
        with suppress(ConnectionError):
            assert not await reader.read(1)  # until the client closes the connection
        self.left.set()
        writer.close()

    async def _main(self, is_ready: threading.Event) -> None:
        self._over, self._loop = asyncio.Event(), asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        is_ready.set()
        await self._over.wait()
        server.close()

    @contextmanager
    def served(self) -> Iterator[None]:
        is_ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._main(is_ready)))
        thread.start()
        assert is_ready.wait(WAIT_S)
        try:
            yield
        finally:
            assert self._loop is not None and self._over is not None
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()


@pytest.mark.parametrize("way", ["record", "arecord"])
@pytest.mark.parametrize("by", ["code", "deadline"])
def test_the_request_ends_and_the_run_is_recorded(provider: str, way: str, by: str, tmp_path: Path) -> None:
    """An attempt that waits until the service is given up has another outcome, and so has its run."""
    service = Silent()
    with service.served():
        model = open_model(
            f"{provider}:some-model", base_url=service.url + BASES[provider], timeout_s=20, total_s=20
        )
        agent = Agent(model, [tool(), tool("echo")], Policy.from_dict(policy_data()))
        scope = Scope()
        given: dict[str, Any] = {"cancel": scope} if by == "code" else {"deadline_s": 0.5}

        def stop() -> None:
            if service.asked.wait(WAIT_S):
                scope.cancel()

        stopping = threading.Thread(target=stop)
        stopping.start()
        if way == "record":
            result = record(agent, "What now?", tmp_path / "run", **given)
        else:
            result = asyncio.run(arecord(agent, "What now?", tmp_path / "run", **given))
        stopping.join()
        assert service.left.wait(WAIT_S), "the request is still under way"
    assert (result.ending, result.mode) == (
        ("cancelled", "cancelled") if by == "code" else ("failure_mode_terminal", "timeout")
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "state.jsonl").read_text().splitlines()]
    assert lines[-1]["type"] == "end" and lines[1]["llm_attempts"][-1]["outcome"] == "cancelled"
