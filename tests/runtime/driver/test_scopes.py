"""Cancellation as a tree: everything below a scope is told, however deep it is, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tachograph import Agent, Policy, Scope, Stub, SystemClock, Tool
from tachograph.fail.errors import Cancelled, DeadlineExceeded
from tachograph.runtime.driver.foreign_calls import THREADS
from tests.support import answer, ask, policy_data, probe
from tests.support import tool as made_tool

DEEP = 10_000


def _left() -> tuple[int, int, int]:
    """Return how many scopes, threads and descriptors this process has, its bounded pool of threads aside."""
    gc.collect()
    scopes = sum(isinstance(item, Scope) for item in gc.get_objects())
    threads = [thread.name for thread in threading.enumerate()]
    pooled = sum(name.startswith("tachograph") for name in threads)
    assert pooled <= THREADS
    return scopes, len(threads) - pooled, len(os.listdir("/proc/self/fd"))


def _nested(top: Scope, count: int) -> list[Scope]:
    scopes = [top]
    for _ in range(count):
        scopes.append(scopes[-1].child())
    return scopes


def test_ten_thousand_nested_scopes_are_cancelled_from_the_top() -> None:
    before = _left()
    top, told = Scope(), []
    scopes = _nested(top, DEEP)
    for number, scope in enumerate(scopes):
        scope.on_cancel(lambda number=number: told.append(number))
    top.cancel()
    assert told == list(range(DEEP + 1)) and all(scope.is_set() for scope in scopes)
    assert [scope.open_below for scope in scopes] == [0] * (DEEP + 1)
    assert scopes[-1].child().is_set()
    del scope, scopes, top
    assert _left() == before


def test_ten_thousand_nested_scopes_that_are_closed_leave_nothing() -> None:
    before = _left()
    process = Scope()
    for scope in reversed(_nested(process, DEEP)[1:]):
        scope.close()
    del scope
    assert process.open_below == 0 and _left() == (before[0] + 1, *before[1:])
    for _ in range(DEEP):
        with process.child() as one:
            one.on_cancel(_none)()
    del one
    assert process.open_below == 0 and _left() == (before[0] + 1, *before[1:])


def _none() -> None:
    """Do nothing."""


def test_ten_thousand_scopes_that_nobody_closed_are_forgotten_with_the_one_above() -> None:
    before = _left()
    _nested(Scope(), DEEP)
    assert _left() == before


def test_a_scope_beside_the_cancelled_one_goes_on() -> None:
    process = Scope()
    one, other = process.child(), process.child()
    below = one.child()
    one.cancel()
    assert below.is_set() and not other.is_set() and not process.is_set() and process.open_below == 2


def test_an_event_above_is_seen_by_every_scope_below() -> None:
    stop = threading.Event()
    run = Scope(stop).child().child()
    assert run.wait_s() is not None and run.stopped() is None
    stop.set()
    assert isinstance(run.stopped(), Cancelled)


def test_the_time_of_a_scope_is_that_of_those_below_it() -> None:
    run = Scope()
    run.limit(0.0)
    assert isinstance(run.child().stopped(), DeadlineExceeded)


def test_four_hundred_runs_leave_no_scope_task_thread_or_descriptor() -> None:
    agent = Agent(Stub([{"answer": "done"}]), ["search"], Policy.shipped())

    async def main(sessions: int) -> tuple[int, int]:
        process = Scope()
        for _ in range(sessions):
            with process.child() as session:
                await asyncio.gather(*(agent.arun("What now?", cancel=session) for _ in range(20)))
        return process.open_below, len(asyncio.all_tasks())

    asyncio.run(main(1))  # makes what a process makes once, such as its threads
    before = _left()
    assert asyncio.run(main(20)) == (0, 1)
    assert _left() == before


# ---- what a scope ends -----------------------------------------------------------------------------------


def _agent(model: Any, *tools: Tool, **policy: Any) -> Agent:
    given = {item.name: item for item in (made_tool(), made_tool("echo"), *tools)}
    return Agent(model, list(given.values()), Policy.from_dict(policy_data(**policy)))


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("above", [Scope, threading.Event])
def test_a_wait_between_two_attempts_ends_with_its_scope(is_async: bool, above: Callable[[], Any]) -> None:
    stop = above()
    cancel: Callable[[], None] = stop.cancel if isinstance(stop, Scope) else stop.set

    def run(_args: dict[str, Any], _io: Any) -> Any:
        threading.Timer(0.05, cancel).start()
        raise ConnectionError

    def model(asked: Any) -> Any:
        return ask(probe()) if asked.step_index == 1 else answer()

    agent = _agent(
        model,
        made_tool(run=run, effect="read"),
        retry={"backoff_base_ms": 600_000, "backoff_cap_ms": 600_000},
    )
    given: dict[str, Any] = {"cancel": stop, "clock": SystemClock(), "run_id": "wait"}
    result = asyncio.run(agent.arun("What now?", **given)) if is_async else agent.run("What now?", **given)
    call = result.steps[0].calls[0]
    assert result.ending == "cancelled" and call["status"] == "cancelled"
    assert [attempt["outcome"] for attempt in call["attempts"]] == ["transient_failure"]
    assert call["attempts"][0]["backoff_ms"] > 60_000
