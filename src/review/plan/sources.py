"""Policy files to compare: in the working tree, or as git has them (`HEAD:policy/v1.yaml`)."""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ...evidence.files.git_objects import GitObjects
from ...fail.errors import InputError
from ...runtime.formats.document_digest import digest_of_document
from ...runtime.formats.shipped_files import relative_to_root
from ...runtime.policy.policy import Policy

_EXAMPLE = "name a commit and a file, such as HEAD:policy/v1.yaml"


@dataclass(frozen=True)
class Source:
    """One file: `text` as the user named it, `path` where it is now, `recorded` as a record would name it."""

    text: str
    path: Path
    recorded: str
    digest: str | None


@dataclass(frozen=True)
class Side:
    """A policy file with its overlays; `base` is the folder that its lines are named relative to."""

    files: tuple[Source, ...]
    root: Path
    base: Path

    @property
    def name(self) -> str:
        """The files as a person names them."""
        return " + ".join(source.text for source in self.files)

    def load(self, overlays: Sequence[str] = ()) -> Policy:
        """Return the policy with these files of the project merged over it as well. Raises InputError."""
        more = [self._in_project(name) for name in overlays]
        first, *others = [source.path for source in self.files]
        return Policy.load(first, [*others, *more], root=self.base)

    def _in_project(self, name: str) -> Path:
        path = self.root / name
        try:
            inside = path.is_file() and path.resolve().is_relative_to(self.root.resolve())
            text = path.read_bytes() if inside else None
        except (OSError, ValueError, RuntimeError):
            text = None
        if text is None:
            raise InputError("the run's overlay is gone", file=name[:200], remedy="restore it")
        if self.base == self.root:
            return path
        copy = self.base / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(text)
        return copy

    def is_under(self, files: Sequence[tuple[str, str]]) -> bool:
        """Return whether a run that names these policy files (path, canonical digest) was made under this policy."""
        pairs = list(zip(self.files, files, strict=False))
        return len(pairs) == len(self.files) and all(
            path == mine.recorded or sha == mine.digest for mine, (path, sha) in pairs
        )


class Sources(AbstractContextManager["Sources"]):
    """A temporary folder for files that git has; it lasts as long as the context."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = tempfile.TemporaryDirectory(prefix="tachograph-policies-")
        self._count = 0

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def side(self, file: str, overlays: Sequence[str] = ()) -> Side:
        """Return a policy file with its overlays, each a path or `GIT_REF:path`. Raises InputError."""
        names = [file, *overlays]
        if not any(_is_of_git(name) for name in names):
            return Side(tuple(self._plain(name) for name in names), self._root, self._root)
        self._count += 1
        base = Path(self._folder.name) / str(self._count)
        base.mkdir()
        return Side(tuple(self._laid(name, base) for name in names), self._root, base)

    def _plain(self, name: str) -> Source:
        path = Path(name)
        return Source(name, path, relative_to_root(path, self._root), _digest(path))

    def _laid(self, name: str, base: Path) -> Source:
        """Return a file copied below `base`, from git or from the working tree."""
        if _is_of_git(name):
            ref, _, place = name.partition(":")
            text, inside = _blob(self._root, name)
            recorded = _in_root(place, inside)
            shown = f"{ref}:{recorded}"
        else:
            plain = self._plain(name)
            if plain.digest is None:
                return plain  # loading it says what is wrong
            text, recorded = Path(name).read_bytes(), plain.recorded
            shown = recorded
        path = base / shown
        if posixpath.isabs(shown) or ".." in shown.split("/"):
            raise InputError("is not a usable name of a policy", file=name, remedy=_EXAMPLE)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        except OSError as error:
            raise InputError(
                f"cannot be laid out ({type(error).__name__})", file=name, remedy=_EXAMPLE
            ) from None
        return Source(name, path, recorded, digest_of_document(text))


def _in_root(place: str, inside: str) -> str:
    """Return git's path, which is relative to the top of the repository, as a record names it."""
    if place.startswith(("./", "../")):
        return posixpath.normpath(place)
    return posixpath.normpath(place if inside == "." else place.removeprefix(f"{inside}/"))


def _is_of_git(name: str) -> bool:
    return ":" in name and not os.path.exists(name)


def _digest(path: Path) -> str | None:
    try:
        return digest_of_document(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError):
        return None


def _blob(root: Path, name: str) -> tuple[bytes, str]:
    """Return a file that git has, and the folder of the project as git names it. Raises InputError."""
    if name.startswith("-"):
        raise InputError("is not a commit", file=name, remedy=_EXAMPLE)
    repository = GitObjects.around(root)
    if repository is not None:
        with repository:
            inside = repository.inside(root)
            ref, _, place = name.partition(":")
            if place.startswith(("./", "../")):
                name = f"{ref}:{posixpath.normpath(posixpath.join(inside or '', place))}"
            found = repository.resolve(name)
            text = None if found is None else repository.read(found)
        if text is not None and inside is not None:
            return text, inside
    raise InputError("neither a file nor one that git has", file=name[:200], remedy=_EXAMPLE)
