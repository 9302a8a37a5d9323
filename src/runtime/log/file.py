"""The file of an open log: locked, cut back to its last whole line, one write for each line."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...fail.errors import OutputError, system_reason, warn
from .lines import Line, read_log


def lock(folder: Path) -> int:
    """Return a descriptor that locks the folder of an open run. Raises OutputError where another process does."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(folder)):
            raise BlockingIOError  # it was moved away between the two calls
    except OSError as error:
        os.close(fd)
        busy = OutputError(f"{folder}: another process is at work on this run; wait for it or stop it")
        raise busy if isinstance(error, BlockingIOError) else error from None
    return fd


class LogFile:
    """An open log. The folder that holds it is locked while it is open.

    Args:
        folder: The folder of the open run.

    Attributes:
        past: The lines that stand in it.

    Raises:
        OutputError: Another process has it open, or it cannot be used.
        Damaged: Its lines are not as they were written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.jsonl"
        self._pid = os.getpid()
        self._folder = self._fd = -1
        try:
            self._folder = lock(folder)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o644)
            file = os.fstat(self._fd)
            self._own = 1, file.st_ino, file.st_dev
            data = os.pread(self._fd, file.st_size, 0)
            self.past: list[Line] = read_log(data, is_open=True)
            end = data.rfind(b"\n") + 1
            if end < len(data):
                warn("%s: the last line was cut off when the process ended, and is left out", self._path)
            os.ftruncate(self._fd, end)
            self.sync()
            os.fsync(self._folder)  # a new name is on the disk with its folder
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise OutputError(f"{self._path}: cannot be used ({system_reason(error)})") from None
            raise

    def is_in_place(self) -> bool:
        """Return whether the folder is still where it was. Raises OSError where nothing is."""
        return os.path.samestat(os.fstat(self._folder), os.stat(self._path.parent))

    def write(self, line: bytes) -> None:
        """Append a line. Raises OSError."""
        if os.getpid() != self._pid:
            os._exit(70)  # a tool forked and returned in the child, which must not go on as the run
        file = os.fstat(self._fd)
        if (file.st_nlink, file.st_ino, file.st_dev) != self._own:
            raise OSError("the log was closed, removed or linked while the run went on")
        try:
            written = os.write(self._fd, line)
            # where the disk takes a part, it is asked for the rest to hear why
            if written != len(line) and os.write(self._fd, line[written:]) != len(line) - written:
                raise OSError(0, "a line was only partly written")
        except OSError as error:  # which names no file
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def sync(self) -> None:
        """Put what was written on the disk. Raises OSError."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Release the lock, and close the log, which foreign code may have closed. May be called twice."""
        fds, self._folder, self._fd = (self._folder, self._fd), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)
