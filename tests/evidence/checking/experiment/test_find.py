"""Causes are found by trying: each change of a table is led back to what was changed; a guess says that it is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.cause import causes, found_causes
from tachograph.evidence.checking.differences.compare import Findings
from tachograph.evidence.checking.experiment.find import find_causes
from tachograph.evidence.files.claims.package_digest import package_digest
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tests.evidence.checking.experiment.changes import CHANGES, KEPT
from tests.evidence.files.test_git_objects import commit, git
from tests.evidence.forger import forge
from tests.evidence.project import copy_inputs, edit_manifest, replaced
from tests.review.drift_changes import MINUTES, PAGE, POLICY, REMARK
from tests.support import CANONICAL


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a few runs in a repository of its own, recorded by the code that is here."""
    project = copy_inputs(tmp_path_factory.mktemp("causes") / "project", KEPT)
    for name in KEPT:
        run = project / "runs" / name
        edit_manifest(run, lambda manifest: manifest["code"].update(package=package_digest()))
        forge(run, lambda _: None, root=project)
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "runs")
    return project


@pytest.fixture
def project(committed: Path, tmp_path: Path) -> Path:
    shutil.copytree(committed, tmp_path / "a project")
    return tmp_path / "a project"


def found(project: Path, run: str) -> Findings:
    findings = examine(project / run, root=project)
    find_causes([findings], project)
    return findings


def in_short(findings: Findings) -> tuple[str, ...]:
    return tuple(f"{'+'.join(cause.sources)} {cause.certainty}" for cause in found_causes(findings))


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_behind_a_change(name: str, project: Path) -> None:
    change = CHANGES[name]
    for edit in change.edits:
        if callable(edit):
            edit(project)
        else:
            replaced(project / edit[0], *edit[1:])
    findings = found(project, change.run)
    assert findings.ok == (not change.causes)
    if findings.ok:
        return
    assert in_short(findings) == change.causes, findings.lines
    assert (findings.accept is not None and "--code-changed" not in findings.accept) == change.acceptable


# ---- what a guess is and says ----------------------------------------------------------------------------------


def guess_of(findings: Findings) -> str:
    assert {cause.certainty for cause in found_causes(findings)} == {"guess"}
    assert findings.guess is not None
    return findings.guess


def test_without_a_repository_it_is_a_guess(project: Path) -> None:
    shutil.rmtree(project / ".git")
    replaced(project / PAGE, *MINUTES[1:])
    findings = found(project, CANONICAL)
    assert in_short(findings) == (f"{PAGE} guess",) and guess_of(findings) == "there is no git history here"
    assert findings.accept is not None


def test_in_a_shallow_clone_that_begins_after_the_change_it_is_a_guess(project: Path, tmp_path: Path) -> None:
    commit(project, {PAGE: (project / PAGE).read_text().replace(*MINUTES[1:])})
    git(tmp_path, "clone", "-q", "--depth", "1", project.as_uri(), "shallow")
    findings = found(tmp_path / "shallow", CANONICAL)
    assert in_short(findings) == (f"{PAGE} guess",)
    assert guess_of(findings) == f"git, whose history is cut off here, does not have {PAGE} as recorded"


def test_what_was_never_committed_cannot_be_restored(project: Path) -> None:
    replaced(project / POLICY, *REMARK[1:])
    task = project / "tasks" / f"{CANONICAL.removeprefix('runs/')}.yaml"
    assert found(project, CANONICAL).moved
    agent, config = build(load_task(task, root=project))
    record_run(agent, config, project / CANONICAL)
    index.update(project)
    replaced(project / POLICY, "10.9.0.0/16", "10.8.0.0/16")
    findings = found(project, CANONICAL)
    assert in_short(findings) == (f"{POLICY} guess",)
    assert guess_of(findings) == f"git does not have {POLICY} as recorded"


def test_a_change_that_was_committed_is_found_in_the_history(project: Path) -> None:
    for number in range(21, 24):
        before, after = f"{number - 1} minutes", f"{number} minutes"
        commit(project, {PAGE: (project / PAGE).read_text().replace(before, after)})
    findings = found(project, CANONICAL)
    assert in_short(findings) == (f"{PAGE} tried",)
    (cause,) = found_causes(findings)
    assert any(line.startswith("-") and "20 minutes" in line for line in cause.diff)
    assert any(line.startswith("+") and "23 minutes" in line for line in cause.diff)


def test_a_project_may_be_a_folder_of_a_repository(committed: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    project = tmp_path / "inner/project"
    shutil.copytree(committed, project, ignore=shutil.ignore_patterns(".git"))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "all")
    replaced(project / PAGE, *MINUTES[1:])
    assert in_short(found(project, CANONICAL)) == (f"{PAGE} tried",)


def test_a_project_that_is_too_large_to_be_copied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(project / PAGE, *MINUTES[1:])
    monkeypatch.setattr("tachograph.evidence.checking.experiment.scratch_copy._MOST_BYTES", 1 << 20)
    (project / "large").write_bytes(b"x" * (2 << 20))
    findings = found(project, CANONICAL)
    assert guess_of(findings) == "the project is larger than 1 MB or 50000 files"


def test_a_run_that_cannot_be_made_as_it_was(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(project / PAGE, *MINUTES[1:])
    monkeypatch.setattr("sys.executable", "/bin/false")
    findings = found(project, CANONICAL)
    assert guess_of(findings) == "the run could not be made again with its inputs as recorded"


# ---- what trying costs, and what it leaves alone ---------------------------------------------------------------


def test_n_inputs_cost_at_most_2_plus_2n_runs(project: Path) -> None:
    edits = [
        MINUTES,
        REMARK,
        ("tools/summarize.py", '"""Summarize', '"""An extractive'),
        (POLICY, "# The", "# A"),
    ]
    edits += [("tools/search.py", '"""', '"""\n'), ("tools/fetch.py", '"""', '"""\n')]
    for edit in edits:
        replaced(project / edit[0], *edit[1:])
    findings = examine(project / CANONICAL, root=project)
    made: list[tuple[int, int]] = []
    find_causes([findings], project, tell=lambda count, total: made.append((count, total)))
    assert len(findings.moved) == 5 and in_short(findings) == (f"{PAGE} tried",)
    assert made[-1] == (11, 11) and made[-1][0] <= 2 + 2 * len(findings.moved)


def test_runs_that_moved_by_one_input_are_made_in_one_process(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(project / POLICY, *REMARK[1:])
    started = []
    real = subprocess.run
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda words, *more, **options: (
            started.append(words) if "git" not in str(words[0]) else None,
            real(words, *more, **options),
        )[1],
    )
    every = [examine(project / "runs" / name, root=project) for name in KEPT]
    moved = [item for item in every if item.moved]
    find_causes(moved, project)
    assert len(moved) > 5 and len(started) == 1
    (cause,) = causes(moved)
    assert (cause.source, cause.certainty, len(cause.runs)) == (POLICY, "tried", len(moved))


def test_nothing_of_the_project_changes(project: Path) -> None:
    replaced(project / PAGE, *MINUTES[1:])
    replaced(project / POLICY, *REMARK[1:])
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in project.rglob("*")}
    assert in_short(found(project, CANONICAL)) == (f"{PAGE} tried",)
    after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in project.rglob("*")}
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {
        path for path in after if "__pycache__" in str(path) or path.is_dir()
    }


def test_modules_of_the_project_hide_none_of_the_library(project: Path) -> None:
    """The project's folder is not where the process that makes runs again looks for modules."""
    for name in ("queue.py", "json.py", "tempfile.py"):
        (project / name).write_text("raise SystemExit('this is no library')\n")
    replaced(project / PAGE, *MINUTES[1:])
    assert in_short(found(project, CANONICAL)) == (f"{PAGE} tried",)
