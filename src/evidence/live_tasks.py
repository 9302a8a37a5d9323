"""Tasks for live models: recorded with a model, and made again from the record without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from ..fail.errors import RecordError
from ..runtime.agent import live_redactor
from ..runtime.clock import random_hex, random_key, wall_ns
from ..runtime.io.workspace import Workspace
from ..runtime.log.events import AgentStarted, Event, RunEnded, RunStarted
from ..runtime.log.values import ModelChoice, ModelName
from ..runtime.loop.state import RunSpec
from ..runtime.models.types import choice_of
from ..runtime.policy.prices import key_of
from ..runtime.world.people import Approve
from ..runtime.world.real import Real
from .folder import read_key
from .record_files import head_in, lines_in
from .tasks import Task


class LiveRun(Task):
    """A run of a task by a live model.

    Args:
        task: The task.
        models: The model and its fallbacks, with attributes `name` and `options`; where the record answers for them,
            these alone, as a ModelChoice has them.
        own_models: The models of profiles that name one, by that name; likewise.
        head: The first line that was recorded; None for a new run.
        approve: Asks a person about a call.
        key: What placeholders of secrets are made with; a new one unless given.
        started: Is given the world of the run.
    """

    key: bytes

    def __init__(
        self,
        task: Task,
        models: Sequence[Any],
        own_models: Mapping[str, Any],
        head: RunStarted | None = None,
        approve: Approve | None = None,
        key: bytes | None = None,
        started: Callable[[Real], None] = lambda world: None,
    ) -> None:
        super().__init__(task.root, task.document)
        self._models, self._own_models, self._approve = models, own_models, approve
        self._started = started
        self._run_id = f"{task.run_id}-{random_hex()}" if head is None else head.run_id
        self.began = wall_ns() if head is None else head.began
        self.key = random_key() if key is None else key
        self._is_key_gone = head is not None and key is None
        known, *fallback = (key_of(it.name) for it in map(choice_of, models))
        if known not in task.spec.llm.live:
            remedy = f"name one of {', '.join(task.spec.llm.live)}, or add it"
            raise task.error("/llm/live", f"the task is not for the model {known}", remedy)
        if fallback != task.spec.llm.fallback:
            what = f"the run has other fallbacks: {', '.join(fallback) or 'none'}"
            raise task.error("/llm", what, "name them, or record the run anew")

    @classmethod
    def of(
        cls,
        task: Task,
        folder: Path,
        models: Sequence[Any] = (),
        own_models: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> LiveRun:
        """Return the run that a folder holds, for which the record answers unless models are given.

        Raises:
            RecordError: It holds none of a live model.
        """
        head = head_in(folder)
        if head.model.path != "live":
            remedy = f"record it anew: tachograph run {task.folder}"
            what = "the task is for live models, but its run was scripted"
            raise RecordError(what, file=str(folder), remedy=remedy)
        if not models:
            first = ModelChoice(head.model, head.options)
            models = [first, *head.fallbacks]
            heads = [event for event in lines_in(folder) if isinstance(event, AgentStarted)]
            choices = [ModelChoice(it.model, it.options) for it in heads]
            choices.sort(key=lambda it: it != first)  # an agent that names no model has that of the run
            own_models = {key_of(it.name): it for it in choices}
        return cls(task, models, own_models or {}, head, key=read_key(folder), **rest)

    def models_at(self, place: str, model: str = "") -> Sequence[Any]:
        """Return the models of the agent at a place, which may have one of its own."""
        nobody = ModelChoice(ModelName(*model.partition(":")[::2]))
        return [self._own_models.get(model, nobody)] if model else self._models

    def run_spec(self) -> RunSpec:
        """Return what the run is made with."""
        redactor = live_redactor(self.policy, self.key)
        redactor.is_key_gone = self._is_key_gone
        return structs.replace(super().run_spec(), run_id=self._run_id, redactor=redactor)

    def world(self, workspace: Workspace) -> Real:
        """Return the real world."""
        world = Real(workspace, leaves=True, listens=self.is_session, approve=self._approve)
        self._started(world)
        return world

    def missed(self, events: Sequence[Event]) -> list[str]:
        """Return how it misses what the task expects, one line each; unless it says otherwise, an answer.

        Of a conversation the last turn may have none: whoever has it has seen that.
        """
        end = events[-1]
        is_free = self.spec.expected.ending is not None or self.is_session
        if not is_free and isinstance(end, RunEnded) and end.answer is None:
            return [f"ending: expected final_answer, found {end.ending}", *super().missed(events)]
        return super().missed(events)
