"""Opening a file below a folder: one component at a time by directory descriptor, following no link.

What is no plain file with one name (links, hard links, devices, FIFOs, sockets) is refused by what `fstat`
says of the open descriptor, so nothing can change between check and use.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..fail.errors import CorpusError

MAX_FILE_BYTES: Final = 8_000_000
MAX_LISTED: Final = 100_000
MAX_DEPTH: Final = 32
_DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFLNK: "link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}


class Refused(Exception):
    """Something on the way that the walk does not follow; `found` says what."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(found)


def open_root(source: Path, what: str) -> int:
    """A descriptor of a folder that `what` names in messages. Raises CorpusError."""
    try:
        return os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CorpusError(
            f"the folder of {what} cannot be opened ({type(error).__name__})",
            file=str(source),
            remedy="name an existing folder that can be read",
        ) from None


def _step_into(parent: int, name: str, create: bool) -> int:
    """Open folder `name` below `parent`. A link there is refused, whatever it points to."""
    try:
        return os.open(name, _DIR_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    except OSError:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise Refused(_KINDS.get(stat.S_IFMT(mode), "device")) from None
        raise
    with contextlib.suppress(FileExistsError):  # made by someone else meanwhile: the open below judges it
        os.mkdir(name, 0o777, dir_fd=parent)
    return os.open(name, _DIR_FLAGS, dir_fd=parent)


def open_parent(root: int, parts: Sequence[str], *, create: bool) -> int:
    """A descriptor of the folder that holds the last part; the caller closes it."""
    if not parts or len(parts) > MAX_DEPTH:
        raise FileNotFoundError("no such file")
    here = os.dup(root)
    try:
        for name in parts[:-1]:
            below = _step_into(here, name, create)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _refuse_odd(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError("is a folder")
    if not stat.S_ISREG(info.st_mode):
        raise Refused(_KINDS.get(stat.S_IFMT(info.st_mode), "device"))
    if info.st_nlink != 1:
        raise Refused("hard link")


def read_file(root: int, parts: Sequence[str]) -> bytes:
    """The bytes of a plain file below the folder of descriptor `root`. Raises Refused or OSError."""
    parent = open_parent(root, parts, create=False)
    try:
        try:
            fd = os.open(parts[-1], _FILE_FLAGS, dir_fd=parent)
        except OSError:
            _refuse_odd(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False))
            raise
    finally:
        os.close(parent)
    try:
        info = os.fstat(fd)
        _refuse_odd(info)
        # a file can grow meanwhile, state no size, or come in part: what counts is the read that finds nothing
        data, wanted = b"", info.st_size + 1
        while piece := os.read(fd, min(wanted, MAX_FILE_BYTES + 1 - len(data))):
            data, wanted = data + piece, 65536
    finally:
        os.close(fd)
    if len(data) > MAX_FILE_BYTES:
        raise OSError("file too large")
    return data


def write_file(root: int, parts: Sequence[str], data: bytes) -> None:
    """Replace a file below `root` as a whole; folders on the way are made. Raises Refused or OSError."""
    parent = open_parent(root, parts, create=True)
    name = parts[-1]
    try:
        with contextlib.suppress(FileNotFoundError):  # a new file
            _refuse_odd(os.stat(name, dir_fd=parent, follow_symlinks=False))
        temporary, fd = _new_file(parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise
    finally:
        os.close(parent)


def _new_file(parent: int) -> tuple[str, int]:
    """A file under a name of its own: another may be at work here, or have been killed at it."""
    for number in range(MAX_LISTED):
        name = f".tachograph-{os.getpid()}-{number}.tmp"
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, _NEW_FLAGS, 0o666, dir_fd=parent)
    raise OSError("no room for a new file")


def list_files(folder: int, prefix: tuple[str, ...], found: list[str]) -> None:
    """Add the plain files below `folder` to `found`, as relative paths with `prefix` before them."""
    if len(prefix) >= MAX_DEPTH:
        return
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if len(found) >= MAX_LISTED:
            raise OSError("too many files")
        if entry.is_file(follow_symlinks=False):
            found.append("/".join((*prefix, entry.name)))
        elif entry.is_dir(follow_symlinks=False):
            below = os.open(entry.name, _DIR_FLAGS, dir_fd=folder)
            try:
                list_files(below, (*prefix, entry.name), found)
            finally:
                os.close(below)
