"""Committed runs with hooks, told failures and corrected answers, killed at every write: resumed, they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Hooks, Policy, Stub, record, resume
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import resume_folder
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import RecordError
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tachograph.runtime.journal.journal import read_journal
from tachograph.runtime.setup.run_config import RunResult
from tests.faults.kept import Disk, stable_files
from tests.support import ROOT, policy_data, tool

HOOKS = ("hook_denies", "hook_raises", "hook_rewrites", "hook_sends_back")
TOLD = ("told_tool_failure", "told_invalid_reply")
ANSWERS = ("structured_answer",)
NAMES = (*HOOKS, *TOLD, *ANSWERS)


def _begin(name: str, out: Path, disk: Disk) -> RunResult | None:
    """Run a task; None where it died."""
    task = load_task(ROOT / f"tasks/loop/{name}.yaml", root=ROOT)
    with disk:
        try:
            return record_run(*build(task), out, durability="effect")
        except (KeyboardInterrupt, ForceQuit):
            return None


def _go_on(out: Path, disk: Disk | None = None) -> RunResult | None:
    """Resume it; None where it died again."""
    with disk or Disk():
        try:
            return resume_folder(out, resolutions={}, rebase=False, root=ROOT)
        except (KeyboardInterrupt, ForceQuit):
            return None


def _whole(name: str, out: Path) -> tuple[dict[str, Any], int]:
    """The files of the run that nothing disturbs, and how often it writes or syncs its journal."""
    disk = Disk()
    assert _begin(name, out, disk) is not None
    state = (out / "state.jsonl").read_bytes()
    assert state == (ROOT / f"runs/loop/{name}/state.jsonl").read_bytes()
    return stable_files(out), len(disk.calls)


@pytest.mark.parametrize("name", NAMES)
def test_dying_at_any_write_costs_nothing(tmp_path: Path, name: str) -> None:
    whole, calls = _whole(name, tmp_path / "whole")
    assert calls > 10
    resumed = 0
    for number in range(1, calls + 1):
        out = tmp_path / str(number) / "run"
        assert _begin(name, out, Disk(number)) is None
        journal = out.with_name("run.partial") / "journal.jsonl"
        begun = journal.exists() and read_journal(journal.read_bytes(), "journal") is not None
        if not begun:
            with pytest.raises(RecordError, match="died before it began"):
                _go_on(out)
            continue
        assert _go_on(out) is not None
        resumed += 1
        assert stable_files(out) == whole, f"before call {number}"
        assert not journal.exists()
    assert resumed >= calls - 4


@pytest.mark.parametrize("name", NAMES)
def test_dying_again_while_it_is_resumed_costs_nothing(tmp_path: Path, name: str) -> None:
    whole, calls = _whole(name, tmp_path / "whole")
    for number in range(6, calls + 1, 5):
        for again in (2, 3, 7):
            out = tmp_path / f"{number}.{again}" / "run"
            assert _begin(name, out, Disk(number)) is None
            if _go_on(out, Disk(again)) is None:
                assert _go_on(out) is not None
            assert stable_files(out) == whole, f"before call {number}, then {again}"


def _agent(*hooks: Hooks) -> Agent:
    script = [{"calls": [{"tool": "probe", "arguments": {"n": 1}}]}, {"answer": "done"}]
    policy = policy_data(tool_registry={"allowed": ["probe"], "denied": []})
    return Agent(Stub(script), [tool()], Policy.from_dict(policy), hooks=hooks)


@pytest.mark.parametrize(
    "others",
    [(), (Hooks(after_call=lambda data: None),), (Hooks(before_call=lambda data: None, name="other"),)],
    ids=["none", "at another event", "of another name"],
)
def test_a_run_is_not_resumed_without_the_hooks_that_it_began_with(tmp_path: Path, others: Any) -> None:
    """Died before its hook was asked: a run without it would perform what the hook denies."""
    guarded = _agent(Hooks(before_call=lambda data: {"deny": "no"}))
    for number in (5, 7, 9):
        out = tmp_path / str(number)
        with pytest.raises((KeyboardInterrupt, ForceQuit)), Disk(number):
            record(guarded, "What now?", out, durability="effect")
        journal = out.with_name(f"{number}.partial") / "journal.jsonl"
        before = journal.read_bytes()
        with pytest.raises(RecordError, match=r"began under other inputs: hooks.* changed"):
            resume(_agent(*others), out)
        assert journal.read_bytes() == before
        assert resume(guarded, out).ending == "policy_denial_terminal"
