"""Read what git keeps, by a git that runs nothing of the repository and changes nothing in it.

A repository's configuration, attributes and hooks can name programs, and a run may have written them. So git is run in
an empty repository of its own, which borrows the objects: no hook, filter, file watcher, pager, helper for credentials
or replaced object of the repository counts, and nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_RAW: Final = re.compile(r":\d{6} (\d{6}) [0-9a-f]+ ([0-9a-f]+) [A-Z]")
_ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_SECONDS: Final = 30.0  # for one call of git
_MOST_BYTES: Final = 64 << 20  # of one file
_MOST_COMMITS: Final = 200  # of the history of one file


class GitObjects:
    """The objects of the repository around a folder; a context.

    Attributes:
        top: The folder that is checked out.
        head: The commit that is checked out.
        is_shallow: Whether the history is cut off, as in a shallow clone.
    """

    def __init__(self, top: Path, head: str, objects: Path, shallow: bytes | None) -> None:
        self.top = top
        self.head = head
        self.is_shallow = shallow is not None
        self._objects = objects
        self._shallow = shallow
        self._git = shutil.which("git")
        self._place: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def around(cls, folder: Path) -> GitObjects | None:
        """Return the repository around a folder; None without git, a repository or a commit."""
        folder = Path(os.path.abspath(folder))
        top = next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)
        found = None if top is None else head_of(top)
        if top is None or found is None or shutil.which("git") is None or "\n" in str(found[1]):
            return None
        head, objects = found
        try:
            shallow = (objects.parent / "shallow").read_bytes()
        except OSError:
            shallow = None
        return cls(top, head, objects, shallow)

    def __enter__(self) -> GitObjects:
        self._place = tempfile.TemporaryDirectory(prefix="tachograph-git-")
        lay_out(Path(self._place.name), self._objects, self.head)
        if self._shallow is not None:
            (Path(self._place.name) / "shallow").write_bytes(self._shallow)
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            self._place.cleanup()

    def inside(self, path: Path) -> str | None:
        """Return a file's path as git names it; None for one outside of what is checked out."""
        try:
            return Path(os.path.abspath(path)).relative_to(self.top).as_posix()
        except ValueError:
            return None

    def merging(self) -> list[str]:
        """Return the commits that are being merged into HEAD; none where no merge is under way."""
        try:
            lines = _short(_folder_of(self.top)[0] / "MERGE_HEAD").split()
        except (OSError, UnicodeDecodeError):
            return []
        return [line for line in lines if _SHA.fullmatch(line)]

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor of two commits, or None."""
        commit = (self._run("merge-base", one, other) or b"").decode("ascii", "replace").strip()
        return commit if _SHA.fullmatch(commit) else None

    def unmerged(self) -> list[str] | None:
        """Return the paths that still conflict, as git names them; None where the index cannot be read."""
        assert self._place is not None, "used outside its context"
        folder = _folder_of(self.top)[0]
        try:
            for file in (folder / "index", *folder.glob("sharedindex.*")):
                shutil.copyfile(file, Path(self._place.name) / file.name)
        except OSError:
            return None
        out = self._run("ls-files", "--unmerged", "-z")
        if out is None:
            return None
        return sorted({os.fsdecode(entry.partition(b"\t")[2]) for entry in out.split(b"\0")[:-1]})

    def resolve(self, name: str) -> str | None:
        """Return the object that a name such as HEAD~1 or HEAD:policy/v1.yaml stands for; None where there is none.

        Names of branches are the repository's own, so git looks them up there, by a command that runs none of its
        programs. A relative path counts from the top folder.
        """
        out = self._call("-C", str(self.top), "rev-parse", "--verify", "--quiet", name)
        found = (out or b"").decode("ascii", "replace").strip()
        return found if _SHA.fullmatch(found) else None

    def has_commit(self, commit: str) -> bool:
        """Return whether there is such a commit, given its whole name."""
        return (
            _SHA.fullmatch(commit) is not None
            and self._run("cat-file", "-e", f"{commit}^{{commit}}") is not None
        )

    def last_change(self, path: str) -> str | None:
        """Return the newest commit that changed a file, or None."""
        out = self._run("log", "-1", "--format=%H", self.head, "--", path)
        commit = (out or b"").decode("ascii", "replace").strip()
        return commit if _SHA.fullmatch(commit) else None

    def blob_at(self, commit: str, path: str) -> str | None:
        """Return the name of a file's blob in a commit; None where there is no such regular file."""
        return self.files_at(commit, path).get(path)

    def files_at(self, commit: str, folder: str = "") -> dict[str, str]:
        """Return the regular files of a commit in a folder, or the file of that name: path -> name of its blob."""
        out = self._run("ls-tree", "-r", "-z", "--full-tree", commit, *(["--", folder] if folder else []))
        found = {}
        for entry in (out or b"").split(b"\0")[:-1]:
            about, _, path = entry.partition(b"\t")
            mode, kind, blob = about.split(b" ")[:3]
            if kind == b"blob" and mode.startswith(b"100"):
                found[os.fsdecode(path)] = blob.decode("ascii")
        return found

    def blobs_of(self, path: str) -> Iterator[str]:
        """Yield the names of the blobs that a file has been, the newest first."""
        words = ["log", f"--max-count={_MOST_COMMITS}", "-m", "--full-history", "--format=", "--raw"]
        out = self._run(*words, "--no-abbrev", "--no-renames", self.head, "--", path)
        seen = set()
        for line in (out or b"").decode("utf-8", "replace").splitlines():
            match = _RAW.match(line)
            if match is not None and match[1].startswith("100") and match[2] not in seen:
                seen.add(match[2])
                yield match[2]

    def read(self, blob: str) -> bytes | None:
        """Return the bytes of a blob; None where it is missing, as in a partial clone, or too large."""
        size = self._run("cat-file", "-s", blob)
        if size is None or int(size) > _MOST_BYTES:
            return None
        return self._run("cat-file", "blob", blob)

    def _run(self, *words: str) -> bytes | None:
        """Return what git prints in the empty repository; None where it fails."""
        assert self._place is not None, "used outside its context"
        return self._call("--literal-pathspecs", f"--git-dir={self._place.name}", *words)

    def _call(self, *words: str) -> bytes | None:
        """Return what git prints; None where it fails."""
        import subprocess  # slow to import, and few commands read git

        assert self._git is not None, "used outside its context"
        command = [self._git, *words]
        try:
            done = subprocess.run(  # noqa: S603 - git, with words of ours
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=_ENV,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return done.stdout if done.returncode == 0 else None


def lay_out(place: Path, objects: Path, commit: str) -> None:
    """Make an empty repository that borrows objects.

    Args:
        place: An empty folder.
        objects: Where git keeps the objects.
        commit: One of them, whose length tells how they are named.
    """
    for inner in ("objects/info", "refs"):
        (place / inner).mkdir(parents=True)
    (place / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
    (place / "objects" / "info" / "alternates").write_text(f"{objects}\n", encoding="utf-8")
    if len(commit) == 64:
        setting = "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"
        (place / "config").write_text(setting, encoding="utf-8")


def list_tree(git: str, commit: str, objects: Path, folder: str) -> dict[str, str] | None:
    """Return the files of a commit in a folder: path -> the digest that git gives; None if git cannot tell.

    `GitObjects` without `subprocess`, which takes longer to import than git runs: every recording does this.
    """
    with tempfile.TemporaryDirectory(prefix="tachograph-git-") as name:
        place = Path(name)
        out = place / "listed"
        words = ["git", f"--git-dir={place}", "ls-tree", "-r", "-z", "--full-tree", commit, "--", folder]
        try:
            lay_out(place, objects, commit)
            if not _succeeds(git, words, out):
                return None
            entries = [entry.partition("\t") for entry in out.read_bytes().decode("utf-8").split("\0")[:-1]]
            return {path: about.split(" ")[2] for about, _, path in entries}
        except (OSError, UnicodeDecodeError):
            return None


def _succeeds(program: str, words: list[str], out: Path) -> bool:
    """Run a program with its output in a file and return whether it succeeded."""
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    process = os.posix_spawn(program, words, _ENV, file_actions=files)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) == 0


def head_of(top: Path) -> tuple[str, Path] | None:
    """Return the commit that HEAD names and the folder of its objects, read from the files that git keeps."""
    try:
        folder, shared = _folder_of(top)
        commit = _named(_short(folder / "HEAD").strip(), [folder, shared])
        return (commit, (shared / "objects").resolve()) if _SHA.fullmatch(commit) else None
    except (OSError, UnicodeDecodeError):
        return None


def _folder_of(top: Path) -> tuple[Path, Path]:
    """Return the folders in which git keeps what is of this checkout, and what all checkouts share."""
    folder = top / ".git"
    if folder.is_file():  # a worktree of its own
        folder = top / _short(folder).removeprefix("gitdir: ").strip()
    common = folder / "commondir"
    return folder, folder / _short(common).strip() if common.is_file() else folder


def _named(head: str, places: list[Path]) -> str:
    """Return the commit that the content of HEAD leads to, empty if it leads to none."""
    if not head.startswith("ref: refs/"):
        return head
    name = head.removeprefix("ref: ")
    for place in places:
        if ".." not in name.split("/") and (place / name).is_file():
            return _short(place / name).strip()
    packed = [_short(place / "packed-refs", 1 << 22) for place in places if (place / "packed-refs").is_file()]
    lines = [line.split(" ") for text in packed for line in text.splitlines()]
    return next((words[0] for words in lines if words[1:] == [name]), "")


def _short(path: Path, limit: int = 4096) -> str:
    with path.open("rb") as file:
        return file.read(limit).decode("utf-8")
