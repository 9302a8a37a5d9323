"""The commit that holds the very code that makes runs, for the manifest's `code.git_sha`."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from ....runtime.formats.shipped_files import package_place
from .package_digest import package_digest, package_sources, shapes_runs

_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def commit_of_package() -> str | None:
    """Return the commit checked out around this package, if its tree holds the package as it is, else None."""
    top = next((path for path in package_place().parents if (path / ".git").exists()), None)
    found = None if top is None else _head(top)
    if top is None or found is None:
        return None
    commit, objects = found
    return commit if _holds_package(commit, objects, top, package_digest()) else None


@lru_cache(maxsize=8)
def _holds_package(commit: str, objects: Path, top: Path, digest: str) -> bool:
    """Return whether the tree of a commit holds each file of this package, and no other that would count.

    Args:
        commit: The commit.
        objects: Where git keeps it.
        top: The folder that is checked out.
        digest: The digest of the package, for which the result is kept.
    """
    package = package_place().relative_to(top).as_posix()
    listed = _listed(commit, objects, package)
    if listed is None:
        return False
    method = hashlib.sha1 if len(commit) == 40 else hashlib.sha256
    here = {
        f"{package}/{path}": method(b"blob %d\0" % len(data) + data).hexdigest()
        for path, data in package_sources()
    }
    return here == {
        path: made for path, made in listed.items() if shapes_runs(path.removeprefix(f"{package}/"))
    }


def _listed(commit: str, objects: Path, folder: str) -> dict[str, str] | None:
    """Return the files of a commit in a folder: path -> the digest that git gives; None if git cannot tell.

    Git's configuration can name programs, and a run may have written it. So git is run in an empty repository of its
    own, which borrows the objects and has no other configuration.
    """
    git = shutil.which("git")
    if git is None or "\n" in str(objects):
        return None
    with tempfile.TemporaryDirectory(prefix="tachograph-git-") as name:
        place = Path(name)
        for inner in ("objects/info", "refs"):
            (place / inner).mkdir(parents=True)
        (place / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
        (place / "objects" / "info" / "alternates").write_text(f"{objects}\n", encoding="utf-8")
        if len(commit) == 64:
            setting = "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"
            (place / "config").write_text(setting, encoding="utf-8")
        out = place / "listed"
        words = ["git", f"--git-dir={place}", "ls-tree", "-r", "-z", "--full-tree", commit, "--", folder]
        try:
            if not _succeeds(git, words, out):
                return None
            entries = [entry.partition("\t") for entry in out.read_bytes().decode("utf-8").split("\0")[:-1]]
            return {path: about.split(" ")[2] for about, _, path in entries}
        except (OSError, UnicodeDecodeError):
            return None


def _succeeds(program: str, words: list[str], out: Path) -> bool:
    """Run a program with its output in a file and return whether it succeeded.

    `subprocess` would take longer to import than the program runs.
    """
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    process = os.posix_spawn(program, words, env, file_actions=files)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _head(top: Path) -> tuple[str, Path] | None:
    """Return the commit that HEAD names and the folder of its objects, read from the files that git keeps."""
    try:
        folder = top / ".git"
        if folder.is_file():  # a worktree of its own
            folder = top / _short(folder).removeprefix("gitdir: ").strip()
        common = folder / "commondir"
        shared = folder / _short(common).strip() if common.is_file() else folder
        commit = _named(_short(folder / "HEAD").strip(), [folder, shared])
        return (commit, (shared / "objects").resolve()) if _SHA.fullmatch(commit) else None
    except (OSError, UnicodeDecodeError):
        return None


def _named(head: str, places: list[Path]) -> str:
    """Return the commit that the content of HEAD leads to, empty if it leads to none."""
    if not head.startswith("ref: refs/"):
        return head
    name = head.removeprefix("ref: ")
    for place in places:
        if ".." not in name.split("/") and (place / name).is_file():
            return _short(place / name).strip()
    packed = [_short(place / "packed-refs", 1 << 22) for place in places if (place / "packed-refs").is_file()]
    lines = [line.split(" ") for text in packed for line in text.splitlines()]
    return next((words[0] for words in lines if words[1:] == [name]), "")


def _short(path: Path, limit: int = 4096) -> str:
    with path.open("rb") as file:
        return file.read(limit).decode("utf-8")
