"""`DIR.partial/` under a lock, and its way to `DIR`: a run's folder is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from ...fail.errors import OutputError, system_reason
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.durable_write import sync
from ...runtime.formats.read_file import read_unlinked
from ...runtime.journal.journal import JOURNAL
from . import manifest as manifests
from .manifest import MANIFEST
from .owned import OWNED
from .words.how_to_resume import resumed_by

MOUNTS: Final = "mounts"  # the private mounts of a run that is kept in a journal
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Folder:
    """`DIR.partial/` under a lock, and its way to `DIR`.

    The lock is on the folder itself, so that it holds from the first byte until the folder has its final
    name and no lock file is left behind.

    Args:
        out: the folder that the run is to have.
        resume: continue an unfinished run, whose journal and private mounts stay; without it, an unfinished
            run there is refused.
        discard: drop an unfinished run that is there.
    """

    def __init__(self, out: Path, *, resume: bool = False, discard: bool = False) -> None:
        self.shown = out
        self._discard = discard
        self._resume = resume
        self.out = absolute(out, "be the folder of a run")
        self._partial = self.out.with_name(self.out.name + ".partial")
        self._old = self.out.with_name(self.out.name + ".old")
        self._lock = -1
        self._keep = True
        self._made: list[Path] = []

    def __enter__(self) -> Folder:
        try:
            self._made = [path for path in self.out.parents if not path.exists()]
            self.out.parent.mkdir(parents=True, exist_ok=True)
            for path in self._made:
                sync(path.parent)  # a new folder is an entry in the one above
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"{self.shown}: is not a folder; name another place for the run")
            known = (*manifests.FILES, manifests.SEAL, *OWNED)
            self._refuse_foreign(self.out, f"{self.shown}", known)
            self._refuse_foreign(self.partial, f"{self.shown}.partial", (*manifests.FILES, JOURNAL, MOUNTS))
            self._tidy()
            if self._resume and not (self.partial / JOURNAL).is_file() and not self.is_whole:
                raise OutputError(
                    f"{self.shown}: there is no unfinished run to go on with, since no journal was kept; "
                    "run the task again, with `--durability effect` so that it can be resumed"
                )
            self._lock = self._take_lock()
            unfinished = (self.partial / JOURNAL).exists() or self._is_finished()
            if unfinished and not self._resume and not self._discard:
                raise OutputError(
                    f"{self.shown}: an unfinished run is there; go on with {self.resumed_by}, "
                    f"or drop it: `tachograph run --discard`, or remove {self.shown}.partial"
                )
            if not self.is_whole:
                self._clear()
        except OSError as error:
            self._leave(keep=self._resume)  # its journal is all there is of an unfinished run
            raise OutputError(
                f"{self.shown}: cannot be written to ({system_reason(error)}); check the folder and its permission"
            ) from error
        except OutputError:
            self._leave(keep=True)
            raise
        return self

    @property
    def partial(self) -> Path:
        """The folder of the run under way. Raises OutputError if it is no longer the locked one."""
        if self._lock >= 0 and not self._is_ours(self._lock):
            raise OutputError(
                f"{self.shown}.partial: was moved, removed or replaced while the run was under way; "
                "nothing was put in its place"
            )
        return self._partial

    @property
    def resumed_by(self) -> str:
        """What resumes the run that is unfinished here: a command, or a call in code."""
        return resumed_by(str(self.shown), self._partial)

    @property
    def is_whole(self) -> bool:
        """Whether the run is over and its four files are written, so that they only have to be put in place."""
        return self._resume and self._is_finished()

    def _is_finished(self) -> bool:
        """Return whether a run with a journal has removed it, which it does once all else is on the disk.

        A run without a journal may have its files here too, but may have missed what its task expects.
        """
        return not (self.partial / JOURNAL).exists() and _is_kept_and_whole(self.partial)

    def _refuse_foreign(self, folder: Path, shown: str, known: tuple[str, ...]) -> None:
        if folder.is_dir() and any(path.name not in known for path in folder.iterdir()):
            raise OutputError(
                f"{shown}: holds files that do not belong to a run; name a new folder or clear it"
            )

    def _tidy(self) -> None:
        """Complete a finish that was cut off between its two renames, or after them."""
        with directory_lock(self.out.parent):
            if self._old.is_dir() and not self.out.exists():
                self._old.rename(self.out)
            elif self._old.is_dir():
                shutil.rmtree(self._old)

    def _clear(self) -> None:
        """Remove the files of a run that died: they are made again; keep what resuming it needs."""
        for path in self.partial.iterdir():
            if path.name == MOUNTS:
                if not self._resume:
                    shutil.rmtree(path)
            elif path.name != JOURNAL or not self._resume:
                path.unlink()

    def _take_lock(self) -> int:
        """Return a descriptor of `partial` that holds its lock; try again if a finishing process renamed the folder."""
        while True:
            self.partial.mkdir(exist_ok=True)
            try:
                lock = os.open(self.partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_ours(lock):
                    return lock
            except BlockingIOError:
                os.close(lock)
                raise OutputError(f"{self.shown}: another process is recording there; wait for it") from None
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _is_ours(self, lock: int) -> bool:
        """Return whether the folder of a descriptor still has its name."""
        try:
            return os.path.samestat(os.fstat(lock), os.lstat(self._partial))
        except FileNotFoundError:
            return False

    def __exit__(self, kind: object, *_: object) -> None:
        self._leave(keep=self._keep)

    def _leave(self, *, keep: bool) -> None:
        """Release the lock; without `keep`, also remove every folder made here."""
        if self._lock >= 0:
            if not keep and self._is_ours(self._lock):
                shutil.rmtree(self._partial, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1
        for path in self._made:
            with contextlib.suppress(OSError):
                path.rmdir()  # only where it is empty

    def discard(self) -> None:
        """Remove everything on exit."""
        self._keep = False

    def keep_as(self, place: Path) -> Path:
        """Move what was written to `place` for a person to look at. Raises OSError where something is left behind."""
        _remove_tree(place)
        _remove_tree(self.partial / MOUNTS)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.partial, place)
        # not before: what has no journal and lies in `partial` is put in place by a resume
        (place / JOURNAL).unlink(missing_ok=True)
        return place

    def finish(self) -> None:
        """Put the folder in place: fsync, remove what is not of the record, move the old one aside, rename.

        Raises OSError; what could not be removed is never put in place.
        """
        sync(self.partial / MANIFEST)
        sync(self.partial)
        # from here on the four files are the run
        (self.partial / JOURNAL).unlink(missing_ok=True)
        _remove_tree(self.partial / MOUNTS)
        sync(self.partial)
        with directory_lock(self.out.parent):
            shutil.rmtree(self._old, ignore_errors=True)
            if self.out.exists():
                self.out.rename(self._old)
            self.partial.rename(self.out)
            sync(self.out.parent)
            shutil.rmtree(self._old, ignore_errors=True)


def is_unfinished(out: Path) -> bool:
    """Return whether a run was begun in the place of `out` that `resume` goes on with."""
    partial = out.with_name(f"{out.name}.partial")
    return (partial / JOURNAL).is_file() or _is_kept_and_whole(partial)


def _is_kept_and_whole(partial: Path) -> bool:
    """Return whether a folder holds the four files of a run that was kept in a journal."""
    try:
        manifest = manifests.read(read_unlinked(partial / MANIFEST))
        return manifest["environment"]["durability"] != "off" and all(
            digest(read_unlinked(partial / name)) == sha for name, sha in manifest["artifacts"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there. Raises OSError where something stays."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def absolute(out: Path, use: str) -> Path:
    """Return a folder with links resolved. Raises OutputError, which says what it cannot do: the `use`."""
    try:
        place = out.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"{out}: is not a usable path ({system_reason(error)}); name a folder") from None
    if not place.name:
        raise OutputError(f"{out}: cannot {use}; name a folder")
    return place


class SignalsBlocked:
    """Block Ctrl-C and SIGTERM in a `with` block, so that it is not left half-way.

    `allow_pending()` delivers a deferred signal at a safe point; clean-up runs with signals blocked again.
    """

    def __enter__(self) -> Self:
        self._before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        except BaseException:  # raised by the handler of a signal that came just before
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def allow_pending(self) -> None:
        """Deliver a signal that came in the block; its handler may raise."""
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


@contextlib.contextmanager
def directory_lock(parent: Path) -> Iterator[None]:
    """Hold the lock on `parent`, which every process takes before it renames folders in it."""
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def staging_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder in `parent`, which is removed in the end.

    It is locked as long as its process lives, so that folders left by killed processes are recognised and removed.
    """
    stage, lock = None, -1
    try:
        with SignalsBlocked(), directory_lock(parent):
            _clear_stale(parent, prefix)
            stage = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            lock = _locked(stage)
        yield stage
    finally:
        with SignalsBlocked():
            if stage is not None:
                shutil.rmtree(stage, ignore_errors=True)
            if lock >= 0:
                os.close(lock)


def _clear_stale(parent: Path, prefix: str) -> None:
    for stage in staging_folders(parent, prefix):
        with contextlib.suppress(OSError):  # its process lives, or it is not a folder: not ours to remove
            lock = _locked(stage)
            shutil.rmtree(stage, ignore_errors=True)
            os.close(lock)


def staging_folders(parent: Path, prefix: str) -> list[Path]:
    """Return the paths in `parent` that have a name as `mkdtemp` gives."""
    name = re.compile(re.escape(prefix) + "[a-z0-9_]{8}")
    return sorted(path for path in parent.iterdir() if name.fullmatch(path.name))


def _locked(folder: Path) -> int:
    """Return a descriptor of a folder that holds its lock. Raises BlockingIOError if another process has it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock
