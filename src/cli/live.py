"""Record tasks for live models: the model, and whoever is asked about a call, come from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import click

from ..evidence.agent_file import AgentFile, read_profile
from ..evidence.folder import partial_of, where_it_lies
from ..evidence.live_tasks import LiveRun
from ..evidence.project import Project
from ..evidence.record import record, resume
from ..evidence.record_files import head_in
from ..evidence.show import line_of
from ..evidence.task_file import TaskFile
from ..evidence.tasks import Task, load_task
from ..fail.errors import InputError, TaskError, did_you_mean
from ..runtime.driver import Words
from ..runtime.formats.documents import read_text
from ..runtime.formats.durable_write import write_durably
from ..runtime.log.events import Event
from ..runtime.mcp.server import profile_names
from ..runtime.models.providers import model_of
from ..runtime.models.types import Model, clean_text
from ..runtime.policy.prices import key_of
from ..runtime.run import RunMade
from .approval import approve_at_terminal
from .common import as_yaml, end_as_by_ctrl_c, say

# what a task says of its one run, and not of its agent
_OF_ONE_RUN: Final = "id title question turns forked clock llm approvals faults expected".split()


def record_live(task: Task, folder: Path, approve: bool, *, is_quiet: bool, **live: Any) -> RunMade:
    """Run a task with a live model and record it; each line of the run is printed as it is written.

    Args:
        task: The task.
        folder: Where the record goes.
        approve: Whether people are asked at the terminal.
        is_quiet: Whether nothing is printed.
        **live: As of `new_run`.

    Raises:
        InputError: The model cannot be had, or the task is not for it.
    """
    if task.is_session:
        raise task.error("", "is a conversation", f"go on with `tachograph chat {task.folder}`")
    end_as_by_ctrl_c()
    source = new_run(task, approve=approve_at_terminal if approve else None, **live)
    return record(source, folder) if is_quiet else _answered(record(source, folder, _tell))


def new_run(
    task: Task, llm: str | None, base_url: str | None, options: Iterable[str], **rest: Any
) -> LiveRun:
    """Return a new run of a task.

    Args:
        task: The task.
        llm: The model as `PROVIDER:MODEL`; None for the only one that the task names.
        base_url: The address of its service; None for the provider's own.
        options: Settings of its requests as `NAME=VALUE`, the value as JSON, or as text if it is none.
        **rest: As of LiveRun.

    Raises:
        InputError: The model cannot be had, or the task is not for it.
    """
    if llm is None and len(task.spec.llm.live) > 1:
        raise task.error("/llm/live", "names several models", "choose one by --llm")
    first = llm or task.spec.llm.live[0]
    models: list[Model] = [model_of(first, base_url=base_url, options=dict(map(_option, options))).with_key()]
    models += [_named_in(task, f"/llm/fallback/{n}", it) for n, it in enumerate(task.spec.llm.fallback)]
    source = LiveRun(task, models, _own_models(task), **rest)
    if not task.document.paths:  # made of a question, or for a conversation
        source.head()
        with source.workspace(lambda path, sha256: None):
            pass  # what is wrong is said before any folder is made
    return source


def task_for_question(project: Project, profile: str, question: str, llm: str | None) -> Task:
    """Return a task in which a profile is asked a question; its file stays if its run begins.

    Args:
        project: The project.
        profile: The name of the profile.
        question: The question.
        llm: The model as `PROVIDER:MODEL`; None for the one that the profile names.

    Raises:
        InputError: There is no such profile, it names no model, or the question is none.
    """
    if not question:
        raise InputError("needs a question", file=profile, remedy="give a question, or use `tachograph chat`")
    if profile not in (known := profile_names(project.root)):
        remedy = did_you_mean(profile, known, "`tachograph profiles` lists them")
        raise InputError("there is no such profile", file=profile, remedy=remedy)
    named = read_profile(project.root, profile).value.model
    about = {"profile": profile, "question": clean_text(question)}  # as what is typed in a chat
    return _new_task(project, "asked", profile, about, llm or named)


def task_for_chat(project: Project, given: str, llm: str | None) -> Task:
    """Return the task of a conversation with a profile, or with the agent of a task; a new file stays if it begins.

    Args:
        project: The project.
        given: The name of a profile, or a task; one that is a conversation of a live model is taken as it is.
        llm: The model as `PROVIDER:MODEL`; None for the one that is named there.

    Raises:
        InputError: There is no such profile or task, or it names no model.
    """
    if given in (profiles := profile_names(project.root)):
        llm = llm or read_profile(project.root, given).value.model
        return _new_task(project, "chats", given, {"profile": given}, llm)
    task = load_task(project.task_file(Path(given), profiles), project.root)
    if task.is_session and not task.is_scripted:
        return task
    about = {key: it for key, it in task.document.data.items() if key not in _OF_ONE_RUN}
    only = "".join(task.spec.llm.live) if len(task.spec.llm.live) == 1 else None
    return _new_task(project, "chats", task.folder.rpartition("/")[2], about, llm or only)


def _new_task(project: Project, kind: str, of: str, about: Mapping[str, Any], llm: str | None) -> Task:
    if not llm:
        raise InputError("does not name one model", file=of, remedy="give --llm PROVIDER:MODEL")
    name = re.sub("[^a-z0-9_]", "_", of.lower())
    number = next(it for it in count(1) if _take(project, f"{kind}/{name}_{it}"))
    label = f"tasks/{kind}/{name}_{number}.yaml"
    title = about.get("question", f"a conversation with {of}")
    given = {"schema": "task/v1", "id": f"{kind}-{name}_{number}", "title": title, **about}
    text = as_yaml({**given, "llm": {"live": [llm]}}).encode()
    write_durably(project.root / label, text)
    return Task(project.root, read_text(text, label, TaskFile, TaskError))


def _take(project: Project, name: str) -> bool:
    """Take a name for a new task if it is free; it is given back at the end of the command if no run has begun."""
    file, folder = project.root / f"tasks/{name}.yaml", project.folder(name)

    def give_back() -> None:
        if not where_it_lies(folder).exists():  # a check would miss the run
            file.unlink(missing_ok=True)
            with suppress(OSError):  # others lie there
                file.parent.rmdir()

    if not where_it_lies(folder).exists():  # nor the record of a task that was removed
        file.parent.mkdir(parents=True, exist_ok=True)
        # the folder may just have been given back by others
        with suppress(FileExistsError, FileNotFoundError):
            file.touch(exist_ok=False)  # by one process alone, however many ask at once
            click.get_current_context().call_on_close(give_back)
            return True
    return False


def resume_live(task: Task, folder: Path, settled: Words, base_url: str | None, approve: bool) -> RunMade:
    """Go on with a run of a live model; arguments as above. Raises InputError."""
    end_as_by_ctrl_c()
    people = approve_at_terminal if approve else None
    source = open_run(task, partial_of(folder), base_url, approve=people)
    return _answered(resume(source, folder, settled, _tell))


def open_run(task: Task, partial: Path, base_url: str | None, **rest: Any) -> LiveRun:
    """Return the open run of a task that a folder holds; `rest` as of LiveRun. Raises InputError."""
    head = head_in(partial)
    models = [model_of(key_of(head.model), base_url=base_url, options=head.options).with_key()]
    models += [model_of(key_of(it.name), options=it.options).with_key() for it in head.fallbacks]
    return LiveRun.of(task, partial, models, _own_models(task), **rest)


def _own_models(task: Task) -> dict[str, Model]:
    named = {it.spec.model: it for it in task.profiles.values() if it.spec.model}
    return {model: _named_in(profile, "/model", model) for model, profile in named.items()}


def _named_in(file: AgentFile, pointer: str, name: str) -> Model:
    """Return the model that a file names at a place. Raises InputError for one that cannot be had."""
    try:
        return model_of(name).with_key()
    except InputError as error:
        raise file.error(pointer, error.message, error.remedy or "") from None


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"the option {text[:80]!r} has no value", remedy="write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _tell(event: Event) -> None:
    say(line_of(event))


def _answered(made: RunMade) -> RunMade:
    """Print the answer as a whole, which the lines of the log are not."""
    for line in (made.ended.answer or "").splitlines():
        say(line, most=12 * len(line))  # each character may be written as an escape
    return made
