"""A new project laid out: every file written and the first runs recorded, or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..evidence.checking.check import examine
from ..evidence.files.folder import SignalsBlocked, staging_directory
from ..evidence.recording import index
from ..evidence.recording.record import record_run
from ..evidence.tasks.task import build, load_task
from ..fail.errors import ExpectationError, InputError, Interrupted, OutputError
from .files import ITEMS, OWN, Item
from .install import requirement_of, requirement_of_this


@dataclass
class Begun:
    """What was laid out: (place, what it is for), what was there already and stays, the runs recorded.

    `note` is what a person must know of what CI installs, None where that is certain.
    Places are relative to the project, those at the top of its repository to that.
    """

    folder: Path
    top: Path
    created: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    runs: list[tuple[str, str]] = field(default_factory=list)
    note: str | None = None


def begin(folder: Path, version: str, install: str | None = None) -> Begun:
    """Lay out a project in `folder`, which is made if need be.

    Files that are not ours alone (CI, hooks, what git is told) are left alone where they are there. `install` is what
    CI installs (a version, a wheel, a Git URL), by default what runs here. Raises InputError, and changes nothing,
    where that cannot be installed, or one of the folders that the commands read is in use.
    """
    _refuse_used(folder)
    top = _repository(folder) or folder
    wanted, note = (
        requirement_of_this(version) if install is None else (requirement_of(install, folder, top), None)
    )
    begun = Begun(folder, top, note=note)
    place = _relative(folder, top)
    prefix = "" if place == "." else f"{place}/"
    values = {  # as YAML reads them, whatever the folder is called
        "INSTALL": json.dumps(f"pip install {shlex.quote(wanted)}"),
        "PLACE": json.dumps(place),
        "PREFIX": json.dumps(prefix),
        "ENTRY": json.dumps(f"tachograph check --root {shlex.quote(place)}"),
        "FILES": json.dumps(f"^{re.escape(prefix)}(policy|tools|tasks|data|runs)/"),
    }
    option = "" if place == "." else " --root " + shlex.quote(place)
    with _staged(folder) as stage:
        for item in ITEMS:
            target = (top if item.at_top else folder) / item.place
            if item.instead and os.path.lexists(target):
                begun.kept.append((_relative(target, folder), item.instead.replace("@ROOT@", option)))
                continue
            _put(stage / item.place, item.text(**values))
            begun.created.append((_relative(target, folder), item.words))
        begun.runs = _record(stage)
        with SignalsBlocked():
            _move(stage, folder, top)
    return begun


def _refuse_used(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError("is not a folder", file=str(folder), remedy="name a folder, new or not")
    for name in OWN:
        place = folder / name
        if os.path.lexists(place) and not (place.is_dir() and not any(place.iterdir())):
            raise InputError(
                f"{name}/ is there already, and what is in it would be taken for the agent's",
                file=str(folder),
                remedy=f"name a folder of its own: tachograph init {folder / 'agent'}",
            )


def _repository(folder: Path) -> Path | None:
    """Return the top of the Git repository that a folder is in, or will be."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if os.path.lexists(place / ".git"):
            return place
    return None


def _relative(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path.absolute(), base.absolute())).as_posix()


@contextlib.contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Yield a folder inside the project to prepare everything in; folders we created are removed on failure."""
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with staging_directory(folder, ".tachograph-init-") as stage:
            yield stage
        created = []
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        with SignalsBlocked():
            for place in created:
                with contextlib.suppress(OSError):
                    place.rmdir()


def _put(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def _record(stage: Path) -> list[tuple[str, str]]:
    """Record every task of the new project, and check what was recorded."""
    recorded = []
    for path in sorted((stage / "tasks").glob("*/*.yaml")):
        task = load_task(path, root=stage)
        agent, setting = build(task)
        name = f"runs/{path.parent.name}/{path.stem}"
        try:
            record_run(agent, setting, stage / name, expected=task.expected)
        except ExpectationError as error:
            if isinstance(error.__cause__, Interrupted):  # by a signal: no task of ours is
                raise KeyboardInterrupt from None
            raise
        recorded.append((name, str(task.data["title"])))
    index.update(stage)
    for name, _ in recorded:
        wrong = examine(stage / name, root=stage).lines
        if wrong:
            raise OutputError(f"{name}: {wrong[0]}; this is a fault of tachograph's")
    return recorded


def _move(stage: Path, folder: Path, top: Path) -> None:
    """Every staged file to its place, never over one that is there; all or none."""
    at_top = {item.place for item in ITEMS if item.at_top}
    done: list[Path] = []
    folders: list[Path] = []
    try:
        for source in sorted(path for path in stage.rglob("*") if path.is_file()):
            place = source.relative_to(stage).as_posix()
            if "__pycache__" in place:
                continue
            target = (top if place in at_top else folder) / place
            for parent in reversed(target.parents):
                if not parent.exists():
                    parent.mkdir()
                    folders.append(parent)
            try:
                os.link(source, target)
            except FileExistsError:
                raise
            except OSError:  # no links here
                with source.open("rb") as data, target.open("xb") as copy:
                    shutil.copyfileobj(data, copy)
            done.append(target)
    except BaseException:
        for path in reversed(done):
            path.unlink(missing_ok=True)
        for path in reversed(folders):
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def _unwritable(path: Path, error: OSError) -> OutputError:
    why = error.strerror or type(error).__name__
    return OutputError(
        f"{path}: cannot be written ({why}), and nothing was left there; name a folder that can be written to"
    )


__all__ = ["ITEMS", "Begun", "Item", "begin"]
