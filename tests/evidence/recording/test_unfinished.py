"""Unfinished runs in their folders, and live runs that code made: gone on with, or left as they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, ToolCall
from tachograph.evidence.checking.replay import replay
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import folder as folders
from tachograph.evidence.files.folder import Folder
from tachograph.evidence.recording import record as records
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import Resumption, resume
from tachograph.fail.errors import EffectInDoubt, OutputError, RecordError
from tachograph.runtime.core import clock as clocks
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tests.faults.kept import Case, Disk, stable_files
from tests.support import FILES, policy_data, tool, well_formed

STEPS = (["look", "put"], ["pay", "look!"], ["look"])


def _dead(place: Path) -> Case:
    """A run that died after all that could be in doubt."""
    case = Case(place, STEPS)
    assert case.begin(Disk(20)) is None
    assert case.journal.exists()
    return case


# ---- folders -----------------------------------------------------------------------------------------------


def _finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A kept run that died when all that was left to do was a rename."""
    case = Case(tmp_path, STEPS)

    lock = folders.directory_lock

    def dies(parent: Path) -> Any:
        if (case.partial / "manifest.json").exists():
            raise ForceQuit
        return lock(parent)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "directory_lock", dies)
        assert case.begin() is None
    assert not case.journal.exists() and sorted(p.name for p in case.partial.iterdir()) == sorted(FILES)
    return case


def test_a_run_that_was_over_is_put_in_place_and_tells_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _finished(tmp_path, monkeypatch)
    performed = dict(case.world.performed)
    result = case.go_on()
    assert result is not None and (result.ending, result.answer, result.run_id) == (
        "final_answer",
        "done",
        "kept",
    )
    assert len(result.steps) == 4 and result.steps[0]["step_index"] == 1
    assert verify(case.out, tmp_path) == [] and dict(case.world.performed) == performed


def test_a_run_that_was_over_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _finished(tmp_path, monkeypatch)
    with pytest.raises(OutputError, match="go on with `tachograph resume"):
        case.begin()
    assert sorted(path.name for path in case.partial.iterdir()) == sorted(FILES)


def test_a_torn_manifest_is_put_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FILES:
        case = _finished(tmp_path / name, monkeypatch)
        file = case.partial / name
        file.write_bytes(file.read_bytes()[:-9])
        with pytest.raises(
            OutputError, match="no unfinished run to go on with, since no journal was kept; run the"
        ):
            case.go_on()
        assert not case.out.exists()


def test_a_run_that_was_not_kept_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have missed what it was expected to be; and it can be made again."""
    case = Case(tmp_path, STEPS)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "finish", lambda self: (_ for _ in ()).throw(ForceQuit()))
        assert case.begin(durability="off") is None
    assert sorted(path.name for path in case.partial.iterdir()) == sorted(FILES)
    with pytest.raises(OutputError, match="no unfinished run"):
        case.go_on()
    assert case.begin(durability="off") is not None


def test_an_unfinished_run_is_not_run_over(tmp_path: Path) -> None:
    case = _dead(tmp_path)
    before = case.journal.read_bytes()
    with pytest.raises(
        OutputError, match=r"an unfinished run is there; go on with `tachograph\.resume\(agent"
    ):
        case.begin()
    assert case.journal.read_bytes() == before


def test_a_folder_that_cannot_be_cleared_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _dead(tmp_path)
    before = case.journal.read_bytes()

    def fail(self: Path, *_: object, **__: object) -> None:
        raise OSError(30, "read-only")

    with monkeypatch.context() as patch, pytest.raises(OutputError, match="cannot be written to"):
        patch.setattr(Path, "unlink", fail)
        case.go_on()
    assert case.journal.read_bytes() == before
    assert case.go_on() is not None


def test_a_folder_that_changes_hands_meanwhile_takes_nothing_with_it(tmp_path: Path) -> None:
    for number, act in enumerate(("moved", "swapped for a link")):
        case = Case(tmp_path / str(number), STEPS)
        other = case.out.with_name("other")
        other.mkdir(parents=True)

        def listener(notice: Any, case: Case = case, act: str = act, other: Path = other) -> None:
            if notice.what == "decided" and case.partial.exists() and not case.partial.is_symlink():
                case.partial.rename(case.out.with_name("aside"))
                if act != "moved":
                    case.partial.symlink_to(other)

        agent = case.agent()
        with pytest.raises(OutputError, match="was moved, removed or replaced"):
            record_run(agent, case.config(agent), case.out, listeners=[listener], durability="effect")
        assert list(other.iterdir()) == [] and not case.out.exists()


# ---- from code, on the system clock --------------------------------------------------------------------------


class Live:
    """A model that is no script, a tool that needs a person, and what was done."""

    def __init__(self) -> None:
        self.asked = 0
        self.dies_at = 0
        self.deeds: list[str] = []

    def __call__(self, asked: Any) -> LLMOutput:
        self.asked += 1
        if asked.step_index == self.dies_at:
            self.dies_at = 0
            raise ForceQuit
        if asked.step_index == 4:
            return LLMOutput(final_answer="done")
        return LLMOutput(tool_calls=[ToolCall("probe", {"n": asked.step_index})])

    def agent(self, **sections: Any) -> Agent:
        def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
            self.deeds.append(io.idempotency_key)
            return {"said": f"{args['n']}"}

        policy = policy_data(tool_registry={"allowed": ["probe"]}, **sections)
        return Agent(self, [tool(run=run, effect="write", idempotent=False)], Policy.from_dict(policy))


def _lines(folder: Path) -> list[dict[str, Any]]:
    lines, _ = well_formed((folder / "state.jsonl").read_bytes())
    of_time = ("prev", "stamps", "stamp", "clock")
    return [{key: value for key, value in line.items() if key not in of_time} for line in lines]


def _live(place: Path, dies_at: int, **options: Any) -> Live:
    live = Live()
    live.dies_at = dies_at
    with pytest.raises((KeyboardInterrupt, ForceQuit)) if dies_at else pytest.MonkeyPatch.context():
        records.record(
            live.agent(**options.pop("sections", {})), "What now?", place, run_id="live", **options
        )
    return live


def test_a_live_run_resumes_and_differs_in_stamps_alone(tmp_path: Path) -> None:
    whole = _live(tmp_path / "whole", 0)
    live = _live(tmp_path / "run", 3)
    assert json.loads((tmp_path / "run.partial/journal.jsonl").read_bytes().splitlines()[0])["entry"][
        "package"
    ]
    result = resume(live.agent(), tmp_path / "run")
    assert result.ok and live.deeds == whole.deeds == ["live/1/0", "live/2/0", "live/3/0"]
    assert _lines(tmp_path / "run") == _lines(tmp_path / "whole")
    assert live.asked == whole.asked + 1, "the model was asked again for the reply that was lost"
    assert replay(live.agent(), tmp_path / "run").ok and verify(tmp_path / "run", tmp_path) == []


@pytest.mark.parametrize("jump_s", [-86_400, -3600, 0, 86_400])
def test_a_live_run_goes_on_after_its_last_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    live = _live(tmp_path / "run", 3)
    now = clocks.time.time_ns
    monkeypatch.setattr(clocks.time, "time_ns", lambda: now() + jump_s * 10**9)
    assert resume(live.agent(), tmp_path / "run").ok
    lines, _ = well_formed((tmp_path / "run/state.jsonl").read_bytes())
    begun = [pair[0] for line in lines[1:-1] for pair in line["stamps"].values()]
    assert (max(begun) > 80_000 * 10**9) == (jump_s == 86_400)


def test_who_approves_and_which_clock_are_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tachograph.runtime.setup.run_line.new_nonce", lambda: "0" * 32
    )  # else no two runs are the same

    def options() -> dict[str, Any]:
        return {"approve": lambda asked: True, "clock": clocks.VirtualClock(), "sections": sections}

    sections = {"approval": {"required_for": ["probe"], "timeout_s": 5}}
    whole = _live(tmp_path / "whole", 0, **options())
    live = _live(tmp_path / "run", 3, durability="effect", **options())
    shutil.copytree(tmp_path / "run.partial", tmp_path / "other.partial")
    agent = live.agent(**sections)
    assert resume(agent, tmp_path / "run", approve=lambda asked: True).ok
    assert stable_files(tmp_path / "run") == stable_files(tmp_path / "whole") and whole.deeds == live.deeds
    assert resume(agent, tmp_path / "other").ending == "approval_refused", (
        "where nobody is asked, nobody allows"
    )


def test_an_agent_with_other_tools_is_refused(tmp_path: Path) -> None:
    live = _live(tmp_path / "run", 3)
    other = Agent(live, [tool(effect="write", idempotent=True)], live.agent().policy)
    with pytest.raises(RecordError, match=r"other inputs: tools/0/idempotent changed"):
        resume(other, tmp_path / "run")
    assert resume(live.agent(), tmp_path / "run").ok


def test_a_call_in_doubt_of_a_live_run(tmp_path: Path) -> None:
    live = Live()
    agent = live.agent()
    config = agent.configure_run("What now?", run_id="live")

    def dies(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
        if io is not None and effect.step == 2:
            raise ForceQuit  # before the deed
        return real()

    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, replace(config, inject=dies), tmp_path / "run")
    with pytest.raises(EffectInDoubt):
        resume(agent, tmp_path / "run")
    assert resume(agent, tmp_path / "run", not_done=["tc_2_0"]).ok
    assert live.deeds == ["live/1/0", "live/2/0", "live/3/0"]


def test_a_folder_without_a_name_is_bad_input() -> None:
    with pytest.raises(OutputError):
        Resumption(Path("/"), {}, False).go(lambda run: (_ for _ in ()).throw(AssertionError))
