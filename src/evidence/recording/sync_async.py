"""How a run is recorded: in the calling thread, which waits for everything, or in an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...runtime.agent import Agent
from ...runtime.driver.disk_work import aside
from ...runtime.driver.ports import Listener
from ...runtime.driver.stopping.interrupts import Interrupts
from ...runtime.execution import OnLine
from ...runtime.setup.run_config import RunConfig, RunResult

if TYPE_CHECKING:
    from asyncio import CancelledError


class Way(Protocol):
    """What differs between the ways to record a run."""

    is_async: bool

    def interrupts(self) -> AbstractContextManager[Interrupts]:
        """Return what attends to signals while the run is under way."""

    async def wait_for(self, work: Callable[[], Any]) -> Any:
        """Return what work of the disk returns."""

    async def execute(
        self,
        agent: Agent,
        config: RunConfig,
        listeners: Iterable[Listener],
        on_line: OnLine,
        interrupts: Interrupts,
    ) -> RunResult:
        """Perform the run to its end."""


class Blocking:
    """The calling thread waits for everything, and the coroutines never suspend."""

    is_async = False

    def interrupts(self) -> AbstractContextManager[Interrupts]:
        """Take signals over."""
        return Interrupts()

    async def wait_for(self, work: Callable[[], Any]) -> Any:
        """Do the work here."""
        return work()

    async def execute(
        self,
        agent: Agent,
        config: RunConfig,
        listeners: Iterable[Listener],
        on_line: OnLine,
        interrupts: Interrupts,
    ) -> RunResult:
        """Perform the run here."""
        return agent.execute(
            config, listeners=listeners, on_line=on_line, keep_steps=False, interrupts=interrupts
        )


BLOCKING: Final = Blocking()


class InLoop:
    """One recording in an event loop. Whatever cancels its task, the record is completed.

    Attributes:
        cancelled: What cancelled the task, to be raised once the record is complete; None if nothing did.
    """

    is_async = True

    def __init__(self) -> None:
        self.cancelled: CancelledError | None = None

    def interrupts(self) -> AbstractContextManager[Interrupts]:
        """Leave signals to the event loop, which cancels the task."""
        return contextlib.nullcontext(Interrupts())

    async def wait_for(self, work: Callable[[], Any]) -> Any:
        """Do the work in a thread."""
        value, left = await aside(work)
        self.cancelled = left or self.cancelled
        return value

    async def execute(
        self,
        agent: Agent,
        config: RunConfig,
        listeners: Iterable[Listener],
        on_line: OnLine,
        _interrupts: Interrupts,
    ) -> RunResult:
        """Perform the run in the event loop."""
        result, left = await agent.end_async(
            config, listeners, on_line, keep_steps=False, cancelled=self.cancelled
        )
        self.cancelled = left or self.cancelled
        return result
