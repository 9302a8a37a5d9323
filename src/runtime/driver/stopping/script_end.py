"""End a run with a record where its script is wrong after an effect that cannot be undone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....fail.errors import TaskError
from ...core.effects import AskModel, Effect, Fault, FaultKind, Invoke, Outcome
from ...tools.contract import Tool
from ...workspace.mounts import Mount
from ..ports import Stamps


class ScriptEnd:
    """Takes a script that ends early or points nowhere for a model that failed, once something was done outside.

    Before that it is bad input, and nothing is left behind. An attempt counts as done whatever came of it.
    """

    def __init__(self, inner: Any, tools: Mapping[str, Tool], mounts: Mapping[str, Mount]) -> None:
        self._inner = inner
        writes = any(mount.mode == "write" and mount.source is not None for mount in mounts.values())
        self._outside = ("external", "write") if writes else ("external",)
        self._tools = tools
        self._has_acted = False

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `Executor`."""
        self._note(effect)
        try:
            return self._inner.perform(effect, stamps)  # type: ignore[no-any-return]
        except TaskError as error:
            return self._ended(effect, error)

    async def perform_async(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `AsyncExecutor`."""
        self._note(effect)
        try:
            return await self._inner.perform_async(effect, stamps)  # type: ignore[no-any-return]
        except TaskError as error:
            return self._ended(effect, error)

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, Invoke) and self._tools[effect.call.name].effect in self._outside:
            self._has_acted = True

    def _ended(self, effect: Effect, error: TaskError) -> Outcome:
        if not self._has_acted or not isinstance(effect, AskModel):
            raise error
        import logging  # slow to import, and few runs come here

        logger = logging.getLogger("tachograph")
        logger.warning("tachograph: %s; the run had effects, and ends with a record", error)
        return Outcome(fault=Fault(TaskError.__name__, FaultKind.OTHER))
