"""Policies as a person names them: a file, or what it was at a revision of a git repository.

Settings of the repository start no program. The three commands used here look up objects and apply no filter; they take
no hook, alias or pager. The one thing that they would start is a fetch of what a partial clone lacks.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ..evidence.tasks import root_around
from ..fail.errors import InputError, PolicyError
from ..runtime.formats.documents import Read, read_document, read_plain
from ..runtime.policy.policy import Policy
from ..runtime.policy.sections import PolicyFile

_NOWHERE: Final = "/dev/null"
# all that git gets of the environment
_ENVIRONMENT: Final = {
    # git finds no program, not even itself to fetch with
    "PATH": _NOWHERE, "GIT_EXEC_PATH": _NOWHERE,
    # where git is a script that sets PATH again; known to newer versions alone
    "GIT_NO_LAZY_FETCH": "1",
    # no settings of the user, also where those of the repository include them, nor of the system
    "HOME": _NOWHERE, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}  # fmt: skip
_NO_FILE: Final = {"040000": "a folder", "120000": "a link", "160000": "a submodule"}
_PATIENCE_S: Final = 60  # the settings may include a file that never ends


class Revision:
    """What a git repository around the current folder holds at a revision.

    Args:
        text: The revision, as git names it.
        kind: What it has to be, such as `commit`.

    Raises:
        OSError: Git finds no such revision here.
    """

    def __init__(self, text: str, kind: str = "tree") -> None:
        self._text = text
        self.prefix = os.fsdecode(_git("rev-parse", "--show-prefix")).removesuffix("\n")
        self._tree = _git("rev-parse", "--verify", "--end-of-options", f"{text}^{{{kind}}}").decode().strip()

    def files(self, folder: Path) -> dict[str, str]:
        """Return the files in a folder, however deep: by path from it, what git says of each. Raises OSError."""
        found = self._listed(folder, "-r")
        return {os.path.relpath(name, self._inside(folder)): entry for name, entry in found.items()}

    def read(self, path: str | Path, most: int) -> bytes:
        """Return the bytes of a file, of at most that many. Raises OSError."""
        entry = self._listed(path).get(self._inside(path))
        if entry is None:
            raise OSError(0, "there is no such file at the revision")
        return content(entry, most)

    def policy(self, path: Path) -> Policy:
        """Read a policy of the revision. Raises InputError naming `REVISION:FILE`."""
        try:
            return _policy(path, self.read)
        except InputError as error:
            # a base is named from the project, and lies as far from the policy in the repository
            away = os.path.relpath(error.file or "", os.path.dirname(_name(path)) or ".")
            place = os.path.normpath(os.path.join(os.path.dirname(self._inside(path)), away))
            error.file = f"{self._text}:{place}"
            raise

    def _inside(self, path: str | Path) -> str:
        return os.path.normpath(os.path.join(self.prefix, os.path.relpath(path)))

    def _listed(self, path: str | Path, *options: str) -> dict[str, str]:
        words = (*options, "-lz", "--full-tree", "--end-of-options", self._tree, self._inside(path))
        found = os.fsdecode(_git("ls-tree", *words)).split("\0")[:-1]
        return {name: entry for entry, _, name in (line.partition("\t") for line in found)}


def content(entry: str, most: int) -> bytes:
    """Return the bytes of a file, of at most that many, by what git says of it. Raises OSError."""
    mode, _, blob, size = entry.split()
    if mode in _NO_FILE:
        raise OSError(0, f"it is {_NO_FILE[mode]} at the revision")
    if size.isdigit() and int(size) > most:
        raise OSError(0, f"it has more than {most} bytes")
    return _git("cat-file", "blob", blob)


def is_content(entry: str, data: bytes) -> bool:
    """Return whether these are the bytes of a file of which git says this."""
    blob = entry.split()[2]
    kind = "sha1" if len(blob) == 40 else "sha256"
    return hashlib.new(kind, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == blob


def policy_at(text: str, beside: Path | None = None) -> Policy:
    """Read a policy as a person names it; an existing file wins over a revision of the same name.

    Args:
        text: A file, `REVISION:FILE` of the git repository around the current folder, or a bare `REVISION`.
        beside: The file that a bare revision is of.

    Returns:
        The policy, its `file` relative to the project around it. What it extends is of the same revision.

    Raises:
        InputError: There is no such file or revision, or it cannot be read.
        PolicyError: It is not exactly a policy; the error names `REVISION:FILE`.
    """
    if os.path.isfile(text):
        return _policy(Path(text), read_plain)
    name, colon, file = text.partition(":")
    try:
        revision = Revision(name)
    except OSError as problem:
        remedy = "name a file, or REVISION:FILE in a git repository that is yours"
        what = f"is not a file, and git finds no such revision here ({problem.strerror})"
        raise InputError(what, file=text, remedy=remedy) from None
    if beside and not colon:
        path = beside.parent.resolve() / beside.name  # git goes through no link
    elif file.startswith(("./", "../")):
        path = Path(file)
    else:
        path = Path(os.path.relpath(file or ".", revision.prefix or "."))
    return revision.policy(path)


def _policy(path: Path, read: Read) -> Policy:
    return Policy(read_document(path, _name(path), PolicyFile, PolicyError, read=read))


def _name(path: Path) -> str:
    """Return what records call a file: its path from the project around it, if there is one."""
    root, place = root_around(path.parent), path.parent.resolve() / path.name
    return (path if root is None else place.relative_to(root)).as_posix()


def _git(*words: str) -> bytes:
    """Return what git prints. Raises OSError with its reason."""
    program = shutil.which("git")
    if program is None:
        raise OSError(0, "git is not installed")
    try:
        return subprocess.run(  # noqa: S603 - no shell, and what a person names is not an option
            [program, *words],
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_PATIENCE_S,
        ).stdout
    except (ValueError, subprocess.SubprocessError) as problem:
        said = os.fsdecode(getattr(problem, "stderr", None) or b"")
        reason = said.rpartition("fatal: ")[2].partition("\n")[0]
        raise OSError(0, reason or type(problem).__name__) from None
