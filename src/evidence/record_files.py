"""The four files of a run as a mapping from name to bytes: what is written, read, derived and compared."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..fail.errors import RecordError, system_reason
from ..runtime.formats.documents import read_plain
from ..runtime.log.events import Event, RunEnded, RunStarted
from ..runtime.log.lines import Damaged, Line, read_log
from ..runtime.log.steps import StepView
from ..tracing.otlp_json import trace_json
from ..tracing.spans import spans_of
from .manifest import MANIFEST, Inputs, manifest
from .report import report

STATE: Final = "state.jsonl"
TRACE: Final = "trace.json"
REPORT: Final = "run_report.md"
NAMES: Final = (STATE, TRACE, REPORT, MANIFEST)
MOST_BYTES: Final = 1 << 30


def derive(
    log: bytes, events: Sequence[Event], steps: Sequence[StepView], inputs: Inputs, made: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the four files of a log, whose steps are given."""
    files = {STATE: log, TRACE: trace_json(spans_of(events, steps)), REPORT: report(events, steps).encode()}
    return {**files, MANIFEST: manifest(events, files, inputs, made)}


def read_files(folder: Path, name: str) -> dict[str, bytes]:
    """Return what a folder of a run holds, by path; a link, a folder or a device in it is refused.

    Raises:
        RecordError: The folder, or something in it, cannot be read.
    """
    files = {}
    try:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                raise RecordError("is not a regular file", file=f"{name}/{entry.name}", remedy="remove it")
            files[entry.name] = read_plain(entry.path, MOST_BYTES)
    except OSError as error:
        below = Path(error.filename or folder).name
        if below in NAMES:
            raise unreadable(error, f"{name}/{below}", "make it readable") from None
        raise unreadable(error, name) from None
    return files


def unreadable(error: OSError, name: str, remedy: str = "name a recorded run") -> RecordError:
    """Return what to say of a record, or a file of it, that the system does not let be read."""
    return RecordError(f"cannot be read ({system_reason(error)})", file=name, remedy=remedy)


def recorded_log(folder: Path, name: str) -> list[Line]:
    """Return the lines of the recorded run in a folder. Raises RecordError."""
    return whole_log(read_files(folder, name).get(STATE, b""), f"{name}/{STATE}")


def events_in(folder: Path, name: str) -> list[Event]:
    """Return the lines of a log, whether it has ended or not, at least one; `name` is what messages call it.

    Raises:
        RecordError: There is none, or a line is damaged.
    """
    try:
        data = read_plain(folder / STATE, MOST_BYTES)
    except OSError as error:
        raise unreadable(error, name) from None
    return [line.event for line in log_of(data, name, is_open=True)]


def lines_in(folder: Path) -> list[Event]:
    """Return the lines of the log in a folder, which need not have ended; none where they cannot be read."""
    try:
        return events_in(folder, f"{folder}/{STATE}")
    except RecordError:
        return []


def head_in(folder: Path) -> RunStarted:
    """Return the first line of the log in a folder, which need not have ended. Raises RecordError."""
    head = events_in(folder, f"{folder}/{STATE}")[0]
    assert isinstance(head, RunStarted)
    return head


def is_from_code(folder: Path) -> bool:
    """Return whether the log in a folder names no task, since an agent in code made it."""
    head = next(iter(lines_in(folder)), None)
    return isinstance(head, RunStarted) and not head.task


def recorded_lines(folder: Path) -> list[Event] | None:
    """Return the lines of a recorded run, None where none lies there that can be read."""
    try:
        return [line.event for line in recorded_log(folder, str(folder))]
    except RecordError:
        return None


def log_of(content: bytes, name: str, *, is_open: bool = False) -> list[Line]:
    """Return the lines of the log of a run, at least one. Raises RecordError naming the line that is damaged."""
    try:
        lines = read_log(content, is_open=is_open)
    except Damaged as error:
        raise RecordError(error.what, file=name, line=error.number, remedy="restore it from git") from None
    if not lines or not isinstance(lines[0].event, RunStarted):
        remedy = "restore it from git" if lines or not is_open else "record the run, or restore it from git"
        raise RecordError("does not begin with the start of a run", file=name, remedy=remedy)
    return lines


def whole_log(content: bytes, name: str) -> list[Line]:
    """Return the lines of the log of a run that has ended. Raises RecordError as `log_of` does."""
    lines = log_of(content, name)
    if not isinstance(lines[-1].event, RunEnded):
        raise RecordError("the run has not ended", file=name, remedy="go on with `tachograph resume`")
    return lines
