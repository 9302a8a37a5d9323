"""A kept run with calls that run together: several are open when it dies, and each is settled on its own."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Hooks
from tachograph.fail.errors import CallCancelled, EffectInDoubt, InputError
from tachograph.runtime.core.effects import Effect, Invoke
from tachograph.runtime.journal.journal import read_journal
from tachograph.runtime.setup.run_config import RunConfig
from tests.faults.kept import Case, Disk
from tests.group_orders import overlapped

STEPS = (["look:1", "pay:1", "look!", "pay:2", "book:1"], ["look:3", "put:4", "pay:5"], ["book:6", "book:7"])
ORDERS = 12 if os.environ.get("TACHOGRAPH_GROUP_ORDERS") == "full" else 2


def _case(place: Path) -> Case:
    return Case(place, STEPS, parallel=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The ledger of the run that nothing disturbs, its calls performed one after another."""
    case = _case(tmp_path_factory.mktemp("whole"))
    result = case.begin()
    assert result is not None and result.ok
    return (case.out / "state.jsonl").read_bytes()


def test_the_run_has_groups(whole: bytes) -> None:
    groups = [json.loads(line).get("groups", []) for line in whole.splitlines()[1:-1]]
    assert groups[:3] == [
        [["tc_1_0", "tc_1_1", "tc_1_3"]],
        [["tc_2_0", "tc_2_1", "tc_2_2"]],
        [["tc_3_0", "tc_3_1"]],
    ]


def _settled(case: Case, seed: int) -> tuple[bytes, list[str]]:
    """The ledger once the run was gone on with, and the calls that a person said something of."""
    asked: list[str] = []
    said: dict[str, str] = {}
    while True:
        try:
            with overlapped(seed):
                result = case.go_on(said)
            assert result is not None
            return (case.out / "state.jsonl").read_bytes(), asked
        except EffectInDoubt as doubt:
            assert doubt.call not in asked and len(asked) < 9
            asked.append(doubt.call)
            _, step, index = doubt.call.split("_")
            said = {doubt.call: "done" if case.world.done[f"kept/{step}/{index}"] else "not_done"}


@pytest.mark.parametrize("order", range(ORDERS))
def test_dying_at_any_write_with_several_calls_open(tmp_path: Path, whole: bytes, order: int) -> None:
    """The same bytes once it was gone on with, except where a result was lost; nothing is done twice or not at all."""
    disk = Disk()
    with overlapped(order):
        case = _case(tmp_path / "counted")
        assert case.begin(disk) is not None
    assert (case.out / "state.jsonl").read_bytes() == whole
    most_open = unseen = 0
    for number in range(4, len(disk.calls) + 1):
        case = _case(tmp_path / str(number))
        with overlapped(order):
            assert case.begin(Disk(number)) is None
        journaled = read_journal(case.journal.read_bytes(), "journal")
        assert journaled is not None
        most_open = max(most_open, len(journaled.intents))
        found, _ = _settled(case, order + number)
        lost = found.count(b'"unseen":true')
        unseen += bool(lost)
        assert found == whole or lost, number
        assert set(case.world.done.values()) == {1} and len(case.world.done) == 6, number
    assert most_open >= 2, "at no write were several calls open"
    assert unseen, "no effect was done when its outcome was not"


class _Hooked(Case):
    """The agent of this run has hooks that are asked about results: one denies, one replaces, the rest say nothing."""

    def agent(self, turns: list[dict[str, Any]] | None = None) -> Agent:
        def after_call(data: dict[str, Any]) -> dict[str, Any] | None:
            number = data["call"]["arguments"]["n"]
            return {1: {"deny": "no"}, 2: {"result": {"said": "other"}}}.get(number)

        agent = super().agent(turns)
        agent.hooks = (Hooks(after_call=after_call),)
        return agent


def test_a_group_with_hooks_dies_at_any_write_and_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    def hooked(place: str) -> _Hooked:
        return _Hooked(tmp_path / place, (["look:1", "pay:2", "look:3"], ["look:4", "look:1"]), parallel=True)

    disk = Disk()
    case = hooked("counted")
    assert case.begin(disk) is not None
    whole = (case.out / "state.jsonl").read_bytes()
    step = json.loads(whole.splitlines()[1])
    assert step["groups"] == [["tc_1_0", "tc_1_1", "tc_1_2"]] and len(step["hooks"]) == 3
    for number in range(4, len(disk.calls) + 1):
        case = hooked(str(number))
        with overlapped(number):
            assert case.begin(Disk(number)) is None
        found, _ = _settled(case, number)
        assert found == whole or b'"unseen":true' in found, number
        assert set(case.world.done.values()) <= {1}, number


def test_a_cancelled_group_dies_at_any_write_and_ends_the_same(tmp_path: Path) -> None:
    def cancelled(place: Path) -> Case:
        case = _case(place)
        case.cancelled_at_ms = 215  # in the middle of the first attempts of the first group
        return case

    disk = Disk()
    case = cancelled(tmp_path / "counted")
    result = case.begin(disk)
    whole = (case.out / "state.jsonl").read_bytes()
    assert result is not None and result.ending == "cancelled"
    statuses = [call["status"] for call in json.loads(whole.splitlines()[1])["tool_results"]]
    assert statuses == ["cancelled", "cancelled", "denied", "cancelled", "not_reached"]
    for number in range(4, len(disk.calls) + 1):
        case = cancelled(tmp_path / str(number))
        with overlapped(number):
            assert case.begin(Disk(number)) is None
        found, _ = _settled(case, number)
        assert found == whole or b'"unseen":true' in found, number
        assert set(case.world.done.values()) <= {1}, number


class _OneCancelled(Case):
    """A case whose second call is cancelled on its own, while the run goes on."""

    def config(self, agent: Agent, **more: Any) -> RunConfig:
        def inject(effect: Effect, _io: Any, real: Any) -> Any:
            if isinstance(effect, Invoke) and (effect.step, effect.index) == (1, 1):
                raise CallCancelled("by the task")
            return real()

        return super().config(agent, inject=inject, **more)


def test_a_run_with_a_cancelled_call_dies_at_any_write_and_ends_the_same(tmp_path: Path) -> None:
    disk = Disk()
    case = _OneCancelled(tmp_path / "counted", STEPS, parallel=True)
    result = case.begin(disk)
    whole = (case.out / "state.jsonl").read_bytes()
    assert result is not None and result.ok
    assert json.loads(whole.splitlines()[1])["tool_results"][1]["told"]["error"] == "cancelled"
    for number in range(4, len(disk.calls) + 1):
        case = _OneCancelled(tmp_path / str(number), STEPS, parallel=True)
        with overlapped(number):
            assert case.begin(Disk(number)) is None
        found, _ = _settled(case, number)
        assert found == whole or b'"unseen":true' in found, number


def test_each_call_in_doubt_is_named_and_may_be_answered_at_once(tmp_path: Path) -> None:
    case = Case(tmp_path, [["pay:1", "pay:2", "pay:3"]], parallel=True)
    for number in range(6, 30):
        with overlapped(3):
            assert case.begin(Disk(number)) is None
        journaled = read_journal(case.journal.read_bytes(), "journal")
        assert journaled is not None
        if len(journaled.intents) == 3:
            break
        case = Case(tmp_path / str(number), [["pay:1", "pay:2", "pay:3"]], parallel=True)
    with pytest.raises(EffectInDoubt) as caught:
        case.go_on()
    assert caught.value.call == "tc_1_0"
    assert str(caught.value).endswith(
        "--not-done tc_1_0; call tc_1_1 of tool 'pay' and call tc_1_2 of tool 'pay' are in doubt too"
    )
    with pytest.raises(InputError, match="tc_1_0 and tc_1_1 and tc_1_2 are in doubt"):
        case.go_on({"tc_1_7": "done"})
    said = {f"tc_1_{n}": "done" if case.world.done[f"kept/1/{n}"] else "not_done" for n in range(3)}
    result = case.go_on(said)
    assert result is not None and result.ok
    assert set(case.world.done.values()) == {1}


@pytest.mark.parametrize("seed", range(6 * ORDERS))
def test_dying_again_and_again(tmp_path: Path, whole: bytes, seed: int) -> None:
    draw = random.Random(seed)
    case = _case(tmp_path)
    with overlapped(seed):
        assert case.begin(Disk(draw.randrange(5, 25))) is None
        for _ in range(3):
            try:
                if case.go_on(None, Disk(draw.randrange(2, 20))) is not None:
                    break
            except EffectInDoubt:
                break
    if not case.out.exists():
        _settled(case, seed)
    found = (case.out / "state.jsonl").read_bytes()
    assert found == whole or b'"unseen":true' in found
    assert set(case.world.done.values()) == {1} and len(case.world.done) == 6
