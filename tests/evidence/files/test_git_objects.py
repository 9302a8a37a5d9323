"""Git is asked for objects and nothing else: what a repository would have it run is not run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tachograph.evidence.files.git_objects import GitObjects

ENV = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"], "HOME": "/"}
Git = Callable[..., str]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "a repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {"one.txt": "first\n", "inner/two.txt": "two\n"})
    commit(folder, {"one.txt": "second\n"})
    commit(folder, {"inner/two.txt": "other\n"})
    return folder


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", "-C", str(folder), *names, *words],
        env=ENV,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")
    return git(folder, "rev-parse", "HEAD")


def opened(folder: Path) -> GitObjects:
    objects = GitObjects.around(folder)
    assert objects is not None
    return objects


def test_files_of_commits_are_read(repo: Path) -> None:
    first = git(repo, "rev-parse", "HEAD~2")
    with opened(repo / "inner") as objects:
        assert (
            objects.top == repo and objects.head == git(repo, "rev-parse", "HEAD") and not objects.is_shallow
        )
        assert (
            objects.inside(repo / "inner/two.txt") == "inner/two.txt" and objects.inside(repo.parent) is None
        )
        assert sorted(objects.files_at(first)) == ["inner/two.txt", "one.txt"]
        blob = objects.blob_at(first, "one.txt")
        assert blob is not None and objects.read(blob) == b"first\n"
        assert objects.blob_at(first, "inner") is None and objects.blob_at(first, "three.txt") is None
        assert [objects.read(blob) for blob in objects.blobs_of("one.txt")] == [b"second\n", b"first\n"]
        assert objects.last_change("one.txt") == git(repo, "rev-parse", "HEAD~1")
        assert objects.last_change("none") is None
        assert (
            objects.has_commit(first) and not objects.has_commit("0" * 40) and not objects.has_commit("HEAD")
        )


def test_names_are_taken_as_they_are(repo: Path) -> None:
    commit(repo, {"*.txt": "star\n", "ü b\n.txt": "odd\n"})
    with opened(repo) as objects:
        assert [objects.read(blob) for blob in objects.blobs_of("*.txt")] == [b"star\n"]
        assert set(objects.files_at(objects.head)) == {"*.txt", "ü b\n.txt", "one.txt", "inner/two.txt"}
        assert objects.blob_at(objects.head, "--help") is None and list(objects.blobs_of("--help")) == []


def test_nothing_of_the_repository_is_run(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters, drivers, pagers, file watchers, hooks and aliases would each leave a file."""
    left = tmp_path / "left"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho run >> {left}\ncat\n")
    trap.chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=trap diff=trap\n")
    for hook in ("post-index-change", "pre-auto-gc", "reference-transaction"):
        (repo / ".git/hooks" / hook).write_text(trap.read_text())
        (repo / ".git/hooks" / hook).chmod(0o755)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "attributes")
    settings = {
        "core.fsmonitor": trap,
        "core.pager": trap,
        "core.sshCommand": trap,
        "core.gitProxy": trap,
        "filter.trap.smudge": trap,
        "filter.trap.clean": trap,
        "diff.trap.textconv": trap,
        "diff.trap.command": trap,
        "diff.external": trap,
        "alias.log": f"!{trap}",
        "alias.ls-tree": f"!{trap}",
        "log.showSignature": "true",
        "gpg.program": trap,
        "credential.helper": trap,
    }
    for name, value in settings.items():
        git(repo, "config", name, str(value))
    left.unlink(missing_ok=True)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    before = sorted((path, path.stat().st_mtime_ns) for path in (repo / ".git").rglob("*"))
    with opened(repo) as objects:
        assert [objects.read(blob) for blob in objects.blobs_of("one.txt")] == [b"second\n", b"first\n"]
        assert objects.files_at(objects.head) and objects.last_change("one.txt")
    assert not left.exists()
    assert before == sorted((path, path.stat().st_mtime_ns) for path in (repo / ".git").rglob("*"))


def test_the_configuration_of_the_repository_does_not_count(repo: Path) -> None:
    with (repo / ".git/config").open("a") as config:
        config.write("[this is no configuration\n")
    with opened(repo) as objects:
        assert [objects.read(blob) for blob in objects.blobs_of("one.txt")] == [b"second\n", b"first\n"]


def test_an_object_that_was_replaced_is_the_one_that_was_committed(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD:one.txt")
    git(repo, "replace", head, git(repo, "rev-parse", "HEAD~2:one.txt"))
    with opened(repo) as objects:
        assert objects.read(head) == b"second\n"


def test_a_shallow_clone_says_so_and_has_its_newest_commit(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), "shallow")
    with opened(tmp_path / "shallow") as objects:
        assert objects.is_shallow and objects.blob_at(objects.head, "one.txt") is not None
        assert [objects.read(blob) for blob in objects.blobs_of("one.txt")] == [b"second\n"]


def test_a_worktree_and_packed_references_are_found(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(repo, "pack-refs", "--all")
    with opened(tmp_path / "side") as objects:
        assert objects.top == tmp_path / "side" and objects.blob_at(objects.head, "one.txt") is not None


def test_there_may_be_nothing_to_read(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert GitObjects.around(tmp_path) is None
    git(tmp_path, "init", "-q", "empty")
    assert GitObjects.around(tmp_path / "empty") is None
    blob = git(repo, "rev-parse", "HEAD:one.txt")
    with opened(repo) as objects:
        (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
        assert objects.read(blob) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert GitObjects.around(repo) is None


def test_names_are_looked_up_in_the_repository(repo: Path) -> None:
    second = git(repo, "rev-parse", "HEAD~1")
    blob = git(repo, "rev-parse", "HEAD~2:inner/two.txt")
    with opened(repo) as objects:
        assert objects.resolve("main~1") == second
        assert objects.resolve("HEAD~2:inner/two.txt") == blob
        for name in ("nowhere", "HEAD:none", "-h", "--all", "", "HEAD\0", "x" * 5000):
            assert objects.resolve(name) is None, name
