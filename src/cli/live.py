"""Record tasks for live models: the model, and whoever is asked about a call, come from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from ..evidence.agent_file import AgentFile, read_profile
from ..evidence.folder import partial_of
from ..evidence.live_tasks import LiveRun
from ..evidence.project import Project
from ..evidence.record import record, resume
from ..evidence.record_files import head_in
from ..evidence.show import line_of
from ..evidence.task_file import TaskFile
from ..evidence.tasks import Task
from ..fail.errors import InputError, TaskError
from ..runtime.formats.documents import TypedDocument, parse_document
from ..runtime.formats.durable_write import write_durably
from ..runtime.log.events import Event
from ..runtime.log.values import ModelChoice
from ..runtime.models.providers import model_of
from ..runtime.models.providers.model import ProviderModel
from ..runtime.models.types import Model
from ..runtime.run import RunMade
from .approval import approve_at_terminal
from .common import as_yaml, say


def record_live(
    task: Task, folder: Path, llm: str | None, base_url: str | None, options: Iterable[str], approve: bool
) -> RunMade:
    """Run a task with a live model and record it; each line of the run is printed as it is written.

    Args:
        task: The task.
        folder: Where the record goes.
        llm: The model as `PROVIDER:MODEL`; None for the only one that the task names.
        base_url: The address of its service; None for the provider's own.
        options: Settings of its requests as `NAME=VALUE`, the value as JSON, or as text if it is none.
        approve: Whether people are asked at the terminal.

    Raises:
        InputError: The model cannot be had, or the task is not for it.
    """
    if llm is None and len(task.spec.llm.live) > 1:
        raise task.error("/llm/live", "names several models", "choose one by --llm")
    name = llm or task.spec.llm.live[0]
    models = [model_of(name, base_url=base_url, options=dict(map(_option, options)))]
    models += [_named_in(task, f"/llm/fallback/{n}", it) for n, it in enumerate(task.spec.llm.fallback)]
    people = approve_at_terminal if approve else None
    source, file = LiveRun(task, models, _own_models(task), approve=people), task.root / task.file
    if not file.exists():  # a question to a profile
        source.head()
        with source.workspace(lambda path, sha256: None):  # what is wrong is said before anything is written
            file.parent.mkdir(parents=True, exist_ok=True)
        write_durably(file, as_yaml(task.document.data).encode())
    return record(source, folder, _tell)


def new_task(project: Project, profile: str, question: str, llm: str | None) -> Task:
    """Return a task in which a profile is asked a question; its file is written when it is recorded.

    Args:
        project: The project.
        profile: The name of the profile.
        question: The question.
        llm: The model as `PROVIDER:MODEL`; None for the one that the profile names.

    Raises:
        InputError: There is no such profile, it names no model, or the question is none.
    """
    if not (llm := llm or read_profile(project.root, profile).value.model):
        raise InputError("the profile names no model", file=profile, remedy="give --llm PROVIDER:MODEL")
    name = re.sub("[^a-z0-9_]", "_", profile.lower())
    number = next(it for it in count(1) if not (project.root / f"tasks/asked/{name}_{it}.yaml").exists())
    about: dict[str, Any] = {"schema": "task/v1", "id": f"asked-{name}_{number}", "title": question}
    about |= {"profile": profile, "question": question, "llm": {"live": [llm]}}
    label = f"tasks/asked/{name}_{number}.yaml"
    document = parse_document(as_yaml(about).encode(), label, TaskError)
    return Task(project.root, TypedDocument(label, document, TaskFile, TaskError))


def resume_live(
    task: Task, folder: Path, settled: Mapping[str, Any], base_url: str | None, approve: bool
) -> RunMade:
    """Go on with a run of a live model; arguments as above. Raises InputError."""
    head = head_in(partial_of(folder))
    choices = [ModelChoice(head.model, head.options), *head.fallbacks]
    models = [
        model_of(
            f"{it.name.provider}:{it.name.name}", base_url=None if number else base_url, options=it.options
        )
        for number, it in enumerate(choices)
    ]
    source = LiveRun.of(
        task, partial_of(folder), models, _own_models(task), approve_at_terminal if approve else None
    )
    return resume(source, folder, settled, _tell)


def _own_models(task: Task) -> dict[str, Model]:
    named = {it.spec.model: it for it in task.profiles.values() if it.spec.model}
    return {model: _named_in(profile, "/model", model) for model, profile in named.items()}


def _named_in(file: AgentFile, pointer: str, name: str) -> ProviderModel:
    """Return the model that a file names at a place. Raises InputError for one that cannot be had."""
    try:
        return model_of(name)
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
