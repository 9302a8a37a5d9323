"""The commit that a manifest names, and the version of each package that tools import."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tachograph.evidence.files.claims import commit, package_digest
from tachograph.runtime.formats import shipped_files

SOURCES = Path(shipped_files.__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def _git(place: Path, *words: str) -> str:
    settings = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "x",
        "GIT_AUTHOR_EMAIL": "x@example.com",
        "GIT_COMMITTER_NAME": "x",
        "GIT_COMMITTER_EMAIL": "x@example.com",
    }
    for name in [name for name in settings if name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")]:
        del settings[name]
    done = subprocess.run(
        ["git", *words], cwd=place, env=settings, check=True, timeout=60, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(params=["sha1", "sha256"])
def checkout(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with this package in one commit; the package under test is the copy in it."""
    place = tmp_path / "a checkout"
    shutil.copytree(SOURCES, place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    _git(place, "init", "-q", f"--object-format={request.param}")
    _git(place, "add", ".")
    _git(place, "commit", "-q", "-m", "one")
    monkeypatch.setattr(shipped_files, "_PACKAGE", place / "src")
    monkeypatch.setattr(commit, "package_digest", package_digest.package_digest.__wrapped__)
    return place


def test_a_commit_is_named_while_it_holds_the_very_package(checkout: Path) -> None:
    head = _git(checkout, "rev-parse", "HEAD")
    assert commit.commit_of_package() == head
    changed = checkout / "src" / "runtime" / "agent.py"
    text = changed.read_bytes()
    changed.write_bytes(text + b"# changed\n")
    assert commit.commit_of_package() is None
    changed.write_bytes(text)
    assert commit.commit_of_package() == head


def test_a_file_that_the_commit_does_not_hold_or_holds_beyond_names_none(checkout: Path) -> None:
    added = checkout / "src" / "runtime" / "added.py"
    added.write_text("")
    assert commit.commit_of_package() is None
    _git(checkout, "add", ".")
    _git(checkout, "commit", "-q", "-m", "two")
    assert commit.commit_of_package() == _git(checkout, "rev-parse", "HEAD")
    added.unlink()
    assert commit.commit_of_package() is None


def test_a_file_that_does_not_count_may_differ(checkout: Path) -> None:
    (checkout / "src" / "runtime" / "notes.txt").write_text("")
    (checkout / "src" / "views" / "page.py").write_text("")
    (checkout / "more").mkdir()
    (checkout / "more" / "one.py").write_text("")
    assert commit.commit_of_package() == _git(checkout, "rev-parse", "HEAD")


def test_packed_objects_packed_names_and_worktrees_are_read(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = _git(checkout, "rev-parse", "HEAD")
    _git(checkout, "gc", "-q")
    assert commit.commit_of_package() == head
    _git(checkout, "worktree", "add", "-q", str(tmp_path / "beside"))
    monkeypatch.setattr(shipped_files, "_PACKAGE", tmp_path / "beside" / "src")
    assert commit.commit_of_package() == head


def test_no_program_of_the_configuration_is_started(checkout: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.hooksPath", "alias.ls-tree"):
        _git(checkout, "config", key, f"!{trap}" if key.startswith("alias") else str(trap))
    _git(checkout, "config", "remote.origin.url", "ssh://nowhere.invalid/x")
    _git(checkout, "config", "remote.origin.promisor", "true")
    (checkout / ".git" / "HEAD").write_text("0" * (len(_git(checkout, "rev-parse", "HEAD"))))
    (tmp_path / "sprung").unlink(missing_ok=True)
    assert commit.commit_of_package() is None
    assert not (tmp_path / "sprung").exists()


def test_without_a_repository_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SOURCES, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shipped_files, "_PACKAGE", tmp_path / "src")
    assert commit.commit_of_package() is None
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert commit.commit_of_package() is None
