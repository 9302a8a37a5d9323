"""Check recorded runs: execute them again and compare the files byte for byte.

`examine` reports drift for a reviewer: which inputs changed, the first difference of the ledgers and its class,
which files differ, and the command that accepts the change.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...fail.errors import Cancelled, EffectNotRecorded, InputError, OutputError
from ...light_dataclasses import replace
from ...runtime.core.effects import Answer, AskHuman, Outcome
from ...runtime.core.lines import Line
from ...runtime.driver.ports import Approve
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import read_unlinked
from ...runtime.journal.cassette import outcomes_of
from ...runtime.setup.run_config import RunConfig
from ...runtime.tools.project_modules import versions_of_packages
from ..files import manifest as manifests
from ..files.claims.package_digest import package_digest
from ..files.json_diff import CLASSES
from ..files.manifest import MANIFEST, STATE
from ..files.rebuild import run_files
from ..files.tally import Tally
from ..files.writer import derive
from ..recording.external import PERFORM, answered_from
from ..recording.index import INDEX, UNFINISHED, folders_in
from ..recording.index import read as read_index
from ..recording.recorded import (
    Recorded,
    is_live,
    open_record,
    project_of,
    relative_name,
    run_line,
    task_of,
)
from ..tasks.expect import differences
from ..tasks.openings import given_beside
from ..tasks.place import expected_of, expected_of_run, owner_of, place_of
from ..tasks.task import Task, build, load_task
from .differences.cause import offer_to_accept
from .differences.compare import (
    BROKEN,
    Findings,
    change_on_disk,
    compare_files,
    hold_against_itself,
    in_words,
)
from .verify import verify


def examine(folder: Path, *, root: Path | None = None) -> Findings:
    """Check one recorded run: derive its four files again and compare them with the committed ones.

    A run of a stub model is executed again; a run of a live model is replayed from its record; of a run that was
    made from code only the consistency of its files is verified.

    Args:
        folder: The folder of the run.
        root: The project, unless it is the one around the folder.

    Returns:
        Findings, without lines if the run holds. Bad input is a finding too, with `judged` False.

    Raises:
        KeyboardInterrupt: A person interrupted the run.
    """
    base = project_of(folder, root)
    folder = owner_of(folder, base)
    name = relative_name(folder, base)
    findings = Findings(name)
    place, run = place_of(folder, base), run_line(folder)
    if place is None and run is not None and run.get("task", "") is None:
        # without a task the run cannot be executed again, but its files can be compared with each other
        findings.lines = verify(folder, base)
        findings.tampered = bool(findings.lines)
        return findings
    try:
        task = load_task(base / task_of(folder, base, name), root=base) if place is None else place.task()
        if place is not None and run is not None:
            findings.lines = place.problems(run, task)
        if findings.lines:
            findings.tampered = True
            return findings
        if is_live(folder):
            recorded = open_record(folder, base)
            from . import replay  # imported here, since few runs are live

            findings = replay.checked(recorded, seed=None if place is None else task.seed)
            committed = recorded.files
            if place is not None:
                foreign = place.recorded_problems(recorded.lines, task)
                findings.lines += foreign
                findings.tampered = findings.tampered or bool(foreign)
            missed = _missed_by_live(task, recorded, findings)
        else:
            committed = run_files(folder, name)
            beside = {} if place is not None or run is None else given_beside(run)
            agent, config = build(task, **beside)
            findings.packages = versions_of_packages(agent.gate.tools.values())
            config = _as_recorded(config, committed[STATE], is_placed=place is not None)
            config = answered_from(agent, config, folder, name)
            fresh, tally = derive(agent, config)
            if was_stopped(task, tally.modes):
                raise KeyboardInterrupt
            compare_files(findings, committed, fresh, name, base)
            missed = differences(expected_of(task, live=False, people=config.approvals is not None), tally)
    except (InputError, OutputError) as error:
        findings.unrecorded = isinstance(error, EffectNotRecorded)
        findings.judged = findings.unrecorded
        if findings.unrecorded:
            findings.accept = shlex.join(["tachograph", "run", task.file, PERFORM])
        findings.lines.append(str(error))
        findings.moved = _moved_on_disk(folder, base)
        findings.lines += [
            f"input moved: {escape_terminal(path)} {change}" for path, change in findings.moved.items()
        ]
        return findings
    _add_missed(findings, missed, task.file)
    if findings.lines:
        _conclude(findings, committed, base)
    return findings


def _missed_by_live(task: Task, recorded: Recorded, findings: Findings) -> list[str]:
    """Return the expectations that a live run misses now."""
    if findings.fresh is None:
        return []
    return differences(expected_of_run(task, recorded.run), Tally.of(_lines(findings.fresh[STATE])))


def _add_missed(findings: Findings, missed: list[str], task_path: str) -> None:
    findings.missed = missed
    findings.lines += [f"expected: {line}" for line in missed]
    if missed:
        findings.lines.append(f"fix {task_path} first: a run that misses what it expects is not recorded")


def _conclude(findings: Findings, committed: Mapping[str, bytes], base: Path) -> None:
    """Decide whether the drift can be accepted, and by which command, or the record was changed by hand."""
    if findings.fresh is None:
        hold_against_itself(findings, committed, findings.run)
    listed = (read_index(base / INDEX) or {}).get(findings.run)
    if not findings.tampered and listed is not None and listed != digest(committed[MANIFEST]):
        findings.tampered = True
        findings.lines.append(f"its {MANIFEST} is not the one in {INDEX}")
    findings.code = (_made_by(committed[MANIFEST]), package_digest())
    findings.moved_packages = _moved_packages(committed[MANIFEST], findings.packages)
    findings.lines += findings.moved_packages
    explained = (
        findings.moved
        or findings.rerendered
        or findings.missed
        or findings.moved_packages
        or findings.code[0] != findings.code[1]
    )
    if not findings.tampered and findings.code[0] != findings.code[1] and not findings.moved:
        findings.lines.append(
            f"{MANIFEST} claims that other code made it: {in_words(findings.code[0] or 'unknown', findings.code[1])}"
        )
    if not findings.tampered and not explained:
        findings.tampered = True
        findings.lines.append(
            "neither an input nor the code of the loop moved: other code, or the record was made by hand"
        )
    if findings.tampered or findings.missed:
        findings.accept = None
    else:
        offer_to_accept(findings)


def _moved_on_disk(folder: Path, base: Path) -> dict[str, str]:
    """Return the inputs whose digests differ from the manifest of a run that cannot be executed again."""
    moved = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        for item in manifests.read(read_unlinked(folder / MANIFEST))["inputs"]:
            change = change_on_disk(item, base)
            if change is not None:
                moved[str(item["path"])] = change
    return moved


def _made_by(manifest: bytes) -> str | None:
    """Return the digest of the code that made a run according to its manifest, or None."""
    try:
        package = manifests.read(manifest)["code"]["package"]
        return package if isinstance(package, str) else None
    except (ValueError, TypeError, KeyError):
        return None


def _moved_packages(manifest: bytes, now: Mapping[str, str]) -> list[str]:
    """Return a line for each package that tools import and that the manifest claims to have had another version."""
    try:
        claimed = manifests.read(manifest)["environment"].get("packages", {})
        then = {str(name): str(version) for name, version in claimed.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return []
    return [
        f"{MANIFEST} claims another version of a package: {escape_terminal(name)} "
        f"{escape_terminal(then.get(name, 'none'))}, here {now.get(name, 'none')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]


def _as_recorded(config: RunConfig, state: bytes, *, is_placed: bool) -> RunConfig:
    """Return `config` with the recorded answers of a person, and for a run that has no place with its deadline.

    Both were given beside the task when the run was recorded. A person is not asked again.
    """
    first = _lines(state[: state.find(b"\n") + 1])
    run = first[0] if first else {}
    deadline, approvals = run.get("deadline_ms"), run.get("approvals")
    if not is_placed and config.deadline_s is None and type(deadline) is int:
        config = replace(config, deadline_s=deadline / 1000)
    if isinstance(approvals, str):
        answers = _recorded_answers(_lines(state)[1:-1])
        config = replace(config, approvals=approvals, approve=answers, nonce=run.get("nonce", ""))
    return config


def _lines(state: bytes) -> list[Line]:
    """Return the lines of a ledger; none if it cannot be read, which the comparison reports."""
    try:
        lines = [json.loads(line) for line in state.split(b"\n")[:-1]]
    except (ValueError, RecursionError):
        return []
    return lines if all(isinstance(line, dict) for line in lines) else []


def _recorded_answers(steps: Sequence[Line]) -> Approve:
    """Return an approver that repeats the recorded answers, each to its own question only."""
    answers: dict[tuple[int, int], Outcome | Cancelled | None] = {}
    try:
        for line in steps:
            for position, outcome in outcomes_of(line).items():
                if position.startswith("h"):
                    answers[line["step_index"], int(position[1:])] = outcome
    except (KeyError, TypeError, ValueError):
        answers = {}

    def approve(question: AskHuman) -> Answer | None:
        recorded = answers.get((question.step, question.index))
        if isinstance(recorded, Cancelled):
            raise recorded
        return recorded.answer if recorded is not None else None

    return approve


def was_stopped(task: Task, modes: Sequence[str]) -> bool:
    """Return whether a person's Ctrl-C ended a run of `task`, rather than an interrupt that the task injects."""
    injected = any(fault.get("cancels") == "interrupted" for fault in task.data.get("faults", ()))
    return "interrupted" in modes and not injected


def runs_below(root: Path) -> list[Path]:
    """Return every run folder below `root/runs`, sorted, complete or not; recordings under way are left out.

    Raises:
        InputError: A folder cannot be read.
    """
    kinds = folders_in(root / "runs")
    return sorted(run for kind in kinds for run in folders_in(kind) if run.suffix not in UNFINISHED)


def by_gravity(drifted: Sequence[Findings]) -> list[Findings]:
    """Return findings sorted by class, the gravest first, then by name."""
    order = {name: i for i, name in enumerate((BROKEN, *CLASSES))}
    return sorted(drifted, key=lambda findings: (order[findings.kind], findings.run))
