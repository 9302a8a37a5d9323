"""Record a run of a task that names an agent in code, and write that task if it is not there."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any, Final

from ...fail.errors import InputError, OutputError, StoppedBySignal
from ...runtime.agent import Agent
from ...runtime.driver.disk_work import Entered
from ...runtime.driver.foreign_calls import run_now
from ...runtime.driver.ports import Listener
from ...runtime.driver.stopping.interrupts import exit_for
from ...runtime.driver.stopping.scopes import Scope
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import NotPlain, read_plain
from ...runtime.formats.shipped_files import project_root, relative_to_root
from ...runtime.setup.opening import opening_of
from ...runtime.setup.run_config import RunConfig, RunResult
from ..tasks.code.agent import is_of_project, load_code_agent
from ..tasks.place import expected_of, refuse_foreign
from ..tasks.task import Task, build, parse_task
from . import index, record
from .external import answered_from
from .recorder import recorded_run
from .sync_async import BLOCKING, Way

_TITLE: Final = 200
_MAX_BYTES: Final = 8 << 20
# keys that a file may have where the caller gives nothing
_FILE_MAY_SAY_MORE: Final = ("deadline_s", "variables", "history", "principal")


async def record_task(
    way: Way,
    agent: Agent | str,
    question: str,
    path: Path,
    out: Path | None,
    *,
    variables: Mapping[str, str] | None,
    history: Iterable[Mapping[str, Any]] | None,
    principal: str | None,
    seed: int,
    deadline_s: float | None,
    on_signal: str,
    replace: bool,
    otlp: str | None,
    listeners: Iterable[Listener],
    durability: str | None,
    cancel: Event | Scope | None,
) -> RunResult:
    """Record the run of a task that names an agent in code; the task is written if it is not there.

    The agent is loaded by its name, as a check does, so that the run can be made again.

    Args:
        way: In the calling thread, or in an event loop.
        agent: The agent or its name.
        question: The question.
        path: The task file.
        out: The folder of the run; None for the task's place.
        variables: As for `record`; they stand in the task.
        history: As for `record`; it stands in the task.
        principal: As for `record`; it stands in the task.
        seed: As for `record`.
        deadline_s: As for `record`.
        on_signal: As for `record`.
        replace: As for `record`.
        otlp: As for `record`.
        listeners: As for `record`.
        durability: As for `record`.
        cancel: As for `record`.

    Raises:
        InputError: The task is of another run, or does not lead to the agent; nothing was written then.
        ExpectationError: The run misses what the task expects.
    """
    # in no thread: to import the agent's module changes the working directory of the whole process meanwhile
    task, text = stated_task(
        agent,
        question,
        path,
        variables=variables,
        history=history,
        principal=principal,
        seed=seed,
        deadline_s=deadline_s,
    )
    folder = task.root / run_of(task) if out is None else out
    refuse_foreign(task, folder, task.root, model=None, asks=False, deadline=False)
    made, config = build(task)
    _refuse_secrets(made, task)
    config = dataclasses.replace(config, cancel=cancel, on_signal=task.data.get("on_signal", on_signal))
    if not replace:
        record.check_replaceable(folder, config.run_id, "replace=True")
        config = answered_from(made, config, folder, str(folder), task.rejected)
    with _written(path, text):
        result = await _recorded(way, made, config, folder, task, otlp, listeners, durability)
    await way.wait_for(lambda: index.update_for(task.root, folder))
    if result.mode == "interrupted":
        raise exit_for(result.signum)
    return dataclasses.replace(result, steps=record.steps_in(folder))


async def _recorded(
    way: Way,
    agent: Agent,
    config: RunConfig,
    folder: Path,
    task: Task,
    otlp: str | None,
    listeners: Iterable[Listener],
    durability: str | None,
) -> RunResult:
    live = agent.identity["execution_path"] != "stub"
    async with Entered(way.wait_for, record.live_export(otlp)) as extra:
        try:
            return await recorded_run(
                way,
                agent,
                config,
                folder,
                listeners=(*listeners, *extra),
                expected=expected_of(task, live=live, people=False),
                rejected=task.rejected,
                durability=durability,
            )
        except StoppedBySignal as stopped:
            raise exit_for(stopped.signum) from stopped


def record_anew(task: Task) -> RunResult:
    """Record the run of a task in its place; the model of an agent in code is asked, external effects are not repeated.

    Raises:
        InputError: The task needs a live model that it does not bring.
        ExpectationError: The run misses what the task expects.
    """
    agent, config = build(task)
    folder = task.root / run_of(task)
    config = answered_from(agent, config, folder, run_of(task), task.rejected)
    result: RunResult = run_now(_recorded(BLOCKING, agent, config, folder, task, None, (), None))
    index.update_for(task.root, folder)
    if result.mode == "interrupted" and not result.ok:
        raise exit_for(result.signum)
    return dataclasses.replace(result, steps=record.steps_in(folder))


def run_of(task: Task) -> str:
    """Return the place of a task's run, relative to the project."""
    return f"runs{task.file.removeprefix('tasks').removesuffix('.yaml')}"


def stated_task(
    agent: Agent | str,
    question: str,
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    history: Iterable[Mapping[str, Any]] | None = None,
    principal: str | None = None,
    seed: int = 0,
    deadline_s: float | None = None,
) -> tuple[Task, bytes | None]:
    """Return the task of an agent in code and a question, and the text of its file if that is not there yet.

    A file that is there may say more, such as what it expects.

    Raises:
        InputError: The file is of another run, or the agent has no name in a module of the project.
    """
    root = project_root(Path(os.path.abspath(path)).parent)
    if root is None:
        raise InputError(
            "no folder at or above it holds policy/", file=str(path), remedy="move it into a project"
        )
    name = relative_to_root(path, root)
    parts = Path(name).parts
    if len(parts) != 3 or parts[0] != "tasks" or path.suffix != ".yaml":
        raise InputError("is no place of a task", file=str(path), remedy="name a file tasks/KIND/NAME.yaml")
    messages = _as_recorded(history or ())
    wanted: dict[str, Any] = {
        "schema": "task/v1",
        "id": f"{parts[1]}-{path.stem}",
        "title": question.strip().split("\n")[0][:_TITLE] or question[:_TITLE],
        "question": question,
        "agent": agent if isinstance(agent, str) else name_of(agent, root),
        **({"variables": dict(variables)} if variables else {}),
        **({"history": messages} if messages else {}),
        **({} if principal is None else {"principal": principal}),
        **({"seed": seed} if seed else {}),
        **({} if deadline_s is None else {"deadline_s": deadline_s}),
    }
    try:
        text = read_plain(path, _MAX_BYTES)
    except FileNotFoundError:
        text = _rendered(wanted, name, agent, root)
        return parse_task(path, root, name, text), text
    except NotPlain:
        raise InputError("is not a regular file", file=name, remedy="name a YAML file") from None
    except OSError as error:
        raise InputError(
            f"cannot be read ({type(error).__name__})", file=name, remedy="name another"
        ) from None
    task = parse_task(path, root, name, text)
    for key in ("agent", "question", "seed", "deadline_s", "variables", "history", "principal"):
        there, given = task.data.get(key), wanted.get(key)
        if key == "seed":
            there, given = there or 0, given or 0
        if key == "history" and there and given:
            there = _as_recorded(there)
        if there != given and not (key in _FILE_MAY_SAY_MORE and given is None):
            raise task.error(
                f"/{key}" if key in task.data else "",
                f"is the task of another run: its {key} is not the given one",
                "name another file, or change this one",
            )
    return task, None


def _as_recorded(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in the form of our own, their calls named by place. Raises InputError."""
    return [dict(message) for message in opening_of(None, None, history).history]


def _rendered(task: dict[str, Any], name: str, agent: Agent | str, root: Path) -> bytes:
    """Return the text of a new task file; for an agent with a live model it names that model."""
    if isinstance(agent, str):
        agent = load_code_agent(
            agent, root, lambda message, remedy: InputError(message, file=name, remedy=remedy)
        ).agent
    identity = agent.identity
    is_live = identity["execution_path"] != "stub"
    again = (
        f"`tachograph check` makes this run again, and `tachograph run {name} --replace` records a new one"
        if is_live
        else f"`tachograph run {name}` makes this run again"
    )
    lines = [f"# {again}; docs/tasks.md lists the keys.\n"]
    plain = ("schema", "id", "agent")
    lines += [
        f"{key}: {value if key in plain else json.dumps(value, ensure_ascii=False)}\n"
        for key, value in task.items()
    ]
    if is_live:
        model = json.dumps(f"{identity['provider']}:{identity['name']}", ensure_ascii=False)
        lines.append(f"live: {{models: [{model}]}}\n")
    return "".join(lines).encode("utf-8")


def _refuse_secrets(agent: Agent, task: Task) -> None:
    """Refuse to write a question, a variable or a history that holds a secret into a task file."""
    redactor = agent.redactor()
    for key, words in (
        ("question", "question holds"),
        ("variables", "variables hold"),
        ("history", "history holds"),
    ):
        kind = next(filter(None, map(redactor.kind_in, _texts_in(task.data.get(key)))), None)
        if kind is not None:
            raise InputError(
                f"the {words} a secret ({kind}), and the task would keep it",
                file=task.file,
                remedy="record without a task, or take the secret out",
            )


def _texts_in(value: Any) -> list[str]:
    """Return every text in plain data."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    canonical_json.map_strings(value, note)
    return found


@contextlib.contextmanager
def _written(path: Path, text: bytes | None) -> Iterator[None]:
    """Write a task file, if there is a text for it, and take it away again if the body is refused its input."""
    if text is None:
        yield
        return
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(text)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise OutputError(f"{path}: the task cannot be written ({why}); name another place") from error
    try:
        yield
    except InputError:
        path.unlink()
        for folder in made:
            folder.rmdir()
        raise


# ---- the name of an agent ------------------------------------------------------------------------------------


def name_of(agent: Agent, root: Path) -> str:
    """Return `package.module:name` of an agent that stands at the top of a module of a project.

    A module that only imports the agent is not meant.

    Raises:
        InputError: There is no such module.
    """
    found = sorted({name for module in list(sys.modules.values()) for name in _names_in(module, agent, root)})
    if not found:
        raise InputError(
            "the agent is not the value of a name at the top of a module of the project",
            remedy='put it there, or give its name: record("package.module:name", ...)',
        )
    return found[0]


def _names_in(module: ModuleType, agent: Agent, root: Path) -> Iterator[str]:
    file = getattr(module, "__file__", None)
    names = [key for key, value in list(vars(module).items()) if value is agent]
    if file is None or not names or not file.endswith(".py") or not is_of_project(Path(file), root):
        return
    parts = Path(file).resolve().relative_to(root.resolve()).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if parts[0] == "src":  # a package that is installed from there
        parts = parts[1:]
    imported = set(_imported_names(Path(file)))
    if parts and all(part.isidentifier() for part in parts):
        yield from (f"{'.'.join(parts)}:{name}" for name in names if name not in imported)


def _imported_names(file: Path) -> Iterator[str]:
    """Yield the names that a source file gets by importing them."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
