"""Verify a record in itself: nothing runs, and nothing of the project is imported.

The log is read line by line, and the other files are derived from it and compared. The inputs in the manifest are taken
as they are; `check` derives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..fail.errors import RecordError
from ..runtime.log.events import RunStarted
from ..runtime.log.steps import steps_of
from .manifest import MANIFEST, manifest, read_manifest
from .record_files import NAMES, STATE, derive, read_files, whole_log


def verify(folder: Path, name: str, *, rendered: bool = True) -> list[str]:
    """Return what is wrong with a record, one line each; none if it is whole.

    Args:
        folder: The folder of the run.
        name: What messages call it.
        rendered: Whether files count that are rendered in another way today, and are those of the manifest.
    """
    try:
        return problems_of(read_files(folder, name), name, rendered=rendered)
    except RecordError as error:
        return [str(error)]


def problems_of(files: Mapping[str, bytes], name: str, *, rendered: bool = True) -> list[str]:
    """Return what is wrong with the files of a record, as `verify` does."""
    missing = [f"{name}/{file}: is missing; restore it from git" for file in NAMES if file not in files]
    foreign = [f"{name}/{file}: belongs to no run; remove it" for file in files if file not in NAMES]
    if missing:
        return missing + foreign
    try:
        lines = whole_log(files[STATE], f"{name}/{STATE}")
        inputs, made = read_manifest(files[MANIFEST], f"{name}/{MANIFEST}")
    except RecordError as error:
        return [str(error)]
    events = [line.event for line in lines]
    try:
        derived = derive(files[STATE], events, steps_of(events), inputs, made)
    except (LookupError, ValueError, AssertionError, RecursionError):  # whole lines that make no run
        return [f"{name}/{STATE}: its lines do not form a run; restore it from git"]
    task = f"tasks/{name.removeprefix('runs/')}.yaml"
    if isinstance(events[0], RunStarted) and name.startswith("runs/") and events[0].task not in ("", task):
        return [f"{name}/{STATE}: is of {events[0].task}; restore the record of {task} from git"]
    held = {file: files[file] for file in NAMES if file != MANIFEST}
    is_held = manifest(events, held, inputs, made) == files[MANIFEST]
    what = "is rendered differently today" if is_held else f"does not follow from {STATE}"
    remedy = "restore it from git, or record the run again"
    other = [file for file in NAMES if derived[file] != files[file] and (rendered or not is_held)]
    return foreign + [f"{name}/{file}: {what}; {remedy}" for file in other]
