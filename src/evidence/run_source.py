"""What a run is made from: a task (`tasks.py`), or an agent in code with its question (`agent_runs.py`)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..runtime.world.virtual import run_now

if TYPE_CHECKING:
    from .agent_runs import AgentRun
    from .tasks import Task

T = TypeVar("T")
RunSource: TypeAlias = "Task | AgentRun"
"""What a run is made from, for the first time or again; both have the same attributes and methods."""


def drive(source: RunSource, coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a run to its end, a scripted one without an event loop."""
    if source.is_scripted:
        return run_now(coroutine)
    from ..runtime.world.real import run_in_new_loop  # a scripted run imports no event loop

    return run_in_new_loop(coroutine)
