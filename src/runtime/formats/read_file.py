"""Read a file that a person names, without blocking and with a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ...fail.errors import system_reason


class NotPlain(OSError):
    """The path is a folder, a FIFO, a device, or a name that no file can have."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.strerror = problem


def read_plain(path: str | Path, most: int) -> bytes:
    """Return the bytes of a regular file; of one longer than `most` bytes, the first `most` + 1. Raises OSError."""
    return _read(path, most + 1)


def read_unlinked(path: str | Path, most: int | None = None) -> bytes:
    """Return the bytes of a regular file that is no link, at most the first `most`.

    Raises:
        OSError: It cannot be read.
        NotPlain: It is a link, a folder, a FIFO or a device.
    """
    if os.path.islink(path):
        raise NotPlain("it is a link")
    return _read(path, -1 if most is None else most, os.O_NOFOLLOW)


def why_unread(error: OSError) -> str:
    """Return in a few words why a file cannot be read."""
    return str(error) if isinstance(error, NotPlain) else system_reason(error)


def _read(path: str | Path, most: int, flags: int = 0) -> bytes:
    try:
        # opening a FIFO would wait for a writer, and a device may give for ever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
    except ValueError as error:
        raise NotPlain(str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotPlain("no plain file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)
