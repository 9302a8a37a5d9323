"""Accept that a run has drifted: record it anew, with what its external effects came to the first time."""

from __future__ import annotations

from pathlib import Path

from ..fail.errors import RecordError
from .check import check
from .compare import GRAVEST_FIRST, Difference
from .record import record
from .record_files import STATE, read_files, whole_log
from .run_source import RunSource


def accept(source: RunSource, folder: Path, name: str) -> list[Difference]:
    """Record a run anew if it differs from its record, and return how it differed, the gravest first.

    Args:
        source: What the run is made from.
        folder: The folder of the run.
        name: What messages call it.

    Raises:
        RecordError: The record is damaged, or only a live model or the world could give what the new run needs.
        ExpectationError: The new run misses what its task expects; the record stays as it is.
    """
    found = check(source, folder, name)
    for difference in found:
        if difference.kind == "DAMAGE":
            raise RecordError(f"is damaged: {difference.words}", file=name, remedy="restore it from git")
    if found and not source.is_scripted:
        remedy = "record it anew with the model: tachograph run"
        raise RecordError("has drifted, and a live model would be asked again", file=name, remedy=remedy)
    if found:
        log = whole_log(read_files(folder, name)[STATE], f"{name}/{STATE}")
        record(source, folder, earlier=[line.event for line in log])
    return sorted(found, key=lambda difference: GRAVEST_FIRST.index(difference.kind))
