"""What CI leaves to `make release-check`, and what it never leaves out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dev import sample
from tests.support import ROOT

SUITE = {f"row{number}": [f"src/{number}.py"] for number in range(300)}


def git(place: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of 25 commits, each of which touches one file of its own."""
    place = tmp_path / "a project"
    (place / "src").mkdir(parents=True)
    git(place, "init", "-q")
    for number in range(25):
        (place / f"src/{number}.py").write_text("")
        git(place, "add", "-A")
        git(place, "commit", "-qm", f"{number}")
    return place


def test_what_was_touched_and_a_tenth_are_chosen(project: Path) -> None:
    found = sample.choose(SUITE, project)
    commit = git(project, "rev-parse", "HEAD")
    recent = {f"row{number}" for number in range(5, 25)}
    tenth = {name for name in SUITE if sample.is_in_part(name, commit)}
    assert {*found.names} == recent | tenth
    assert [*found.names] == [name for name in SUITE if name in recent | tenth]
    assert 10 < len(tenth) < 60
    assert found.why.startswith(f"{len(found.names)} of 300: 20 of files") and commit[:12] in found.why
    assert sample.choose(SUITE, project) == found


def test_another_commit_selects_another_tenth() -> None:
    parts = [{name for name in SUITE if sample.is_in_part(name, f"{n:040x}")} for n in range(200)]
    assert set.union(*parts) == {*SUITE} and len({*map(frozenset, parts)}) == 200


def test_a_folder_stands_for_what_is_below_it_and_a_moved_file_for_both_names(project: Path) -> None:
    suite = {"below": ["src/"], "beside": ["sr/"], "moved": ["src/0.py"]}
    git(project, "mv", "src/0.py", "other.py")
    git(project, "commit", "-qm", "move")
    assert {"below", "moved"} <= {*sample.choose(suite, project).names}
    assert "beside" not in sample.choose(suite, project).names or sample.is_in_part(
        "beside", git(project, "rev-parse", "HEAD")
    )


def test_without_history_all_is_chosen(project: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    git(tmp_path, "clone", "-q", "--depth", "1", project.as_uri(), "shallow")
    git(tmp_path / "bare", "init", "-q")
    for place in (tmp_path / "shallow", tmp_path / "bare"):
        found = sample.choose(SUITE, place)
        assert found.names == tuple(SUITE) and found.why.startswith("all 300: there is no history")


def test_something_is_always_chosen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "is_in_part", lambda _name, _commit: False)
    assert sample.choose({"one": ["gone"], "two": ["gone"]}, project).names == ("one",)


def test_what_ci_samples_is_done_in_full_by_release_check() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    sampled = [line for line in script.splitlines() if "$SAMPLE" in line and line.startswith("make ")]
    assert [line.split()[1] for line in sampled] == [
        *("sabotage", "faults", "forgeries"),
        *("test-live", "test-adapters"),
    ]
    assert "release-check:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--full" in script
