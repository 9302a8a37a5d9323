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

from ...fail.errors import CorpusError, system_reason
from .safe_open import WAY_FLAGS, Root, closing

# what decides the runs of a project, and its history; the rest of it is free to be written
GOVERNING: Final = ("policy", "tools", "tasks", "runs", ".git")
_MANY: Final = 100
_HEAD: Final = 65536
# compiled for the first run that may write a folder which is not its own
_POLICY: Final = rb"(?m)^schema:[ \t]*[\"']?policy/v"
_TASK: Final = rb"(?m)^schema:[ \t]*[\"']?task/v"

_Id = tuple[int, int]


def check_apart(roots: Mapping[str, Root], written: Mapping[str, str], guarded: Mapping[str, Path]) -> None:
    """Raise CorpusError where a folder that is written overlaps another, holds what is guarded or governs a project.

    Args:
        roots: All folders of the run, by what messages call them.
        written: The path, for messages, of each of them that the run may write and does not own.
        guarded: Files and folders that no written folder may hold, by what messages call them.
    """
    ancestors = {name: _ancestors(name, root.fd) for name, root in roots.items()}
    for name, source in written.items():
        own = ancestors[name][0]
        others = [(other, ids) for other, ids in ancestors.items() if other != name]
        problems = [f"overlaps {other}" for other, ids in others if own in ids or ids[0] in ancestors[name]]
        problems += [f"holds {file}" for file, path in guarded.items() if own in _folders_of(path)]
        problems += _governed(roots[name].fd)
        if problems:
            remedy = "give it a folder of its own, such as out/ in a project"
            raise CorpusError(f"{name} is for writing and {problems[0]}", file=source, remedy=remedy)


def _folders_of(path: Path) -> set[_Id]:
    """Return the folders that a path leads through, as it is written and with links resolved."""
    ids = set()
    for folder in (*path.absolute().parents, *path.resolve().parents):
        with contextlib.suppress(OSError):
            ids.add(_id(folder))
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


def _id(folder: int | str | Path, parent: int | None = None) -> _Id:
    info = os.stat(folder, dir_fd=parent)
    return info.st_dev, info.st_ino


def _ancestors(name: str, fd: int) -> list[_Id]:
    """Return the identities of a folder and of those above it, itself first. Raises CorpusError."""
    try:
        return [_id(folder) for folder in _up(fd)]
    except OSError as error:
        what = f"the folders above {name} cannot be looked at ({system_reason(error)})"
        raise CorpusError(what, remedy="run where they can be passed") from None


def _governed(fd: int) -> list[str]:
    """Return the governing folders of projects that a folder is or lies in, as problems.

    What the folder contains does not count: a run may have written that.
    """
    problems = []
    below: _Id | None = None
    for folder in _up(fd):
        for name in GOVERNING if below is not None and is_project(folder) else ():
            with contextlib.suppress(OSError):
                if _id(name, folder) == below:
                    problems.append(f"lies in a project's {name}/")
        below = _id(folder)
    return problems


def is_project(folder: int) -> bool:
    """Return whether a folder is a project's: whether its `policy/` or `tasks/` holds a policy or a task of ours.

    A project whose policy is made in code has tasks alone.
    """
    return _holds(folder, "policy", _POLICY) or _holds(folder, "tasks", _TASK, below=1)


def _holds(above: int, name: str, schema: bytes, below: int = 0) -> bool:
    """Return whether a folder has a file of a schema, or a folder in it down to `below` further ones."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=above)
    except OSError:
        return False
    with closing(fd):
        names = sorted(os.listdir(fd))
        files = [item for item in names if item.endswith((".yaml", ".yml"))][:_MANY]
        return any(_is_of(fd, item, schema) for item in files) or (
            below > 0 and any(_holds(fd, item, schema, below - 1) for item in names[:_MANY])
        )


def _is_of(folder: int, name: str, schema: bytes) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    with closing(fd):
        return stat.S_ISREG(os.fstat(fd).st_mode) and re.search(schema, os.read(fd, _HEAD)) is not None
