"""Choose the part of a long suite that a run of CI performs: `make release-check` performs all of it.

Chosen is what belongs to a file that the last commits touched, and a tenth that the id of the commit selects, so that
every commit gets another tenth and the same commit always the same. Where there is no history, everything is chosen.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMITS: Final = 20
PARTS: Final = 10


@dataclass(frozen=True)
class Sample:
    """The names that were chosen, in the order of the suite, and one line that says why."""

    names: tuple[str, ...]
    why: str


def choose(suite: Mapping[str, Iterable[str]], root: Path) -> Sample:
    """Choose from a suite.

    Args:
        suite: Name -> the files it belongs to, relative to `root`; one that ends in `/` stands for all below it.
        root: The folder of the repository.
    """
    names = tuple(suite)
    commit = commit_of(root)
    touched = touched_files(root)
    if not commit or touched is None:
        return Sample(names, f"all {len(names)}: there is no history to choose by")
    recent = {name for name, files in suite.items() if any(_is_touched(file, touched) for file in files)}
    tenth = {name for name in names if is_in_part(name, commit)}
    chosen = tuple(name for name in names if name in recent | tenth) or names[:1]
    return Sample(
        chosen,
        f"{len(chosen)} of {len(names)}: {len(recent)} of files that the last {COMMITS} commits touched, "
        f"{len(tenth - recent)} of the tenth that commit {commit[:12]} selects",
    )


def commit_of(root: Path) -> str:
    """Return the id of the commit that is checked out; empty where there is none."""
    return _git(root, "rev-parse", "HEAD").strip()


def is_in_part(name: str, commit: str) -> bool:
    """Return whether `name` is in the tenth that a commit selects."""
    return int(hashlib.sha256(f"{commit} {name}".encode()).hexdigest(), 16) % PARTS == 0


def touched_files(root: Path) -> set[str] | None:
    """Return the files that the last commits touched; None where the history does not say."""
    if _git(root, "rev-parse", "--is-shallow-repository").strip() != "false":
        return None
    # of a file that was moved both names are listed
    listed = _git(
        root,
        "log",
        f"-{COMMITS}",
        "--name-only",
        "--no-renames",
        "--diff-merges=first-parent",
        "--format=",
        "-z",
    )
    return {name.strip("\n") for name in listed.split("\0") if name} or None


def _is_touched(file: str, touched: set[str]) -> bool:
    if file.endswith("/"):
        return any(name.startswith(file) for name in touched)
    return file in touched


def _git(root: Path, *words: str) -> str:
    """Return what git prints, or nothing where it fails or is not there."""
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            ["git", *words],  # noqa: S607
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
