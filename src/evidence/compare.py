"""Two makings of the same run compared: which inputs moved, where the ledgers part, which files differ."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..fail.errors import RecordError
from . import manifest as manifests
from .drift import Drift, compare
from .manifest import MANIFEST, REPORT, STATE, TRACE
from .rebuild import rebuild
from .report import visible

Line = dict[str, Any]
BROKEN = "BROKEN"  # the class of a record that cannot be compared


@dataclass
class Findings:
    """What a check of one run found: no lines means that it holds.

    `moved` names the inputs whose digest is another, `drift` how the ledgers part, `broken` that more is wrong
    than drift (the record does not hold in itself, the task's expectation is missed), `accept` the command
    that takes what the run gives now.
    """

    run: str
    lines: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    drift: Drift | None = None
    broken: bool = False
    accept: str | None = None

    @property
    def ok(self) -> bool:
        return not self.lines

    @property
    def kind(self) -> str:
        """The gravest class of drift; BROKEN where nothing drifted but the record, or nothing but digests."""
        kind = self.drift.kind if self.drift is not None else None
        return BROKEN if kind is None or (kind == "DIGEST-ONLY" and self.broken) else kind


def compare_files(found: Findings, there: Mapping[str, bytes], made: Mapping[str, bytes], name: str) -> None:
    """Add to `found` how the four files `made` differ from those that are `there`, whose run is `name`."""
    committed = _manifest(found, there[MANIFEST], name)
    fresh = json.loads(made[MANIFEST])
    found.moved = _moved_inputs(committed, fresh)
    found.lines += [f"input moved: {visible(path)} {what}" for path, what in found.moved.items()]
    if committed and manifests.stable(committed) != manifests.stable(fresh):
        keys = {*committed, *fresh} - set(manifests.VOLATILE)
        moved = sorted(key for key in keys if committed.get(key) != fresh.get(key))
        found.lines.append(f"{MANIFEST}: differs in {', '.join(visible(key) for key in moved)}")
    if there[STATE] != made[STATE]:
        _compare_ledgers(found, there[STATE], made[STATE], name)
    for file in (TRACE, REPORT):
        if there[file] != made[file]:
            found.lines.append(_first_line(file, there[file], made[file]))
    if found.lines:
        _compare_with_itself(found, there, name)


def _compare_with_itself(found: Findings, there: Mapping[str, bytes], name: str) -> None:
    """Tell a record that was changed by hand from one whose inputs or code moved on."""
    try:
        own = rebuild(there[STATE], f"{name}/{STATE}")
    except RecordError as error:
        found.broken = True
        found.lines.append(f"the record does not hold in itself: {error}")
        return
    wrong = [file for file in (TRACE, REPORT) if there[file] != own[file]]
    with contextlib.suppress(ValueError, TypeError):
        if manifests.stable(manifests.read(there[MANIFEST])).encode("utf-8") != own[MANIFEST]:
            wrong.append(MANIFEST)
    if wrong:
        found.broken = True
        found.lines.append(f"the record does not hold in itself: its ledger gives another {', '.join(wrong)}")


def _manifest(found: Findings, text: bytes, name: str) -> Line:
    try:
        return manifests.read(text)
    except ValueError:
        found.broken = True
        found.lines.append(f"{name}/{MANIFEST}: is not as it was written")
        return {}


def _moved_inputs(committed: Line, fresh: Line) -> dict[str, str]:
    before, after = _digests(committed), _digests(fresh)
    out = {}
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new:
            out[path] = "is new" if old is None else "is gone" if new is None else f"{old[:12]} -> {new[:12]}"
    return out


def _digests(manifest: Line) -> dict[str, str]:
    try:
        return {str(item["path"]): str(item["sha256"]) for item in manifest.get("inputs", ())}
    except (TypeError, KeyError):
        return {}


def _compare_ledgers(found: Findings, before: bytes, after: bytes, name: str) -> None:
    lines = _decoded(before)
    if isinstance(lines, int):
        found.lines.append(f"{STATE} line {lines}: is no line that a run writes; {name}/{STATE} was changed")
        return
    made = _decoded(after)
    assert not isinstance(made, int)
    note_drift(found, lines, made)
    if found.drift is not None and found.drift.first is None:
        found.lines.append(f"{STATE}: says the same in other bytes; {name}/{STATE} was changed")


def note_drift(found: Findings, before: list[Line], after: list[Line]) -> None:
    """Say where two ledgers part first, and where most gravely."""
    found.drift = compare(before, after)
    first = found.drift.first
    if first is None:
        return
    text = f"{STATE} line {first.line}: first difference: {first} [{first.kind}]"
    more = found.drift.downstream
    found.lines.append(text + (f"; {more} more, most of which follow from it" if more else ""))
    gravest = found.drift.gravest
    if gravest is not None and gravest.kind != first.kind:
        found.lines.append(f"{STATE} line {gravest.line}: gravest: {gravest} [{gravest.kind}]")


def _decoded(state: bytes) -> list[Line] | int:
    """The lines of a ledger without any check of the chain, or the number of the first that is no object."""
    out = []
    for number, text in enumerate(state.split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            return number
        if not isinstance(line, dict):
            return number
        out.append(line)
    return out if state.endswith(b"\n") else len(out) + 1


def _first_line(file: str, before: bytes, after: bytes) -> str:
    old, new = before.split(b"\n"), after.split(b"\n")
    for number, (a, b) in enumerate(zip(old, new, strict=False), start=1):
        if a != b:
            return f"{file} line {number}: committed is not what the run gives"
    return f"{file}: committed {len(old)} lines, the run gives {len(new)}"
