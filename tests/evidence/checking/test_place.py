"""The task at `tasks/K/N.yaml` decides what `runs/K/N` must hold, whatever the record states of itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tachograph.cli.commands.common import owners
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.place import expected_of, owner_of, place_of
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import TaskError
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tests.evidence.forger import Lines, forge
from tests.evidence.project import DENIED, copy_inputs, live_task, replaced, tachograph
from tests.support import CANONICAL, TASK

GIVEN = "runs/policy_gates/approval_given"
GIVEN_TASK = "tasks/policy_gates/approval_given.yaml"
KEPT = ("canonical/v1", "policy_gates/pg5_arg_schema", "policy_gates/approval_given")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("place") / "project", KEPT)


@pytest.fixture
def project(copied: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(copied, tmp_path / "project"))


class Live:
    """A model that is no script."""

    identity = {"execution_path": "live", "provider": "openai", "name": "some", "script_digest": None}  # noqa: RUF012

    def __init__(self, *replies: LLMOutput) -> None:
        self.replies = list(replies)

    def __call__(self, asked: LLMInput) -> LLMOutput:
        return self.replies.pop(0)


# ---- forgeries that fit together, the index included ----------------------------------------------------


def _rewritten_as_live(project: Path) -> None:
    def change(lines: Lines) -> None:
        lines[0]["model"] = dict(Live.identity)
        lines[0]["clock"]["kind"] = "system"
        lines[-2]["llm_output"]["final_answer"] = lines[-1]["final_answer"] = "An invented answer."
        for line in lines:
            line["run_id"] += "-0a1b2c3d"

    forge(project / CANONICAL, change, root=project)


def _without_task(project: Path) -> None:
    manifest = project / CANONICAL / "manifest.json"
    data = json.loads(manifest.read_bytes())
    data["inputs"] = [item for item in data["inputs"] if item["path"] != TASK]
    manifest.write_bytes(manifests.render(data))
    forge(project / CANONICAL, lambda lines: lines[0].update(task=None), root=project)


def _swapped(project: Path) -> None:
    for old, new in ((CANONICAL, "aside"), (DENIED, CANONICAL), ("aside", DENIED)):
        (project / old).rename(project / new)
    index.update(project)


def _refused_by_a_person(project: Path) -> None:
    agent, setting = build(load_task(project / GIVEN_TASK, root=project))
    shutil.rmtree(project / GIVEN)
    asked = replace(setting, approve=lambda _: False, approvals="terminal")
    record_run(agent, asked, project / GIVEN)
    index.update(project)


def _approval(lines: Lines) -> Any:
    return next(e["approval"] for line in lines[1:-1] for e in line["policy_decisions"] if "approval" in e)


def _edited(key: str) -> Callable[[Path], None]:
    return lambda project: forge(
        project / GIVEN, lambda lines: _approval(lines).update({key: "x"}), root=project
    )


def _edited_and_asked(project: Path) -> None:
    def change(lines: Lines) -> None:
        lines[0]["approvals"] = "terminal"
        _approval(lines).update(by="the owner")

    forge(project / GIVEN, change, root=project)


ASKED = f"{GIVEN}: states that a person was asked, but {GIVEN_TASK} does not say `people:`; "
# what is done -> the run, what `verify` says, what `check` says
FORGED: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "a script's run as that of a live model": (
        _rewritten_as_live,
        CANONICAL,
        f"{CANONICAL}: states that openai:some answered, but {TASK} has a script and does not say `live: ",
        "",
    ),
    "no task": (
        _without_task,
        CANONICAL,
        f"{CANONICAL}: states no task, but here belongs a run of {TASK}; ",
        "",
    ),
    "another id of its task": (
        lambda project: forge(
            project / CANONICAL, lambda lines: lines[0]["task"].update(id="x"), root=project
        ),
        CANONICAL,
        f"{CANONICAL}: states that {TASK} has the id x, which is canonical-v1; ",
        "",
    ),
    "another script": (
        lambda project: forge(
            project / CANONICAL, lambda lines: lines[0]["model"].update(script_digest="0" * 64), root=project
        ),
        CANONICAL,
        f"{CANONICAL}: its script is not the one in {TASK}; ",
        "/model/script_digest: ",
    ),
    "two runs swapped": (
        _swapped,
        CANONICAL,
        f"{CANONICAL}: is a run of tasks/policy_gates/pg5_arg_schema.yaml, but here belongs one of {TASK}; ",
        "",
    ),
    "a person's refusal": (_refused_by_a_person, GIVEN, ASKED, ""),
    "another name of a person": (
        _edited("by"),
        GIVEN,
        f"{GIVEN}: the 'by' of the answer to tc_1_0 is not the one in {GIVEN_TASK}; ",
        "/approval/by: x -> ",
    ),
    "another reason of a person": (
        _edited("why"),
        GIVEN,
        f"{GIVEN}: the 'why' of the answer to tc_1_0 is not the one in {GIVEN_TASK}; ",
        "/approval/why: x -> ",
    ),
    "another name of a person who is said to have been asked": (_edited_and_asked, GIVEN, ASKED, ""),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_that_fits_together_is_told_in_one_line(
    name: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    do, run, verified, checked = FORGED[name]
    do(project)
    found = verify(project / run, project)
    assert len(found) == 1 and found[0].startswith(verified), found
    found = examine(project / run, root=project).lines
    assert sum((checked or verified) in line for line in found) == 1 and (checked or len(found) == 1), found
    for verb in ("check", "verify"):
        for words in ([], [run]):
            code, out = tachograph(project, capsys, monkeypatch, verb, *words)
            assert code == 1 and (verified in out or (verb == "check" and checked and checked in out)), out


def test_a_place_does_not_depend_on_how_it_is_named(project: Path) -> None:
    _without_task(project)
    (project / "aside").symlink_to(project / CANONICAL)
    assert not examine(project / "aside", root=project).ok and not examine(project / "aside").ok
    (project / "elsewhere").mkdir()
    (project / CANONICAL).rename(project / "elsewhere/v1")
    (project / CANONICAL).symlink_to(project / "elsewhere/v1")
    assert not examine(project / CANONICAL, root=project).ok and not examine(project / CANONICAL).ok
    assert place_of(project / "elsewhere/v1", project) is None
    assert examine(project / "elsewhere/v1", root=project).ok  # outside runs/ it is verified only


# ---- what a task allows ---------------------------------------------------------------------------------


def _live_run(project: Path, *replies: LLMOutput) -> Path:
    agent, setting = build(load_task(project / "tasks/live/v1.yaml", root=project), model=Live(*replies))
    record_run(agent, setting, project / "runs/live/v1")
    index.update(project)
    return project / "runs/live/v1"


def _both(run: Path, project: Path) -> list[list[str]]:
    return [examine(run, root=project).lines, verify(run, project)]


@pytest.mark.parametrize(
    ("models", "holds"), [("openai:*", True), ("*:some", True), ("openai:other", False), ("o*:*x", False)]
)
def test_a_live_run_is_of_a_model_that_its_task_names(project: Path, models: str, holds: bool) -> None:
    live_task(project, models=models)
    run = _live_run(project, LLMOutput(final_answer="done"))
    for lines in _both(run, project):
        said = f"openai:some answered, but tasks/live/v1.yaml allows {models} in live.models; "
        assert (lines == []) == holds and (holds or said in lines[0]), lines


def test_a_task_with_a_script_may_name_live_models_too(project: Path) -> None:
    with (project / TASK).open("a") as file:
        file.write('live:\n  models: ["openai:*"]\n')
    task = load_task(project / TASK, root=project)
    assert expected_of(task, live=True, people=False) == task.expected  # it states nothing else
    with (project / TASK).open("a") as file:
        file.write("  expected: {ending: final_answer}\npeople: {expected: {ending: approval_refused}}\n")
    task = load_task(project / TASK, root=project)
    assert expected_of(task, live=False, people=False) == task.expected
    assert expected_of(task, live=True, people=False) == {"ending": "final_answer"}
    assert expected_of(task, live=False, people=True) == {"ending": "approval_refused"}
    agent, setting = build(
        load_task(project / TASK, root=project), model=Live(LLMOutput(final_answer="done"))
    )
    shutil.rmtree(project / CANONICAL)
    record_run(agent, setting, project / CANONICAL)
    index.update(project)
    assert _both(project / CANONICAL, project) == [[], []]


def test_a_live_run_must_meet_what_the_task_states_for_it(project: Path) -> None:
    live_task(project)
    run = _live_run(project, LLMOutput(final_answer="done"))
    path = project / "tasks/live/v1.yaml"
    with path.open("a") as task:
        task.write("  expected: {ending: final_answer, decisions: [allow]}\nexpected: {ending: cancelled}\n")
    for lines in _both(run, project):
        assert any("expected: decisions: expected [allow], found []" in line for line in lines), lines
    replaced(path, "  expected: {ending: final_answer, decisions: [allow]}\n", "")
    for lines in _both(run, project):
        assert any("expected: ending: expected cancelled" in line for line in lines), lines


def test_a_person_may_answer_where_the_task_says_so(project: Path) -> None:
    _refused_by_a_person(project)
    with (project / GIVEN_TASK).open("a") as task:
        task.write("people:\n  expected: {ending: approval_refused}\n")
    assert [line for line in verify(project / GIVEN, project) if "people" in line or "expected" in line] == []
    found = examine(project / GIVEN, root=project)
    assert found.kind == "DIGEST-ONLY" and not found.tampered, found.lines
    replaced(project / GIVEN_TASK, "expected: {ending: approval_refused}", "expected: {ending: final_answer}")
    for lines in _both(project / GIVEN, project):
        assert any(
            "expected: ending: expected final_answer, found approval_refused" in line for line in lines
        )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("clock", {"kind": "virtual", "start": "2026-01-01T00:00:00Z"}, "a live model on a virtual clock"),
        (
            "run_id",
            "live-v1-s7",
            "is called live-v1-s7, but a live run of tasks/live/v1.yaml live-v1-s7-XXXX",
        ),
        ("run_id", "live-v1-s7-0a1b2c3dx", "is called live-v1-s7-0a1b2c3dx"),
        ("run_id", "live-v1-s8-0a1b2c3d", "is called live-v1-s8-0a1b2c3d"),
    ],
)
def test_a_live_run_has_the_clock_and_the_name_of_one(project: Path, key: str, value: Any, said: str) -> None:
    live_task(project)
    run = _live_run(project, LLMOutput(final_answer="done"))

    def change(lines: Lines) -> None:
        for line in lines if key == "run_id" else lines[:1]:
            line[key] = value

    forge(run, change, root=project)
    for lines in _both(run, project):
        assert len(lines) == 1 and said in lines[0], lines


def test_the_seed_of_a_live_run_is_that_of_its_task(project: Path) -> None:
    live_task(project)
    run = _live_run(project, LLMOutput(final_answer="done"))
    forge(run, lambda lines: lines[0].update(seed=8), root=project)
    assert any("/seed: 8 -> 7" in line for line in examine(run, root=project).lines)


def test_the_answers_of_a_task_count_in_a_live_run_too(project: Path) -> None:
    with (project / live_task(project)).open("a") as task:
        task.write("approvals:\n  - {step: 1, call: 0, answer: allow, by: shift lead}\n")
    replaced(
        project / "tasks/live/v1.yaml",
        "file: policy/v1.yaml",
        "file: policy/v1.yaml\n  overlays: [policy/overlays/approve_write.yaml]",
    )
    note = ToolCall("write", {"path": "sandbox/note.md", "content": "x"})
    run = _live_run(project, LLMOutput(tool_calls=[note]), LLMOutput(final_answer="done"))
    assert _both(run, project) == [[], []]
    forge(run, lambda lines: _approval(lines).update(by="nobody"), root=project)
    for lines in _both(run, project):
        assert any("the 'by' of the answer to tc_1_0 is not the one in" in line for line in lines), lines


def test_a_time_limit_is_the_task_s(project: Path) -> None:
    forge(project / CANONICAL, lambda lines: lines[0].update(deadline_ms=300_000), root=project)
    assert any("/deadline_ms: 300000 -> nothing" in line for line in examine(project / CANONICAL).lines)


def test_what_a_run_must_meet_is_stated_by_its_task(project: Path) -> None:
    task = load_task(project / TASK, root=project)
    assert expected_of(task, live=False, people=False) == task.expected != {}
    assert expected_of(task, live=True, people=False) == {} == expected_of(task, live=False, people=True)
    task = load_task(project / live_task(project), root=project)
    assert expected_of(task, live=True, people=False) == task.expected


def test_an_ending_that_is_none_is_refused_wherever_a_task_states_one(project: Path) -> None:
    for part in (
        "live:\n  models: ['a:b']\n  expected: {ending: fine}\n",
        "people: {expected: {endings: [fine]}}\n",
    ):
        file = project / "tasks/canonical/other.yaml"
        text = (project / TASK).read_text().replace("id: canonical-v1", "id: canonical-other") + part
        file.write_text(text)
        with pytest.raises(TaskError, match="'fine' is not an ending"):
            load_task(file, root=project)


# ---- what is refused before it begins ---------------------------------------------------------------------


def _refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> str:
    monkeypatch.chdir(project)
    before = {path: path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}
    capsys.readouterr()
    assert command_line.main(["run", *words]) == 2
    assert before == {path: path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((TASK, "--llm", "openai:some"), "has a script and does not say `live: "),
        ((TASK, "--llm", "openai:some", "--out", CANONICAL), "has a script and does not say `live: "),
        ((GIVEN_TASK, "--approve", "ask"), "does not say `people:`"),
        ((TASK, "--timeout", "5"), "a time limit other than the task's makes another run"),
        ((TASK, "--out", "runs/canonical/other"), "runs/canonical/other is the place of a run of tasks/"),
        ((TASK, "--out", DENIED), f"{DENIED} is the place of a run of tasks/policy_gates/"),
        ((TASK, "--out", f"{CANONICAL}/children/1"), f"{CANONICAL} is the place of a run of {TASK}"),
        ((TASK, "--out", "runs/other"), "runs/other is the place of no run, which is runs/KIND/NAME"),
        ((TASK, "--out", "linked/other"), "runs/other is the place of no run, which is runs/KIND/NAME"),
        ((TASK, "--out", "runs"), "runs is the place of no run, which is runs/KIND/NAME"),
    ],
)
def test_a_run_that_may_not_stand_in_a_place_needs_another(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    (project / "linked").symlink_to("runs")
    err = _refused(project, capsys, monkeypatch, *words)
    assert f"{words[0]}: {said}" in err and "give --out with a folder outside runs/" in err


def test_a_model_that_the_task_does_not_name_is_not_asked(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = live_task(project, models="openai:other")
    err = _refused(project, capsys, monkeypatch, task, "--llm", "openai:some")
    assert "allows openai:other in live.models" in err


# ---- names of tasks, and what belongs to a run -----------------------------------------------------------


@pytest.mark.parametrize("suffix", [".yml", ".YAML", ".Yml"])
def test_a_task_of_another_suffix_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    other = f"tasks/canonical/other{suffix}"
    shutil.copy(project / TASK, project / other)
    for verb in ("check", "verify"):
        code, out = tachograph(project, capsys, monkeypatch, verb)
        assert code == 1 and f"{other}: the name of a task ends in .yaml; rename it to other.yaml" in out
    err = _refused(project, capsys, monkeypatch, other)
    assert f"{other}: the name of a task ends in .yaml, not {suffix}; rename it to other.yaml" in err


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_task_that_is_a_link_is_named_as_one(project: Path, linked: str) -> None:
    path = (project / TASK) if linked == "file" else (project / TASK).parent
    path.rename(project / "aside")
    path.symlink_to(project / "aside")
    for lines in _both(project / CANONICAL, project):
        assert len(lines) == 1 and lines[0].startswith(f"{TASK}: is a link to aside"), lines
        assert "; put the file itself in its place" in lines[0]


def test_what_lies_in_a_run_belongs_to_it(project: Path) -> None:
    run = project / CANONICAL
    assert owner_of(run, project) == run
    assert owner_of(run / "children/1", project) == run
    assert owner_of(run / "children/1/children/2", project) == run
    assert owner_of(project / "mine/first/children/1", project) == project / "mine/first/children/1"
    assert owner_of(project / "runs/canonical", project) == project / "runs/canonical"


def test_a_child_is_checked_with_the_run_that_owns_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(project / DENIED, project / CANONICAL / "children/1")
    found = examine(project / CANONICAL / "children/1", root=project)
    assert found.run == CANONICAL
    monkeypatch.delenv("CI", raising=False)  # where nothing is accepted
    child = f"{CANONICAL}/children/1"
    code, out = tachograph(project, capsys, monkeypatch, "check", "--json", child, CANONICAL)
    data = json.loads(out)
    assert code == 1 and list(data["drifted"]) == [CANONICAL] and data["runs"] == 1
    assert command_line.main(["accept", child, "--reason", "so"]) == 2
    assert capsys.readouterr().err.startswith(f"tachograph: {CANONICAL}: ")
    assert owners(project, [project / child, project / CANONICAL]) == [project / CANONICAL]
