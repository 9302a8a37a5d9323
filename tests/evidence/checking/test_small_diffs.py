"""A change is a small diff: what a comment, a tool and a document change of the recorded runs, and what git changes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tachograph.evidence.checking.check import examine, runs_below
from tachograph.evidence.recording import index
from tests.evidence.project import replaced, tachograph
from tests.support import ROOT, cli

INPUTS = ("policy", "tasks", "tools", "data", "runs")
LATE = "data/corpus/v1/op-e5.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in INPUTS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "runs/code", ignore_errors=True)  # those need the checkout around them
    shutil.rmtree(tmp_path / "tasks/code", ignore_errors=True)
    index.update(tmp_path)
    return tmp_path


def contents(project: Path) -> dict[str, list[str]]:
    """The lines of every file below runs/."""
    files = (path for path in (project / "runs").rglob("*") if path.is_file())
    return {path.relative_to(project).as_posix(): path.read_text().splitlines() for path in files}


def changed_lines(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, int]:
    """Changed files -> how many of their lines changed."""
    changed = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, []), after.get(name, [])
        if old != new:
            changed[name] = len(set(new) - set(old))
    return changed


def runs_that(project: Path, did: str, what: str) -> set[str]:
    """The runs whose ledger says that a tool was called, or that a document was read."""
    found = set()
    for run in runs_below(project):
        for line in map(json.loads, (run / "state.jsonl").read_text().splitlines()):
            for result in line.get("tool_results", ()):
                called = result["name"] if result["attempts"] else None
                read = [path for attempt in result["attempts"] for path in attempt.get("reads", ())]
                if what == called if did == "called" else what in read:
                    found.add(run.relative_to(project).as_posix())
    return found


def test_a_comment_in_policy_or_task_changes_no_run(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(project)
    for folder in ("policy", "tasks"):
        for file in (project / folder).rglob("*.yaml"):
            file.write_text("# a remark\n\n" + file.read_text(), encoding="utf-8")
    assert tachograph(project, capsys, monkeypatch, "check")[0] == 0
    assert tachograph(project, capsys, monkeypatch, "run", "tasks/canonical/v1.yaml", "--quiet")[0] == 0
    assert changed_lines(before, contents(project)) == {}


def test_a_comment_in_a_tool_changes_a_line_of_each_run_that_called_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    before = contents(project)
    tool = project / "tools/fetch.py"
    tool.write_text(tool.read_text() + "# a remark\n")
    assert tachograph(project, capsys, monkeypatch, "accept", "--all", "--reason", "a remark")[0] == 0
    called = runs_that(project, "called", "fetch")
    changed = changed_lines(before, contents(project))
    assert changed.pop("runs/INDEX.json") == changed.pop("runs/ACCEPTED.jsonl") == len(called) > 1
    assert changed == {f"{run}/manifest.json": 1 for run in called}
    assert tachograph(project, capsys, monkeypatch, "check")[0] == 0


def test_a_changed_document_touches_no_run_that_did_not_read_it(project: Path) -> None:
    replaced(project / LATE, ".", "!")
    moved = {
        run.relative_to(project).as_posix()
        for run in runs_below(project)
        if not examine(run, root=project).ok
    }
    assert moved == runs_that(project, "read", LATE) and 0 < len(moved) < len(runs_below(project))


def test_no_ledger_holds_the_digest_of_a_file_that_was_read(project: Path) -> None:
    """Digests of files stand in the manifest alone, so that a remark in one moves no ledger, trace or report."""
    counted = 0
    for run in runs_below(project):
        inputs = json.loads((run / "manifest.json").read_bytes())["inputs"]
        counted += len(inputs)
        texts = [(run / name).read_text() for name in ("state.jsonl", "trace.json", "run_report.md")]
        found = [item["path"] for item in inputs for text in texts if item["sha256"] in text]
        assert found == [], run
    assert counted > 100


# ---- what git does -----------------------------------------------------------------------------------------


def git(*words: str, cwd: Path) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@x.test", "-c", "init.defaultBranch=main"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *identity, *words], cwd=cwd, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def committed(project: Path) -> Path:
    shutil.copy(ROOT / ".gitattributes", project)
    git("init", "-q", ".", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-qm", "all", cwd=project)
    return project


def test_a_clone_that_converts_line_ends_checks_green(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clone = tmp_path_factory.mktemp("clone")
    git("clone", "-q", "-c", "core.autocrlf=true", str(committed(project)), str(clone / "it"), cwd=clone)
    done = cli("check", cwd=clone / "it", env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_ledger_in_a_diff_is_shown_as_what_happened(project: Path) -> None:
    documented = (ROOT / "docs/review.md").read_text()
    assert 'git config diff.tachograph.textconv "tachograph show"' in documented
    committed(project)
    run = "runs/policy_gates/pg5_arg_schema"
    show = f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -m tachograph show"
    git("config", "diff.tachograph.textconv", show, cwd=project)
    shutil.copy(project / "runs/canonical/v1/state.jsonl", project / run / "state.jsonl")
    shown = git("diff", "--", run, cwd=project)
    assert "+       allow  tool_registry  policy/v1.yaml#/tool_registry/allowed/search" in shown
    assert '"type"' not in shown
