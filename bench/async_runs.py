"""Many scripted runs at once in one event loop, against the same runs one after another."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from measure import Row

from tachograph import Agent, Scope, Stub, tool

STEPS = 10
RUNS = 5000
NAP_S = 3.0


@tool(effect="pure")
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def rows(*, quick: bool) -> list[Row]:
    """Return what a step costs in an event loop, what a run holds, and how soon a tool ends that is cancelled."""
    runs = RUNS // 10 if quick else RUNS
    turns = [{"calls": [{"tool": "double", "arguments": {"number": i}}]} for i in range(STEPS - 1)]
    agent = Agent(Stub([*turns, {"answer": "done"}]), [double])
    agent.run("What now?")
    begun = time.process_time()
    for _ in range(runs):
        agent.run("What now?")
    sync = (time.process_time() - begun) / runs / STEPS
    before = _resident()
    spent, peak = asyncio.run(_together(agent, runs))
    each = spent / runs / STEPS
    return [
        Row(
            f"a step of {runs} runs at once in an event loop : one after another",
            each / sync,
            1.3,
            note=f"{each * 1e6:.0f} us : {sync * 1e6:.0f} us of CPU",
        ),
        Row(
            f"memory of each of {runs} runs at once : 40 kB",
            (peak - before) / runs / 40_000,
            2.0,
            note=f"{(peak - before) / runs / 1000:.0f} kB",
        ),
        Row(
            "from cancelling a 3 s async tool to the end of its run : 0.3 s",
            asyncio.run(_cancelled()) / 0.3,
            1.0,
        ),
    ]


def _resident() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _together(agent: Agent, runs: int) -> tuple[float, int]:
    """Return the seconds of CPU that the runs take, and the most memory in use meanwhile."""
    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, _resident())
            await asyncio.sleep(0.05)

    watching = asyncio.ensure_future(watch())
    begun = time.process_time()
    results = await asyncio.gather(*(agent.arun("What now?") for _ in range(runs)))
    spent = time.process_time() - begun
    watching.cancel()
    assert all(result.ok for result in results)
    return spent, peak


async def _cancelled() -> float:
    """Return the seconds from cancelling a run to its end."""
    begun = asyncio.Event()

    @tool(effect="read")
    async def nap() -> int:
        """Sleep."""
        begun.set()
        await asyncio.sleep(NAP_S)
        return 1

    scope = Scope()
    agent = Agent(Stub([{"calls": [{"tool": "nap", "arguments": {}}]}, {"answer": "done"}]), [nap])
    run = asyncio.ensure_future(agent.arun("What now?", cancel=scope))
    await begun.wait()
    at = time.perf_counter()
    scope.cancel()
    assert (await run).ending == "cancelled"
    return time.perf_counter() - at
