"""The pytest plugin: the fixture `tachograph` makes recorded runs again in tests of crew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.project import replaced
from tests.evidence.tasks.code.code_project import QUESTION, code_project
from tests.support import cli, environment, tree

TASK = "tasks/code/notes.yaml"
RUN = "runs/code/notes"
TESTS = f"""\
from crew.notes import agent

def test_record(tachograph):
    result = tachograph.record(agent, {QUESTION!r}, task="{TASK}")
    assert result.answer == "a note" and len(result.steps) == 2

def test_check(tachograph):
    assert tachograph.check("code/notes").answer == tachograph.check("{RUN}").answer == "a note"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = code_project(tmp_path / "project")
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    (root / "checks").mkdir()
    (root / "checks/test_notes.py").write_text(TESTS)
    return root


def _pytest(project: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", *words]
    env = {name: value for name, value in environment().items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=project, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_run_is_recorded_once_and_made_again_from_then_on(project: Path) -> None:
    before = tree(project)
    code, said = _pytest(project)
    assert code == 1 and "2 failed" in said
    assert (
        f"{TASK}: there is no such task; `pytest --tachograph-update` writes it and records its run" in said
    )
    assert f"{RUN}: there is no task {TASK}" in said
    assert tree(project) == before
    code, said = _pytest(project, "--tachograph-update")
    assert code == 0 and "2 passed" in said, said
    assert (project / TASK).exists() and cli("check", cwd=project).returncode == 0
    before = tree(project)
    for words in ([], ["--tachograph-update"], ["checks"]):
        code, said = _pytest(project, *words)
        assert code == 0, said
    assert tree(project) == before


def test_drift_is_the_failure(project: Path) -> None:
    assert _pytest(project, "--tachograph-update")[0] == 0
    replaced(project / "data/notes/first.md", "a note", "another note")
    before = tree(project)
    code, said = _pytest(project, "-k", "check")
    assert code == 1
    assert "check: 1 of 1 runs drifted; likely cause: data/notes/first.md moved" in said
    assert f"EFFECT  {RUN}" in said and f'accept it: tachograph accept {RUN} --reason "..."' in said
    assert "or record it anew: pytest --tachograph-update" in said
    assert "Traceback" not in said and "pytest_plugin.py" not in said
    assert tree(project) == before
    assert _pytest(project, "--tachograph-update")[0] == 0
    assert _pytest(project)[0] == 0 and cli("check", cwd=project).returncode == 0


def test_a_task_without_a_run(project: Path) -> None:
    assert _pytest(project, "--tachograph-update")[0] == 0
    for file in sorted((project / RUN).iterdir()):
        file.unlink()
    (project / RUN).rmdir()
    code, said = _pytest(project)
    assert code == 1 and "2 failed" in said
    assert (
        f"{RUN}: there is no recorded run; record it with `tachograph run {TASK}` or `pytest --tachog" in said
    )
    assert _pytest(project, "--tachograph-update", "-k", "check")[0] == 0
    assert cli("check", cwd=project).returncode == 0


def test_what_is_wrong_is_said_on_one_line(project: Path) -> None:
    replaced(project / "crew/notes.py", '"read"]', '"raed"]')
    (project / "checks/test_notes.py").write_text(
        "def test_name(tachograph):\n"
        f"    tachograph.record('crew.notes:agnt', {QUESTION!r}, task={TASK!r})\n\n"
        "def test_place(tachograph):\n    tachograph.check('first')\n"
    )
    before = tree(project)
    code, said = _pytest(project, "--tachograph-update")
    assert code == 1 and "2 failed" in said and "Traceback" not in said
    assert "there is no tool 'raed'" in said and "first: there is no such run; name a folder" in said
    assert tree(project) == before


def test_nothing_is_imported_before_the_fixture_is_used(project: Path) -> None:
    (project / "checks/test_notes.py").write_text(
        "import sys\n\n"
        "def test_few():\n"
        "    ours = sorted(name for name in sys.modules if name.partition('.')[0] == 'tachograph')\n"
        "    assert ours == ['tachograph', 'tachograph.pytest_plugin'], ours\n"
    )
    code, said = _pytest(project)
    assert code == 0, said
    text = (
        "import sys, tachograph.cli.main; from tachograph import record; assert 'pytest' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", text], cwd=project, check=False).returncode == 0


TYPED = """
from dataclasses import dataclass

from tachograph import Agent, Stub

@dataclass
class Rest:
    place: str

typed = Agent(Stub([{"answer": '{"place": "depot"}'}]), instructions="You know {depot}.", output_type=Rest)
"""
TYPED_TEST = f"""\
from crew.notes import Rest, typed

def test_typed(tachograph):
    earlier = [{{"role": "user", "content": "Hello"}}, {{"role": "assistant", "content": "Yes?"}}]
    given = {{"variables": {{"depot": "Oslo"}}, "history": iter(earlier)}}
    result = tachograph.record(typed, {QUESTION!r}, task="{TASK}", **given)
    assert result.output == Rest("depot")
    assert [message["content"] for message in result.history[:3]] == ["Hello", "Yes?", {QUESTION!r}]
"""


def test_variables_history_and_the_type_of_the_answer(project: Path) -> None:
    with (project / "crew/notes.py").open("a") as file:
        file.write(TYPED)
    (project / "checks/test_notes.py").write_text(TYPED_TEST)
    for words in (["--tachograph-update"], []):
        code, said = _pytest(project, *words)
        assert code == 0, said
    (project / "checks/test_notes.py").write_text(TYPED_TEST.replace("Oslo", "Bergen"))
    code, said = _pytest(project)
    assert code == 1 and "is the task of another run: its variables is not the given one" in said
