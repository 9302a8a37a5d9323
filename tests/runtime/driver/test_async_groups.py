"""Groups in an event loop: at most the bound is open, and nothing is lost where one of them raises or is cancelled."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Generator
from typing import Any

import pytest

from tachograph.fail.errors import Cancelled
from tachograph.runtime.core.branches import BRANCH
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Call, Effect, Invoke, Outcome, Wait
from tachograph.runtime.driver.async_groups import Slots, perform_group_async
from tachograph.runtime.driver.groups import BranchRun
from tachograph.runtime.formats.canonical_json import freeze


def _branch(index: int, attempts: int) -> Generator[Invoke | Wait, Outcome, None]:
    for attempt in range(1, attempts + 1):
        yield Invoke(1, index, attempt, Call(f"tc_1_{index}", "look", freeze({})), f"r/1/{index}")
        if attempt < attempts:
            yield Wait(1, index, attempt, 100)


def _runs(count: int, clock: VirtualClock, attempts: int = 2, told: Any = None) -> list[BranchRun]:
    return [BranchRun((1, index), _branch(index, attempts), clock, told, None) for index in range(count)]


class _World:
    """Performs effects that take a random number of turns of the event loop; notes who is open when."""

    def __init__(self, seed: int, clock: VirtualClock) -> None:
        self._draw = random.Random(seed)
        self._clock = clock
        self.open = self.most = 0
        self.begun: list[str] = []
        self.over: list[str] = []

    async def perform(self, effect: Effect, _stamps: Any) -> Outcome:
        assert isinstance(effect, Invoke | Wait) and BRANCH.get() == (1, effect.index)
        self.begun.append(effect.position)
        if isinstance(effect, Wait):
            self._clock.sleep(effect.ms)
            return Outcome()
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            for _ in range(self._draw.randrange(1, 9)):
                await asyncio.sleep(0)
        finally:
            self.open -= 1
        self._clock.spend("attempt")
        self.over.append(effect.position)
        return Outcome(result=freeze({"at": effect.position}))


def _joined(runs: list[BranchRun], clock: VirtualClock) -> tuple[Any, Any, int]:
    clock.join([run.branch for run in runs])
    stamps = {at: stamp for run in runs for at, stamp in run.stamps.items()}
    return [run.performed for run in runs], stamps, clock.stamp()


@pytest.mark.parametrize("bound", [1, 2, 4, 64])
def test_any_order_gives_the_same_and_no_more_than_the_bound_are_open(bound: int) -> None:
    found, orders = [], set()
    for seed in range(30):
        clock = VirtualClock()
        world, runs = _World(seed, clock), _runs(8, clock)
        asyncio.run(_settled(runs, world, Slots(bound)))
        assert world.most == min(bound, 8) and world.open == 0
        orders.add(tuple(world.over))
        found.append(_joined(runs, clock))
    assert all(one == found[0] for one in found)
    assert bound == 1 or len(orders) > 5
    assert found[0][1]["i0.1"] == found[0][1]["i7.1"]


async def _settled(runs: list[BranchRun], world: _World, slots: Slots) -> None:
    assert await perform_group_async(runs, world.perform, slots) is None


def test_eight_calls_with_a_bound_of_four_need_two_waves() -> None:
    events: list[tuple[str, int]] = []

    async def main() -> None:
        gates = [asyncio.Event() for _ in range(8)]
        clock = VirtualClock()

        async def perform(effect: Effect, _stamps: Any) -> Outcome:
            assert isinstance(effect, Invoke)
            events.append(("begun", effect.index))
            if len([what for what, _ in events if what == "begun"]) in (4, 8):  # a wave is whole
                for gate in gates[: len(events)]:
                    gate.set()
            await gates[effect.index].wait()
            events.append(("over", effect.index))
            return Outcome(result=freeze({}))

        await asyncio.wait_for(perform_group_async(_runs(8, clock, 1), perform, Slots(4)), 30)

    asyncio.run(main())
    assert [what for what, _ in events[:4]] == ["begun"] * 4 and events[4][0] == "over"
    assert sorted(index for what, index in events if what == "over") == list(range(8))


def test_the_bound_holds_over_runs_in_several_threads() -> None:
    slots, lock = Slots(3), threading.Lock()
    now, most = 0, 0

    async def perform(_effect: Effect, _stamps: Any) -> Outcome:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        with lock:
            now -= 1
        return Outcome()

    def run() -> None:
        asyncio.run(_group())

    async def _group() -> None:
        await perform_group_async(_runs(8, VirtualClock(), 1), perform, slots)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert now == 0 and 1 <= most <= 3


def test_where_one_raises_the_others_are_brought_to_an_end_and_nothing_further_is_begun() -> None:
    told: list[tuple[str, bool]] = []
    begun: list[str] = []

    async def perform(effect: Effect, _stamps: Any) -> Outcome:
        begun.append(effect.position)
        await asyncio.sleep(0)
        if effect.position in ("i1.1", "i2.1"):
            raise LookupError(effect.position)
        for _ in range(5):
            await asyncio.sleep(0)
        return Outcome()

    runs = _runs(
        4,
        VirtualClock(),
        told=lambda effect, outcome, stamps: told.append((effect.position, isinstance(outcome, Cancelled))),
    )
    with pytest.raises(LookupError, match=r"i1\.1"):
        asyncio.run(_group_of(runs, perform))
    assert begun == ["i0.1", "i1.1", "i2.1", "i3.1"]
    assert sorted(told) == [("i0.1", False), ("i3.1", False)]


async def _group_of(runs: list[BranchRun], perform: Any, slots: Slots | None = None) -> Any:
    return await perform_group_async(runs, perform, slots or Slots(64))


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("bound", [1, 2, 8])
def test_a_caller_that_is_cancelled_stops_every_call(turns: int, bound: int) -> None:
    slots = Slots(bound)

    async def main() -> list[BranchRun]:
        clock = VirtualClock()
        runs, world = _runs(4, clock, 3), _World(turns, clock)
        found: list[Any] = []

        async def caller() -> None:
            found.append(await perform_group_async(runs, world.perform, slots))

        task = asyncio.create_task(caller())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if turns:
            assert isinstance(found[0], asyncio.CancelledError)
        return runs if turns else []

    for run in asyncio.run(main()):
        *before, last = run.performed.values()
        assert run.effect is None and isinstance(last, Cancelled)
        assert all(not isinstance(outcome, Cancelled) for outcome in before)

    async def all_are_free() -> None:
        for _ in range(bound):
            await asyncio.wait_for(slots.take(), 30)

    asyncio.run(all_are_free())
