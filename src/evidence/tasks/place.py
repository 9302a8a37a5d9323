"""What a place below `runs/` must hold: the task `tasks/K/N.yaml` decides about `runs/K/N`, not the record in it.

A record states its task, its model and who answered for a person. Whoever forges a record can change these
statements, so they never choose how a record is checked: they are compared with the task.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...fail.errors import InputError, RecordError
from ...light_dataclasses import dataclass
from ...runtime.core.effects import ANOTHER_QUESTION
from ...runtime.core.lines import Line
from ...runtime.journal.ledger import unknown_shape
from .task import Task, load_task
from .values import not_live

_DRAWN = re.compile(r"-[0-9a-f]{8}")  # what the id of a live run adds to that of its task
_PLACEHOLDER = re.compile(r"<secret:[a-z_]+:[1-9][0-9]*>")


@dataclass(frozen=True)
class Place:
    """A folder `runs/K/N` of a project.

    Attributes:
        root: The project.
        name: The folder relative to the project, with `/`.
        inner: The way from there to the folder of a child or of a turn; empty for the folder itself.
    """

    root: Path
    name: str
    inner: tuple[str, ...] = ()

    @property
    def task_file(self) -> str:
        """The path of the task that decides, relative to the project."""
        return f"tasks{self.name.removeprefix('runs')}.yaml"

    def task(self) -> Task:
        """Return the task that decides.

        Raises:
            InputError: There is none, or it is not valid.
        """
        if not (self.root / self.task_file).is_file():
            raise RecordError(
                f"there is no task {self.task_file}",
                file=self.name,
                remedy="restore it, or move the run out of runs/",
            )
        task = load_task(self.root / self.task_file, root=self.root)
        if task.file != self.task_file:
            raise RecordError(
                f"is a link to {task.file}, and so no task of its own",
                file=self.task_file,
                remedy="put the file itself in its place",
            )
        return task

    def problems(self, run: Line, task: Task) -> list[str]:
        """Return one line for each statement of a `run` line that the task does not allow; none if all hold.

        Raises:
            RecordError: The line has an unknown shape.
        """
        try:
            checks = (_of_task, _of_model, _of_people, _of_principal)
            found = [problem for check in checks if (problem := check(run, task)) is not None]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unknown_shape(f"{self.name}/state.jsonl", error) from error
        remedy = f"restore it or record it again with `tachograph run {self.task_file}`"
        return [f"{self.name}: {problem}; {remedy}" for problem in found]

    def recorded_problems(self, lines: list[Line], task: Task) -> list[str]:
        """Return one line for each recorded answer of a person and each script that are not the task's."""
        run = lines[0]
        remedy = f"`tachograph check {self.name}` says what differs"
        out = []
        try:
            stated = run["model"]["script_digest"]
            if task.agent is None and is_scripted_run(run) and stated != task.script_digest:
                out.append(f"{self.name}: its script is not the one in {task.file}; {remedy}")
            if "approvals" not in run:
                out += [
                    f"{self.name}: {problem}; {remedy}"
                    for line in lines[1:-1]
                    for problem in _other_answers(line, task)
                ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unknown_shape(f"{self.name}/state.jsonl", error) from error
        return out


def place_of(folder: Path, root: Path) -> Place | None:
    """Return the place below a project's `runs/` that a folder is at or in; None for a folder elsewhere.

    Both the folder's name as it stands and its name without links are looked at, so that a link leads nowhere else.
    """
    for parts in _ways_below_runs(folder, root):
        if len(parts) >= 3:
            return Place(root, "/".join(parts[:3]), parts[3:])
    return None


def _ways_below_runs(folder: Path, root: Path) -> Iterator[tuple[str, ...]]:
    """Yield the parts of a folder's name relative to a project, `runs` first, as it stands and without links."""
    if not (root / "policy").is_dir():
        return
    for path, base in ((os.path.abspath(folder), os.path.abspath(root)), (folder.resolve(), root.resolve())):
        with contextlib.suppress(ValueError):  # it is elsewhere
            parts = Path(path).relative_to(base).parts
            if parts[:1] == ("runs",):
                yield parts


def owner_of(folder: Path, root: Path) -> Path:
    """Return the run or session that owns a run, the one that has a task; the folder itself if nothing owns it.

    Children of a run and turns of a session lie in the folder of their owner and have no task of their own.
    """
    place = place_of(folder, root)
    return folder if place is None or not place.inner else root / place.name


def is_scripted_run(run: Line) -> bool:
    """Return whether a `run` line states that a script answered in place of a model."""
    return bool(run["model"]["execution_path"] == "stub")


def expected_of(task: Task, *, live: bool, people: bool) -> Mapping[str, Any]:
    """Return what a run of a task must meet.

    That is `expected`, unless the task states something else for a live or person-answered run. A run with a model
    or a person that the task does not provide for, which has no place below `runs/`, need not meet anything.
    """
    stated: dict[str, Any] = {}
    for part in (task.live if live else None, task.people if people else None):
        stated.update((part or {}).get("expected", {}))
    if stated:
        return stated
    foreign = (live and task.is_scripted and task.live is None) or (people and task.people is None)
    return {} if foreign else task.expected


def expected_of_run(task: Task, run: Line) -> Mapping[str, Any]:
    """Return what the run with a `run` line must meet."""
    return expected_of(task, live=not is_scripted_run(run), people="approvals" in run)


def refuse_foreign(
    task: Task,
    out: Path,
    project: Path,
    *,
    model: str | None,
    asks: bool,
    deadline: bool,
    variables: bool = False,
    principal: str | None = None,
) -> None:
    """Raise InputError if a run may not be recorded in `out`, because that is the place of another run.

    Args:
        task: The task to be run.
        out: The folder of the run.
        project: The project that holds `runs/`.
        model: The live model, `PROVIDER:MODEL`; None for the task's script.
        asks: A person is asked who is not part of the task.
        deadline: A time limit is set that is not the task's.
        variables: Values are given that stand in place of the task's.
        principal: On whose behalf the run is to act, if the caller says so.
    """
    place = place_of(out, project)
    elsewhere = "give --out with a folder outside runs/"
    if place is None:
        for parts in _ways_below_runs(out, project):
            raise InputError(
                f"{'/'.join(parts)} is the place of no run, which is runs/KIND/NAME",
                file=task.file,
                remedy=elsewhere,
            )
        return
    problem: str | None = None
    if place.task_file != task.file or place.inner:
        problem = f"{place.name} is the place of a run of {place.task_file}"
    elif variables:
        problem = "values of variables other than the task's make another run"
        elsewhere = f"write them into the task, or {elsewhere}"
    elif principal not in (None, task.data.get("principal")):
        problem = "a principal other than the task's makes another run"
        elsewhere = f"write principal into the task, or {elsewhere}"
    elif model is not None:
        problem = not_live(task, model)
        elsewhere = f"let it name {model}, or {elsewhere}"
    elif task.is_scripted and deadline:
        problem = "a time limit other than the task's makes another run"
        elsewhere = f"write deadline_s into the task, or {elsewhere}"
    if problem is None and asks and task.people is None:
        problem = "does not say `people:`, so that its answers to calls that need a person are its own"
        elsewhere = f"add `people: {{}}`, or {elsewhere}"
    if problem is not None:
        raise InputError(problem, file=task.file, remedy=elsewhere)


def _of_task(run: Line, task: Task) -> str | None:
    stated = run["task"]
    if stated is None:
        return f"states no task, but here belongs a run of {task.file}"
    if stated["path"] != task.file:
        return f"is a run of {str(stated['path'])[:200]}, but here belongs one of {task.file}"
    if stated["id"] != task.id:
        return f"states that {task.file} has the id {str(stated['id'])[:200]}, which is {task.id}"
    return None


def _of_model(run: Line, task: Task) -> str | None:
    if is_scripted_run(run):
        return None if task.is_scripted else f"was answered by a script, but {task.file} has none"
    model = run["model"]
    name = ":".join((model["provider"], model["name"]))
    problem = not_live(task, name)
    if problem is not None:
        return f"states that {name[:200]} answered, but {task.file} {problem}"
    if run["clock"]["kind"] != "system":
        return "states a live model on a virtual clock"
    if not (run["run_id"].startswith(task.run_id) and _DRAWN.fullmatch(run["run_id"], len(task.run_id))):
        return f"is called {run['run_id'][:200]}, but a live run of {task.file} {task.run_id}-XXXXXXXX"
    return None


def _of_people(run: Line, task: Task) -> str | None:
    if "approvals" in run and task.people is None:
        return f"states that a person was asked, but {task.file} does not say `people:`"
    if "nonce" in run and "approvals" not in run:
        return "has a nonce, but does not state that a person was asked"
    return None


def _of_principal(run: Line, task: Task) -> str | None:
    stated, own = run.get("principal"), task.data.get("principal")
    if stated == own:
        return None
    words = [f"principal {str(name)[:100]}" if name is not None else "no principal" for name in (stated, own)]
    return f"states {words[0]}, but {task.file} has {words[1]}"


def _other_answers(line: Line, task: Task) -> list[str]:
    """Return what is wrong with the recorded answers of a step, compared with those in the task."""
    given = {(item["step"], item["call"]): item for item in task.data.get("approvals", ())}
    indexes = {call["id"]: index for index, call in enumerate(line["intended_tool_calls"])}
    out = []
    for entry in line["policy_decisions"]:
        if "approval" not in entry:
            continue
        call, recorded = indexes[entry["id"]], entry["approval"]
        item = given.get((line["step_index"], call), {"answer": "silence"})
        if "given_to" in item:
            item = {"answer": "deny", "why": ANOTHER_QUESTION}
        spoken = item["answer"] != "silence"
        for key, value in (
            ("answer", item["answer"]),
            ("by", item.get("by") if spoken else None),
            ("why", item.get("why") if spoken else None),
        ):
            if not _is_same(recorded[key], value):
                out.append(f"the {key!r} of the answer to {entry['id']} is not the one in {task.file}")
    return out


def _is_same(recorded: str | None, given: str | None) -> bool:
    """Return whether a recorded text is the given one, in which secrets may have been replaced."""
    if recorded is None or given is None:
        return recorded is given
    parts = _PLACEHOLDER.split(recorded)
    return re.fullmatch("(?s:.+)".join(map(re.escape, parts)), given) is not None
