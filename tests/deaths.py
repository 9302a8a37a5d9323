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

CHANGES = ["open", "write", "replace", "rename", "link", "unlink", "mkdir", "rmdir"]


class _Unbuffered(io.FileIO):
    """A file each write of which is counted."""

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)


def at_each_change(reached: Callable[[int], None]) -> None:
    """Let this process tell each change of a file, counted from 0. A write counts twice: before it, and half of it."""
    numbers, is_told = itertools.count(), False

    def tell() -> None:
        nonlocal is_told
        if not is_told:  # what is done about a change is none of the run
            is_told = True
            reached(next(numbers))
            is_told = False

    def counted(name: str) -> None:
        real = getattr(os, name)

        def change(*given: Any, **options: Any) -> Any:
            if name == "open" and not given[1] & os.O_CREAT:
                return real(*given, **options)
            tell()
            if name != "write":
                return real(*given, **options)
            half = real(given[0], given[1][: len(given[1]) // 2])
            tell()
            return half + real(given[0], given[1][half:])

        setattr(os, name, change)

    for name in CHANGES:
        counted(name)
    durable_write.open = _Unbuffered  # type: ignore[attr-defined]


def fork() -> int:
    """Fork, whatever other threads there are: the child does not need them."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return os.fork()


def forked(run: Callable[[], object]) -> int:
    """Return the id of a child of this process that does something, and then ends."""
    child = fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Return how a child ended: its exit code, or minus a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def deaths(
    folder: Path, run: Callable[[], object], before: Path | None = None, beside: tuple[Path, ...] = ()
) -> Iterator[int]:
    """Lay down what a run leaves that dies at one point after another, and yield; in the end, what is left of it whole.

    The run is made once, in a child, and at each point all its files are copied: nothing else outlives a process.

    Args:
        folder: Where it records, alone in the folder above.
        run: Makes it.
        before: The record that lies there before.
        beside: Other files that it writes.
    """
    places, kept = [folder.parent, *beside], folder.parent.with_name("kept")
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    if before is not None:
        shutil.copytree(before, folder)

    def keep(point: int) -> None:
        (kept / f"{point}").mkdir(parents=True)
        for place in places:
            copy = shutil.copytree if place.is_dir() else shutil.copyfile
            copy(place, kept / f"{point}" / place.name)

    def make() -> None:
        at_each_change(keep)
        run()
        os.mkdir(kept / "end")  # a change too, at which all is kept

    assert ended(forked(make)) == 0
    points = len([*kept.iterdir()]) - 1
    for point in range(points):
        shutil.rmtree(folder.parent)
        for place in places:
            (kept / f"{point}" / place.name).rename(place)
        if point < points - 1:
            yield point
    shutil.rmtree(kept)
