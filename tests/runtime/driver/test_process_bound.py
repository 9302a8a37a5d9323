"""The calls of all runs of a process are bounded together, whichever event loops and threads the runs are in."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tachograph import Agent, Policy
from tachograph.runtime.driver.async_groups import PROCESS_CALLS
from tests.support import Script, answer, ask, policy_data, probe, tool

CALLS = 8
RUNS = 3 * PROCESS_CALLS // CALLS


class _Open:
    """Counts the calls that are under way, from any thread. The first wave is held until it is whole."""

    def __init__(self, wave: int) -> None:
        self._lock = threading.Lock()
        self._wave = wave
        self.now = self.most = self.begun = 0

    def enter(self) -> None:
        with self._lock:
            self.now += 1
            self.begun += 1
            self.most = max(self.most, self.now)

    def leave(self) -> None:
        with self._lock:
            self.now -= 1

    def is_whole(self) -> bool:
        with self._lock:
            return self.begun >= self._wave


def _agent(opened: _Open) -> Agent:
    async def look(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        opened.enter()
        try:
            for _ in range(20_000):  # turns of the event loop, far more than the others need to begin
                if opened.is_whole():
                    break
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)  # so that a call beyond the bound would begin beside these
        finally:
            opened.leave()
        return {"said": "ok"}

    return Agent(
        Script([ask(*(probe("look", n=n) for n in range(CALLS))), answer()]),
        [tool(), tool("look", look, effect="read")],
        Policy.from_dict(policy_data(tool_registry={"allowed": ["probe", "look"]})),
        max_parallel=CALLS,
    )


async def _all(opened: _Open, runs: int) -> list[str]:
    results = await asyncio.gather(*(_agent(opened).arun("What?") for _ in range(runs)))
    return [result.ending for result in results]


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_calls_are_under_way_than_the_process_allows(threads: int) -> None:
    opened = _Open(PROCESS_CALLS)
    endings: list[str] = []

    together = threading.Barrier(threads)

    def work() -> None:
        together.wait(60)
        endings.extend(asyncio.run(_all(opened, RUNS // threads)))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert endings == ["final_answer"] * RUNS
    assert opened.begun == RUNS * CALLS and opened.now == 0
    assert opened.most == PROCESS_CALLS
