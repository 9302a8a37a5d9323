"""What the commands share: the project, the runs asked for, paths as a person reads them."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..console import clip
from ..fail.errors import InputError, OutputError

EXIT_CODES = (
    "exit codes: 0 as wanted, 1 another ending or drift, 2 bad input, 3 suspended, 130/143 ended by a signal"
)
# (commands, name, act, help) -> the parser of a command
Verb = Callable[[Any, str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def root_of(options: argparse.Namespace) -> Path:
    """The project: `--root`, or the nearest folder that holds policy/, or what came with the package."""
    from ..runtime.places import project_root, shipped

    if options.root is not None:
        root = Path(options.root)
        if not (root / "policy").is_dir():
            raise InputError("holds no policy/ folder", file=options.root, remedy="give the project's root")
        return root
    return project_root(Path.cwd()) or shipped(".")


def shown(path: Path) -> str:
    """A path for a person: relative where it can be, and inert."""
    return clip(near(path), 400)


def near(path: Path) -> str:
    """A path as a person reads it: relative to the current folder where it lies below."""
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return str(path)


def in_project() -> bool:
    """Whether the current folder is in a project."""
    from ..runtime.places import project_root

    return project_root(Path.cwd()) is not None


def run_folders(options: argparse.Namespace) -> tuple[Path, list[Path]]:
    """The folder that `runs/` is in, and the runs asked for; all of them where none is named."""
    from ..evidence.check import runs_below
    from ..evidence.manifest import FILES

    here = Path.cwd()
    root = (
        here if options.root is None and not in_project() and (here / "runs").is_dir() else root_of(options)
    )
    for name in options.runs:
        folder = Path(name)
        if not name or not os.path.isdir(folder):
            raise InputError(
                "there is no such run", file=name or "''", remedy="name a folder such as runs/canonical/v1"
            )
        if not any((folder / file).is_file() for file in FILES):
            raise InputError(
                "is no run", file=name, remedy="name the folder of one run, such as runs/canonical/v1"
            )
    folders = [Path(name) for name in options.runs] or runs_below(root)
    if not folders:
        raise InputError(
            "there is no recorded run", file=str(root / "runs"), remedy="record one with `tachograph run`"
        )
    return root, folders


def load_policies(options: argparse.Namespace, files: Sequence[str]) -> list[Any]:
    """The policies named, or the project's own, each with its path. Raises PolicyError."""
    from ..runtime.policy import Policy

    root = root_of(options)
    paths = [Path(file) for file in files] or [root / "policy" / "v1.yaml"]
    return [(path, Policy.load(path, options.overlay, root=root)) for path in paths]


def write_file(place: Path, text: str) -> None:
    """Write what a person asked for: a file whole at once, a device or a pipe as it comes. Raises OutputError."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        target = place.resolve()  # what a link names is written, and the link stays
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                stream.write(data)
            return
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:60]}-", dir=target.parent)
        fresh = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            mask = os.umask(0)
            os.umask(mask)
            fresh.chmod(0o666 & ~mask)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputError(
            f"{place}: cannot be written ({type(error).__name__}); name a file in a folder that is there"
        ) from None
