"""Checking: a recorded run is made again and compared with what is committed, byte for byte.

`examine` reports drift the way a reviewer reads it: which inputs moved, where the ledger first parts and what
kind of difference that is, which files differ, and the command that accepts the change.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...fail.errors import Cancelled, InputError, OutputError
from ...runtime.core.effects import Answer, AskHuman, Outcome
from ...runtime.core.lines import Line
from ...runtime.driver.ports import Approve
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.shipped_files import package_digest
from ...runtime.journal.cassette import outcomes_of
from ...runtime.run_config import RunConfig
from ...tracing.spans import spans_of
from ..files import manifest as manifests
from ..files.json_diff import CLASSES
from ..files.manifest import MANIFEST, STATE
from ..files.rebuild import run_files
from ..files.report import visible
from ..files.tally import Tally
from ..files.writer import derive
from ..recording.index import INDEX, UNFINISHED, folders_in
from ..recording.index import read as read_index
from ..recording.recorded import (
    Recorded,
    is_live,
    made_from_code,
    open_record,
    project_of,
    relative_name,
    task_of,
)
from ..tasks.expect import differences
from ..tasks.task import Task, build, load_task
from .compare import BROKEN, Findings, compare_files, hold_against_itself, in_words
from .verify import verify


def examine(folder: Path, *, root: Path | None = None) -> Findings:
    """Check one recorded run: derive its four files again and compare them with the committed ones."""
    base = project_of(folder, root)
    name = relative_name(folder, base)
    found = Findings(name)
    if made_from_code(folder):
        # there is no task to make it again from, so only what it says of itself can be held against it
        found.lines = verify(folder, base)
        found.tampered = bool(found.lines)
        return found
    try:
        if is_live(folder):
            recorded = open_record(folder, base)
            from . import replay  # few runs are live

            found, there = replay.checked(recorded), recorded.files
            task_path, missed = _expected_of(recorded, found)
        else:
            task_path = task_of(folder, base, name)
            there = run_files(folder, name)
            task = load_task(base / task_path, root=base)
            agent, config = build(task)
            config = _as_recorded(config, there[STATE])
            made, tally = derive(agent, config)
            if was_stopped(task, tally.modes):
                raise KeyboardInterrupt
            compare_files(found, there, made, name)
            # what a task expects was written for its own answers
            missed = differences(task.expected, tally) if config.approvals is None else []
    except (InputError, OutputError) as error:
        found.judged = False
        found.lines.append(str(error))
        found.moved = _moved_on_disk(folder, base)
        found.lines += [f"input moved: {visible(path)} {what}" for path, what in found.moved.items()]
        return found
    _miss(found, missed, task_path)
    if found.lines:
        _weigh(found, there, base)
    return found


def _expected_of(recorded: Recorded, found: Findings) -> tuple[str, list[str]]:
    """The task of a live run, and what the run misses of its expectation now.

    What a task expects was written for its script, where it has one; a model is held to nothing then.
    """
    task_path = task_of(recorded.folder, recorded.base, recorded.name)
    task = load_task(recorded.base / task_path, root=recorded.base)
    if task.is_scripted or found.made is None:
        return task_path, []
    lines = _lines(found.made[STATE])
    tally = Tally()
    for line in lines:
        tally.line(line)
    tally.spans(spans_of(lines))
    return task_path, differences(task.expected, tally)


def _miss(found: Findings, missed: list[str], task_path: str) -> None:
    found.missed = missed
    found.lines += [f"expected: {line}" for line in missed]
    if missed:
        found.lines.append(f"mend {task_path} first: a run that misses what it expects is not recorded")


def _weigh(found: Findings, there: Mapping[str, bytes], base: Path) -> None:
    """Tell drift that can be accepted, and how, from a record that was changed by hand."""
    if found.made is None:
        hold_against_itself(found, there, found.run)
    listed = (read_index(base / INDEX) or {}).get(found.run)
    if not found.tampered and listed is not None and listed != digest(there[MANIFEST]):
        found.tampered = True
        found.lines.append(f"its {MANIFEST} is not the one in {INDEX}")
    found.code = (_made_by(there[MANIFEST]), package_digest())
    explained = found.moved or found.redrawn or found.missed or found.code[0] != found.code[1]
    if not found.tampered and not explained:
        found.tampered = True
        found.lines.append(
            "neither an input nor the code of the loop moved: other code, or the record was made by hand"
        )
    if found.tampered or found.missed:
        found.accept = None
    elif found.made is not None:
        found.accept = f'tachograph accept {shlex.quote(found.run)} --reason "..."'


def _moved_on_disk(folder: Path, base: Path) -> dict[str, str]:
    """Inputs that are no longer as a manifest names them, of a run that cannot be made again to tell."""
    moved = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        for item in manifests.read((folder / MANIFEST).read_bytes())["inputs"]:
            file = (base / item["path"]).resolve()
            if not file.is_relative_to(base.resolve()):
                continue
            now = digest(file.read_bytes()) if file.is_file() else None
            if now != item["sha256"]:
                moved[item["path"]] = in_words(item["sha256"], now)
    return moved


def _made_by(manifest: bytes) -> str | None:
    """The digest of the code that made a run, as its manifest says; None where it says nothing."""
    try:
        said = manifests.read(manifest)["code"]["package"]
        return said if isinstance(said, str) else None
    except (ValueError, TypeError, KeyError):
        return None


def _as_recorded(config: RunConfig, state: bytes) -> RunConfig:
    """A run's setting with what whoever ran the task gave beside it: a deadline, a person who was asked.

    What these did to the run is what a check makes again; a person is not asked twice.
    """
    first = _lines(state[: state.find(b"\n") + 1])
    run = first[0] if first else {}
    deadline, asked = run.get("deadline_ms"), run.get("approvals")
    if config.deadline_s is None and type(deadline) is int:
        config = replace(config, deadline_s=deadline / 1000)
    if isinstance(asked, str):
        config = replace(config, approvals=asked, approve=_said_then(_lines(state)[1:-1]))
    return config


def _lines(state: bytes) -> list[Line]:
    """The lines of a ledger; none where it cannot be read, which the comparison will tell."""
    try:
        lines = [json.loads(line) for line in state.split(b"\n")[:-1]]
    except (ValueError, RecursionError):
        return []
    return lines if all(isinstance(line, dict) for line in lines) else []


def _said_then(steps: Sequence[Line]) -> Approve:
    """Answers from a record: each is for the question that it was given to, and for no other."""
    said: dict[tuple[int, int], Outcome | Cancelled | None] = {}
    try:
        for line in steps:
            for position, outcome in outcomes_of(line).items():
                if position.startswith("h"):
                    said[line["step_index"], int(position[1:])] = outcome
    except (KeyError, TypeError, ValueError):
        said = {}

    def approve(asked: AskHuman) -> Answer | None:
        then = said.get((asked.step, asked.index))
        if isinstance(then, Cancelled):
            raise then
        return then.answer if then is not None else None

    return approve


def was_stopped(task: Task, modes: Sequence[str]) -> bool:
    """Whether a person's Ctrl-C ended a run of `task`, rather than an interrupt that the task injects."""
    injected = any(fault.get("cancels") == "interrupted" for fault in task.data.get("faults", ()))
    return "interrupted" in modes and not injected


def runs_below(root: Path) -> list[Path]:
    """Every run folder below `root/runs`, sorted, whole or not; recordings under way are left out.

    Raises InputError where a folder cannot be read.
    """
    kinds = folders_in(root / "runs")
    return sorted(run for kind in kinds for run in folders_in(kind) if run.suffix not in UNFINISHED)


def by_gravity(drifted: Sequence[Findings]) -> list[Findings]:
    """Findings with the gravest class first."""
    order = {name: i for i, name in enumerate((BROKEN, *CLASSES))}
    return sorted(drifted, key=lambda found: (order[found.kind], found.run))
