"""Going on with a run that died: the same record, or one line that says why not and loses nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tachograph import Agent, LLMInput, LLMOutput, Policy, record, resume
from tachograph.cli import main as cli
from tachograph.evidence.checking.replay import replay, replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.recording import resume as resumes
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import resume_folder
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import InputError, RecordError
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tests.faults.kept import Case, Disk, stable_files
from tests.faults.scene import ONCE, RUN, TASK, Scene
from tests.support import FILES, well_formed

STEPS = (["look", "put"], ["pay", "look!"], ["look"])


def _dead(place: Path, at: int = 20) -> Case:
    """A run that died at a call to the disk, by default after all that could be in doubt."""
    case = Case(place, STEPS)
    assert case.begin(Disk(at)) is None
    assert case.journal.exists()
    return case


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "project")


def _die(scene: Scene, step: int = 5) -> None:
    """Run the scene's task in this process, which dies when the model is asked in a step."""
    task = load_task(scene.root / TASK)
    agent, setting = build(task)

    def dies(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
        if io is None and effect.step == step:
            raise ForceQuit
        return setting.inject(effect, io, real) if setting.inject is not None else real()

    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, replace(setting, inject=dies), scene.run, durability="effect")


def _command(scene: Scene, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.chdir(scene.root)
    return cli.main([*words])


# ---- the same record ---------------------------------------------------------------------------------------


def test_a_resumed_run_leaves_the_same_fourstable_files(tmp_path: Path) -> None:
    whole = Case(tmp_path / "whole", STEPS)
    assert whole.begin() is not None
    case = _dead(tmp_path / "dead")
    result = case.go_on()
    assert result is not None and (result.ending, result.answer) == ("final_answer", "done")
    assert stable_files(case.out) == stable_files(whole.out)
    assert not case.partial.exists()
    environment = json.loads((case.out / "manifest.json").read_bytes())["environment"]
    assert environment["durability"] == "effect"


def test_a_torn_tail_is_cut_off_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = _dead(tmp_path)
    with case.journal.open("ab") as file:
        file.write(b'{"chain":"00' + b"\0" * 20)
    with caplog.at_level(logging.WARNING, "tachograph"):
        assert case.go_on() is not None
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "run.partial/journal.jsonl: its last 32 bytes are torn and were cut off"
    )


def test_a_whole_journal_reports_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert _dead(tmp_path).go_on() is not None
    assert caplog.records == []


def test_a_damaged_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    case = _dead(tmp_path)
    data = case.journal.read_bytes().replace(b'"look"', b'"lock"', 1)
    case.journal.write_bytes(data)
    with pytest.raises(RecordError, match=r"journal.jsonl:1: does not follow"):
        case.go_on()
    assert case.journal.read_bytes() == data


def test_where_nothing_was_begun_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    case = Case(tmp_path, STEPS)
    assert case.begin(Disk(3)) is None
    with pytest.raises(RecordError, match="died before it began; run it again"):
        case.go_on()
    assert not case.partial.exists() and case.begin() is not None


# ---- on the command line -----------------------------------------------------------------------------------


def test_the_command_goes_on_and_puts_the_run_into_the_index(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _die(scene)
    assert _command(scene, monkeypatch, "resume", RUN + ".partial", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ending"] == "final_answer" and said["folder"] == RUN
    scene.sound()
    assert replayed(scene.run, root=scene.root).ok
    assert _command(scene, monkeypatch, "resume", RUN) == 2
    assert "there is no unfinished run to go on with" in capsys.readouterr().err


def test_a_call_in_doubt_waits_for_a_person(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = load_task(scene.root / TASK)
    agent, setting = build(task)

    def dies(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
        found = real()
        if io is not None and effect.call.name == ONCE[0]:
            raise ForceQuit  # after the deed
        return found

    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, replace(setting, inject=dies), scene.run, durability="effect")
    assert scene.deeds() == {"faults-ten-s3/3/0": 1}
    for _ in range(2):
        assert _command(scene, monkeypatch, "resume", RUN) == 3
        err = capsys.readouterr().err
        assert err.startswith(
            "tachograph: suspended: call tc_3_0 of tool 'pay' was begun and may have taken place"
        )
    assert _command(scene, monkeypatch, "resume", RUN, "--done", "tc_4_0") == 2
    assert "call 'tc_4_0' is not in doubt; tc_3_0 is in doubt" in capsys.readouterr().err
    assert _command(scene, monkeypatch, "resume", RUN, "--done", "tc_3_0", "--quiet") == 0
    assert scene.deeds()["faults-ten-s3/3/0"] == 1 and scene.unseen() == ["tc_3_0"]
    scene.sound()


def test_nothing_in_doubt_needs_nobody(tmp_path: Path) -> None:
    case = _dead(tmp_path)
    with pytest.raises(InputError, match="call 'tc_2_0' is not in doubt; no call is in doubt"):
        case.go_on({"tc_2_0": "done"})
    assert case.journal.exists()


# ---- inputs that changed -----------------------------------------------------------------------------------


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


CHANGES: dict[str, tuple[str, str, str, str]] = {
    "policy/limits": ("policy/v1.yaml", "max_tool_calls: 40", "max_tool_calls: 39", "policy"),
    "tools": ("tools/look.py", "upper", "title", "tools/look.py"),
    "tool schema": ("tools/pay.py", '{"type": "string"}', '{"type": "string", "maxLength": 9}', "tools"),
    "task": (TASK, "title: Ten", "title: 10", "tasks/"),
    "script": (TASK, "say: step 9", "say: step nine", "model"),
    "question": (TASK, "Do it all.", "Do it all twice.", "question"),
    "seed": (TASK, "seed: 3", "seed: 4", "task"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_inputs_are_refused_and_named(scene: Scene, case: str) -> None:
    file, old, new, named = CHANGES[case]
    _die(scene)
    before, deeds = scene.journal.read_bytes(), scene.deeds()
    _edit(scene.root / file, old, new)
    with pytest.raises(RecordError, match=f"the run began under other inputs: {named}.* changed") as caught:
        resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root)
    assert "--rebase" in str(caught.value)
    assert scene.journal.read_bytes() == before and scene.deeds() == deeds
    _edit(scene.root / file, new, old)
    assert resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root).ok


def test_another_number_of_corrections_is_a_changed_input(tmp_path: Path) -> None:
    keys: list[str] = []

    def model(asked: LLMInput) -> LLMOutput:
        if asked.step_index == 2 and not keys:
            raise InputError("the key is missing")
        return LLMOutput(final_answer="no JSON" if asked.step_index == 1 else "{}")

    def agent(retries: int) -> Agent:
        policy = Policy.shipped()
        return Agent(model, ["read"], policy, output_type={"type": "object"}, output_retries=retries)

    with pytest.raises(InputError, match="the key is missing"):
        record(agent(2), "What?", tmp_path / "run")
    keys.append("a key")
    with pytest.raises(RecordError, match="the run began under other inputs: output/retries changed"):
        resume(agent(5), tmp_path / "run")
    assert resume(agent(2), tmp_path / "run").answer == "{}"


def test_other_code_of_ours_is_a_changed_input(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    _die(scene)
    monkeypatch.setattr(resumes, "package", lambda: {"digest": "0" * 64})
    with pytest.raises(RecordError, match="the package's own code changed"):
        resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root)
    assert resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root).ok


def test_rebase_records_both(scene: Scene) -> None:
    _die(scene)
    old = scene.journal.read_bytes().splitlines()[0]
    _edit(scene.root / "policy/v1.yaml", "max_tool_calls: 40", "max_tool_calls: 39")
    assert resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root).ok
    line = json.loads((scene.run / "state.jsonl").read_bytes().splitlines()[0])
    assert line["policy"]["limits"]["max_tool_calls"] == 39
    (earlier,) = line["rebased"]
    assert earlier["policy"] == json.loads(old)["entry"]["run"]["policy"]
    well_formed((scene.run / "state.jsonl").read_bytes())
    assert [
        line for line in verify(scene.run, scene.root) if "INDEX" not in line and "index" not in line
    ] == []


def test_a_rebased_run_replays(scene: Scene) -> None:
    _die(scene)
    _edit(scene.root / "policy/v1.yaml", "max_tool_calls: 40", "max_tool_calls: 39")
    assert resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root).ok
    found = replayed(scene.run, root=scene.root)
    assert found.ok, found.lines


def test_a_rebased_run_can_die_and_be_rebased_again(scene: Scene) -> None:
    _die(scene)
    for number, limit in enumerate((39, 38)):
        _edit(scene.root / "policy/v1.yaml", f"max_tool_calls: {limit + 1}", f"max_tool_calls: {limit}")
        with Disk(12), pytest.raises((KeyboardInterrupt, ForceQuit)):
            resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root)
        entries = [json.loads(text)["entry"]["type"] for text in scene.journal.read_bytes().splitlines()]
        assert entries.count("rebased") == number + 1
    with pytest.raises(RecordError, match="other inputs"):
        _edit(scene.root / "policy/v1.yaml", "max_tool_calls: 38", "max_tool_calls: 40")
        resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root)
    _edit(scene.root / "policy/v1.yaml", "max_tool_calls: 40", "max_tool_calls: 38")
    assert resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root).ok
    line = json.loads((scene.run / "state.jsonl").read_bytes().splitlines()[0])
    assert [item["policy"]["limits"]["max_tool_calls"] for item in line["rebased"]] == [40, 39]


def test_a_run_that_leaves_its_journal_is_refused(scene: Scene) -> None:
    """With --rebase, but the new inputs ask for something else than was answered."""
    _die(scene, 8)
    deeds = scene.deeds()
    before = scene.journal.read_bytes()
    _edit(scene.root / "policy/v1.yaml", "  - pay\n", "")
    with pytest.raises(RecordError, match="does not answer the run") as caught:
        resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root)
    assert "go back to the inputs it had" in str(caught.value)
    assert scene.journal.read_bytes() == before and scene.deeds() == deeds
    _edit(scene.root / "policy/v1.yaml", "  - book\n", "  - pay\n  - book\n")
    assert resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root).ok, "it has gone back"


def test_what_a_model_was_asked_with_already_cannot_be_changed(scene: Scene) -> None:
    """With --rebase, but a step that has its reply would be asked with another schema of a tool."""
    _die(scene)
    before, deeds = scene.journal.read_bytes(), scene.deeds()
    file, old, new, _ = CHANGES["tool schema"]
    _edit(scene.root / file, old, new)
    with pytest.raises(RecordError, match="the tools that the model is offered differ") as caught:
        resume_folder(scene.run, resolutions={}, rebase=True, root=scene.root)
    assert "go back to the inputs it had" in str(caught.value)
    assert scene.journal.read_bytes() == before and scene.deeds() == deeds
    _edit(scene.root / file, new, old)
    assert resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root).ok


# ---- what the run was held to, and how long it may take ------------------------------------------------------


def test_a_resumed_run_is_held_to_what_its_task_expects(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "project", expected={"ending": "cancelled"})
    _die(scene)
    with pytest.raises(Exception, match="expected cancelled, found final_answer"):
        resume_folder(scene.run, resolutions={}, rebase=False, root=scene.root)
    assert not scene.run.exists() and not scene.partial.exists()
    assert sorted(path.name for path in scene.rejected.iterdir()) == sorted(FILES)


def test_the_deadline_of_a_run_stays_its_deadline(tmp_path: Path) -> None:
    files = []
    for name, at in (("whole", None), ("dead", 13)):
        case = Case(tmp_path / name, STEPS)
        agent = case.agent()
        setting = replace(case.config(agent), deadline_s=0.5)
        with Disk(at):
            try:
                record_run(agent, setting, case.out, durability="effect")
            except (KeyboardInterrupt, ForceQuit):
                assert case.go_on() is not None
        files.append(stable_files(case.out))
    assert files[0] == files[1]
    lines = [json.loads(text) for text in files[0]["state.jsonl"].splitlines()]
    assert lines[0]["deadline_ms"] == 500
    assert (lines[-1]["terminal_reason"], lines[-1]["failure_mode"]) == ("failure_mode_terminal", "timeout")


def test_code_cancels_a_kept_run(tmp_path: Path) -> None:
    case, cancel = Case(tmp_path, STEPS), Event()
    agent = case.agent()

    def listener(notice: Any) -> None:
        if notice.what == "line" and notice.line["type"] == "step":
            cancel.set()

    setting = replace(case.config(agent), cancel=cancel)
    result = record_run(agent, setting, case.out, listeners=[listener], durability="effect")
    assert (result.ending, result.mode, result.signum) == ("cancelled", "cancelled", None)
    assert replay(agent, case.out).mode == "cancelled"
    assert not case.world.done
