"""Checking: a recorded run is made again in a fresh place and compared with what is committed, byte for byte.

`examine` reports drift the way a reviewer reads it: which inputs moved, where the ledger first parts, which
files differ, and the command that accepts the change.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..fail.errors import ExpectationError, InputError, OutputError, RecordError
from ..runtime import canonical_json
from ..runtime import ledger as ledgers
from ..runtime.places import project_root
from ..runtime.schema_errors import escape_pointer
from ..tracing.otlp_json import document
from ..tracing.spans import spans_of
from . import manifest as manifests
from .manifest import FILES, MANIFEST, REPORT, STATE, TRACE
from .record import record_run
from .report import Report, visible
from .task import build, load_task

Line = dict[str, Any]


@dataclass
class Findings:
    """What a check of one run found: nothing means that it holds."""

    run: str
    lines: list[str] = field(default_factory=list)
    accept: str | None = None

    @property
    def ok(self) -> bool:
        return not self.lines


def rebuild(state: bytes, name: str) -> dict[str, bytes]:
    """The three other files from a ledger alone; the manifest comes without its volatile keys.

    Raises RecordError where the ledger is none.
    """
    try:
        lines = list(ledgers.read(state, name))
        trace = document(spans_of(lines))
        report = Report(lines[0])
        for line in lines[1:-1]:
            report.step(line)
        text = report.end(lines[-1]).encode("utf-8")
        head = canonical_json.digest(state[:-1].rpartition(b"\n")[2])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RecordError(
            f"has lines of an unknown shape ({type(error).__name__})",
            file=name,
            remedy="record the run again",
        ) from error
    artifacts = {
        STATE: canonical_json.digest(state),
        TRACE: canonical_json.digest(trace),
        REPORT: canonical_json.digest(text),
    }
    stable = manifests.build(lines[0], lines[-1], head, artifacts)
    return {TRACE: trace, REPORT: text, MANIFEST: manifests.stable(stable).encode("utf-8")}


def examine(folder: Path, *, root: Path | None = None) -> Findings:
    """Check one recorded run: re-derive its four files and compare them with the committed ones."""
    base = root or project_root(folder.resolve()) or folder.resolve().parent.parent.parent
    name = _relative(folder, base)
    found = Findings(name)
    try:
        task_path = _task_of(folder, base, name)
        found.accept = f"tachograph run {shlex.quote(task_path)} --out {shlex.quote(name)}"
        there = run_files(folder, name)
        task = load_task(base / task_path, root=base)
        with tempfile.TemporaryDirectory(prefix="tachograph-check-") as place:
            fresh = Path(place) / "run"
            agent, setting = build(task)
            missed = None
            try:
                record_run(
                    agent, setting, fresh, root=base, expected=task.expected, rejected=Path(place) / "missed"
                )
            except ExpectationError as error:
                fresh, missed = Path(place) / "missed", error.differences
            # a run that misses its expectations has no manifest
            made = {file: (fresh / file).read_bytes() for file in FILES if (fresh / file).is_file()}
        _compare(found, there, made, base, name)
        if missed:
            found.lines += [f"expected: {line}" for line in missed]
    except (InputError, OutputError) as error:
        found.lines.append(str(error))
    return found


def _relative(folder: Path, base: Path) -> str:
    try:
        return folder.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        return folder.as_posix()


def run_files(folder: Path, name: str) -> dict[str, bytes]:
    if not folder.is_dir():
        raise RecordError("there is no such run", file=name, remedy="record it with `tachograph run TASK`")
    out = {}
    for path in sorted(folder.iterdir()):
        if path.name not in FILES:
            raise RecordError(
                f"holds a file that is no run's: {path.name[:80]!r}", file=name, remedy="remove it"
            )
    for file in FILES:
        try:
            out[file] = (folder / file).read_bytes()
        except OSError as error:
            raise RecordError(
                f"cannot be read ({type(error).__name__})",
                file=f"{name}/{file}",
                remedy="record the run again",
            ) from None
    return out


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


def _compare(
    found: Findings, there: Mapping[str, bytes], made: Mapping[str, bytes], base: Path, name: str
) -> None:
    committed = _manifest(found, there[MANIFEST], name)
    if MANIFEST in made:
        fresh = json.loads(made[MANIFEST])
        _moved_inputs(found, committed, fresh)
        if committed and manifests.stable(committed) != manifests.stable(fresh):
            keys = sorted(
                k for k in {*committed, *fresh} - set(manifests.VOLATILE) if committed.get(k) != fresh.get(k)
            )
            found.lines.append(f"{MANIFEST}: differs in {', '.join(keys)}")
    if there[STATE] != made[STATE]:
        found.lines.append(_first_divergence(there[STATE], made[STATE], name))
    for file in (TRACE, REPORT):
        if there[file] != made[file]:
            found.lines.append(_first_line(file, there[file], made[file]))


def _manifest(found: Findings, text: bytes, name: str) -> Line:
    try:
        return manifests.read(text)
    except ValueError:
        found.lines.append(f"{name}/{MANIFEST}: is not as it was written")
        return {}


def _moved_inputs(found: Findings, committed: Line, fresh: Line) -> None:
    before, after = _digests(committed), _digests(fresh)
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new:
            what = "is new" if old is None else "is gone" if new is None else f"{old[:12]} -> {new[:12]}"
            found.lines.append(f"input moved: {visible(path)} {what}")


def _digests(manifest: Line) -> dict[str, str]:
    try:
        return {str(item["path"]): str(item["sha256"]) for item in manifest.get("inputs", ())}
    except (TypeError, KeyError):
        return {}


def _first_divergence(before: bytes, after: bytes, name: str) -> str:
    """Line and field where a committed ledger parts from the one made now."""
    old, new = before.split(b"\n"), after.split(b"\n")
    for number, (a, b) in enumerate(zip(old, new, strict=False), start=1):
        if a == b:
            continue
        try:
            place = first_difference(json.loads(a), json.loads(b))
        except (ValueError, RecursionError):
            place = None
        where = f"{STATE} line {number}"
        if place is None:
            return f"{where}: is no line that a run writes; {name}/{STATE} was changed"
        pointer, was, now = place
        return f"{where}: first difference at {pointer}: committed {_short(was)}, made now {_short(now)}"
    return f"{STATE}: committed {len(old) - 1} lines, made now {len(new) - 1}"


_ABSENT = object()


def first_difference(a: Any, b: Any, pointer: str = "") -> tuple[str, Any, Any] | None:
    """(JSON Pointer, left, right) of the first difference, digests of the chain last; None if equal."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}, key=lambda k: (k == "prev", k)):
            left, right = a.get(key, _ABSENT), b.get(key, _ABSENT)
            if left is _ABSENT or right is _ABSENT:
                return f"{pointer}/{escape_pointer(key)}", left, right
            found = first_difference(left, right, f"{pointer}/{escape_pointer(key)}")
            if found is not None:
                return found
        return None
    if isinstance(a, list) and isinstance(b, list):
        for i, (left, right) in enumerate(zip(a, b, strict=False)):
            found = first_difference(left, right, f"{pointer}/{i}")
            if found is not None:
                return found
        return None if len(a) == len(b) else (pointer, f"{len(a)} items", f"{len(b)} items")
    return None if a == b and type(a) is type(b) else (pointer, a, b)


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = visible(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 80 else text[:79] + "…"


def _first_line(file: str, before: bytes, after: bytes) -> str:
    old, new = before.split(b"\n"), after.split(b"\n")
    for number, (a, b) in enumerate(zip(old, new, strict=False), start=1):
        if a != b:
            return f"{file} line {number}: committed is not what the run gives"
    return f"{file}: committed {len(old)} lines, the run gives {len(new)}"


def runs_below(root: Path) -> list[Path]:
    """Every run folder below `root/runs`, sorted, whole or not; recordings under way are left out."""
    return sorted(
        path
        for path in (root / "runs").glob("*/*")
        if path.is_dir() and path.suffix not in (".partial", ".old")
    )


def examine_all(folders: Iterable[Path], *, root: Path | None = None) -> list[Findings]:
    """Check several runs, in order."""
    return [examine(folder, root=root) for folder in folders]
