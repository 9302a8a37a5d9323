"""Accept that a run has drifted: record it anew, with what its external effects came to the first time."""

from __future__ import annotations

from pathlib import Path

from ..fail.errors import InputError, RecordError
from ..runtime.clock import variable
from .check import check
from .compare import GRAVEST_FIRST, Difference
from .record import record
from .record_files import recorded_log
from .run_source import RunSource


def refuse_in_ci() -> None:
    """Refuse to accept anything where nobody looks at it. Raises InputError."""
    if (variable("CI") or "").lower() not in ("", "0", "false", "no", "off"):
        remedy = "accept the drift where it is made, look at it, and commit the runs"
        raise InputError("nothing is accepted in continuous integration (CI is set)", remedy=remedy)


def acceptable(source: RunSource, folder: Path, name: str, *, exposure: bool = False) -> list[Difference]:
    """Return how a run differs from its record, the gravest first, if that may be accepted.

    Args:
        source: What the run is made from.
        folder: The folder of the run.
        name: What messages call it.
        exposure: Whether the new record may show what the earlier one hides.

    Raises:
        RecordError: The record is damaged, would show what it hides, or only a live model could make a new one.
    """
    found = sorted(check(source, folder, name), key=lambda it: GRAVEST_FIRST.index(it.kind))
    gravest = found[0] if found else Difference("", "", "")
    what = f"{gravest.at}: {gravest.words}"
    if gravest.kind == "DAMAGE":
        raise RecordError(f"is damaged: {what}", file=name)
    if found and not source.is_scripted:
        remedy = "record it anew with the model: tachograph run"
        raise RecordError("has drifted, and a live model would be asked again", file=name, remedy=remedy)
    if gravest.kind == "EXPOSURE" and not exposure:
        remedy = "hide it again, or accept it with --exposure"
        raise RecordError(f"the new record would show what this one hides: {what}", file=name, remedy=remedy)
    return found


def accept(source: RunSource, folder: Path, name: str) -> None:
    """Record a run anew.

    Args:
        source: What the run is made from.
        folder: The folder of the run.
        name: What messages call it.

    Raises:
        NotRecorded: Only the world could give the result of an external effect.
        ExpectationError: The new run misses what its task expects; the record stays as it is.
    """
    record(source, folder, earlier=[line.event for line in recorded_log(folder, name)])
