"""The commit that holds the very code that makes runs, for the manifest's `code.git_sha`."""

from __future__ import annotations

import hashlib
import shutil
from functools import lru_cache
from pathlib import Path

from ....runtime.formats.shipped_files import package_place
from ..git_objects import head_of, list_tree
from .package_digest import package_digest, package_sources, shapes_runs


def commit_of_package() -> str | None:
    """Return the commit checked out around this package, if its tree holds the package as it is, else None."""
    top = next((path for path in package_place().parents if (path / ".git").exists()), None)
    found = None if top is None else head_of(top)
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
    git = shutil.which("git")
    listed = None if git is None or "\n" in str(objects) else list_tree(git, commit, objects, package)
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
