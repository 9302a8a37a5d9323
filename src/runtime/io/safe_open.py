"""Open a file below a folder: one component at a time by directory descriptor, following no link.

What is not a regular file (links, devices, FIFOs, sockets), what has a second name elsewhere, and what lies on another
file system is refused by what the system says of the open descriptor, so nothing can change between check and use.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from ...fail.errors import CorpusError, SystemFailure, system_reason

MAX_FILE_BYTES: Final = 8_000_000
MAX_LISTED: Final = 100_000
OPEN_FILES: Final = "/proc/self/fd"  # says the name of an open file
_MOST_TRIES: Final = 100  # to open a file that others replace all the time
MAX_DEPTH: Final = 32
# a folder on the way need not be listed, only passed: that takes no right to read it
WAY_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_LIST_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFLNK: "link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}


class Refused(Exception):
    """A path leads through something that is not followed; `kind` names what it is."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


class Root(Struct, frozen=True):
    """An open folder. Whoever opened it closes `fd`.

    Attributes:
        fd: Its descriptor.
        device: Its file system.
        owner: The user who owns it.
        reads_only: Whether the run writes nothing there.
        private: Whether the folder is the run's own.
    """

    fd: int
    device: int
    owner: int
    reads_only: bool = False
    private: bool = False


class closing:
    """Gives an open descriptor, and closes it at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


def open_root(source: Path, name: str, *, reads_only: bool = False, private: bool = False) -> Root:
    """Open a folder that `name` stands for in messages. Raises CorpusError, or SystemFailure without `/proc`."""
    if not os.path.isdir(OPEN_FILES):  # or each read of a tool would fail
        raise SystemFailure(f"{OPEN_FILES}: is not there; mount /proc")
    try:
        # the dot asks for the right to pass, which O_PATH alone does not
        fd = os.open(f"{source}/.", WAY_FLAGS)
    except (OSError, ValueError) as error:
        what = f"the folder of {name} cannot be opened ({system_reason(error)})"
        raise CorpusError(what, file=str(source), remedy="name an existing folder that can be read") from None
    info = os.fstat(fd)
    return Root(fd, info.st_dev, info.st_uid, reads_only, private)


def _step_into(root: Root, parent: int, name: str) -> int:
    """Open folder `name` below `parent`. A link there is refused, whatever it points to; so is a mount point."""
    try:
        fd = os.open(name, WAY_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:  # if nothing is there, the next line says so
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise Refused(_KINDS.get(stat.S_IFMT(mode), "device")) from None
        raise
    # only folders: an overlay gives its files the devices of its layers
    if os.fstat(fd).st_dev != root.device:
        os.close(fd)
        raise Refused("mount point")
    return fd


def _make_folder(root: Root, parent: int, name: str) -> bool:
    """Make a folder, and return whether it was missing. What else is there is judged when it is entered."""
    try:
        os.mkdir(name, 0o700 if root.private else 0o777, dir_fd=parent)
    except FileExistsError:
        return False
    if root.private:
        restrict_to_owner(name, parent)
    _sync_folder(parent)
    return True


def _sync_folder(parent: int) -> None:
    """Put the names in a folder on the disk, unless it may not be read: then nobody can."""
    # what is held open for the way alone cannot be synced
    with contextlib.suppress(PermissionError), closing(os.open(".", _LIST_FLAGS, dir_fd=parent)) as fd:
        os.fsync(fd)


def restrict_to_owner(folder: str | Path, parent: int | None = None) -> None:
    """Give only the owner access to a new folder, whatever the umask."""
    if stat.S_IMODE(os.stat(folder, dir_fd=parent).st_mode) != 0o700:
        os.chmod(folder, 0o700, dir_fd=parent)


def open_parent(root: Root, parts: Sequence[str], created: list[int] | None = None) -> int:
    """Return a descriptor of the folder that holds the last part; the caller closes it.

    With `created`, missing folders are made, and their places among the parts are added to it.
    """
    if not parts or len(parts) > MAX_DEPTH:
        raise FileNotFoundError("no such file")
    current = os.dup(root.fd)
    try:
        for place, name in enumerate(parts[:-1]):
            try:
                below = _step_into(root, current, name)
            except FileNotFoundError:
                if created is None:
                    raise
                if _make_folder(root, current, name):
                    created.append(place)
                below = _step_into(root, current, name)
            os.close(current)
            current = below
        return current
    except BaseException:
        os.close(current)
        raise


def _refuse_odd(root: Root, info: os.stat_result) -> None:
    """Raise IsADirectoryError or Refused for anything but a regular file of this folder alone."""
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError("is a folder")
    if not stat.S_ISREG(info.st_mode):
        raise Refused(_KINDS.get(stat.S_IFMT(info.st_mode), "device"))
    if _is_shared(root, info):
        raise Refused("hard link")


def _is_shared(root: Root, info: os.stat_result) -> bool:
    """Return whether hard links count: always where the run writes, else if another user owns the file."""
    return info.st_nlink > 1 and not (root.reads_only and info.st_uid == root.owner)


def read_file(root: Root, parts: Sequence[str]) -> bytes:
    """Read a regular file below `root`, also while others replace it. Raises Refused or OSError."""
    with closing(open_parent(root, parts)) as parent:
        for _ in range(_MOST_TRIES):
            try:
                fd = os.open(parts[-1], _FILE_FLAGS, dir_fd=parent)
            except OSError:
                _refuse_odd(root, os.stat(parts[-1], dir_fd=parent, follow_symlinks=False))
                raise
            with closing(fd):
                info = os.fstat(fd)
                if _keeps_name(fd, parent, parts[-1]):
                    _refuse_odd(root, info)
                    return _content(fd, info.st_size)
    raise OSError("the file was replaced while it was opened")


def _keeps_name(fd: int, parent: int, name: str) -> bool:
    """Return whether the name by which a file was opened has been there ever since.

    Where it was removed meanwhile, the one name that was counted may be a name elsewhere.
    """
    # the first lookup of a name waits until a removal in this folder has ended that is under way
    os.access(f".{os.urandom(8).hex()}", os.F_OK, dir_fd=parent)
    return os.path.basename(os.readlink(f"{OPEN_FILES}/{fd}")) == name  # NAME (deleted) if it was removed


def _content(fd: int, size: int) -> bytes:
    """Return the content of an open file. Its size may change, be unknown, or be read in pieces."""
    data, size = b"", size + 1
    while piece := os.read(fd, min(size, MAX_FILE_BYTES + 1 - len(data))):  # only an empty read is its end
        data, size = data + piece, 65536
    if len(data) > MAX_FILE_BYTES:
        raise OSError("file too large")
    return data


def write_file(root: Root, parts: Sequence[str], data: bytes, done: Callable[[], object]) -> None:
    """Replace a file below `root` as a whole; folders on the way are made. Raises Refused or OSError.

    `done` is called once the file is in place, also where an interrupt comes in that moment. When this returns, file
    and folders are on the disk. A file that was there keeps its mode. A write that fails leaves no folder behind that
    it made.
    """
    created: list[int] = []
    try:
        with closing(open_parent(root, parts, created)) as parent:
            _replace(root, parent, parts[-1], data, done)
    except BaseException:
        _unmake(root, parts, created)
        raise


def _replace(root: Root, parent: int, name: str, data: bytes, done: Callable[[], object]) -> None:
    mode = 0o600 if root.private else None
    with contextlib.suppress(FileNotFoundError):  # a new file
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        _refuse_odd(root, info)
        mode = info.st_mode & 0o777
    temporary, fd = _new_file(parent, 0o666 if mode is None else mode)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None and stat.S_IMODE(os.fstat(fd).st_mode) != mode:  # the umask took some of it
                os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            os.unlink(temporary, dir_fd=parent)
        raise
    except BaseException:
        try:
            os.unlink(temporary, dir_fd=parent)
        except FileNotFoundError:
            done()  # an interrupt right after the rename
        raise
    done()
    _sync_folder(parent)


def _new_file(parent: int, mode: int) -> tuple[str, int]:
    """Create a temporary file with a name of its own: another writer may be at work, or have been killed."""
    for number in range(MAX_LISTED):
        name = f".tachograph-{os.getpid()}-{number}.tmp"
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, _NEW_FLAGS, mode, dir_fd=parent)
    raise OSError("no room for a new file")


def _unmake(root: Root, parts: Sequence[str], created: Sequence[int]) -> None:
    """Remove the folders that a failed write made, unless they hold something by now."""
    for place in reversed(created):
        with contextlib.suppress(OSError, Refused), closing(open_parent(root, parts[: place + 1])) as parent:
            os.rmdir(parts[place], dir_fd=parent)


def make_link(root: Root, parts: Sequence[str], to: str) -> None:
    """Put a symbolic link below `root`; folders on the way are made."""
    with closing(open_parent(root, parts, [])) as parent:
        os.symlink(to, parts[-1], dir_fd=parent)


def list_files(root: Root) -> list[str]:
    """Return the relative paths of the files below `root` that a read does not refuse.

    What cannot be looked into is left out, unless it is `root` itself: then this raises PermissionError.
    """
    paths: list[str] = []
    _list(root, root.fd, (".",), paths)
    return paths


def _list(root: Root, parent: int, place: tuple[str, ...], paths: list[str]) -> None:
    """List a folder, whose name comes last in its place, and what is below it, unless it is a mount point."""
    with closing(os.open(place[-1], _LIST_FLAGS, dir_fd=parent)) as folder:
        if place[1:] and os.fstat(folder).st_dev != root.device:
            return
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            if len(paths) >= MAX_LISTED:
                raise OSError("too many files")
            path = (*place, entry.name)
            # unreadable, gone, or a link by now
            with contextlib.suppress(PermissionError, FileNotFoundError, NotADirectoryError):
                if entry.is_dir(follow_symlinks=False):
                    if len(path) <= MAX_DEPTH:
                        _list(root, folder, path, paths)
                elif entry.is_file(follow_symlinks=False) and not _is_shared(
                    root, entry.stat(follow_symlinks=False)
                ):
                    paths.append("/".join(path[1:]))
