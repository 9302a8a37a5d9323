"""Check that writable mounts do not overlap other mounts, the policy, or a project's control folders.

Folders are told apart by device and inode, so links and other spellings of a path make no difference.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ...fail.errors import CorpusError
from .safe_open import WAY_FLAGS, Root

# what decides the runs of a project, and its history; the rest of it is free to be written
GOVERNING: Final = ("policy", "tools", "tasks", "runs", ".git")
_MANY: Final = 100
_HEAD: Final = 65536
_POLICY: Final = re.compile(rb"^schema:[ \t]*[\"']?policy/v", re.MULTILINE)

_Id = tuple[int, int]


def check_apart(roots: Mapping[str, Root], written: Mapping[str, str], guarded: Mapping[str, Path]) -> None:
    """Raise CorpusError where a folder that is written overlaps another, holds what is guarded or governs a project.

    `roots` are all folders of the run by what messages call them; `written` names those that a policy lets be
    written and that are somebody's, each with its path for messages; `guarded` are files and folders.
    """
    lines = {what: _line(what, root.fd) for what, root in roots.items()}
    for what, source in written.items():
        own = lines[what][0]
        problems = [
            f"overlaps {o}"
            for o, line in lines.items()
            if o != what and (own in line or line[0] in lines[what])
        ]
        problems += [f"holds {name}" for name, path in guarded.items() if own in _folders_of(path)]
        problems += _governed(roots[what].fd)
        if problems:
            raise CorpusError(
                f"{what} is for writing and {problems[0]}",
                file=source,
                remedy="give it a folder of its own, such as out/ in a project",
            )


def _folders_of(path: Path) -> set[_Id]:
    """Return the folders that a path leads through, as it is written and with links resolved."""
    ids = set()
    for folder in (*path.absolute().parents, *path.resolve().parents):
        with contextlib.suppress(OSError):
            info = folder.stat()
            ids.add((info.st_dev, info.st_ino))
    return ids


def _up(fd: int) -> Iterator[int]:
    """Yield descriptors of a folder and of those above it; each is closed when the next is asked for."""
    current, previous = os.dup(fd), None
    try:
        while (identity := _id(current)) != previous:
            yield current
            above = os.open("..", WAY_FLAGS, dir_fd=current)
            os.close(current)
            current, previous = above, identity
    finally:
        os.close(current)


def _id(fd: int) -> _Id:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


def _line(what: str, fd: int) -> list[_Id]:
    try:
        return [_id(folder) for folder in _up(fd)]
    except OSError as error:
        raise CorpusError(
            f"the folders above {what} cannot be looked at ({type(error).__name__})",
            remedy="run where they can be passed",
        ) from None


def _governed(fd: int) -> list[str]:
    """Which governing folder of a project a folder is or lies in.

    What it holds itself says nothing: a run may have written that.
    """
    problems = []
    below: _Id | None = None
    for folder in _up(fd):
        for name in GOVERNING if below is not None and _holds_policy(folder) else ():
            with contextlib.suppress(OSError):
                info = os.stat(name, dir_fd=folder)
                if (info.st_dev, info.st_ino) == below:
                    problems.append(f"lies in a project's {name}/")
        below = _id(folder)
    return problems


def _holds_policy(folder: int) -> bool:
    """Whether a folder is a project's: whether a file in its `policy/` says that it is a policy of ours."""
    try:
        fd = os.open("policy", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        names = sorted(name for name in os.listdir(fd) if name.endswith((".yaml", ".yml")))
        return any(_is_policy(fd, name) for name in names[:_MANY])
    finally:
        os.close(fd)


def _is_policy(folder: int, name: str) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and _POLICY.search(os.read(fd, _HEAD)) is not None
    finally:
        os.close(fd)
