"""Two makings of the same run compared: which inputs moved, where the ledgers part, which files differ."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...fail.errors import RecordError
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ..files import manifest as manifests
from ..files.manifest import MANIFEST, REPORT, STATE, TRACE
from ..files.rebuild import rebuild
from ..files.report import visible
from .drift import Drift, compare

BROKEN = "BROKEN"  # the class of a record that cannot be compared


@dataclass
class Findings:
    """What a check of one run found: no lines means that it holds.

    `moved` names the inputs whose digest is another (in words; `digests` has both whole, None for a file that
    is not there), `roles` what these inputs are to the run, `code` the digests of the code that made it and of
    the code there is. `drift` is how the ledgers part, `redrawn` which files differ although the ledgers do
    not, each from which line on.

    `tampered` says that the record was changed by hand, `missed` what of its task's expectation a run misses
    now, `judged` that the run could be made again, whatever came of it. `made` are the four files that it gives
    now, `accept` is the command that takes them.
    """

    run: str
    lines: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    digests: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    code: tuple[str | None, str] | None = None
    drift: Drift | None = None
    redrawn: dict[str, int] = field(default_factory=dict)
    tampered: bool = False
    missed: list[str] = field(default_factory=list)
    judged: bool = True
    made: Mapping[str, bytes] | None = field(default=None, repr=False)
    accept: str | None = None

    @property
    def ok(self) -> bool:
        return not self.lines

    @property
    def broken(self) -> bool:
        """Whether more is wrong than drift."""
        return self.tampered or bool(self.missed) or not self.judged

    @property
    def kind(self) -> str:
        """The gravest class of drift; BROKEN where nothing drifted but the record, or nothing but digests."""
        kind = self.drift.kind if self.drift is not None else None
        if self.broken and kind in (None, "DIGEST-ONLY"):
            return BROKEN
        if kind is None and self.made is None:
            return BROKEN
        return kind or ("TEXT" if list(self.redrawn) == [REPORT] else "SHAPE")


def compare_files(found: Findings, there: Mapping[str, bytes], made: Mapping[str, bytes], name: str) -> None:
    """Add to `found` how the four files `made` differ from those that are `there`, whose run is `name`."""
    committed = _manifest(found, there[MANIFEST], name)
    fresh = json.loads(made[MANIFEST])
    found.made = made
    found.digests = _moved_inputs(committed, fresh)
    found.moved = {path: in_words(*pair) for path, pair in found.digests.items()}
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
        hold_against_itself(found, there, name)


def hold_against_itself(found: Findings, there: Mapping[str, bytes], name: str) -> None:
    """Tell a record that was changed by hand from one whose inputs or code moved on.

    Files that the ledger no longer gives although all digests are in order were drawn by other code: `redrawn`
    names them. Whoever changes a file and every digest of it is not told from that.
    """
    try:
        own = rebuild(there[STATE], f"{name}/{STATE}")
    except RecordError as error:
        found.tampered = True
        found.lines.append(f"the record does not hold in itself: {error}")
        return
    wrong = {file: _first_different(there[file], own[file]) for file in (TRACE, REPORT)}
    wrong = {file: line for file, line in wrong.items() if there[file] != own[file]}
    if _digests_hold(there) and _copies_hold(there, own):
        found.redrawn = wrong if found.drift is None else {}
        return
    files = list(wrong)
    with contextlib.suppress(ValueError, TypeError):
        if manifests.stable(manifests.read(there[MANIFEST])).encode("utf-8") != own[MANIFEST]:
            files.append(MANIFEST)
    found.tampered = True
    if files:
        found.lines.append(f"the record does not hold in itself: its ledger gives another {', '.join(files)}")


def _digests_hold(there: Mapping[str, bytes]) -> bool:
    """Whether a manifest names its three files as they are."""
    try:
        artifacts = manifests.read(there[MANIFEST])["artifacts"]
        return all(artifacts[file] == canonical_json.digest(there[file]) for file in (STATE, TRACE, REPORT))
    except (ValueError, TypeError, KeyError):
        return False


def _copies_hold(there: Mapping[str, bytes], own: Mapping[str, bytes]) -> bool:
    """Whether a manifest says what its ledger says, wherever it only repeats it."""
    try:
        said = manifests.read(there[MANIFEST])
    except (ValueError, TypeError):
        return False
    wanted: Line = json.loads(own[MANIFEST])
    drawn = ("schema", "schemas", "artifacts")
    return all(said[key] == wanted[key] for key in said.keys() & wanted.keys() - set(drawn))


def _manifest(found: Findings, text: bytes, name: str) -> Line:
    try:
        return manifests.read(text)
    except ValueError:
        found.tampered = True
        found.lines.append(f"{name}/{MANIFEST}: is not as it was written")
        return {}


def _moved_inputs(committed: Line, fresh: Line) -> dict[str, tuple[str | None, str | None]]:
    before, after = _digests(committed), _digests(fresh)
    pairs = {path: (before.get(path), after.get(path)) for path in sorted({*before, *after})}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def in_words(old: str | None, new: str | None) -> str:
    """How an input moved: its digests, None where a run does not read it."""
    return "is new" if old is None else "is gone" if new is None else f"{old[:12]} -> {new[:12]}"


def _digests(manifest: Line) -> dict[str, str]:
    try:
        return {str(item["path"]): str(item["sha256"]) for item in manifest.get("inputs", ())}
    except (TypeError, KeyError):
        return {}


def _compare_ledgers(found: Findings, before: bytes, after: bytes, name: str) -> None:
    lines = _decoded(before)
    if isinstance(lines, int):
        found.tampered = True
        found.lines.append(f"{STATE} line {lines}: is no line that a run writes; {name}/{STATE} was changed")
        return
    made = _decoded(after)
    assert not isinstance(made, int)
    note_drift(found, lines, made)
    if found.drift is not None and found.drift.first is None:
        found.tampered = True
        found.lines.append(f"{STATE}: says the same in other bytes; {name}/{STATE} was changed")


def note_drift(found: Findings, before: list[Line], after: list[Line]) -> None:
    """Say where two ledgers part first, and where most gravely."""
    found.drift = compare(before, after)
    found.lines += found.drift.told(STATE)
    for run in (before[:1], after[:1]):
        found.roles.update(_roles(run[0]) if run else {})


def _roles(run: Line) -> dict[str, str]:
    """What the files that a `run` line names are to the run; all that is read beside them is a document."""
    found: dict[str, str] = {}
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        found.update({str(item["file"]): f"tool {item['name']}" for item in run["tools"]})
        found.update({str(item["path"]): "policy" for item in run["policy"]["files"]})
        if run["task"] is not None:
            found[str(run["task"]["path"])] = "task"
    return found


def _decoded(state: bytes) -> list[Line] | int:
    """The lines of a ledger without any check of the chain, or the number of the first that is no object."""
    out: list[Line] = []
    for number, text in enumerate(state.split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            return number
        if not isinstance(line, dict):
            return number
        out.append(line)
    return out if state.endswith(b"\n") else len(out) + 1


def _first_different(before: bytes, after: bytes) -> int:
    """The number of the first line in which two files differ."""
    pairs = enumerate(zip(before.split(b"\n"), after.split(b"\n"), strict=False), start=1)
    return next(
        (number for number, (a, b) in pairs if a != b), 1 + min(before.count(b"\n"), after.count(b"\n"))
    )


def _first_line(file: str, before: bytes, after: bytes) -> str:
    old, new = before.split(b"\n"), after.split(b"\n")
    for number, (a, b) in enumerate(zip(old, new, strict=False), start=1):
        if a != b:
            return f"{file} line {number}: committed is not what the run gives"
    return f"{file}: committed {len(old)} lines, the run gives {len(new)}"
