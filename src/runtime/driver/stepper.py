"""The stepping core of every driver: takes a loop from one effect to the next, stamps, and hands on what is whole."""

from __future__ import annotations

from collections.abc import Callable

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import Decided, Effect, Event, Outcome, RunEnded, StepEnded
from ..core.lines import StepLine
from ..loop.state import RunGenerator
from .ports import OnEvent, OnOutcome, Stamps, Stop


class Stepper:
    """A loop under way. It performs nothing: a driver performs `effect` between `begin` and `end`.

    Attributes:
        effect: What is to be performed next; None once the loop is over.
        ended: How the run ended, once the loop is over.
        stamps: The stamps of the step so far.
    """

    def __init__(
        self,
        loop: RunGenerator,
        clock: Clock,
        on_step: Callable[[StepLine], None],
        on_event: OnEvent,
        *,
        on_outcome: OnOutcome | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Take the loop to its first effect.

        Args:
            loop: The loop, not begun yet.
            clock: Where the stamps come from.
            on_step: Gets each step's line with its stamps, in order.
            on_event: Gets every decision, and every effect with its outcome as soon as it has one.
            on_outcome: Gets what came of an effect before anything else is done.
            stop: Says at the beginning of each effect what stops the run in its place.
        """
        self._loop = loop
        self._clock = clock
        self._on_step = on_step
        self._on_event = on_event
        self._on_outcome = on_outcome
        self._stop = stop
        self._begun = 0
        self.stamps: Stamps = {}
        self.effect: Effect | None = None
        self._ended: RunEnded | None = None
        self._advance(None)

    @property
    def ended(self) -> RunEnded:
        """How the run ended."""
        assert self._ended is not None
        return self._ended

    def begin(self) -> Cancelled | None:
        """Stamp the beginning of the effect; returns what stops the run in its place, or None."""
        self._begun = self._clock.stamp()
        return None if self._stop is None else self._stop(self._begun)

    def end(self, outcome: Outcome | Cancelled) -> None:
        """Stamp the end of the effect, hand on its outcome, and go on to the next effect."""
        effect = self.effect
        assert effect is not None
        self.stamps[effect.position] = [self._begun, self._clock.stamp()]
        if self._on_outcome is not None:
            self._on_outcome(effect, outcome, self.stamps)
        if not isinstance(outcome, Cancelled):
            self._on_event(effect, outcome)
        self._advance(outcome)

    def _advance(self, outcome: Outcome | Cancelled | None) -> None:
        """Let the loop go on to its next effect, or to its end; decisions and steps are handed on on the way."""
        item = self._sent(outcome)
        while item is not None:
            if isinstance(item, StepEnded):
                item.line["stamps"] = self.stamps
                self._on_step(item.line)
                self.stamps = {}
            elif isinstance(item, Decided):
                begun = self._clock.stamp()
                self._clock.spend("decision")
                self.stamps[item.position] = [begun, self._clock.stamp()]
                self._on_event(item, None)
            else:
                break
            item = self._sent(None)
        self.effect = item

    def _sent(self, outcome: Outcome | Cancelled | None) -> Effect | Event | None:
        """Send the loop an outcome and return what it yields next, None where it is over."""
        try:
            if outcome is None:
                return next(self._loop)
            if isinstance(outcome, Cancelled):
                return self._loop.throw(outcome)
            return self._loop.send(outcome)
        except StopIteration as stop:
            self._ended = stop.value
            return None
