"""End a run with a record where its script is wrong after an effect that cannot be undone."""

from __future__ import annotations

from collections.abc import Mapping

from ...fail.errors import TaskError
from ..core.effects import AskModel, Effect, Fault, FaultKind, Invoke, Outcome
from ..tools.contract import Tool
from ..workspace.mounts import Mount
from .ports import Executor, Stamps


class ScriptEnd:
    """Takes a script that ends early or points nowhere for a model that failed, once something was done outside.

    Before that it is bad input, and nothing is left behind. An attempt counts as done whatever came of it.
    """

    def __init__(self, inner: Executor, tools: Mapping[str, Tool], mounts: Mapping[str, Mount]) -> None:
        self._inner = inner
        writes = any(mount.mode == "write" and mount.source is not None for mount in mounts.values())
        self._outside = ("external", "write") if writes else ("external",)
        self._tools = tools
        self._has_acted = False

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `Executor`."""
        try:
            if isinstance(effect, Invoke) and self._tools[effect.call.name].effect in self._outside:
                self._has_acted = True
            return self._inner.perform(effect, stamps)
        except TaskError as error:
            if not self._has_acted or not isinstance(effect, AskModel):
                raise
            import logging  # slow to import, and few runs come here

            logger = logging.getLogger("tachograph")
            logger.warning("tachograph: %s; the run had effects, and ends with a record", error)
            return Outcome(fault=Fault(TaskError.__name__, FaultKind.OTHER))
