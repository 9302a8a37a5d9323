"""Perform the effects of a kept run: the journal answers first, then the world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...fail.errors import EffectNotRecorded, Interrupted
from ..core.effects import (
    Answer,
    ApprovalAnswer,
    AskHuman,
    AskModel,
    Effect,
    Fault,
    FaultKind,
    Invoke,
    Outcome,
    Wait,
)
from ..core.redaction import MARK
from ..driver.disk_work import WaitFor, at_once, within_a_run
from ..driver.foreign_calls import run_now
from ..driver.ports import Stamps
from ..driver.stopping.interrupts import ForceQuit, Interrupts
from ..policy.gate import Gate
from ..tools.contract import Tool
from ..workspace.workspace import Workspace

if TYPE_CHECKING:
    from .durable_run import DurableRun

DONE: Final = "done"
NOT_DONE: Final = "not_done"
UNKNOWN: Final = "unknown"
PROCESS_ENDED: Final = "ProcessEnded"  # stands where the class of an exception would


class JournaledExecutor:
    """The world of a kept run: the journal answers first. `live` is an Executor, or an AsyncExecutor."""

    def __init__(
        self,
        live: Any,
        gate: Gate,
        workspace: Workspace,
        durable_run: DurableRun,
        interrupts: Interrupts,
    ) -> None:
        self._live = live
        self._interrupts = interrupts
        self._gate = gate
        self._workspace = workspace
        self._durable_run = durable_run

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Answer an effect from the journal, else perform and journal it."""

        async def live() -> Any:
            return self._live.perform(effect, stamps)

        outcome: Outcome = run_now(self._perform(effect, stamps, live, at_once))
        return outcome

    async def perform_async(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Answer an effect from the journal, else perform and journal it; the disk is waited for in threads."""
        live = partial(self._live.perform_async, effect, stamps)
        return await self._perform(effect, stamps, live, within_a_run)

    async def _perform(
        self, effect: Effect, stamps: Stamps, live: Callable[[], Awaitable[Any]], wait_for: WaitFor
    ) -> Outcome:
        known = self._durable_run.answer(effect, stamps)
        if known is not None:
            return known
        if self._durable_run.concludes:
            return process_ended(effect)
        if isinstance(effect, AskModel):
            await wait_for(lambda: self._durable_run.step_begins(self._workspace))
        if isinstance(effect, Invoke):
            tool = self._gate.tools[effect.call.name]
            settled = self._durable_run.resolve_in_doubt(effect, tool, lambda: self._probe(effect, tool))
            if settled is not None:
                return settled
        if self._durable_run.owes:
            await wait_for(self._durable_run.flush)
        try:
            self._stop_before(effect)
            outcome: Outcome = await live()
        except Interrupted as stop:
            raise self._durable_run.stopped(stop) from None
        except EffectNotRecorded:  # nothing was begun
            if isinstance(effect, Invoke):
                self._durable_run.withdraw(effect)
            raise
        if outcome.writes:
            written = [path for path, _ in outcome.writes]
            await wait_for(lambda: self._durable_run.wrote(written, self._workspace))
        return outcome

    def _stop_before(self, effect: Effect) -> None:
        """Stop where a signal came before an effect was begun, which leaves no doubt about it."""
        try:
            self._interrupts.stop_if_told()
        except Interrupted:
            if isinstance(effect, Invoke):
                self._durable_run.withdraw(effect)
            raise

    def _probe(self, effect: Invoke, tool: Tool) -> str:
        """Ask a tool whether an effect took place; whatever is no clear answer is `unknown`."""
        if tool.probe is None or effect.call.arguments is None or MARK in effect.call.arguments.text:
            return UNKNOWN  # what a placeholder stood for is not known any more
        from ..tools.deadline import deadline
        from ..tools.isolation import run_isolated

        io = self._workspace.io(
            lambda check, keep: self._gate.decide_late(check, tool.name), effect.key, tool.uses, tool.name
        )
        try:
            arguments = effect.call.arguments.value()
            if tool.isolate:
                said = run_isolated(tool, arguments, io, tool.timeout_s, name="probe")
            else:
                with deadline(tool.timeout_s, ForceQuit):
                    said = tool.probe(arguments, io)
        except (KeyboardInterrupt, ForceQuit):
            raise
        except BaseException:  # noqa: BLE001 - foreign code: no answer
            return UNKNOWN
        return said if isinstance(said, str) and said in (DONE, NOT_DONE) else UNKNOWN


def process_ended(effect: Effect) -> Outcome:
    """Return what an effect came to during which the process of the run ended itself."""
    if isinstance(effect, Wait):
        return Outcome()
    if isinstance(effect, AskHuman):
        why = "the run's process ended while a person was asked"
        return Outcome(answer=Answer(ApprovalAnswer.DENY, why=why, digest=effect.digest))
    return Outcome(fault=Fault(PROCESS_ENDED, FaultKind.OTHER))
