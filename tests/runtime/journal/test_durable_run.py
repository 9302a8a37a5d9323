"""A kept run: what was acknowledged is never performed again, what is in doubt is settled and not guessed."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import Resumption
from tachograph.fail.errors import EffectInDoubt, RecordError
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tachograph.runtime.journal import durable_run as keepings
from tachograph.runtime.journal.journal import read_journal
from tachograph.runtime.setup.run_config import RunConfig
from tachograph.runtime.tools.contract import Tool
from tests.faults.kept import Case, Disk

STEPS = (["look", "put"], ["pay", "look!"], ["book", "look"], ["put", "pay"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """The ledger of the run that nothing disturbs, and how often it writes or syncs its journal."""
    case, disk = Case(tmp_path_factory.mktemp("whole"), STEPS), Disk()
    result = case.begin(disk)
    assert result is not None and result.ok
    return (case.out / "state.jsonl").read_bytes(), len(disk.calls)


def _settled(case: Case) -> bytes:
    """The ledger once the run was gone on with; where a call is in doubt, with what was really done of it."""
    try:
        result = case.go_on()
    except EffectInDoubt as doubt:
        _, step, index = doubt.call.split("_")
        result = case.go_on({doubt.call: "done" if case.world.done[f"kept/{step}/{index}"] else "not_done"})
    assert result is not None
    return (case.out / "state.jsonl").read_bytes()


def _unseen(state: bytes) -> bool:
    return b'"unseen":true' in state


def test_dying_at_any_write_or_sync_costs_nothing(tmp_path: Path, whole: tuple[bytes, int]) -> None:
    state, calls = whole
    unseen = 0
    for number in range(3, calls + 1):
        case = Case(tmp_path / str(number), STEPS)
        assert case.begin(Disk(number)) is None
        if read_journal(case.journal.read_bytes(), "journal") is None:
            assert number == 3 and not case.world.performed
            continue
        found = _settled(case)
        unseen += _unseen(found)
        assert found == state or _unseen(found), number
        assert set(case.world.done.values()) == {1} and len(case.world.done) == 3, number
    assert unseen == 3, "each effect was once done when its outcome was not"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", ["1/0", "1/1", "2/0", "3/0", "3/1", "4/0", "4/1"])
def test_dying_in_a_tool(tmp_path: Path, whole: tuple[bytes, int], place: str, when: str) -> None:
    case, key = Case(tmp_path, STEPS), f"kept/{place}"
    case.world.dies_in = (key, when)
    assert case.begin() is None
    found = _settled(case)
    once = place in ("2/0", "3/0", "4/1")
    assert case.world.performed[key] == (1 if once or when == "before" else 2)
    assert set(case.world.done.values()) == {1}
    assert (found == whole[0]) != (once and when == "after")


def test_what_was_acknowledged_is_not_performed_again(tmp_path: Path, whole: tuple[bytes, int]) -> None:
    case = Case(tmp_path, STEPS)
    assert case.begin(Disk(whole[1])) is None
    before = dict(case.world.performed)
    assert _settled(case) == whole[0]
    assert dict(case.world.performed) == before


def test_only_what_may_not_be_repeated_has_an_intent(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    case.world.dies_in = ("kept/4/1", "after")
    assert case.begin() is None
    entries = [json.loads(line)["entry"] for line in case.journal.read_bytes().splitlines()]
    assert [entry["tool"] for entry in entries if entry["type"] == "intent"] == ["pay", "book", "pay"]


# ---- in doubt ----------------------------------------------------------------------------------------------


def _in_doubt(tmp_path: Path, tool: str, when: str = "after") -> Case:
    case = Case(tmp_path, [[tool]])
    case.world.dies_in = ("kept/1/0", when)
    assert case.begin() is None
    return case


def test_a_doubt_says_what_to_look_at_and_how_to_go_on(tmp_path: Path) -> None:
    case = _in_doubt(tmp_path, "pay")
    for _ in range(2):  # asking does not change it
        before = case.journal.read_bytes()
        with pytest.raises(EffectInDoubt) as caught:
            case.go_on()
        assert case.journal.read_bytes() == before
    assert (caught.value.call, caught.value.tool) == ("tc_1_0", "pay")
    assert str(caught.value).endswith("look there, then go on with --done tc_1_0 or --not-done tc_1_0")


def test_a_person_says_done_and_the_model_is_told(tmp_path: Path) -> None:
    case = _in_doubt(tmp_path, "pay")
    result = case.go_on({"tc_1_0": "done"})
    assert result is not None and result.ok
    (told,) = json.loads((case.out / "state.jsonl").read_bytes().splitlines()[1])["tool_results"]
    assert told["status"] == "ok" and told["result"] is None and told["told"]["done"] is True
    assert case.world.done["kept/1/0"] == 1


def test_a_person_says_not_done_and_it_is_done(tmp_path: Path) -> None:
    case = _in_doubt(tmp_path, "pay", "before")
    result = case.go_on({"tc_1_0": "not_done"})
    assert result is not None and result.ok
    assert case.world.done["kept/1/0"] == 1
    assert not _unseen((case.out / "state.jsonl").read_bytes())


def test_a_doubt_that_was_settled_can_come_again(tmp_path: Path) -> None:
    case = _in_doubt(tmp_path, "pay", "before")
    case.world.dies_in = ("kept/1/0", "after")
    assert case.go_on({"tc_1_0": "not_done"}) is None
    with pytest.raises(EffectInDoubt):
        case.go_on()
    assert case.world.done["kept/1/0"] == 1
    assert case.go_on({"tc_1_0": "done"}) is not None


@pytest.mark.parametrize(("when", "unseen"), [("before", False), ("after", True)])
def test_a_probe_is_asked(tmp_path: Path, when: str, unseen: bool) -> None:
    case = _in_doubt(tmp_path, "book", when)
    assert case.go_on() is not None
    assert (case.world.probed, case.world.done["kept/1/0"]) == (1, 1)
    assert _unseen((case.out / "state.jsonl").read_bytes()) == unseen


def test_a_person_is_believed_before_a_probe(tmp_path: Path) -> None:
    case = _in_doubt(tmp_path, "book")
    assert case.go_on({"tc_1_0": "done"}) is not None
    assert case.world.probed == 0


def test_a_run_whose_time_is_over_does_not_forget_a_doubt(tmp_path: Path) -> None:
    case, times = Case(tmp_path, [["pay"]]), []
    agent = case.agent()
    made = replace(case.config(agent), deadline_s=60)
    case.world.dies_in = ("kept/1/0", "after")
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, made, case.out, durability="effect")

    class Late(VirtualClock):
        def continue_after(self, last: int) -> None:
            times.append(last)
            super().continue_after(last + 61 * 10**9)

    def again(_run: dict[str, Any]) -> tuple[Agent, RunConfig]:
        return agent, replace(case.config(agent), clock=Late())

    with pytest.raises(EffectInDoubt):
        Resumption(case.out, {}, False).go(again)
    result = Resumption(case.out, {"tc_1_0": "done"}, False).go(again)
    assert result.mode == "timeout" and len(times) == 2 and case.world.done["kept/1/0"] == 1


class _Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "answer",
    ["unknown", None, True, "DONE", ["done"], 1, OSError, SystemExit, _Odd, MemoryError, GeneratorExit],
    ids=str,
)
def test_a_probe_without_a_clear_answer_leaves_the_doubt(tmp_path: Path, answer: Any) -> None:
    def says(_key: str) -> Any:
        if isinstance(answer, type):
            raise answer
        return answer

    case = _in_doubt(tmp_path, "book")
    case.world.probe_says = says
    with pytest.raises(EffectInDoubt):
        case.go_on()
    assert case.world.done["kept/1/0"] == 1 and case.journal.exists()


def test_a_probe_that_hangs_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, finished = _in_doubt(tmp_path, "book"), []

    def says(_key: str) -> Any:
        time.sleep(30)
        finished.append(True)

    case.world.probe_says = says
    made = case.world.tool

    def limited(name: str) -> Tool:
        tool = made(name)
        object.__setattr__(tool, "timeout_s", 0.2)
        return tool

    monkeypatch.setattr(case.world, "tool", limited)
    with pytest.raises(EffectInDoubt):
        case.go_on()
    assert not finished


# ---- what tools wrote --------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["effect", "step"])
def test_what_a_tool_wrote_is_on_the_disk_before_its_outcome_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """With `step`, before the next step's model is asked."""
    case, order = Case(tmp_path, [["put"], ["look"]]), []
    sync = keepings._sync
    monkeypatch.setattr(keepings, "_sync", lambda *places: (order.append(places[0].name), sync(*places)))

    class Watched(Disk):
        def write(self, fd: int, data: bytes) -> int:
            entry = json.loads(data)["entry"]
            order.append(f"{entry['type']} {entry.get('step', '')}{entry.get('at', '')}")
            return super().write(fd, data)

    assert case.begin(Watched(), durability) is not None
    wrote, noted, next_one = order.index("file"), order.index("outcome 1i0.1"), order.index("outcome 2m.1")
    assert wrote < noted if durability == "effect" else noted < wrote < next_one


def test_a_file_whose_name_is_not_known_is_made_durable_with_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret in a path: the outcome has a placeholder there."""
    asked: list[bool] = []
    monkeypatch.setattr(os, "sync", lambda: asked.append(True))
    case = Case(tmp_path, [["put"]])
    made = case.world.tool

    def renamed(name: str) -> Tool:
        tool, run = made(name), made(name).run

        def elsewhere(args: dict[str, Any], io: Any) -> Any:
            found = run(args, io)
            io.writes[:] = [("box/<secret:email:1>", digest) for _, digest in io.writes]
            return found

        object.__setattr__(tool, "run", elsewhere)
        return tool

    monkeypatch.setattr(case.world, "tool", renamed)
    assert case.begin() is not None
    assert asked == [True]


# ---- a journal that does not fit -----------------------------------------------------------------------------


def test_a_run_that_asks_for_something_else_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    case.world.dies_in = ("kept/4/0", "before")
    assert case.begin() is None
    before, done = case.journal.read_bytes(), dict(case.world.done)
    case.policy["tool_registry"]["denied"] = ["pay"]
    case.policy["tool_registry"]["allowed"].remove("pay")
    agent = case.agent()
    with pytest.raises(RecordError, match="does not answer the run"):
        Resumption(case.out, {}, True).go(lambda _run: (agent, case.config(agent)))
    assert case.journal.read_bytes() == before and dict(case.world.done) == done


def test_numbers_of_secrets_go_on(tmp_path: Path) -> None:
    """What a placeholder stood for is stored nowhere, so none is given out twice."""
    case = Case(tmp_path, [["look"], ["look"]], redact=["email"])
    made = case.world.tool

    def leaky(name: str) -> Tool:
        tool = made(name)
        object.__setattr__(tool, "run", lambda args, io: {"said": f"{io.idempotency_key[-3]}@mail.test"})
        return tool

    case.world.tool = leaky  # type: ignore[method-assign]
    counting = Disk()
    other = Case(tmp_path / "other", [["look"], ["look"]], redact=["email"])
    other.world.tool = leaky  # type: ignore[method-assign]
    assert other.begin(counting) is not None
    assert case.begin(Disk(len(counting.calls) - 3)) is None
    found = read_journal(case.journal.read_bytes(), "journal")
    assert found is not None and found.secrets == {"email": 1}
    assert case.go_on() is not None
    state = (case.out / "state.jsonl").read_text()
    assert "<secret:email:2>" in state and "@mail.test" not in state


def test_a_secret_that_appears_again_after_a_resume_keeps_its_number(tmp_path: Path) -> None:
    """The journal holds keyed digests of secrets, with which the resumed process recognises them."""

    def sees_one_address(case: Case) -> Case:
        made = case.world.tool

        def leaky(name: str) -> Tool:
            tool = made(name)
            object.__setattr__(tool, "run", lambda args, io: {"said": "someone@mail.test"})
            return tool

        case.world.tool = leaky  # type: ignore[method-assign]
        return case

    counting = Disk()
    other = sees_one_address(Case(tmp_path / "other", [["look"], ["look"]], redact=["email"]))
    assert other.begin(counting) is not None
    case = sees_one_address(Case(tmp_path, [["look"], ["look"]], redact=["email"]))
    assert case.begin(Disk(len(counting.calls) - 3)) is None
    journal = case.journal.read_bytes()
    found = read_journal(journal, "journal")
    assert found is not None and [number[:2] for number in found.numbers] == [["email", 1]]
    assert b"@mail.test" not in journal
    assert case.go_on() is not None
    state = (case.out / "state.jsonl").read_bytes()
    assert state == (other.out / "state.jsonl").read_bytes() and b"<secret:email:2>" not in state
