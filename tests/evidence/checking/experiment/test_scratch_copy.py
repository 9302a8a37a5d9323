"""A copy of a project takes states of its inputs one after another, and nothing of the project changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tachograph.evidence.checking.experiment.scratch_copy import ScratchCopy, TooLarge


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("policy/v1.yaml", "data/a.md", "data/b.md", ".git/config", "tools/__pycache__/x.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for run in ("runs/k/one", "runs/k/two"):
        (root / run).mkdir(parents=True)
        (root / run / "state.jsonl").write_text(run)
    (root / "runs/INDEX.json").write_text("{}")
    (root / "data/link.md").symlink_to("a.md")
    return root


def contents(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def test_what_is_copied(project: Path) -> None:
    with ScratchCopy(project, ["runs/k/two"]) as copy:
        assert set(contents(copy.root)) == {
            *("policy/v1.yaml", "data/a.md", "data/b.md", "data/link.md"),
            *("runs/INDEX.json", "runs/k/two/state.jsonl"),
        }
        assert os.readlink(copy.root / "data/link.md") == "a.md"
    assert not copy.root.exists()


def test_each_state_begins_from_the_project_as_it_is(project: Path) -> None:
    before = contents(project)
    with ScratchCopy(project, []) as copy:
        now = contents(copy.root)
        copy.put_back({"data/a.md": b"then", "data/new/c.md": b"was here", "data/b.md": None})
        first = {**now, "data/a.md": "then", "data/link.md": "then", "data/new/c.md": "was here"}
        assert contents(copy.root) == {name: text for name, text in first.items() if name != "data/b.md"}
        copy.put_back({"data/b.md": b"other"})
        assert contents(copy.root) == {**now, "data/b.md": "other"}
        copy.put_back({})
        assert contents(copy.root) == now
    assert contents(project) == before


def test_a_link_in_the_place_of_an_input_is_not_written_through(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (project / "data/b.md").unlink()
    (project / "data/b.md").symlink_to(tmp_path / "outside")
    with ScratchCopy(project, []) as copy:
        copy.put_back({"data/b.md": b"then"})
        assert (copy.root / "data/b.md").read_text() == "then"
    assert (tmp_path / "outside").read_text() == "mine"


def test_a_project_may_be_too_large(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachograph.evidence.checking.experiment.scratch_copy._MOST_FILES", 3)
    copy = ScratchCopy(project, [])
    with pytest.raises(TooLarge), copy:
        pass
    assert not copy.root.parent.exists()
