"""However many runs one change moves, `check` says so in 30 lines; with `--verbose` each run is reported."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.evidence.checking.differences.cause import Cause
from tachograph.evidence.checking.differences.compare import BROKEN
from tachograph.evidence.files.json_diff import CLASSES
from tachograph.review.drift.report import DifferenceContext, DriftedRun, DriftReport
from tachograph.review.drift.text import lines
from tests.evidence.files.test_git_objects import git
from tests.evidence.project import copy_inputs, replaced, tachograph
from tests.review.drift_changes import MINUTES, PAGE, POLICY

MOST = 30


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All committed runs, in a repository of their own."""
    project = copy_inputs(tmp_path_factory.mktemp("folding") / "project")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "runs")
    return project


def a_host_removed(project: Path) -> None:
    replaced(project / POLICY, '  - "https://corpus.test/"\n', '  - "https://corpus.example/"\n')


def a_tool_renamed(project: Path) -> None:
    (project / "tools/fetch.py").rename(project / "tools/get.py")
    for path in [*(project / "policy").rglob("*.yaml"), *(project / "tasks").rglob("*.yaml")]:
        path.write_text(path.read_text().replace("fetch", "get"))


def a_schema_changed(project: Path) -> None:
    replaced(project / "tools/fetch.py", '"maxLength": ', '"maxLength": 1')


def a_document_changed(project: Path) -> None:
    replaced(project / PAGE, *MINUTES[1:])


@pytest.mark.parametrize("edit", [a_host_removed, a_tool_renamed, a_schema_changed, a_document_changed])
def test_one_change_of_all_committed_runs(
    edit: Callable[[Path], None],
    committed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tmp_path / "project"
    shutil.copytree(committed, project)
    edit(project)
    code, out = tachograph(project, capsys, monkeypatch, "check")
    assert code == 1 and len(out.splitlines()) <= MOST, out
    assert "runs drifted; " in out.splitlines()[0]
    code, every = tachograph(project, capsys, monkeypatch, "check", "--verbose")
    assert code == 1 and len(every.splitlines()) >= len(out.splitlines())


def plain(text: str, _: str) -> str:
    return text


def made(number: int, kind: str, notes: int, facts: int) -> DriftedRun:
    names = tuple((f"fact {n}", "x" * 200) for n in range(facts))
    first = DifferenceContext(2, 1, f"/{number}", kind, f"step {number}", "a", "b", (), names)
    said = tuple(f"note {n} of {number}" for n in range(notes))
    accept = f"tachograph accept runs/k/{number}"
    return DriftedRun(
        f"runs/k/{number}", kind, (POLICY,), first, None, Counter(), said, said, False, True, accept
    )


RUNS = st.lists(
    st.tuples(st.sampled_from([BROKEN, *CLASSES]), st.integers(0, 40), st.integers(0, 6)),
    min_size=2,
    max_size=80,
)


@given(RUNS, st.integers(0, 400))
def test_several_runs_moved_by_one_cause(shapes: list[tuple[str, int, int]], diff: int) -> None:
    runs = tuple(made(number, *shape) for number, shape in enumerate(shapes))
    cause = Cause(
        POLICY, tuple(run.run for run in runs), (), False, "tried", tuple("+x" for _ in range(diff))
    )
    report = DriftReport(len(runs), runs, (cause,))
    short, whole = list(lines(report, plain)), list(lines(report, plain, verbose=True))
    assert len(short) <= MOST
    for run in runs if len(runs) < 6 else ():
        assert any(run.run in line for line in short)
    for run in runs:
        assert any(run.run in line for line in whole)
