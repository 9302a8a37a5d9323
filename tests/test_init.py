"""`tachograph init`: a project that holds wherever it is started, and nothing where it cannot be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from tachograph.cli.main import commands
from tachograph.scaffold import new_project as module
from tests.commands import Capsys, exit_code, output_of
from tests.test_revisions import commit, git

ROOT = Path(__file__).parents[1]


def tree(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


# one after another in one process; none may end with an exit code
COMMANDS = """
import sys
from tachograph.cli.main import commands
sys.exit(any([commands(words.split(), standalone_mode=False) for words in sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("below", "environment"),
    [
        ("plain", {"TZ": "Pacific/Chatham"}),
        ("ein Gerät/mit Leerzeichen", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ("policy/runs/another/project", {"PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2"}),
    ],
)
def test_a_new_project_holds(tmp_path: Path, below: str, environment: dict[str, str]) -> None:
    here, home, project = tmp_path / "here", tmp_path / "home", tmp_path / below
    for folder in (here, home, project.parent):
        folder.mkdir(parents=True, exist_ok=True)
    before = tree(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= environment

    def run(cwd: Path, *words: str) -> str:
        command = [sys.executable, *words]
        ran = subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, timeout=300)
        return ran.stdout.decode()

    told = run(here, "-m", "tachograph", "init", os.path.relpath(project, here))
    assert "tachograph check" in told.partition("policy/agent.yaml")[2]
    assert {path for path in tree(tmp_path) - before if not path.startswith(below)} == set()
    runs = {f"runs/first/{name}/state.jsonl" for name in ("answer", "denied")}
    policies = {"policy/agent.yaml", "policy/tests/agent.yaml"}
    assert runs | policies | {".github/workflows/tachograph.yml", ".gitattributes"} <= tree(project)
    told = run(project, "-c", COMMANDS, "check", "verify", "policy test", "policy schema", "doctor", "run")
    assert "first/denied: final_answer, 1 denial" in told
    assert tree(tmp_path) - before - {f"{below}/{path}" for path in tree(project)} <= {below}


def test_the_steps_of_its_ci_are_commands(tmp_path: Path) -> None:
    assert exit_code("init", str(tmp_path / "new")) == 0
    text = (tmp_path / "new/.github/workflows/tachograph.yml").read_text()
    steps = [step.get("run", "") for step in yaml.safe_load(text)["jobs"]["runs"]["steps"]]
    named = [step.split()[1] for step in steps if step.startswith("tachograph ")]
    assert named == ["policy", "verify", "check", "review"]
    assert {*named} <= {*commands.list_commands(Context(commands))}
    assert "@" not in next(step for step in steps if "pip" in step)


def test_what_is_there_stays(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = tree(tmp_path)
    for name in ("full", "file", "link"):
        assert name in output_of(capsys, "init", str(tmp_path / name), code=2).err
    assert tree(tmp_path) == before


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_is_left_of_a_project_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, is_new: bool
) -> None:
    folder = tmp_path / ("a/new" if is_new else "new")
    if not is_new:
        folder.mkdir()

    def fail(*given: Any) -> None:
        error.add_note("resume goes on with it")
        raise error

    monkeypatch.setattr(module, "record", fail)
    assert exit_code("init", str(folder)) in (1, 130)
    assert tree(tmp_path) == (set() if is_new else {"new"}) and not getattr(error, "__notes__", ())


def test_branches_that_both_add_runs_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code("init", str(tmp_path / "new")) == 0
    monkeypatch.chdir(tmp_path / "new")
    git(Path(), "init", "-b", "main")
    commit(Path())
    for name in ("one", "two"):
        git(Path(), "checkout", "-b", name, "main")
        text = Path("tasks/first/answer.yaml").read_text().replace("first-answer", f"first-{name}")
        Path(f"tasks/first/{name}.yaml").write_text(text)
        assert exit_code("run", f"first/{name}") == 0
        commit(Path())
    git(Path(), "merge", "one")
    assert exit_code("check") == 0
