"""Record tasks for live models: the model, and whoever is asked about a call, come from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..evidence.folder import partial_of
from ..evidence.live_tasks import LiveRun
from ..evidence.record import record, resume
from ..evidence.record_files import head_in
from ..evidence.show import line_of
from ..evidence.tasks import Task
from ..fail.errors import InputError
from ..runtime.log.events import Event
from ..runtime.log.values import ModelChoice
from ..runtime.models.providers import model_of
from ..runtime.run import RunMade
from ..runtime.world.people import Approve
from .approval import approve_at_terminal
from .common import say


def record_live(
    task: Task,
    folder: Path,
    llm: str | None,
    base_url: str | None,
    options: Iterable[str],
    approve: bool,
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
    if llm is None and len(task.live_models) > 1:
        raise task.error("/llm/live", "names several models", "choose one by --llm")
    name = llm or task.live_models[0]
    models = [model_of(name, base_url=base_url, options=dict(map(_option, options)))]
    for number, other in enumerate(task.spec.llm.fallback):
        try:
            models.append(model_of(other))
        except InputError as error:
            raise task.error(f"/llm/fallback/{number}", error.message, error.remedy or "") from None

    return record(LiveRun(task, models, approve=_people(approve)), folder, _tell)


def resume_live(
    task: Task, folder: Path, settled: Mapping[str, Any], base_url: str | None, approve: bool
) -> RunMade:
    """Go on with a run of a live model; arguments as above. Raises InputError."""
    head = head_in(partial_of(folder))
    choices = [ModelChoice(head.model, head.options), *head.fallbacks]
    models = [
        model_of(
            f"{it.name.provider}:{it.name.name}",
            base_url=None if number else base_url,
            options=it.options,
        )
        for number, it in enumerate(choices)
    ]
    source = LiveRun.of(task, partial_of(folder), models, _people(approve))
    return resume(source, folder, settled, _tell)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"the option {text[:80]!r} has no value", remedy="write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _people(are_asked: bool) -> Approve | None:
    return approve_at_terminal if are_asked else None


def _tell(event: Event) -> None:
    say(line_of(event))
