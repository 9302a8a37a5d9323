"""`runs/ACCEPTED.jsonl`: one canonical line for each run whose drift was accepted: what moved, and why.

A line names the run, the reason, the inputs that moved with their digests, the classes of drift, the first
difference, and the digest of the manifest (its canonical form without volatile keys) before and after. No time
and no name of a person stand in it: the commit that brings the line has both.

What is held against it: each line parses and is as `line_of` writes it, its run is there, and it goes on from
a state that no line before it left. A run recorded again without being accepted (`make evidence-build`) breaks
nothing, unless that brought back a state that the last line left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ...fail.errors import OutputError, RecordError, system_reason
from ...light_dataclasses import dataclass, field
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.formats.durable_write import sync, write_durably
from ...runtime.formats.read_file import read_unlinked, why_unread
from ..files import manifest as manifests
from ..files.folder import directory_lock
from ..files.json_diff import CLASSES
from ..files.manifest import MANIFEST

ACCEPTED: Final = "runs/ACCEPTED.jsonl"
PENDING: Final = "runs/ACCEPTING.jsonl"  # lines of an accept that is under way, or was cut off
SCHEMA: Final = "accepted/v1"
_HEX: Final = re.compile(r"[0-9a-f]{64}")


def _is_sha(value: object) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_move(value: object) -> bool:
    sides = ("after", "before")
    return (
        isinstance(value, dict)
        and sorted(value) == [*sides, "path"]
        and _is_text(value["path"])
        and all(value[side] is None or _is_sha(value[side]) for side in sides)
    )


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, dict) and sorted(value) == ["after", "before"] and all(map(_is_sha, value.values()))
    )


def _is_count(value: object) -> bool:
    return isinstance(value, dict) and all(
        name in CLASSES and type(number) is int and number > 0 for name, number in value.items()
    )


_KEYS: Final[dict[str, Callable[[Any], bool]]] = {
    "cause": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "class": lambda value: value in CLASSES,
    "classes": _is_count,
    "first": lambda value: value is None or isinstance(value, dict),
    "inputs": lambda value: isinstance(value, list) and all(map(_is_move, value)),
    "manifest": _is_pair,
    "reason": _is_text,
    "run": _is_text,
    "schema": lambda value: value == SCHEMA,
}


def line_of(entry: Line) -> str:
    """Return an entry as one line of the file."""
    return canonical_json.encode(entry) + "\n"


def digest_of(manifest: bytes) -> str:
    """Return the digest by which an entry names a manifest. Raises ValueError if it is no manifest."""
    return canonical_json.digest(manifests.stable(manifests.read(manifest)))


@dataclass
class History:
    """The accepted changes of a project.

    Attributes:
        stands: by run, the number of its last line, and the manifest digests before and after it.
        left: by run, the digests that were replaced, each with the number of the line that replaced it.
        wrong: one message for each line that cannot be read or does not follow from those before it.
    """

    stands: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    left: dict[str, dict[str, int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, number: int, entry: Line) -> None:
        """Add the next entry."""
        run, before, after = entry["run"], entry["manifest"]["before"], entry["manifest"]["after"]
        gone = self.left.setdefault(run, {})
        if before in gone:
            self.wrong.append(
                f"{ACCEPTED}:{number}: goes on from what line {gone[before]} left; take one of them out, "
                "after a merge the one that accepted what was not kept"
            )
        gone[before] = number
        gone.pop(after, None)  # it came back
        self.stands[run] = (number, before, after)


def history(root: Path) -> History:
    """Return the accepted changes of a project; none if there is no file."""
    accepted = History()
    try:
        text = read_unlinked(root / ACCEPTED)
    except FileNotFoundError:
        return accepted
    except OSError as error:
        remedy = "check its permission" if isinstance(error, PermissionError) else "restore it"
        accepted.wrong.append(f"{ACCEPTED}: cannot be read ({why_unread(error)}); {remedy}")
        return accepted
    *lines, rest = text.split(b"\n")
    for number, line in enumerate(lines, start=1):
        entry = entry_of(line)
        if isinstance(entry, str):
            accepted.wrong.append(f"{ACCEPTED}:{number}: {entry}; restore the line or take it out")
        else:
            accepted.add(number, entry)
    if rest:
        accepted.wrong.append(f"{ACCEPTED}:{len(lines) + 1}: is cut off; restore the line or take it out")
    return accepted


def problems(root: Path) -> list[str]:
    """Return one line for each thing wrong with the accepted changes of a project; none if there is no file."""
    accepted = history(root)
    out = [
        _held_against_run(root, run, number, after, accepted.left[run])
        for run, (number, _, after) in sorted(accepted.stands.items())
    ]
    return accepted.wrong + [line for line in out if line is not None]


def entry_of(line: bytes) -> Line | str:
    """Return the entry of a line, or what is wrong with the line."""
    try:
        entry: Line = json.loads(line)
        written = isinstance(entry, dict) and line_of(entry).encode("utf-8") == line + b"\n"
    except (ValueError, RecursionError):
        return "is no entry"
    if not written:
        return "is not as it was written"
    odd = sorted(entry.keys() - _KEYS.keys())
    if odd:
        return f"has an unknown key {odd[0][:40]!r}"
    wrong = sorted(key for key, holds in _KEYS.items() if key not in entry or not holds(entry[key]))
    if wrong:
        return f"says nothing usable of {wrong[0]!r}"
    if entry["manifest"]["before"] == entry["manifest"]["after"]:
        return "accepts no change"
    return entry


def _held_against_run(root: Path, run: str, number: int, after: str, left: dict[str, int]) -> str | None:
    parts = run.split("/")
    inside = len(parts) == 3 and parts[0] == "runs" and not {"", ".", ".."} & set(parts)
    if not inside or not (root / run / MANIFEST).is_file():
        return f"{ACCEPTED}:{number}: its run {run[:200]} is gone; restore the run or take its lines out"
    try:
        current = digest_of(read_unlinked(root / run / MANIFEST))
    except (OSError, ValueError):
        return None  # a check of the run itself reports it
    if current == after or current not in left:
        return None
    return (
        f"{ACCEPTED}:{left[current]}: says that {run} was accepted as another, but it stands as before; "
        "restore the run, or take the line out"
    )


def announce(root: Path, entries: Sequence[Line]) -> None:
    """Write down what is about to be accepted, durable when this returns, so that no reason is lost.

    Raises OutputError.
    """
    if entries:
        _replace(root / PENDING, "".join(map(line_of, entries)).encode("utf-8"))


def complete(root: Path) -> list[Line]:
    """Give their lines to the announced runs that are in place, and return these; an accept is over then.

    What was announced and not done is forgotten: those runs stand as before.

    Raises:
        OutputError: A file cannot be written; what was announced stays.
        RecordError: What was announced cannot be read.
    """
    try:
        announced = read_unlinked(root / PENDING)
    except FileNotFoundError:
        return []
    with directory_lock(root / "runs"):
        path = root / ACCEPTED
        before = read_unlinked(path) if path.exists() else b""
        added = []
        last = _last_lines(before)
        for number, line in enumerate(announced.splitlines(), start=1):
            entry = entry_of(line)
            if isinstance(entry, str):
                raise RecordError(entry, file=PENDING, line=number, remedy="restore the line or take it out")
            if last.get(entry["run"]) != line and _stands_as(root, entry):
                added.append(entry)
        if added:
            _replace(path, before + "".join(map(line_of, added)).encode("utf-8"))
        (root / PENDING).unlink()
        sync(path.parent)
    return added


def _last_lines(text: bytes) -> dict[str, bytes]:
    """Return the last line of each run, by run; an earlier one may be the same, where a change was taken back."""
    entries = ((entry_of(line), line) for line in text.split(b"\n"))
    return {str(entry["run"]): line for entry, line in entries if not isinstance(entry, str)}


def _stands_as(root: Path, entry: Line) -> bool:
    """Return whether the run of an entry is in place as it was accepted."""
    try:
        found = digest_of(read_unlinked(root / entry["run"] / MANIFEST))
    except (OSError, ValueError):
        return False
    return bool(found == entry["manifest"]["after"])


def _replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durable when this returns. Raises OutputError."""
    try:
        write_durably(path, data)
    except OSError as error:
        raise OutputError(
            f"runs/{path.name}: cannot be written to ({system_reason(error)}); make room, then `tachograph index`"
        ) from error
