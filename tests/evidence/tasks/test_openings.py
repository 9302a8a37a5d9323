"""Tasks say what a run opens with; a file with instructions is an input, and errors have their place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tachograph import Policy, TaskError
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.formats.canonical_json import digest
from tests.support import ROOT

TASK = (ROOT / "tasks/loop/instructions.yaml").read_text(encoding="utf-8")
PROMPT = "data/prompts/dispatcher.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("policy", "tools", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def recorded(root: Path, text: str = TASK, name: str = "tasks/loop/instructions.yaml") -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    agent, config = build(load_task(file, root=root))
    out = root / name.replace("tasks/", "runs/").removesuffix(".yaml")
    record_run(agent, config, out)
    return out


def test_the_file_is_an_input_and_its_change_is_named(project: Path) -> None:
    out = recorded(project)
    manifest = json.loads((out / "manifest.json").read_bytes())
    sha = digest((project / PROMPT).read_bytes())
    assert {"path": PROMPT, "sha256": sha} in manifest["inputs"]
    assert verify(out, project) == [] and examine(out, root=project).lines == []
    (project / PROMPT).write_text("You are {depot}.\n", encoding="utf-8")
    found = examine(out, root=project)
    assert PROMPT in found.moved and not found.tampered
    manifest["inputs"] = [item for item in manifest["inputs"] if item["path"] != PROMPT]
    (out / "manifest.json").write_text(
        json.dumps(manifest, ensure_ascii=False, sort_keys=True, indent=2) + "\n", encoding="utf-8"
    )
    assert any(f"does not name {PROMPT}" in line for line in verify(out, project))


def test_another_policy_is_held_against_the_run_as_it_was_asked(project: Path) -> None:
    out = recorded(project)
    same = under(out, Policy.load(project / "policy/v1.yaml", root=project), root=project)
    assert same.why is None and same.flip is None and same.same == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("variables: {depot: Ollerbeck}", "variables: {depot: Oberau}"),
        ("Go on by hand", "Stop"),
    ],
)
def test_a_record_of_another_opening_is_drift(project: Path, old: str, new: str) -> None:
    out = recorded(project)
    assert TASK.count(old) == 1
    (project / "tasks/loop/instructions.yaml").write_text(TASK.replace(old, new), encoding="utf-8")
    assert examine(out, root=project).lines


def test_instructions_may_stand_in_the_task(project: Path) -> None:
    text = TASK.replace("{file: data/prompts/dispatcher.md}", '"You answer drivers of {depot}."')
    out = recorded(project, text)
    run = json.loads((out / "state.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert run["instructions"] == {"variables": {"depot": "Ollerbeck"}}
    assert run["request_parts"]["instructions"][0]["text"] == "You answer drivers of Ollerbeck."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{depot: Ollerbeck}", "{place: Ollerbeck}", ":7:1: the instructions name the variable 'depot'"),
        ("variables: {depot: Ollerbeck}\n", "", ":6:1: the instructions name the variable 'depot'"),
        ("{depot: Ollerbeck}", "{depot: 3}", ":7:"),
        (
            "tool_call_id: call_1",
            "tool_call_id: call_2",
            ":8:1: message 3 of the history is the result of no",
        ),
        ("data/prompts/dispatcher.md", "data/prompts/nobody.md", ":6:16: cannot be read"),
        ("data/prompts/dispatcher.md", "../outside.md", ":6:16: is outside the project"),
        ("{file: data/prompts/dispatcher.md}", '" "', ":6:1: the instructions must be a text"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(project: Path, old: str, new: str, said: str) -> None:
    assert TASK.count(old) == 1
    with pytest.raises(TaskError) as caught:
        recorded(project, TASK.replace(old, new))
    assert f"tasks/loop/instructions.yaml{said}" in str(caught.value)
    assert not (project / "runs").exists()
