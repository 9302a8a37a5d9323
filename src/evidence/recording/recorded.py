"""A recorded run opened to be made again: its files, its lines, the agent and the setting that it had."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from ...fail.errors import InputError, RecordError, ReplayError
from ...runtime.agent import Agent
from ...runtime.core.lines import Line
from ...runtime.core.redaction import Redactor
from ...runtime.formats.shipped_files import project_root, shipped
from ...runtime.journal import ledger
from ...runtime.journal.cassette import RecordedClock
from ...runtime.models.types import LLMInput, LLMOutput, Model
from ...runtime.policy.policy import Policy
from ...runtime.run_config import RunConfig
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import load_named
from ...runtime.workspace.mounts import Host, Mount
from ..files.manifest import MANIFEST, STATE
from ..files.rebuild import run_files
from ..tasks.task import build, load_task


@dataclass(frozen=True)
class Recorded:
    """A record: `name` as a person names it, `base` the project it belongs to, the bytes of its four files."""

    name: str
    folder: Path
    base: Path
    files: dict[str, bytes]
    lines: list[Line]

    @property
    def run(self) -> Line:
        return self.lines[0]

    @property
    def is_live(self) -> bool:
        return bool(self.run["model"]["execution_path"] != "stub")


class RecordedModel:
    """Stands where a model was. It is never asked: what it said comes from the record."""

    def __init__(self, identity: Line) -> None:
        self.identity = identity

    def __call__(self, asked: LLMInput) -> LLMOutput:
        raise ReplayError(asked.step_index, "the model would be asked, which a record cannot do")


def open_record(folder: Path, root: Path | None = None) -> Recorded:
    """A whole run read from its folder. Raises RecordError."""
    base = project_of(folder, root)
    name = relative_name(folder, base)
    files = run_files(folder, name)
    return Recorded(name, folder, base, files, list(ledger.read(files[STATE], f"{name}/{STATE}")))


def revive(recorded: Recorded, policy: Policy | None = None) -> tuple[Agent, RunConfig]:
    """The agent of a record, its model aside, and the setting of its run, on the record's own clock.

    From its task where it has one, else from the files that its ledger names. `policy` takes the place of
    the recorded one. Raises InputError where something is gone or cannot be had from files.
    """
    run = recorded.run
    try:
        model = RecordedModel(run["model"])
        agent, config = agent_of(run, recorded.folder, recorded.base, model=model, policy=policy)
        question = _question(run["question"], config.question, Redactor(agent.policy.redact))
        clock = RecordedClock.of(recorded.lines)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error
    again = replace(config, run_id=run["run_id"], question=question, clock=clock, seed=run["seed"])
    deadline = run.get("deadline_ms")
    seconds = None if deadline is None else deadline / 1000
    rebased = tuple(run.get("rebased", ()))
    again = replace(again, deadline_s=seconds, rebased=rebased, approvals=run.get("approvals"))
    return agent, replace(again, as_recorded=True)


def agent_of(
    run: Line, folder: Path, base: Path, *, model: Model | None = None, policy: Policy | None = None
) -> tuple[Agent, RunConfig]:
    """The agent that a run line tells of, and the setting of its run.

    From its task where it has one, whose script is the model unless `model` is given, else from the files
    that the line names. Raises InputError where something is gone or cannot be had from files.
    """
    name = relative_name(folder, base)
    if run["task"] is not None:
        path = str(run["task"]["path"])
        task = load_task(base / (path if _is_inside(path, base) else task_of(folder, base, name)), root=base)
        return build(task, model=model, policy=policy)
    files = [base / item["path"] for item in run["policy"]["files"]]
    if policy is None and not files:
        raise _in_code(name, "its policy")
    if model is None:
        raise _in_code(name, "its model")
    agent = Agent(
        model,
        [_tool(name, base, item) for item in run["tools"]],
        policy or Policy.load(files[0], files[1:], root=base),
        mounts={name: Mount(base / (item["source"] or ""), item["source"]) for name, item in _bound(run)},
        hosts={
            name: Host(base / (item["folder"] or ""), item["folder"], item["redirects"])
            for name, item in run["hosts"].items()
        },
    )
    return agent, agent.configure_run(run["question"], seed=run["seed"], run_id=run["run_id"])


def _bound(run: Line) -> list[tuple[str, Line]]:
    return [(name, item) for name, item in run["mounts"].items() if item["source"] is not None]


def _tool(name: str, base: Path, item: Line) -> Tool:
    if item["file"] is None:
        raise _in_code(name, f"its tool {str(item['name'])[:80]!r}")
    folder = (base / item["file"]).parent
    return load_named(item["name"], folder if folder.is_dir() else None)


def _in_code(name: str, what: str) -> InputError:
    return RecordError(
        f"{what} was made in code and is in no file",
        file=name,
        remedy="use code: tachograph.replay(agent, folder) or tachograph.resume(agent, folder)",
    )


def _question(recorded: str, now: str, redact: Redactor) -> str:
    """The question of a replay: today's, unless it is the recorded one but for secrets."""
    plain = redact(now)
    parts = re.split(r"<secret:[a-z_]+:[1-9][0-9]*>", recorded)
    same = re.fullmatch("(?s:.+)".join(map(re.escape, parts)), plain)
    return recorded if same else plain


# ---- where a record belongs ----------------------------------------------------------------------------------


def project_of(folder: Path, root: Path | None) -> Path:
    """The project that a run belongs to: the one given, the one around it or us, or what came with the package.

    The first that holds the run's task; else the first that is there.
    """
    if root is not None:
        return root
    around = [project_root(folder.resolve()), project_root(Path.cwd()), shipped(".")]
    places = [place for place in around if place is not None]
    for place in places:
        with contextlib.suppress(RecordError):
            task_of(folder, place, "")
            return place
    return places[0]


def made_from_code(folder: Path) -> bool:
    """Whether the ledger in a folder is of a run without a task."""
    line = _run_line(folder)
    return line is not None and line.get("task", "") is None


def is_live(folder: Path) -> bool:
    """Whether the ledger in a folder is of a run of a task by another model than its script."""
    line = _run_line(folder)
    model = line.get("model") if line is not None else None
    return isinstance(model, dict) and model.get("execution_path") not in (None, "stub")


def _run_line(folder: Path) -> Line | None:
    try:
        with (folder / STATE).open("rb") as file:
            line = json.loads(file.readline(1 << 20))
        return line if isinstance(line, dict) and line.get("type") == "run" else None
    except (OSError, ValueError, RecursionError):
        return None


def relative_name(folder: Path, base: Path) -> str:
    """A run's folder as a person names it: relative to the root, with `/`."""
    try:
        return folder.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        return folder.as_posix()


def task_of(folder: Path, base: Path, name: str) -> str:
    """The task that a run was made from, relative to the root.

    Read leniently, so that a run that was changed still finds its task: what the ledger names, what the
    manifest names, what has the same place under tasks/; the first that is there.
    """
    named = [path for file in (STATE, MANIFEST) for path in _tasks_in(folder / file)]
    places = [*named, f"tasks/{folder.resolve().parent.name}/{folder.resolve().name}.yaml"]
    for place in places:
        if _is_inside(place, base):
            return place
    if named:
        raise RecordError(
            f"its task {named[0][:200]!r} is gone", file=name, remedy="restore the task or remove the run"
        )
    raise RecordError(
        "names no task to make it again from", file=name, remedy="only runs of a task can be checked"
    )


def _is_inside(place: str, base: Path) -> bool:
    """Whether `place` is a file below `base`."""
    try:
        path = (base / place).resolve()
        return path.is_file() and path.is_relative_to(base.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


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
