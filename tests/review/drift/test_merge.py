"""Two branches that both accepted changes, merged by git itself: what conflicts, and what `accept --merge` leaves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tachograph.evidence.files import accepted
from tachograph.evidence.recording import index
from tachograph.review.drift.merge import merge_of
from tests.evidence.project import DENIED, RETRIED
from tests.review import accepting
from tests.review.accepting import ACCEPTED, Edit, Say, edit, entries
from tests.review.drift_changes import CHANGES, MINUTES, PAGE
from tests.support import CANONICAL, ROOT

project, say, shipped = accepting.project, accepting.say, accepting.shipped
LIMIT = CHANGES["a limit"].edits[0]
TITLE = CHANGES["the title"].edits[0]
Merge = Callable[..., list[str]]


def git(project: Path, *words: str) -> str:
    options = ["-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *options, *words], cwd=project, check=False, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def conflicts(project: Path) -> list[str]:
    return git(project, "diff", "--name-only", "--diff-filter=U").split()


def files(project: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(project.rglob("*")) if path.is_file())
    return {str(path): path.read_bytes() for path in paths if ".git" not in path.relative_to(project).parts}


@pytest.fixture
def merge(project: Path, say: Say) -> Merge:
    """Two branches that change files and accept what drifts; the second is merged into the first."""

    def go(one: tuple[Edit, ...], two: tuple[Edit, ...], attribute: str = "") -> list[str]:
        shutil.copy(ROOT / ".gitattributes", project)
        with (project / ".gitattributes").open("a", encoding="utf-8") as out:
            out.write(attribute)
        for words in (
            ("init", "-q", "-b", "one"),
            ("add", "-A"),
            ("commit", "-qm", "base"),
            ("branch", "two"),
        ):
            git(project, *words)
        for branch, edits in (("two", two), ("one", one)):
            git(project, "checkout", "-q", branch)
            edit(project, *edits)
            assert say("accept", "--all", "--reason", f"on {branch}")[0] == 0
            git(project, "add", "-A")
            git(project, "commit", "-qm", branch)
        git(project, "merge", "-q", "-m", "both", "two")
        return conflicts(project)

    return go


def test_a_document_and_the_policy(project: Path, say: Say, merge: Merge) -> None:
    assert len(merge((MINUTES,), (LIMIT,))) > 5
    added_on_one = [entry for entry in entries(project) if entry["reason"] == "on one"]
    code, out, err = say("accept", "--merge")
    assert (code, err) == (0, "") and "now: git add runs" in out
    git(project, "add", "runs")
    assert conflicts(project) == [] and say("check")[0] == 0 and index.problems(project) == []
    assert accepted.problems(project) == []
    lines = entries(project)
    both = {entry["run"] for entry in added_on_one}
    assert {RETRIED, CANONICAL} <= both
    for run in both:
        first, second = (entry for entry in lines if entry["run"] == run)
        assert (first["reason"], second["reason"]) == ("on one", "on two")
        assert first["manifest"]["after"] == second["manifest"]["before"]
        assert [move["path"] for move in second["inputs"]] == ["policy/v1.yaml"]
    assert {entry["reason"] for entry in lines if entry["run"] not in both} == {"on two"}
    git(project, "commit", "-qm", "merged")
    assert git(project, "status", "--short") == ""


def test_runs_that_git_does_not_merge_line_by_line(project: Path, say: Say, merge: Merge) -> None:
    assert len(merge((MINUTES,), (LIMIT,), "runs/*/*/* -merge\nruns/INDEX.json -merge\n")) > 5
    assert not [name for name, data in files(project).items() if b"<<<<<<<" in data]
    assert say("accept", "--merge")[0] == 0
    git(project, "add", "runs")
    assert conflicts(project) == [] and say("check")[0] == 0


def test_different_runs_keep_the_lines_of_both_as_they_are(project: Path, say: Say, merge: Merge) -> None:
    merge((MINUTES,), (TITLE,))
    on_two = git(project, "show", f"two:{ACCEPTED}")
    on_one = git(project, "show", f"one:{ACCEPTED}")
    assert say("accept", "--merge")[0] == 0
    assert (project / ACCEPTED).read_text(encoding="utf-8") == on_one + on_two
    git(project, "add", "runs")
    assert conflicts(project) == [] and say("check")[0] == 0
    assert {DENIED, RETRIED} <= {entry["run"] for entry in entries(project)}


def test_the_same_change_on_both_branches_is_accepted_once(project: Path, say: Say, merge: Merge) -> None:
    merge((MINUTES,), (MINUTES,))
    assert say("accept", "--merge")[0] == 0
    git(project, "add", "runs")
    runs = [entry["run"] for entry in entries(project)]
    assert len(runs) == len(set(runs)) and conflicts(project) == [] and say("check")[0] == 0


def test_inputs_that_conflict_are_named_and_nothing_is_written(project: Path, say: Say, merge: Merge) -> None:
    assert PAGE in merge((MINUTES,), ((PAGE, "20 minutes", "22 minutes"),))
    before = files(project)
    code, out, err = say("accept", "--merge", "--reason", "so")
    assert (code, out) == (2, "") and f"1 file still conflicts: {PAGE}" in err and "git add" in err
    assert files(project) == before


def test_what_no_branch_accepted_wants_a_reason(project: Path, say: Say, merge: Merge) -> None:
    merge((MINUTES,), ((PAGE, "20 minutes", "22 minutes"),))
    git(project, "checkout", "--ours", PAGE)
    edit(project, (PAGE, "21 minutes", "25 minutes"))
    git(project, "add", PAGE)
    before = files(project)
    code, out, err = say("accept", "--merge")
    assert (code, out) == (2, "") and "by more than either branch accepted" in err and RETRIED in err
    assert files(project) == before
    assert say("accept", "--merge", "--reason", "a middle way")[0] == 0
    git(project, "add", "runs")
    assert conflicts(project) == [] and say("check")[0] == 0
    assert [entry["reason"] for entry in entries(project) if entry["run"] == RETRIED] == [
        "on one",
        "a middle way",
    ]


def test_a_run_that_cannot_be_accepted_leaves_all_as_it_was(project: Path, say: Say, merge: Merge) -> None:
    merge((MINUTES,), (LIMIT,))
    edit(project, *CHANGES["a tool denied"].edits)
    before = files(project)
    code, out, err = say("accept", "--merge", "--reason", "so")
    assert (code, out) == (2, "") and "and 4 more are refused" in err and "nothing was written" in err
    assert files(project) == before


def test_a_merge_that_was_killed_is_done_when_it_is_called_again(
    project: Path, say: Say, merge: Merge
) -> None:
    merge((MINUTES,), (LIMIT,))
    merge_of(project).begin(project)  # what stands when the process is killed while runs are made again
    assert say("accept", "--merge")[0] == 0
    git(project, "add", "runs")
    assert conflicts(project) == [] and say("check")[0] == 0


def test_without_a_merge_it_is_refused(project: Path, say: Say) -> None:
    assert "not in a repository of git" in say("accept", "--merge")[2]
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
        git(project, *words)
    code, out, err = say("accept", "--merge")
    assert (code, out) == (2, "") and "no merge is under way" in err
    assert "leave out the names of runs and --all" in say("accept", "--merge", "--all")[2]
