"""Files that are whole or not there, and on the disk once they are written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_durably(path: Path, data: bytes, *, mode: int = 0o666, is_new: bool = False) -> None:
    """Write a file as a whole, by way of one beside it, and put it on the disk.

    Args:
        path: The file.
        data: What it is to hold.
        mode: Its permissions, before the umask.
        is_new: Whether nothing may be there before.

    Raises:
        OSError: It cannot be written.
    """
    made = path.with_name(f".{path.name}.tmp")
    try:
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            path.touch(exist_ok=False)  # not a link, which some file systems do not have
        os.replace(made, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(made)
        # names this file and not the one beside it; a full disk names none
        raise OSError(error.errno, error.strerror, str(path)) from None
    sync(path.parent)


def sync(path: Path) -> None:
    """Put a folder or a file on the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
