"""Processes that die at a counted change of a file: before it, or after half of it where it is a write."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tachograph.runtime.formats import durable_write

DIED = 99
CHANGES = ["open", "write", "replace", "rename", "link", "unlink", "mkdir", "rmdir"]


class _Unbuffered(io.FileIO):
    """A file each write of which is counted."""

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)


def die_at(point: int, die: Callable[[], None]) -> None:
    """Let this process die at a change of a file, counted from 0. A write counts twice: before it, and half of it."""
    left = point

    def counted(name: str) -> None:
        real = getattr(os, name)

        def change(*given: Any, **options: Any) -> Any:
            nonlocal left
            if name == "open" and not given[1] & os.O_CREAT:
                return real(*given, **options)
            points = 2 if name == "write" else 1
            if left == 1 and points == 2:
                real(given[0], given[1][: len(given[1]) // 2])
            if left < points:
                die()
            left -= points
            return real(*given, **options)

        setattr(os, name, change)

    for name in CHANGES:
        counted(name)
    durable_write.open = _Unbuffered  # type: ignore[attr-defined]


def deaths(folder: Path, run: Callable[[], object], before: Path | None = None) -> Iterator[int]:
    """Let a run die in a child at one point after another, and yield what it left, until it comes to its end.

    Args:
        folder: Where it records, alone in the folder above.
        run: Makes it.
        before: The record that lies there before.
    """
    for point in itertools.count():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir(parents=True)
        if before is not None:
            shutil.copytree(before, folder)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # threads that just end
            child = os.fork()
        if child == 0:
            code = 1
            try:
                die_at(point, lambda: os._exit(DIED))
                run()
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, DIED), point
        if code == 0:
            return
        yield point
