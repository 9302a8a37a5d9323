"""Hooks that a task names by file: made again, led back to their file when it moves, refused when it is no use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph.cli import main as command_line
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.cause import causes, in_words
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import InputError
from tests.evidence.project import copy_inputs, replaced, tachograph

DENIES, REWRITES, SENDS_BACK = (f"runs/loop/hook_{name}" for name in ("denies", "rewrites", "sends_back"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(
        tmp_path / "project", [run.removeprefix("runs/") for run in (DENIES, REWRITES, SENDS_BACK)]
    )


def _hooks(run: str) -> str:
    return f"tasks{run.removeprefix('runs')}.py"


@pytest.mark.parametrize(
    ("run", "old", "new", "kind"),
    [
        (DENIES, "def before_call", "# a comment\ndef before_call", "DIGEST-ONLY"),
        (DENIES, "md is being rewritten\"", "md is old\"", "TEXT"),
        (DENIES, '{"deny":', '{"escalate":', "SHAPE"),
        (DENIES, "def before_call(data):", "def on_stop(data):\n    data = {'call': {'arguments': {}}}", "VERDICT"),
        (REWRITES, '"corpus/op-a1.md"}', '"corpus/op-a2.md"}', "EFFECT"),
        (REWRITES, "return None", "raise KeyError", "VERDICT"),
        (SENDS_BACK, "Name the document", "Say which document", "TEXT"),
    ],
)  # fmt: skip
def test_a_moved_file_with_hooks_is_named_as_the_cause(
    project: Path, run: str, old: str, new: str, kind: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert examine(project / run, root=project).ok
    replaced(project / _hooks(run), old, new)
    found = examine(project / run, root=project)
    assert _hooks(run) in found.moved
    assert found.kind == kind
    cause = in_words(causes([found]))
    assert cause == f"{_hooks(run)} moved (1 of them)"
    code, out = tachograph(project, capsys, monkeypatch, "check", run)
    assert code == 1 and out.splitlines()[0].endswith(f"likely cause: {cause}")


def test_a_replay_names_the_file_that_moved_and_answers_hooks_from_the_record(project: Path) -> None:
    assert replayed(project / DENIES, root=project).ok
    replaced(project / _hooks(DENIES), '{"deny": "op-e2.md is being rewritten"}', "None")
    found = replayed(project / DENIES, root=project)
    assert not found.ok and list(found.moved) == [_hooks(DENIES)]
    # the hook of today says nothing, and the recorded answer still denies
    assert not any("state.jsonl" in line for line in found.lines), found.lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ".yaml:14:1: there is no file"),
        (b"def before_call(", ".py:1: importing it raised SyntaxError; fix the module"),
        (b"\xff\xfe\x00", ".py: is not Python source; fix the module"),
        (b"raise ZeroDivisionError", ".py: importing it raised ZeroDivisionError; fix the module"),
        (b"raise GeneratorExit", ".py: importing it raised GeneratorExit; fix the module"),
        (b"class Odd(BaseException): pass\nraise Odd", ".py: importing it raised Odd; fix the module"),
        (b"import sys\nsys.exit(3)", ".py: importing it raised SystemExit; fix the module"),
        (b"import socket\ndef on_stop(data): pass", ".py:1"),
        (b"x = 1", ".py: these hooks have no function; give one of before_model"),
        (b"before_call = 3", ".py: before_call is no function; give a function"),
        (b"TIMEOUT_S = 'a'\ndef on_stop(data): pass", ".py: the time limit of hooks is no number of seconds"),
    ],
)
def test_a_file_that_is_no_use_is_refused_in_one_line_and_nothing_is_written(
    project: Path, text: bytes | None, words: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(project)
    file = project / _hooks(DENIES)
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert command_line.main(["run", "loop/hook_denies"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and words in said, said
    assert command_line.main(["replay", DENIES]) == 1
    assert words in capsys.readouterr().out
    assert command_line.main(["check", DENIES]) == 1
    said = capsys.readouterr().out
    assert words in said and f"likely cause: {_hooks(DENIES)} moved" in said.splitlines()[0]
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_hooks_outside_the_project_are_refused(project: Path) -> None:
    task = project / "tasks/loop/hook_denies.yaml"
    (project.parent / "hooks.py").write_text("def on_stop(data): pass\n")
    link = project / "hooks.py"
    link.symlink_to(project.parent / "hooks.py")
    before = task.read_text()
    for place in ("../hooks.py", "hooks.py", str(project.parent / "hooks.py")):
        task.write_text(before.replace("tasks/loop/hook_denies.py", place))
        with pytest.raises(InputError, match=r"outside the project|path below the project"):
            build(load_task(task, root=project))


def test_a_module_that_the_file_needs_is_an_input(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(project)
    (project / "closed_documents.py").write_text("CLOSED = 'corpus/op-e2.md'\n")
    file = project / _hooks(DENIES)
    text = file.read_text().replace('"corpus/op-e2.md"', "closed_documents.CLOSED")
    file.write_text("import closed_documents\n" + text)
    record_run(*build(load_task(project / "tasks/loop/hook_denies.yaml", root=project)), project / DENIES)
    inputs = json.loads((project / DENIES / "manifest.json").read_bytes())["inputs"]
    assert {item["path"] for item in inputs} >= {_hooks(DENIES), "closed_documents.py"}
    assert examine(project / DENIES, root=project).ok
    (project / "closed_documents.py").write_text("CLOSED = 'corpus/op-e2.md'  # for a week\n")
    assert list(examine(project / DENIES, root=project).moved) == ["closed_documents.py"]
