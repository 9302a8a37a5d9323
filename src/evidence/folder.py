"""`DIR.partial/` under a lock, and its way to `DIR`: a run's folder is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..fail.errors import OutputError
from ..runtime.journal import JOURNAL
from . import manifest as manifests
from .manifest import MANIFEST

MOUNTS: Final = "mounts"  # the private mounts of a run that is kept in a journal


class Folder:
    """`DIR.partial/` under a lock, and its way to `DIR`.

    The lock is on the folder itself, so that it holds from the first byte until the folder has its final
    name and nothing is left to clear away. `resume` says that an unfinished run is to be gone on with: its
    journal and its private mounts stay. Without it such a run is not touched.
    """

    def __init__(self, out: Path, *, resume: bool = False) -> None:
        self.shown = out
        self._resume = resume
        self.out = _absolute(out)
        self.partial = self.out.with_name(self.out.name + ".partial")
        self._old = self.out.with_name(self.out.name + ".old")
        self._lock = -1
        self._keep = True
        self._made: list[Path] = []

    def __enter__(self) -> Folder:
        try:
            self._made = [path for path in self.out.parents if not path.exists()]
            self.out.parent.mkdir(parents=True, exist_ok=True)
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"{self.shown}: is no folder; name another place for the run")
            self._refuse_foreign(self.out, f"{self.shown}", (*manifests.FILES, manifests.SEAL))
            self._refuse_foreign(self.partial, f"{self.shown}.partial", (*manifests.FILES, JOURNAL, MOUNTS))
            if self._resume and not (self.partial / JOURNAL).is_file() and not self.is_whole:
                raise OutputError(f"{self.shown}: there is no unfinished run to go on with")
            self._lock = self._take_lock()
            if not self._resume and (self.partial / JOURNAL).exists():
                raise OutputError(
                    f"{self.shown}: an unfinished run is there; go on with `tachograph resume {self.shown}`, "
                    f"or remove {self.shown}.partial"
                )
            with _swapping(self.out.parent):
                if self._old.is_dir() and not self.out.exists():
                    self._old.rename(self.out)  # a finish that was cut between its two renames
                elif self._old.is_dir():
                    shutil.rmtree(self._old)  # one that was cut after them
            if not self.is_whole:
                self._clear()
        except OSError as error:
            self._leave(keep=False)
            raise OutputError(
                f"{self.shown}: cannot be written to ({type(error).__name__}); check the folder and its permission"
            ) from error
        except OutputError:
            self._leave(keep=True)
            raise
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the four files are all written: what is left to do is to put them in place."""
        return (self.partial / MANIFEST).is_file() and not (self.partial / JOURNAL).exists() and self._resume

    def _refuse_foreign(self, folder: Path, shown: str, known: tuple[str, ...]) -> None:
        if folder.is_dir() and any(path.name not in known for path in folder.iterdir()):
            raise OutputError(f"{shown}: holds files that are no run's; name a new folder or clear it")

    def _clear(self) -> None:
        """Remove what a run that died has left: it is made again, or answered from its journal."""
        for path in self.partial.iterdir():
            if path.name == MOUNTS:
                if not self._resume:
                    shutil.rmtree(path)
            elif path.name != JOURNAL or not self._resume:
                path.unlink()

    def _take_lock(self) -> int:
        """A descriptor of `partial` that holds the lock. Whoever finishes renames the folder: then again."""
        while True:
            self.partial.mkdir(exist_ok=True)
            try:
                lock = os.open(self.partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(self.partial)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                raise OutputError(f"{self.shown}: another process is recording there; wait for it") from None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def __exit__(self, kind: object, *_: object) -> None:
        self._leave(keep=self._keep)

    def _leave(self, *, keep: bool) -> None:
        """Let go; without `keep` nothing that was made here stays."""
        if self._lock >= 0:
            if not keep:
                shutil.rmtree(self.partial, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1
        for path in self._made:
            with contextlib.suppress(OSError):
                path.rmdir()  # only where it is empty

    def discard(self) -> None:
        """Leave nothing behind."""
        self._keep = False

    def keep_as(self, place: Path) -> Path:
        """Move what was written to `place` for a person to look at."""
        self._drop_journal()
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.partial, place)
        return place

    def finish(self) -> None:
        """Put the folder in place: fsync, then rename, the old one aside first."""
        _sync(self.partial / MANIFEST)
        _sync(self.partial)
        # from here on the four files are the run
        self._drop_journal()
        _sync(self.partial)
        with _swapping(self.out.parent):
            shutil.rmtree(self._old, ignore_errors=True)
            if self.out.exists():
                self.out.rename(self._old)
            self.partial.rename(self.out)
            _sync(self.out.parent)
            shutil.rmtree(self._old, ignore_errors=True)

    def _drop_journal(self) -> None:
        (self.partial / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(self.partial / MOUNTS, ignore_errors=True)


def _absolute(out: Path) -> Path:
    """Where the folder of a run really stands, behind links."""
    try:
        place = out.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"{out}: is no usable path ({type(error).__name__}); name a folder") from None
    if not place.name:
        raise OutputError(f"{out}: is no place for a run; name a folder")
    return place


@contextlib.contextmanager
def _swapping(parent: Path) -> Iterator[None]:
    """Alone among those who rename runs in `parent`, for a moment."""
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
