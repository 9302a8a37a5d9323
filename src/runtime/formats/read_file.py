"""Read a file that a person names, without blocking and with a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotPlain(OSError):
    """The path is a folder, a FIFO, a device, or a name that no file can have."""


def read_plain(path: str | Path, most: int) -> bytes:
    """Return the bytes of a regular file; of one longer than `most` bytes, the first `most` + 1. Raises OSError."""
    try:
        # opening a FIFO would wait for a writer, and a device may give for ever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:
        raise NotPlain(str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotPlain("no plain file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(fd)
