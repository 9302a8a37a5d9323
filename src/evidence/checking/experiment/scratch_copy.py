"""A copy of a project in which inputs are put back to what they were, so that nothing of the user's changes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from ....fail.errors import InputError
from ....runtime.formats.read_file import read_unlinked

# what no run reads, and what a project can be large by
_LEFT_OUT: Final = frozenset(
    ".git .hg .svn .venv venv env node_modules __pycache__ .tox .nox .mypy_cache .pytest_cache .ruff_cache"
    " .hypothesis .idea .vscode dist build target".split()
)
_MOST_BYTES: Final = 256 << 20
_MOST_FILES: Final = 50_000


class TooLarge(InputError):
    """A project is too large to be copied."""


class ScratchCopy:
    """A copy of a project with some of its runs; a context.

    Attributes:
        root: The folder of the copy.
    """

    def __init__(self, project: Path, runs: Collection[str]) -> None:
        self._project = project
        self._runs = runs
        self._place = tempfile.TemporaryDirectory(prefix="tachograph-causes-")
        self.root = Path(self._place.name) / "project"
        self._changed: dict[str, bytes | None] = {}
        self._bytes = self._files = 0

    def __enter__(self) -> ScratchCopy:
        """Copy the project. Raises TooLarge."""
        try:
            self._copy(self._project, self.root, is_top=True)
        except BaseException:
            self._place.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def put_back(self, earlier: Mapping[str, bytes | None]) -> None:
        """Give files an earlier content, None for a file that was not there; all others are as in the project."""
        for path in self._changed.keys() - earlier.keys():
            self._write(path, self._changed.pop(path))
        for path, data in earlier.items():
            if path not in self._changed:
                self._changed[path] = _content(self.root / path)
            self._write(path, data)

    def _write(self, path: str, data: bytes | None) -> None:
        file = self.root / path
        if data is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            file.unlink()
        file.write_bytes(data)

    def _copy(self, folder: Path, to: Path, *, is_top: bool) -> None:
        to.mkdir(parents=True)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _LEFT_OUT:
                    continue
                target = to / entry.name
                if entry.is_symlink():
                    target.symlink_to(os.readlink(entry.path))
                elif entry.is_dir() and is_top and entry.name == "runs":
                    self._copy_runs(Path(entry.path), target)
                elif entry.is_dir():
                    self._copy(Path(entry.path), target, is_top=False)
                elif entry.is_file():
                    self._count(entry.stat().st_size)
                    shutil.copyfile(entry.path, target)

    def _copy_runs(self, runs: Path, to: Path) -> None:
        """Copy the folders of the runs, and the files beside them."""
        to.mkdir()
        for entry in runs.iterdir():
            if entry.is_file() and not entry.is_symlink():
                self._count(entry.stat().st_size)
                shutil.copyfile(entry, to / entry.name)
        for name in self._runs:
            folder = self._project / name
            if folder.is_dir() and not (self.root / name).exists():
                self._copy(folder, self.root / name, is_top=False)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._files += 1
        if self._bytes > _MOST_BYTES or self._files > _MOST_FILES:
            raise TooLarge(f"the project is larger than {_MOST_BYTES >> 20} MB or {_MOST_FILES} files")


def _content(file: Path) -> bytes | None:
    try:
        return read_unlinked(file)
    except (OSError, ValueError):
        return None
