"""Many scripted runs at once in one event loop, against the same runs one after another."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from pathlib import Path

from measure import Row

from tachograph import Agent, Policy, Scope, Stub, SystemClock, tool
from tachograph.runtime.tools.loader import load_named

STEPS = 10
RUNS = 5000
NAP_S = 3.0
SCOPES = 10_000
BUDGET = {"max_iterations": 2, "max_tokens": 9999, "max_tool_calls": 2, "max_result_bytes": 9999}


@tool(effect="pure")
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def rows(*, quick: bool) -> list[Row]:
    """Return what a step costs in an event loop, what a run holds, and how soon ends what is cancelled."""
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
        Row(
            "from cancelling a 3 s isolated tool to the end of its process and run : 0.3 s",
            asyncio.run(_cancelled_worker()) / 0.3,
            1.0,
        ),
        Row(
            "from cancelling a wait of a minute between two attempts to the end of its run : 0.3 s",
            _cancelled_wait() / 0.3,
            1.0,
        ),
        Row(
            f"making, cancelling and closing {SCOPES} scopes, each in the other : 0.3 s",
            _nested_scopes() / 0.3,
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


WORKER = """
import os
import time

DESCRIPTION = "Sleep."
INPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
OUTPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
EFFECT = "write"
IDEMPOTENT = False
TRANSIENT = ()
ISOLATE = True
IMPORTS = ("os", "time")


def run(args, io):
    io.write("box/pid", str(os.getpid()))
    time.sleep(3)
    return {}
"""


async def _cancelled_worker() -> float:
    """Return the seconds from cancelling a run to its end, and that of the process of its isolated tool."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "nap.py").write_text(WORKER, encoding="utf-8")
        box = Path(folder) / "box"
        box.mkdir()
        policy = Policy.from_dict(
            {
                "schema": "policy/v1",
                "tool_registry": {"allowed": ["nap"]},
                "loop_budget": BUDGET,
                "cycle_detection": {"max_repeats": 1},
                "sandbox": {"mounts": {"box": "write"}},
            }
        )
        turns = [{"calls": [{"tool": "nap", "arguments": {}}]}, {"answer": "done"}]
        agent = Agent(Stub(turns), [load_named("nap", Path(folder))], policy, mounts={"box": box})
        scope = Scope()
        run = asyncio.ensure_future(agent.arun("What now?", cancel=scope))
        while not run.done() and not ((box / "pid").exists() and (box / "pid").read_text()):
            await asyncio.sleep(0.001)
        at = time.perf_counter()
        scope.cancel()
        assert (await run).ending == "cancelled"
        took = time.perf_counter() - at
        assert not Path("/proc", (box / "pid").read_text()).exists()
        return took


def _cancelled_wait() -> float:
    """Return the seconds from cancelling a sync run that waits before another attempt to its end."""
    scope = Scope()
    at = 0.0

    def cancel() -> None:
        nonlocal at
        at = time.perf_counter()
        scope.cancel()

    @tool(effect="read", transient=(ConnectionError,), idempotent=True)
    def fail() -> int:
        """Fail."""
        threading.Timer(0.1, cancel).start()
        raise ConnectionError

    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["fail"]},
            "loop_budget": BUDGET,
            "cycle_detection": {"max_repeats": 1},
            "retry": {"max_retries": 2, "backoff_base_ms": 600_000, "backoff_cap_ms": 600_000},
        }
    )
    agent = Agent(Stub([{"calls": [{"tool": "fail", "arguments": {}}]}, {"answer": "done"}]), [fail], policy)
    result = agent.run("What now?", cancel=scope, clock=SystemClock(), run_id="wait")
    took = time.perf_counter() - at
    assert result.ending == "cancelled", result.steps[0]
    return took


def _nested_scopes() -> float:
    """Return the seconds of many scopes, each below the one before, that are cancelled from the top."""
    begun = time.perf_counter()
    scopes = [Scope()]
    for _ in range(SCOPES):
        scopes.append(scopes[-1].child())
    scopes[0].cancel()
    assert scopes[-1].is_set()
    for scope in reversed(scopes):
        scope.close()
    return time.perf_counter() - begun
