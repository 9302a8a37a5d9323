"""What the commands share: the project, the runs asked for, paths as a person reads them."""

from __future__ import annotations

import argparse
import contextlib
import errno
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, OutputError
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import read_plain

# (commands, name, act) -> the parser of a command
Verb = Callable[[Any, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]


def path_given(text: str) -> str:
    """Return a path argument as it stands. Raises InputError for an empty text and for a symbolic link loop."""
    if not text:
        raise InputError(
            "an empty text names nothing", file="''", remedy="name a file or a folder; . is the current one"
        )
    try:
        Path(text).resolve()
    except (OSError, RuntimeError, ValueError):
        raise InputError(
            "is a symbolic link loop, or not a path", file=text, remedy="name a file or a folder"
        ) from None
    return text


def add_files(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add an option that names a file and may be repeated, such as `--overlay`."""
    parser.add_argument(name, action="append", default=[], type=path_given, metavar="FILE", help=text)


OVERLAY_HELP: Final = "merge over it; may be repeated"
RUN_HELP: Final = "folder of a run; runs/ may be left out"


def seconds_given(text: str) -> float:
    """Return the seconds of `--timeout`: finite and above 0. Raises InputError."""
    with contextlib.suppress(ValueError):
        number = float(text)
        if math.isfinite(number) and number > 0:
            return number
    raise InputError(
        f"{escape_terminal(text, 40)!r} must be a number of seconds above 0",
        file="--timeout",
        remedy="give one",
    )


_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variable_given(text: str) -> tuple[str, str]:
    """Return the name and the value of `--variable NAME=VALUE`. Raises InputError."""
    name, mark, value = text.partition("=")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("the value is not UTF-8 text", file="--variable", remedy="give a text") from None
    if mark and _VARIABLE_NAME.fullmatch(name):
        return name, value
    raise InputError(
        f"{escape_terminal(text, 40)!r} gives no variable a value",
        file="--variable",
        remedy="write NAME=VALUE; a value is never read from the environment",
    )


def by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return values by their names. Raises InputError for a name that is given twice."""
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{name} has two values", file="--variable", remedy="give one of them")
        values[name] = value
    return values


def root_of(options: argparse.Namespace, *, own: bool = False) -> Path:
    """Return the project: `--root`, else the nearest folder that holds policy/, else the package's own files.

    With `own` the last will not do: what a person's project is held against must not be told of ours.
    """
    from ...runtime.formats.shipped_files import project_root, shipped

    if options.root is not None:
        root = Path(options.root)
        if not (root / "policy").is_dir():
            raise InputError("holds no policy/ folder", file=options.root, remedy="give the project's root")
        return root
    nearest = project_root(Path.cwd())
    if nearest is None and own:
        raise InputError(
            "this is not a project: neither this folder nor one above it holds policy/",
            remedy="go to one, or give --root DIR",
        )
    return nearest or shipped(".")


def escaped_path(path: Path) -> str:
    """Return a path for a person: relative where possible, with control characters escaped."""
    return escape_terminal(near(path), 400)


def print_warnings(policy: Any) -> None:
    """Say on standard error what whoever runs under a policy should know."""
    for line in policy.warnings:
        print(f"tachograph: {escape_terminal(line, 400)}", file=sys.stderr)


def near(path: Path) -> str:
    """Return a path relative to the current folder where it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return str(path)


def in_project() -> bool:
    """Return whether the current folder is in a project."""
    from ...runtime.formats.shipped_files import project_root

    return project_root(Path.cwd()) is not None


def run_folders(options: argparse.Namespace) -> tuple[Path, list[Path]]:
    """Return the folder that holds `runs/`, and the runs asked for; all of them where none is named.

    Raises InputError where none is named and there is no project around the current folder.
    """
    from ...evidence.checking.check import runs_below
    from ...evidence.files.manifest import FILES

    current = Path.cwd()
    if options.root is None and not in_project() and (current / "runs").is_dir():
        root = current
    else:
        root = root_of(options, own=not options.runs)
    options.runs = [str(run_named(options, name)) for name in options.runs]
    for name in options.runs:
        folder = Path(name)
        if not name or not os.path.isdir(folder):
            raise no_such_run(options, name)
        if not any((folder / file).is_file() for file in FILES):
            raise InputError("is not a run", file=name, remedy=f"name the folder of one run; {_LISTED}")
    folders = [Path(name) for name in options.runs] or runs_below(root)
    if not folders:
        raise InputError(
            "there is no recorded run", file=str(root / "runs"), remedy="record one with `tachograph run`"
        )
    return root, folders


def owners(root: Path, folders: Sequence[Path]) -> list[Path]:
    """Return the runs or sessions that own the runs in some folders, each once: children have no task of their own."""
    from ...evidence.tasks.place import owner_of

    found = (owner_of(folder, root) for folder in folders)
    return list({folder.resolve(): folder for folder in found}.values())


_LISTED: Final = "`tachograph ls` lists the runs"


def no_such_run(options: argparse.Namespace, name: str) -> InputError:
    """Return the error for a name that leads to no run, with the one that was probably meant."""
    from ...evidence.checking.check import runs_below
    from ...runtime.schema.schema_errors import did_you_mean

    root = root_of(options)
    known = [run.relative_to(root / "runs").as_posix() for run in runs_below(root)]
    meant = did_you_mean(name.removeprefix("runs/"), known)
    return InputError(
        "there is no such run", file=name or "''", remedy=f"{meant} {_LISTED}" if meant else _LISTED
    )


def run_named(options: argparse.Namespace, name: str) -> Path:
    """Return the folder of the run `name`: as it stands, else below `--root` or the project, `runs/` left out or not.

    A name that leads nowhere is returned as it stands, for the caller to refuse.
    """
    from ...runtime.formats.shipped_files import project_root

    current = Path.cwd()
    roots = [Path(), project_root(current)] if options.root is None else [Path(options.root)]
    for place in [Path(), *(root / part for root in roots if root is not None for part in ("", "runs"))]:
        if name and any(os.path.isdir(f"{place / name}{end}") for end in ("", ".partial", ".old")):
            return place / name
    return Path(name)


def task_named(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the task file that `options.task` names, and the project that its run belongs to.

    `tasks/` and `.yaml` may be left out. A name that leads nowhere is returned as it stands, for the caller to refuse.
    """
    from ...runtime.formats.shipped_files import project_root, shipped

    def project_above(folder: Path) -> Path:
        found = Path(options.root) if options.root is not None else project_root(folder)
        return found or Path.cwd()

    path = Path(options.task)
    short = (f"tasks/{options.task}.yaml", f"tasks/{options.task}")
    if not os.path.exists(path) and not path.is_absolute():
        project = project_above(Path.cwd())
        for name in short:
            if os.path.isfile(project / name):
                return Path(near(project / name)), project
        for name in (options.task, *short):
            if os.path.isfile(inside := shipped(name)):
                return inside, Path.cwd()  # it came with the package; its run goes below the current folder
    return path, project_above(path.resolve().parent)


def load_policies(options: argparse.Namespace, files: Sequence[str]) -> list[Any]:
    """Load the policies named, or the project's own; return each with its path. Raises PolicyError."""
    from ...runtime.policy.policy import Policy

    root = root_of(options)
    paths = [Path(file) for file in files] or [root / "policy" / "v1.yaml"]
    return [(path, Policy.load(path, options.overlay, root=root)) for path in paths]


def write_file(place: Path, text: str, *, ours: bytes, kind: str) -> None:
    """Write what a person asked for: a file whole at once, a device or a pipe as it comes.

    A file that is there is replaced where it is empty or holds `ours` in its first 400 bytes; `what` names
    such files. Raises OutputError.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        target = place.resolve()  # what a link names is written, and the link stays
        if target.exists():
            if not target.is_file():
                with target.open("wb") as stream:
                    stream.write(data)
                return
            head = read_plain(target, _HEAD)[:_HEAD]
            if head and ours not in head:
                raise OutputError(f"{place}: already exists and is not a {kind}; name a new file")
        with _beside(target, data) as fresh:
            fresh.replace(target)
    except (OSError, ValueError, RuntimeError) as error:
        raise cannot_write(place, error) from None


def write_new(place: Path, text: str) -> None:
    """Write a file that is not there yet, whole or not at all. Raises OutputError."""
    try:
        with _beside(place, text.encode("utf-8", "backslashreplace")) as fresh:
            os.link(fresh, place)  # unlike a rename it replaces nothing
    except (OSError, ValueError) as error:
        raise cannot_write(place, error) from None


_HEAD: Final = 400
_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDIES: Final = {
    **dict.fromkeys(_ROOM, "make room there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "name a file where you may write"),
    errno.EEXIST: "name a new file",
}


def cannot_write(place: Path, error: Exception) -> OutputError:
    """Return the error for a file that cannot be written, with the system's reason."""
    number = error.errno if isinstance(error, OSError) else None
    remedy = _REMEDIES.get(number or 0, "name a file in a folder that is there")
    return OutputError(f"{place}: cannot be written ({why_of(error)}); {remedy}")


def why_of(error: Exception) -> str:
    """Return the system's reason for an error, or the name of its type."""
    return getattr(error, "strerror", None) or type(error).__name__


@contextlib.contextmanager
def _beside(target: Path, data: bytes) -> Iterator[Path]:
    """Write `data` to a temporary file beside `target`; it is removed afterwards if it was not moved."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{target.name[:60]}-", dir=target.parent)
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(0o666 & ~mask)
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
