"""Open a recorded run to execute it again: its files, its lines, its agent and its configuration."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

from ...fail.errors import InputError, RecordError, ReplayError
from ...light_dataclasses import dataclass, replace
from ...runtime.agent import Agent
from ...runtime.core.lines import Line
from ...runtime.core.redaction import Redactor
from ...runtime.formats.read_file import read_unlinked
from ...runtime.formats.shipped_files import project_root, shipped
from ...runtime.journal import ledger
from ...runtime.journal.recorded_clock import RecordedClock
from ...runtime.loop.state import MAX_PARALLEL
from ...runtime.models.request_parts import options_of
from ...runtime.models.types import LLMInput, LLMOutput, Model
from ...runtime.policy.built_in import built_in_of
from ...runtime.policy.policy import Policy
from ...runtime.setup.opening import Opening
from ...runtime.setup.output_types import recorded_output
from ...runtime.setup.run_config import RunConfig
from ...runtime.tools.contract import Tool
from ...runtime.tools.hooks import Hooks, load_hooks
from ...runtime.tools.loader import load_named
from ...runtime.workspace.mounts import Host, Mount
from ..files.manifest import MANIFEST, STATE
from ..files.rebuild import run_files
from ..tasks.openings import given_beside
from ..tasks.place import place_of
from ..tasks.task import build, load_task


@dataclass(frozen=True)
class Recorded:
    """A recorded run.

    Attributes:
        name: Its folder, as in messages.
        folder: Its folder.
        base: The project that it belongs to.
        files: File name -> bytes, for its four files.
        lines: The lines of its ledger.
    """

    name: str
    folder: Path
    base: Path
    files: dict[str, bytes]
    lines: list[Line]

    @property
    def run(self) -> Line:
        """The first line of the ledger."""
        return self.lines[0]

    @property
    def is_live(self) -> bool:
        """Whether a model other than the task's script answered."""
        return bool(self.run["model"]["execution_path"] != "stub")


class RecordedModel:
    """Stands in for the recorded model. It is never called, since replies come from the record."""

    def __init__(self, identity: Line) -> None:
        self.identity = identity

    def __call__(self, request: LLMInput) -> LLMOutput:
        """Raise ReplayError."""
        raise ReplayError(request.step_index, "the model would be asked, which a record cannot do")


def open_record(folder: Path, root: Path | None = None) -> Recorded:
    """Read a complete run from its folder.

    Raises:
        RecordError: A file is missing or is not valid.
    """
    base = project_of(folder, root)
    name = relative_name(folder, base)
    files = run_files(folder, name)
    return Recorded(name, folder, base, files, list(ledger.read(files[STATE], f"{name}/{STATE}")))


def revive(recorded: Recorded, policy: Policy | None = None) -> tuple[Agent, RunConfig]:
    """Build the agent of a record, without its model, and the run's configuration, with the recorded clock.

    Raises:
        InputError: An input no longer exists, or was made in code.
    """
    run = recorded.run
    try:
        model = RecordedModel({**run["model"], "options": options_of(run)})
        agent, built = agent_of(run, recorded.folder, recorded.base, model=model, policy=policy)
        redact = agent.policy.redactor()
        if run["task"] is None:
            question, opening = _as_it_stands(run, redact)
        else:
            question = _question(run["question"], built.question, redact)
            opening = same_opening(Opening.of_line(run), built.opening, redact)
        clock = RecordedClock.of(recorded.lines)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error
    config = replace(
        built, run_id=run["run_id"], question=question, opening=opening, clock=clock, seed=run["seed"]
    )
    deadline = run.get("deadline_ms")
    seconds = None if deadline is None else deadline / 1000
    rebased = tuple(run.get("rebased", ()))
    config = replace(config, deadline_s=seconds, rebased=rebased)
    config = replace(config, approvals=run.get("approvals"), nonce=run.get("nonce", ""))
    config = replace(config, redacted=tuple(run["policy"].get("redact", {}).get("values", ())))
    return agent, replace(config, as_recorded=True)


def agent_of(
    run: Line, folder: Path, base: Path, *, model: Model | None = None, policy: Policy | None = None
) -> tuple[Agent, RunConfig]:
    """Build the agent that a run line describes, and the run's configuration.

    They are built from the run's task if it has one, else from the files that the line names.

    Args:
        run: The run line.
        folder: The folder of the run.
        base: The project.
        model: The model; by default the task's script.
        policy: Replaces the recorded policy.

    Raises:
        InputError: An input no longer exists, or was made in code.
    """
    name = relative_name(folder, base)
    if run["task"] is not None:
        path = str(run["task"]["path"])
        task = load_task(base / (path if _is_inside(path, base) else task_of(folder, base, name)), root=base)
        # below runs/ the task decides; elsewhere a run may have been given values beside it
        if place_of(folder, base) is not None:
            return build(task, model=model, policy=policy)
        return build(task, model=model, policy=policy, **given_beside(run))
    files = [base / item["path"] for item in run["policy"]["files"]]
    if policy is None and not files:
        raise _in_code(name, "its policy")
    if model is None:
        raise _in_code(name, "its model")
    agent = Agent(
        model,
        [_tool(name, base, item) for item in run["tools"]],
        policy or built_in_of(run) or Policy.load(files[0], files[1:], root=base),
        output_type=recorded_output(run),
        mounts={name: Mount(base / (item["source"] or ""), item["source"]) for name, item in _bound(run)},
        hosts={
            name: Host(base / (item["folder"] or ""), item["folder"], item["redirects"])
            for name, item in run["hosts"].items()
        },
        max_parallel=run.get("max_parallel", MAX_PARALLEL),
        hooks=[_hooks(name, base, item) for item in run.get("hooks", ())],
    )
    config = agent.configure_run(
        run["question"], seed=run["seed"], run_id=run["run_id"], principal=run.get("principal")
    )
    return agent, replace(config, opening=Opening.of_line(run))


def _bound(run: Line) -> list[tuple[str, Line]]:
    return [(name, item) for name, item in run["mounts"].items() if item["source"] is not None]


def _tool(name: str, base: Path, item: Line) -> Tool:
    if item["file"] is None:
        raise _in_code(name, f"its tool {str(item['name'])[:80]!r}")
    folder = (base / item["file"]).parent
    return load_named(item["name"], folder if folder.is_dir() else None)


def _hooks(name: str, base: Path, item: Line) -> Hooks:
    if item["file"] is None or not _is_inside(item["file"], base):
        raise _in_code(name, f"its hooks {str(item['name'])[:80]!r}")
    return load_hooks(base / item["file"], item["file"])


def _in_code(name: str, subject: str) -> InputError:
    return RecordError(
        f"{subject} was made in code and is not in a file",
        file=name,
        remedy="use code: tachograph.replay(agent, folder) or tachograph.resume(agent, folder)",
    )


def _as_it_stands(run: Line, redact: Redactor) -> tuple[str, Opening]:
    """Return the question and the opening of a run without a task, which only its record holds.

    They were redacted when they were recorded. To do it again would escape what looks like a placeholder once more; a
    secret in them, which no run has recorded, is replaced all the same, so that the difference shows.
    """
    question, opening = str(run["question"]), Opening.of_line(run)
    if redact.kind_in(question) is not None:
        question = redact(question)
    if redact.kind_in(opening.as_text()) is not None:
        opening = opening.without_secrets(redact)
    return question, opening


def _question(recorded: str, current: str, redact: Redactor) -> str:
    """Return the question of a replay: the current one, or the recorded one if they differ only in secrets."""
    plain = redact(current)
    parts = re.split(r"<secret:[a-z_]+:[1-9][0-9]*>", recorded)
    same = re.fullmatch("(?s:.+)".join(map(re.escape, parts)), plain)
    return recorded if same else plain


def same_opening(recorded: Opening, current: Opening, redact: Redactor) -> Opening:
    """Return what a replay opens with: the current one, or the recorded one if they differ only in secrets."""
    plain = current.without_secrets(redact)
    texts = recorded.as_text()
    if texts != _question(texts, plain.as_text(), redact):
        return plain
    return replace(recorded, file=current.file)


# ---- where a record belongs ----------------------------------------------------------------------------------


def project_of(folder: Path, root: Path | None) -> Path:
    """Return the project that a run belongs to: `root` if it is given.

    A run below the `runs/` of the project around it belongs there. Else it is the project around the run, the one
    around the working directory, or the files shipped with the package: the first that holds the run's task, or the
    first that exists.
    """
    if root is not None:
        return root
    nearest = project_root(Path(os.path.abspath(folder)))
    if nearest is not None and place_of(folder, nearest) is not None:
        return nearest
    around = [project_root(folder.resolve()), project_root(Path.cwd()), shipped(".")]
    candidates = [candidate for candidate in around if candidate is not None]
    for candidate in candidates:
        with contextlib.suppress(RecordError):
            task_of(folder, candidate, "")
            return candidate
    return candidates[0]


def made_from_code(folder: Path) -> bool:
    """Return whether the ledger in a folder is of a run without a task."""
    line = run_line(folder)
    return line is not None and line.get("task", "") is None


def is_live(folder: Path) -> bool:
    """Return whether the ledger in a folder is of a run with a model other than a script."""
    line = run_line(folder)
    model = line.get("model") if line is not None else None
    return isinstance(model, dict) and model.get("execution_path") not in (None, "stub")


_RUN_LINE = 1 << 20  # bytes; a longer line is none that a run writes


def run_line(folder: Path) -> Line | None:
    """Return the first line of the ledger in a folder; None if it is none."""
    try:
        line = json.loads(read_unlinked(folder / STATE, _RUN_LINE).partition(b"\n")[0])
        return line if isinstance(line, dict) and line.get("type") == "run" else None
    except (OSError, ValueError, RecursionError):
        return None


def relative_name(folder: Path, base: Path) -> str:
    """Return a run's folder as it stands in messages: relative to the root if it is inside, with `/`."""
    try:
        return folder.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        return folder.as_posix()


def task_of(folder: Path, base: Path, name: str) -> str:
    """Return the path of the task that a run was made from, relative to the root.

    It is the first that exists of: the task named in the ledger, the one named in the manifest, the one with the
    run's place under `tasks/`. The files are read leniently, so that a changed run still finds its task.

    Raises:
        RecordError: There is no such task.
    """
    named = [path for file in (STATE, MANIFEST) for path in _tasks_in(folder / file)]
    places = [*named, f"tasks/{folder.resolve().parent.name}/{folder.resolve().name}.yaml"]
    for place in places:
        if _is_inside(place, base):
            return place
    if named:
        raise RecordError(
            f"its task {named[0][:200]!r} does not exist",
            file=name,
            remedy="restore the task or remove the run",
        )
    raise RecordError(
        "names no task to make it again from", file=name, remedy="only runs of a task can be checked"
    )


def _is_inside(place: str, base: Path) -> bool:
    """Return whether `place` is a file below `base`."""
    try:
        path = (base / place).resolve()
        return path.is_file() and path.is_relative_to(base.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _tasks_in(file: Path) -> list[str]:
    """Return the tasks that a manifest or the first line of a ledger names; none if it cannot be read."""
    try:
        text = read_unlinked(file)
        data = json.loads(text if file.name == MANIFEST else text.split(b"\n", 1)[0])
        if isinstance(data.get("task"), dict):
            return [str(data["task"]["path"])]
        paths = [str(item["path"]) for item in data.get("inputs", ())]
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return []
    return [path for path in paths if path.startswith("tasks/")]
