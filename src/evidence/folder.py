"""`DIR.partial/` under a lock, and its way to `DIR`: a run's folder is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..fail.errors import OutputError
from . import manifest as manifests
from .manifest import MANIFEST


class Folder:
    """`DIR.partial/` under a lock, and its way to `DIR`.

    The lock is on the folder itself, so that it holds from the first byte until the folder has its final
    name and nothing is left to clear away.
    """

    def __init__(self, out: Path) -> None:
        self._shown = out
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
                raise OutputError(f"{self._shown}: is no folder; name another place for the run")
            for folder, shown in ((self.out, f"{self._shown}"), (self.partial, f"{self._shown}.partial")):
                if folder.is_dir() and any(path.name not in manifests.FILES for path in folder.iterdir()):
                    raise OutputError(
                        f"{shown}: holds files that are no run's; name a new folder or clear it"
                    )
            self._lock = self._take_lock()
            with _swapping(self.out.parent):
                if self._old.is_dir() and not self.out.exists():
                    self._old.rename(self.out)  # a finish that was cut between its two renames
                elif self._old.is_dir():
                    shutil.rmtree(self._old)  # one that was cut after them
            for path in self.partial.iterdir():
                path.unlink()  # left by a run that died; a stub run is simply made again
        except OSError as error:
            self._leave(keep=False)
            raise OutputError(
                f"{self._shown}: cannot be written to ({type(error).__name__}); check the folder and its permission"
            ) from error
        except OutputError:
            self._leave(keep=True)
            raise
        return self

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
                raise OutputError(f"{self._shown}: another process is recording there; wait for it") from None
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
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.partial, place)
        return place

    def finish(self) -> None:
        """Put the folder in place: fsync, then rename, the old one aside first."""
        _sync(self.partial / MANIFEST)
        _sync(self.partial)
        with _swapping(self.out.parent):
            shutil.rmtree(self._old, ignore_errors=True)
            if self.out.exists():
                self.out.rename(self._old)
            self.partial.rename(self.out)
            _sync(self.out.parent)
            shutil.rmtree(self._old, ignore_errors=True)


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
