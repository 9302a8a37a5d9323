"""The folder in which questions to a person stand: one process at a time changes it, and a closed question stays so.

A question is closed by a file beside it, `NAME.closed`, which says how: `taken` (its answer was used), `refused` or
`expired`. It is made whole or not at all, only once, and on the disk before the answer counts. So an answer serves
once, whoever reads it, and a copy of its file in the old place serves no more.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...fail.errors import OutputError
from ..formats.durable_write import write_durably


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until nobody else changes a folder of questions, and keep others out meanwhile. Raises OutputError."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _failed(folder, "opened", error) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            raise _failed(folder, "locked", error) from error
        yield
    finally:
        os.close(fd)


def closed_as(path: Path) -> str | None:
    """Return how a question was closed, None for one that is open. A mark that cannot be read closes it too."""
    mark = _mark_of(path)
    if not os.path.lexists(mark):
        return None
    try:
        return str(json.loads(mark.read_text(encoding="ascii"))["closed"])
    except (OSError, ValueError, KeyError, TypeError):
        return "closed"


def close(path: Path, how: str, at: str) -> None:
    """Close a question that is open, for good. Raises OutputError where that cannot be written down."""
    write_whole(_mark_of(path), {"schema": "approval-closed/v1", "closed": how, "at": at}, replaces=False)


def write_whole(path: Path, data: dict[str, Any], *, replaces: bool = True) -> None:
    """Write a file that only its owner can read, whole or not at all, and put it on the disk.

    Raises:
        OutputError: It cannot be written, or it exists already and `replaces` is not set.
    """
    text = json.dumps(data, indent=2, ensure_ascii=True) + "\n"
    try:
        write_durably(path, text.encode("ascii"), replaces=replaces, mode=0o600)
    except OSError as error:
        raise _failed(path, "written", error) from error


def _mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.closed")


def _failed(path: Path, verb: str, error: OSError) -> OutputError:
    why = error.strerror or type(error).__name__
    return OutputError(f"{path}: the question cannot be {verb} ({why}); name a folder that can be")
