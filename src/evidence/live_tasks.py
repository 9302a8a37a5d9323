"""Tasks for live models: recorded with a model, and made again from the record without it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from ..fail.errors import RecordError
from ..runtime.agent import live_redactor, run_in_new_loop
from ..runtime.clock import random_hex, random_key, wall_ns
from ..runtime.io.workspace import Workspace
from ..runtime.log.events import Event, RunEnded, RunStarted
from ..runtime.log.values import ModelChoice
from ..runtime.loop.state import RunSpec
from ..runtime.models.fallback import choice_of
from ..runtime.models.types import LLMInput, LLMOutput
from ..runtime.policy.policy import Policy
from ..runtime.run import head_of
from ..runtime.tools.contract import Tool
from ..runtime.world.people import Approve
from ..runtime.world.real import Real
from .folder import read_key
from .record_files import head_in
from .tasks import Task

T = TypeVar("T")


def _nobody(asked: LLMInput) -> LLMOutput:
    raise AssertionError("the record answers for the model")


class LiveRun:
    """A run of a task by a live model: what RunSource asks for.

    Args:
        task: The task.
        models: The model and its fallbacks, with attributes `name` and `options`; for a run that is made again,
            anything.
        head: The first line that was recorded; None for a new run.
        approve: Asks a person about a call.
        key: What placeholders of secrets are made with; a new one unless given.
    """

    is_scripted, is_offline = False, True
    code: Mapping[str, Mapping[str, str]] = {}

    def __init__(
        self,
        task: Task,
        models: Sequence[Any],
        head: RunStarted | None = None,
        approve: Approve | None = None,
        key: bytes | None = None,
    ) -> None:
        self._task, self._approve = task, approve
        choices = [choice_of(model) for model in models]
        if head is not None:
            choices = [ModelChoice(head.model, head.options), *head.fallbacks]
        task.live = [*models, *[_nobody] * (len(choices) - len(models))], choices
        self._run_id = f"{task.run_id}-{random_hex()}" if head is None else head.run_id
        self._began = wall_ns() if head is None else head.began
        self.key = random_key() if key is None else key
        known, *fallback = (f"{it.name.provider}:{it.name.name}" for it in choices)
        if known not in task.live_models:
            remedy = f"name one of {', '.join(task.live_models)}, or add it"
            raise task.error("/llm/live", f"the task is not for the model {known}", remedy)
        if fallback != task.spec.llm.fallback:
            what = f"the run has other fallbacks: {', '.join(fallback) or 'none'}"
            raise task.error("/llm", what, "name them, or record the run anew")
        self.policy: Policy = task.policy
        self.policies: Sequence[Policy] = task.policies
        self.tools: list[Tool] = task.tools
        self.files: Mapping[str, str] = task.files
        self.modules: Mapping[str, Mapping[str, str]] = task.modules
        self.rejected: Path = task.rejected

    @classmethod
    def of(
        cls, task: Task, folder: Path, models: Sequence[Any] = (_nobody,), approve: Approve | None = None
    ) -> LiveRun:
        """Return the run that a folder holds. Raises RecordError where it holds none of a live model."""
        head = head_in(folder)
        if head.model.path != "live":
            remedy = f"record it anew: tachograph run {task.folder}"
            raise RecordError(
                "the task is for live models, and the run is none", file=str(folder), remedy=remedy
            )
        return cls(task, models, head, approve, read_key(folder))

    def run_spec(self) -> RunSpec:
        """Return what the run is made with."""
        redactor = live_redactor(self.policy, self.key)
        return structs.replace(self._task.run_spec(), run_id=self._run_id, redactor=redactor)

    def head(self) -> RunStarted:
        """Return its first line."""
        task = self._task.file
        return head_of(self.run_spec(), task=task, clock="system", began=self._began)

    def workspace(self, on_read: Callable[[str, str], None], private: Path | None = None) -> Workspace:
        """Return what its tools may touch."""
        return self._task.workspace(on_read, private)

    def set_up(self, workspace: Workspace) -> None:
        """Put what the task says into the private mounts of an open workspace."""
        self._task.set_up(workspace)

    def world(self, workspace: Workspace) -> Real:
        """Return the real world."""
        return Real(workspace, leaves=True, approve=self._approve)

    def drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Drive it to its end in an event loop."""
        return run_in_new_loop(coroutine)

    def missed(self, events: Sequence[Event]) -> list[str]:
        """Return how it misses what the task expects, one line each; unless it says otherwise, an answer."""
        end = events[-1]
        if self._task.spec.expected.ending is None and isinstance(end, RunEnded) and end.answer is None:
            return [f"ending: expected final_answer, found {end.ending}", *self._task.missed(events)]
        return self._task.missed(events)
