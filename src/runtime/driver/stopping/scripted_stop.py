"""Cancel a scripted run at a stated time of its virtual clock, with everything that is under way then."""

from __future__ import annotations

from typing import Any, Final, Protocol

from ....fail.errors import Cancelled
from ...core.clock import MS
from ...core.effects import Effect, Outcome
from ..ports import Stamps


class TableClock(Protocol):
    """A clock whose time is a matter of a table, alone or after the stamps of a record."""

    def reaches(self, end: int) -> bool:
        """Return whether the time is `end` or later."""

    def stop_at(self, end: int) -> bool:
        """Return whether the time is later than `end`, to which it is set back then."""


class ScriptedStop:
    """Gives no outcome of an effect that would end after the stated time: the run is cancelled at that time.

    Each call of a group has a time of its own that begins with the group, so that it makes no difference in which order
    they are performed: what was over by then has its outcome, and every other call is cancelled.
    """

    def __init__(self, inner: Any, clock: TableClock, at_ms: int) -> None:
        self._inner = inner
        self._clock = clock
        self._end: Final = at_ms * MS

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `Executor`."""
        self._check_begin()
        within: Stamps = {}
        outcome: Outcome = self._inner.perform(effect, within)
        self._check_end(within, stamps)
        return outcome

    async def perform_async(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `AsyncExecutor`."""
        self._check_begin()
        within: Stamps = {}
        outcome: Outcome = await self._inner.perform_async(effect, within)
        self._check_end(within, stamps)
        return outcome

    def _check_begin(self) -> None:
        if self._clock.reaches(self._end):
            raise Cancelled("by the task")

    def _check_end(self, within: Stamps, stamps: Stamps) -> None:
        """Hand on the stamps of an effect that is over in time."""
        if self._clock.stop_at(self._end):
            raise Cancelled("by the task")
        stamps.update(within)
