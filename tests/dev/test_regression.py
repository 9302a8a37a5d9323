"""The runs of an earlier commit against changed code: behaviour that changed is reported, and only that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from dev import regression
from tachograph.fail.errors import InputError
from tests.evidence.project import CANONICAL_TRACE, DENIED, FEW, RETRIED, copy_inputs, replaced
from tests.support import CANONICAL, ROOT, environment, tree

NO_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "x",
    "GIT_AUTHOR_EMAIL": "x@example.com",
    "GIT_COMMITTER_NAME": "x",
    "GIT_COMMITTER_EMAIL": "x@example.com",
}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=x", "-c", "core.autocrlf=false", *words],
        cwd=folder,
        env={**os.environ, **SETTINGS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository that holds the inputs of three runs, committed, and no code."""
    folder = copy_inputs(tmp_path / "project", FEW)
    git(folder, "init", "-q")
    commit(folder)
    return folder


def regress(
    project: Path, *words: str, code: Path = ROOT, env: dict[str, str] | None = None
) -> tuple[int, list[str], str]:
    """Exit code, lines and complaint of the comparison with the code in `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "dev.regression", *words],
        cwd=project,
        env={**environment(), **SETTINGS, "PYTHONPATH": str(code), **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr and str(project) not in done.stdout + done.stderr
    return done.returncode, done.stdout.splitlines(), done.stderr


def code_with(tmp_path: Path, file: str, old: str, new: str) -> Path:
    """A copy of the package, and of what ships beside it, with one change."""
    place = tmp_path / "code"
    for folder in ("policy", "tools"):
        shutil.copytree(ROOT / folder, place / folder)
    shutil.copytree(ROOT / "dev", place / "dev", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "src", place / "tachograph", ignore=shutil.ignore_patterns("__pycache__"))
    replaced(place / "tachograph" / file, old, new)
    return place


@NO_GIT
def test_unchanged_code_is_clean_and_nothing_is_written(project: Path) -> None:
    before = tree(project)
    for words in ((), ("",), ("HEAD",), (git(project, "rev-parse", "HEAD")[:9],)):
        code, lines, err = regress(project, *words)
        said = words[0] if words and words[0] else "HEAD"
        closing = f"regression: 3 runs of {said} made again, 0 behave otherwise, 0 differ in lesser ways"
        assert (code, lines, err) == (0, [closing], "")
    assert tree(project) == before


@NO_GIT
def test_a_changed_gate_is_a_verdict(project: Path, tmp_path: Path) -> None:
    gate = "grant = None\n        for name, rule in self.rules:"
    code_place = code_with(
        tmp_path,
        "runtime/policy/gate.py",
        gate,
        'if request.call.name == "fetch":\n            return self._broken(ValueError())\n        ' + gate,
    )
    code, lines, err = regress(project, code=code_place)
    assert (code, err) == (1, "")
    heads = [line for line in lines if not line.startswith("  ")]
    assert heads[:-1] == [f"VERDICT  {CANONICAL}", f"VERDICT  {RETRIED}"]
    assert any("step 2 /policy_decisions/0/decision: allow -> deny [VERDICT]" in line for line in lines)
    assert heads[-1] == ("regression: 3 runs of HEAD made again, 2 behave otherwise, 0 differ in lesser ways")


@NO_GIT
def test_lesser_changes_are_counted_and_pass(project: Path, tmp_path: Path) -> None:
    code_place = code_with(
        tmp_path, "runtime/policy/gate.py", 'f"argument {quote_untrusted', 'f"the argument {quote_untrusted'
    )
    code, lines, err = regress(project, code=code_place)
    assert (code, lines, err) == (
        0,
        [
            "TEXT  1 run, no change of behaviour",
            "regression: 3 runs of HEAD made again, 0 behave otherwise, 1 differ in lesser ways",
        ],
        "",
    )


@NO_GIT
def test_inputs_come_from_the_commit_and_not_from_the_tree(project: Path) -> None:
    replaced(project / "policy/v1.yaml", "max_repeats: 3", "max_repeats: 1")
    shutil.rmtree(project / "runs")
    assert regress(project)[0] == 0
    first = git(project, "rev-parse", "HEAD")
    commit(project)
    assert regress(project, first)[0] == 0
    code, lines, err = regress(project)
    assert (code, lines) == (2, []) and err == (
        "tachograph: HEAD: has no recorded runs; name a commit with tasks/ and runs/\n"
    )


@NO_GIT
def test_a_record_that_was_broken_is_reported(project: Path) -> None:
    replaced(project / CANONICAL_TRACE, '"agent_step"', '"agent_stop"')
    (project / DENIED / "run_report.md").unlink()
    commit(project)
    code, lines, _ = regress(project)
    heads = [line for line in lines if not line.startswith("  ")]
    assert code == 1 and heads[:-1] == [f"BROKEN  {CANONICAL}", f"BROKEN  {DENIED}"]


@NO_GIT
@pytest.mark.parametrize("name", ["nothing", "0" * 40, "-h", "--output=x", "HEAD~9", "a b", "\x1b[31m", ":"])
def test_an_unknown_commit_is_one_line(name: str, project: Path) -> None:
    before = tree(project)
    code, lines, err = regress(project, name)
    assert (code, lines) == (2, []) and err.count("\n") == 1 and "\x1b" not in err
    assert err.startswith("tachograph: ") and "name a commit, tag or branch" in err
    assert tree(project) == before


@NO_GIT
def test_outside_a_repository_is_one_line(tmp_path: Path) -> None:
    env = {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    code, lines, err = regress(tmp_path, env=env)
    assert (code, lines) == (2, []) and err.count("\n") == 1


def test_without_git_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, lines, err = regress(tmp_path, env={"PATH": str(tmp_path / "empty")})
    assert (code, lines) == (2, [])
    assert err == "tachograph: git cannot be run (FileNotFoundError); install git\n"


@NO_GIT
def test_a_python_without_extraction_filters_will_do(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extractall(self: tarfile.TarFile, path: Path) -> None:
        for member in self:
            self.extract(member, path, filter="data")

    monkeypatch.delattr(tarfile, "data_filter")
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    regression.checkout(project, "HEAD", tmp_path / "laid-out")
    assert (tmp_path / "laid-out" / CANONICAL / "state.jsonl").is_file()


@NO_GIT
def test_a_commit_whose_links_lead_out_is_one_complaint(project: Path, tmp_path: Path) -> None:
    (project / "data/out").symlink_to("/etc/hostname")
    commit(project)
    with pytest.raises(InputError, match="HEAD: holds 'data/out', which is not a regular file; "):
        regression.checkout(project, "HEAD", tmp_path)
