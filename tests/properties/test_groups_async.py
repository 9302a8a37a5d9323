"""Groups in an event loop: tools that really overlap, in threads and in tasks, give the record of the plain driver."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, VirtualClock
from tests.properties.test_groups import FULL, TASKS, _look, _World
from tests.properties.test_groups import books as books
from tests.support import Script, answer, ask, policy_data, probe, tool

ORDERS = 20 if FULL else 3


def _async_agent(world: _World, order: int) -> Agent:
    """The agent of a generated run, whose tool lets other calls go on a random number of times."""
    draw = random.Random(order)

    async def look(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        found = _look(arguments, io)
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        return found

    return Agent(
        Script(world.replies),
        [tool(), tool("look", look, effect="read", transient=(ConnectionError,))],
        Policy.from_dict(world.policy),
        mounts={"books": world.books},
        max_parallel=world.most,
    )


def _ledger(agent: Agent, inject: Any) -> list[str]:
    texts: list[str] = []
    config = agent.configure_run("What?", run_id="r", clock=VirtualClock(), inject=inject)
    asyncio.run(agent.execute_async(config, on_line=lambda _line, text: texts.append(text)))
    return texts


@pytest.mark.parametrize("seed", range(TASKS))
def test_generated_groups_are_recorded_the_same_in_an_event_loop(seed: int, books: Path) -> None:
    world = _World(seed, books)
    _, in_sequence = world.ledger()
    for order in range(ORDERS):
        assert _ledger(_async_agent(world, order), world.inject) == in_sequence
    assert _ledger(world.agent(), world.inject) == in_sequence  # the same tool in threads


def test_eight_calls_with_a_bound_of_four_need_two_waves() -> None:
    """None of the first four can end before all four are open, and none of the others begins before they end."""
    events: list[tuple[str, int]] = []
    waves = [asyncio.Event(), asyncio.Event()]

    async def look(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        number = arguments["n"]
        events.append(("begun", number))
        if len([what for what, _ in events if what == "begun"]) in (4, 8):
            waves[number // 4].set()
        try:
            await asyncio.wait_for(waves[number // 4].wait(), 10)
        except TimeoutError:
            raise AssertionError("the wave was never whole") from None  # and not worth another attempt
        events.append(("over", number))
        return {"said": "ok"}

    allowed = {"allowed": ["probe", "look"]}
    agent = Agent(
        Script([ask(*(probe("look", n=n) for n in range(8))), answer()]),
        [tool(), tool("look", look, effect="read")],
        Policy.from_dict(policy_data(tool_registry=allowed)),
    )
    _ledger(agent, None)
    assert [what for what, _ in events] == (["begun"] * 4 + ["over"] * 4) * 2
    assert {number for _, number in events[:8]} == {0, 1, 2, 3}
