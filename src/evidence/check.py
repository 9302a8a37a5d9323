"""Checking: a recorded run is made again and compared with what is committed, byte for byte.

`examine` reports drift the way a reviewer reads it: which inputs moved, where the ledger first parts and what
kind of difference that is, which files differ, and the command that accepts the change.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..fail.errors import InputError, OutputError, RecordError
from ..runtime.places import project_root, shipped
from . import manifest as manifests
from .drift import CLASSES, Drift, compare
from .expect import differences
from .index import UNFINISHED
from .manifest import MANIFEST, REPORT, STATE, TRACE
from .rebuild import rebuild, run_files
from .report import visible
from .task import Task, build, load_task
from .verify import verify
from .writer import derive

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


def examine(folder: Path, *, root: Path | None = None) -> Findings:
    """Check one recorded run: derive its four files again and compare them with the committed ones."""
    base = _project_of(folder, root)
    name = relative_name(folder, base)
    found = Findings(name)
    if made_from_code(folder):
        # there is no task to make it again from, so only what it says of itself can be held against it
        found.lines = verify(folder, base)
        return found
    try:
        task_path = _task_of(folder, base, name)
        found.accept = f"tachograph run {shlex.quote(task_path)} --out {shlex.quote(name)}"
        there = run_files(folder, name)
        accept, found.accept = found.accept, None  # nothing to accept while the run cannot be made
        task = load_task(base / task_path, root=base)
        made, tally = derive(*build(task))
        found.accept = accept
        if was_stopped(task, tally.modes):
            raise KeyboardInterrupt
        _compare(found, there, made, name)
        missed = differences(task.expected, tally)
        if missed:
            found.broken = True
            found.lines += [f"expected: {line}" for line in missed]
            found.lines.append(f"mend {task_path} first: a run that misses what it expects is not recorded")
    except (InputError, OutputError) as error:
        found.lines.append(str(error))
    return found


def _project_of(folder: Path, root: Path | None) -> Path:
    """The project that a run belongs to: the one given, the one around it or us, or what came with the package.

    The first that holds the run's task; else the first that is there.
    """
    if root is not None:
        return root
    around = [project_root(folder.resolve()), project_root(Path.cwd()), shipped(".")]
    places = [place for place in around if place is not None]
    for place in places:
        with contextlib.suppress(RecordError):
            _task_of(folder, place, "")
            return place
    return places[0]


def made_from_code(folder: Path) -> bool:
    """Whether the ledger in a folder is of a run without a task."""
    try:
        with (folder / STATE).open("rb") as file:
            line = json.loads(file.readline(1 << 20))
        return isinstance(line, dict) and line.get("type") == "run" and line.get("task", "") is None
    except (OSError, ValueError, RecursionError):
        return False


def was_stopped(task: Task, modes: Sequence[str]) -> bool:
    """Whether a person's Ctrl-C ended a run of `task`, rather than an interrupt that the task injects."""
    injected = any(fault.get("cancels") == "interrupted" for fault in task.data.get("faults", ()))
    return "interrupted" in modes and not injected


def relative_name(folder: Path, base: Path) -> str:
    """A run's folder as a person names it: relative to the root, with `/`."""
    try:
        return folder.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        return folder.as_posix()


def _task_of(folder: Path, base: Path, name: str) -> str:
    """The task that a run was made from, relative to the root.

    Read leniently, so that a run that was changed still finds its task: what the ledger names, what the
    manifest names, what has the same place under tasks/; the first that is there.
    """
    named = [path for file in (STATE, MANIFEST) for path in _tasks_in(folder / file)]
    places = [*named, f"tasks/{folder.resolve().parent.name}/{folder.resolve().name}.yaml"]
    for place in places:
        with contextlib.suppress(OSError, ValueError):
            path = (base / place).resolve()
            if path.is_file() and path.is_relative_to(base.resolve()):
                return place
    if named:
        raise RecordError(
            f"its task {named[0][:200]!r} is gone", file=name, remedy="restore the task or remove the run"
        )
    raise RecordError(
        "names no task to make it again from", file=name, remedy="only runs of a task can be checked"
    )


def _tasks_in(file: Path) -> list[str]:
    """What the first line of a ledger or a manifest says of the task; nothing where it says nothing."""
    try:
        text = file.read_bytes()
        data = json.loads(text if file.name == MANIFEST else text.split(b"\n", 1)[0])
        if isinstance(data.get("task"), dict):
            return [str(data["task"]["path"])]
        paths = [str(item["path"]) for item in data.get("inputs", ())]
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return []
    return [path for path in paths if path.startswith("tasks/")]


def _compare(found: Findings, there: Mapping[str, bytes], made: Mapping[str, bytes], name: str) -> None:
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
    found.drift = compare(lines, made)
    first = found.drift.first
    if first is None:
        found.lines.append(f"{STATE}: says the same in other bytes; {name}/{STATE} was changed")
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


def runs_below(root: Path) -> list[Path]:
    """Every run folder below `root/runs`, sorted, whole or not; recordings under way are left out."""
    return sorted(
        path for path in (root / "runs").glob("*/*") if path.is_dir() and path.suffix not in UNFINISHED
    )


def likely_cause(drifted: Sequence[Findings]) -> str | None:
    """The input that moved in most of the runs that drifted, in words; the code where none did in any.

    None where records are broken, which no input explains.
    """
    votes = Counter(path for found in drifted for path in found.moved)
    if not votes:
        known = drifted and not any(found.broken or found.drift is None for found in drifted)
        return "the code (no input moved)" if known else None
    path, count = min(votes.items(), key=lambda item: (-item[1], item[0]))
    return f"{visible(path)} moved ({count} of them)"


def by_gravity(drifted: Sequence[Findings]) -> list[Findings]:
    """Findings with the gravest class first."""
    order = {name: i for i, name in enumerate((BROKEN, *CLASSES))}
    return sorted(drifted, key=lambda found: (order[found.kind], found.run))
