"""The folder of a run: `DIR.partial/` while it goes on, put in the place of `DIR/` when it has ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from ..fail.errors import InputError, OutputError, RecordError, system_reason
from ..runtime.clock import random_hex
from ..runtime.formats.documents import read_plain
from ..runtime.formats.durable_write import sync, write_durably
from ..runtime.formats.strict_json import canonical
from ..runtime.log.addresses import place_of
from ..runtime.log.events import RunStarted, TurnEnded
from ..runtime.log.file import lock
from ..runtime.log.lines import LineWriter
from ..runtime.log.values import Forked
from ..runtime.resources.mount_path import TEMPORARY
from .record_files import MOST_BYTES, NAMES, STATE, events_in, head_in, is_from_code, lines_in

MOUNTS: Final = "mounts"
KEY: Final = "key"
SOURCES: Final = "sources.json"
INPUTS: Final = "inputs.jsonl"


def partial_of(folder: Path) -> Path:
    """Return where a run lies until it has ended."""
    return folder.with_name(f"{folder.name}.partial")


def where_it_lies(folder: Path) -> Path:
    """Return where a run lies: in its folder if it has ended, and else in that of an open run."""
    return folder if folder.is_dir() else partial_of(folder)


def not_ended(name: str, partial: Path) -> RecordError:
    """Return what to say of the open run in a folder, whose name is `runs/KIND/NAME` in a project."""
    run, head = name.removesuffix(".partial"), next(iter(lines_in(partial)), None)
    is_talk = isinstance(head, RunStarted) and head.session
    how = "a `Session` at the same path" if is_talk else "`tachograph.resume` in Python"
    if run.startswith("runs/") and not is_from_code(partial):
        run = run.removeprefix("runs/")
        how = f"`tachograph resume {run}`"
    return RecordError("the run has not ended", file=run, remedy=f"{how} goes on with it")


def made_in_code(run: str) -> RecordError:
    """Return what to say of a record that needs its agent in code."""
    remedy = "use `tachograph.check` or `tachograph.resume` in Python, or a command that takes --agent"
    return RecordError("was made by an agent in code", file=run, remedy=remedy)


def old_of(folder: Path) -> Path:
    """Return where an earlier record lies while another takes its place, and is left if the process dies then."""
    return folder.with_name(f".{folder.name}.old")


def open_folder(folder: Path) -> Path:
    """Make the folder of a new open run. Raises OutputError where one lies there, or it cannot be made."""
    partial = partial_of(folder)
    _refuse_other(folder)
    try:
        missing = [above for above in partial.parents if not above.exists()]
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir(exist_ok=is_unused(partial))
        for made in (*reversed(missing), partial):
            sync(made.parent)
    except OSError as error:
        what = f"cannot be created ({system_reason(error)}); remove what is in the way"
        if isinstance(error, FileExistsError) and partial.is_dir() and not partial.is_symlink():
            os.close(lock(partial))  # says if another process goes on with it
            what = "the folder holds a run that has not ended; resume it, or remove the folder to begin anew"
        raise OutputError(f"{partial}: {what}") from None
    return partial


def is_unused(partial: Path) -> bool:
    """Return whether the run that lies here has no line yet, and so has done nothing."""
    log = partial / STATE
    return b"\n" not in log.read_bytes() if log.is_file() else partial.is_dir() and not any(partial.iterdir())


def has_begun(partial: Path) -> bool:
    """Return whether a run lies here that has a line, which may be damaged."""
    return (partial / STATE).is_file() and not is_unused(partial)


def _refuse_other(folder: Path) -> None:
    """Refuse a place where something else than a record lies, which would be removed. Raises OutputError."""
    is_free = not folder.exists() and not folder.is_symlink()
    is_record = folder.is_dir() and not folder.is_symlink()
    if not is_free and not (is_record and {path.name for path in folder.iterdir()} <= {*NAMES}):
        what = "the folder holds something other than a record; remove it, or name another folder"
        raise OutputError(f"{folder}: {what}")


def hold_sources(partial: Path, sources: Mapping[str, str], *, is_new: bool) -> None:
    """Note what a run is made from when it begins, and hold it against that when it goes on.

    Args:
        partial: The folder of the open run.
        sources: Path and digest of policy, task, tools, their modules and hooks, called or not.
        is_new: Whether the run begins.

    Raises:
        RecordError: One of them is another one now.
    """
    if is_new:
        write_durably(partial / SOURCES, canonical(dict(sources)))
        return
    before = noted_sources(partial)
    if before is None:
        return  # only the lines of the log are there to go by
    for path in sorted(before.keys() | sources.keys()):
        if before.get(path) != sources.get(path):
            remedy = "restore it, or remove the folder of the open run and begin anew"
            raise RecordError("has changed since the run began", file=path, remedy=remedy)


def noted_sources(partial: Path) -> dict[str, str] | None:
    """Return what an open run is made from, None where nothing was noted. Raises RecordError."""
    try:
        return msgspec.json.decode(read_plain(partial / SOURCES, MOST_BYTES), type=dict[str, str])
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        remedy = "remove the folder of the open run and begin anew"
        raise RecordError("is damaged", file=f"{partial.name}/{SOURCES}", remedy=remedy) from None


def read_key(folder: Path) -> bytes | None:
    """Return the key of an open run, None where there is none."""
    try:
        return (folder / KEY).read_bytes()
    except FileNotFoundError:
        return None


def discard(partial: Path, folder: Path) -> None:
    """Remove an open run that would not change the record in place."""
    old = old_of(folder)
    shutil.rmtree(old, ignore_errors=True)
    os.rename(partial, old)  # or what is left of it, if the process dies now, would be an open run
    shutil.rmtree(old, ignore_errors=True)


def put_in_place(partial: Path, folder: Path) -> None:
    """Put an ended run in the place of the one before, and remove that. Raises OutputError."""
    _refuse_other(folder)
    for name in (INPUTS, KEY, SOURCES):
        (partial / name).unlink(missing_ok=True)
    if (partial / MOUNTS).is_dir():
        shutil.rmtree(partial / MOUNTS)
    exchange(partial, folder)  # before this it is an open run, which a resume puts in place


def exchange(made: Path, folder: Path) -> None:
    """Put a folder in the place of another one, if there is one, and remove that. Raises OSError."""
    old = old_of(folder)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(made, folder)
    shutil.rmtree(old, ignore_errors=True)  # what is left of it counts as none
    sync(folder.parent)


def copy_turns(origin: Path, turn: int, folder: Path) -> None:
    """Begin a conversation in a folder with the turns of another one up to a number.

    Args:
        origin: Where the other one lies.
        turn: The number.
        folder: Where the record of the new one is to go.

    Raises:
        InputError: There is no such turn, or the other one cannot be read.
        OutputError: The folder cannot be used, or the other one cannot be copied.
    """
    events = events_in(origin, f"{origin}/{STATE}")
    ends = [n for n, it in enumerate(events, 1) if isinstance(it, TurnEnded) and not place_of(it.at)]
    if type(turn) is not int or not 1 <= turn <= len(ends):
        raise InputError(f"there is no turn {turn!r:.80}", remedy=f"there are {len(ends)}")
    head, partial, made = head_in(origin), open_folder(folder), old_of(folder)
    forked = msgspec.structs.replace(head, run_id=f"run-{random_hex()}", forked=Forked(head.run_id, turn))
    writer = LineWriter()
    lines = [writer.line(canonical(event)) for event in (forked, *events[1 : ends[turn - 1]])]
    try:
        shutil.rmtree(made, ignore_errors=True)
        # key, mounts and inputs, which the manifest of a closed conversation names; no file that is being written
        shutil.copytree(
            origin, made, symlinks=True, ignore=lambda _, names: [*filter(TEMPORARY.fullmatch, names)]
        )
        write_durably(made / STATE, b"".join(lines))
        exchange(made, partial)  # before this the path is free
    except OSError as error:
        for part in (made, partial):
            shutil.rmtree(part, ignore_errors=True)
        # of the first of several files
        why = error.args[0][0][-1] if isinstance(error, shutil.Error) else error
        raise OutputError(f"{folder}: the turns cannot be copied ({why!s:.300})") from None
