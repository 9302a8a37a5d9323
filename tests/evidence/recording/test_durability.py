"""Which runs are kept in a journal, what a signal does to them, and what a resume is held to."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, Stub, Tool, ToolCall, record, resume
from tachograph.evidence.recording.durability import needs_journal
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import resume_folder
from tachograph.fail.errors import InputError, Interrupted, RecordError, Suspended
from tachograph.runtime.core.clock import SystemClock, VirtualClock
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tachograph.runtime.journal.journal import Journal, chain_of, read_journal
from tachograph.runtime.workspace.mounts import Mount
from tests.faults.kept import Case, Disk
from tests.faults.scene import Scene
from tests.support import INPUT, OUTPUT, policy_data

from .test_resume import _die, _edit

STEPS = (["look"], ["pay"], ["look"])


def _durability(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_bytes())["environment"]["durability"]


def _writing_agent(folder: Path) -> Agent:
    """An agent whose policy lets it write to a folder of ours."""
    policy = Policy.from_dict(
        policy_data(tool_registry={"allowed": ["write"], "denied": []}, sandbox={"mounts": {"box": "write"}})
    )
    calls = [{"tool": "write", "arguments": {"path": "box/a.txt", "content": "a"}}]
    return Agent(Stub([{"calls": calls}, {"answer": "done"}]), ["write"], policy, mounts={"box": folder})


def test_a_run_that_writes_to_a_real_folder_is_kept_on_every_clock(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    agent = _writing_agent(tmp_path / "box")
    assert record(agent, "q", tmp_path / "kept").ok
    assert _durability(tmp_path / "kept") == "effect"
    with pytest.raises(
        InputError, match="since it may write to the folder behind mount 'box'; choose durability"
    ):
        record(agent, "q", tmp_path / "off", durability="off")
    assert not (tmp_path / "off").exists() and not (tmp_path / "off.partial").exists()


def test_a_run_that_can_be_made_again_is_not_kept(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    agent = case.agent()
    assert record_run(agent, case.config(agent), case.out).ok
    assert _durability(case.out) == "off"


def test_an_external_tool_and_a_real_folder_need_a_journal() -> None:
    class External:
        name, is_external = "send", True

    class Plain:
        name, is_external = "look", False

    own, real = Mount(None, None, "write"), Mount(Path("box"), "box", "write")
    read: Any = replace(real, mode="read")
    tools: Any = [Plain()]
    assert needs_journal(tools, {"a": own, "b": read}) is None
    assert needs_journal([*tools, External()], {}) == "it offers the external tool 'send'"
    assert needs_journal(tools, {"a": own, "b": real}) == "it may write to the folder behind mount 'b'"


# ---- signals -------------------------------------------------------------------------------------------------


def _told(case: Case, at: str, signum: int, **more: Any) -> BaseException:
    """Begin a run that is told to stop while a tool runs, and return what is raised."""
    agent = case.agent()

    def inject(effect: Any, io: Any, real: Any) -> Any:
        if effect.key == at if io is not None else False:
            os.kill(os.getpid(), signum)
        return real()

    config = replace(case.config(agent), inject=inject, **more)
    with pytest.raises(BaseException) as caught:
        record_run(agent, config, case.out, durability="effect")
    return caught.value


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_suspends_a_kept_run_which_goes_on_to_the_same_bytes(tmp_path: Path, signum: int) -> None:
    whole = Case(tmp_path / "whole", STEPS)
    assert whole.begin() is not None
    case = Case(tmp_path / "stopped", STEPS)
    raised = _told(case, "kept/1/0", signum)
    assert isinstance(raised, Suspended) and raised.signum == signum  # type: ignore[attr-defined]
    assert f"{signal.Signals(signum).name} stopped the run; go on with `tachograph.resume(agent" in str(
        raised
    )
    journaled = read_journal(case.journal.read_bytes(), "journal")
    assert journaled is not None and "i0.1" not in journaled.steps[1].outcomes, "the tool was not over"
    assert case.go_on() is not None
    assert (case.out / "state.jsonl").read_bytes() == (whole.out / "state.jsonl").read_bytes()


def test_a_signal_before_an_effect_leaves_no_doubt_about_it(tmp_path: Path) -> None:
    """It comes while the intent is written: the effect is not begun, and the journal says so."""
    case = Case(tmp_path, STEPS)
    agent = case.agent()

    class Telling(Disk):
        def write(self, fd: int, data: bytes) -> int:
            written = os.write(fd, data)
            if b'"type":"intent"' in data:
                os.kill(os.getpid(), signal.SIGTERM)
            return written

    with Telling(), pytest.raises(Suspended):
        record_run(agent, case.config(agent), case.out, durability="effect")
    assert not case.world.performed["kept/2/0"]
    assert case.journal.read_bytes().splitlines()[-1].endswith(b'"type":"withdrawn"}}')
    assert case.go_on() is not None and case.world.done["kept/2/0"] == 1


def test_a_signal_ends_a_run_that_is_to_be_cancelled(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    agent = case.agent()

    def inject(effect: Any, io: Any, real: Any) -> Any:
        raise Interrupted(signal.SIGINT) if io is not None else None  # type: ignore[misc]

    def stops(effect: Any, io: Any, real: Any) -> Any:
        return real() if io is None else inject(effect, io, real)

    config = replace(case.config(agent), inject=stops, on_signal="cancel")
    result = record_run(agent, config, case.out, durability="effect")
    assert (result.ending, result.mode) == ("cancelled", "interrupted") and not case.partial.exists()


def test_what_a_tool_raises_itself_suspends_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    agent = case.agent()

    def inject(effect: Any, io: Any, real: Any) -> Any:
        if io is not None:
            raise KeyboardInterrupt
        return real()

    result = record_run(agent, replace(case.config(agent), inject=inject), case.out, durability="effect")
    assert (result.ending, result.mode) == ("cancelled", "interrupted")


@pytest.mark.parametrize(
    ("signum", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_in_code_the_signal_is_raised_again_and_resume_goes_on(
    tmp_path: Path, signum: int, kind: type[BaseException]
) -> None:
    told = []

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        if not told:
            told.append(1)
            os.kill(os.getpid(), signum)
        return {"said": "x"}

    def model(asked: Any) -> LLMOutput:
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("look", {"n": 1})])
        return LLMOutput(final_answer="done")

    tool = Tool("look", "look", INPUT, OUTPUT, "pure", True, run)
    agent = Agent(model, [tool], Policy.from_dict(policy_data(tool_registry={"allowed": ["look"]})))
    with pytest.raises(kind) as caught:
        record(agent, "q", tmp_path / "run")
    assert isinstance(caught.value.__cause__, Suspended)
    assert not (tmp_path / "run").exists()
    assert resume(agent, tmp_path / "run").ok


def test_an_unknown_word_for_signals_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    with pytest.raises(InputError, match="on_signal 'wait' is unknown; one of suspend, cancel"):
        record(case.agent(), "q", case.out, on_signal="wait")
    assert not case.partial.exists()


# ---- what a resume is held to --------------------------------------------------------------------------------


def test_a_journal_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    assert case.begin(Disk(14)) is None
    moved = tmp_path / "elsewhere.jsonl"
    case.journal.rename(moved)
    case.journal.symlink_to(moved)
    before = moved.read_bytes()
    with pytest.raises(RecordError, match=r"run.partial/journal.jsonl: it is a link; restore the file"):
        case.go_on()
    with pytest.raises(Suspended, match="cannot be written"):  # it became one after it was read
        Journal(case.journal, "effect", "0" * 64, 9)
    assert moved.read_bytes() == before


def test_what_a_run_is_answered_from_is_on_the_disk_first(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    assert case.begin(Disk(12)) is None
    size = case.journal.stat().st_size
    disk = Disk(2)  # the process dies before the second call: the first puts on the disk what is there
    assert case.go_on(disk=disk) is None
    assert disk.calls[0] == "fsync" and disk.synced == size


def test_the_journal_keeps_what_the_model_was_asked(tmp_path: Path) -> None:
    """A journal whose question to the model is another than the run's does not answer the run."""
    case = Case(tmp_path, STEPS)
    assert case.begin(Disk(20)) is None
    chain, lines = "0" * 64, []
    for line in case.journal.read_bytes().splitlines():
        entry = json.loads(line)["entry"]
        if entry.get("at") == "m.1" and entry["step"] == 2:
            assert sorted(entry["input"]) >= ["digest", "max_output_tokens"]
            entry["input"]["digest"] = "f" * 64
        body = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        chain = chain_of(chain, body)
        lines.append(f'{{"chain":"{chain}","entry":{body}}}\n')
    case.journal.write_text("".join(lines))
    with pytest.raises(RecordError, match="input differs at step 2"):
        case.go_on()


def test_a_read_that_may_not_be_repeated_is_in_doubt(tmp_path: Path) -> None:
    done = []

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        done.append(1)
        raise ForceQuit

    tool = Tool("look", "look", INPUT, OUTPUT, "read", False, run)
    policy = Policy.from_dict(policy_data(tool_registry={"allowed": ["look"]}))
    turns: Any = [{"calls": [{"tool": "look", "arguments": {"n": 1}}]}, {"answer": "done"}]
    agent = Agent(Stub(turns), [tool], policy)
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record(agent, "q", tmp_path / "run", durability="effect")
    with pytest.raises((Suspended, KeyboardInterrupt, ForceQuit)) as caught:
        resume(agent, tmp_path / "run")
    assert "call tc_1_0 of tool 'look' was begun" in str(caught.value)
    assert done == [1]


def test_other_hosts_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()

    def agent(folder: str) -> Agent:
        def model(asked: Any) -> LLMOutput:
            raise ForceQuit

        policy = Policy.from_dict(
            policy_data(tool_registry={"allowed": ["fetch"]}, url_allowlist=["https://a.test/"])
        )
        return Agent(model, ["fetch"], policy, hosts={"a.test": tmp_path / folder, **more})

    more: dict[str, Any] = {}
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record(agent("one"), "q", tmp_path / "run", clock=VirtualClock(), durability="effect")
    more["b.test"] = tmp_path / "two"
    with pytest.raises((RecordError, KeyboardInterrupt, ForceQuit)) as caught:
        resume(agent("one"), tmp_path / "run")
    assert "other inputs: hosts/b.test changed" in str(caught.value)


def test_another_clock_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    assert case.begin(Disk(14)) is None
    with pytest.raises(RecordError, match="other inputs: clock/kind changed"):
        resume(case.agent(), case.out, clock=SystemClock())


def test_a_run_keeps_its_seed_and_its_start_under_other_inputs(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "project", clock={"start": "2026-01-01T00:00:00Z"})
    _die(scene)
    task = scene.root / "tasks/faults/ten.yaml"
    _edit(task, "seed: 3", "seed: 4")
    _edit(task, "2026-01-01", "2027-01-01")
    assert resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root).ok
    line = json.loads((scene.run / "state.jsonl").read_bytes().splitlines()[0])
    assert (line["run_id"], line["seed"], line["clock"]["start"]) == (
        "faults-ten-s3",
        3,
        "2026-01-01T00:00:00Z",
    )
