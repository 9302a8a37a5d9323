"""Checking: a recorded run is made again and compared with what is committed, byte for byte.

`examine` reports drift the way a reviewer reads it: which inputs moved, where the ledger first parts and what
kind of difference that is, which files differ, and the command that accepts the change.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..fail.errors import InputError, OutputError
from ..runtime.setting import Setting
from . import replay
from .compare import BROKEN, Findings, compare_files
from .drift import CLASSES
from .expect import differences
from .index import UNFINISHED
from .manifest import STATE
from .rebuild import run_files
from .recorded import is_live, made_from_code, open_record, project_of, relative_name, task_of
from .report import visible
from .task import Task, build, load_task
from .verify import verify
from .writer import derive


def examine(folder: Path, *, root: Path | None = None) -> Findings:
    """Check one recorded run: derive its four files again and compare them with the committed ones."""
    base = project_of(folder, root)
    name = relative_name(folder, base)
    found = Findings(name)
    if made_from_code(folder):
        # there is no task to make it again from, so only what it says of itself can be held against it
        found.lines = verify(folder, base)
        return found
    try:
        if is_live(folder):
            return replay.checked(open_record(folder, base))
        task_path = task_of(folder, base, name)
        found.accept = f"tachograph run {shlex.quote(task_path)} --out {shlex.quote(name)}"
        there = run_files(folder, name)
        accept, found.accept = found.accept, None  # nothing to accept while the run cannot be made
        task = load_task(base / task_path, root=base)
        agent, setting = build(task)
        made, tally = derive(agent, _timed_as(setting, there[STATE]))
        found.accept = accept
        if was_stopped(task, tally.modes):
            raise KeyboardInterrupt
        compare_files(found, there, made, name)
        missed = differences(task.expected, tally)
        if missed:
            found.broken = True
            found.lines += [f"expected: {line}" for line in missed]
            found.lines.append(f"mend {task_path} first: a run that misses what it expects is not recorded")
    except (InputError, OutputError) as error:
        found.lines.append(str(error))
    return found


def _timed_as(setting: Setting, state: bytes) -> Setting:
    """A run's setting with the deadline that it was recorded under, where its task names none.

    Whoever runs a task may give one; what it did to the run is what a check makes again.
    """
    try:
        line = json.loads(state.split(b"\n", 1)[0])
        deadline = line.get("deadline_ms") if isinstance(line, dict) else None
    except (ValueError, RecursionError):
        deadline = None
    if setting.deadline_s is not None or type(deadline) is not int:
        return setting
    return replace(setting, deadline_s=deadline / 1000)


def was_stopped(task: Task, modes: Sequence[str]) -> bool:
    """Whether a person's Ctrl-C ended a run of `task`, rather than an interrupt that the task injects."""
    injected = any(fault.get("cancels") == "interrupted" for fault in task.data.get("faults", ()))
    return "interrupted" in modes and not injected


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
