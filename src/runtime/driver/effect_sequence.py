"""Effects that are performed one after another, with the stamps of each: those of a step, or of one call of a group."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import AskModel, Attempted, Effect, Invoke, Outcome
from .ports import OnNotice, OnOutcome, Stamps, Stop


class EffectSequence(ABC):
    """Performs nothing: a driver performs `effect` between `begin` and `end`.

    Attributes:
        effect: What is to be performed next; None where nothing is.
        stamps: The stamps so far, by position.
    """

    effect: Effect | None

    def __init__(
        self, clock: Clock, on_outcome: OnOutcome | None, stop: Stop | None, on_notice: OnNotice | None
    ) -> None:
        self._clock = clock
        self._on_outcome = on_outcome
        self._stop = stop
        self._on_notice = on_notice
        self._begun = 0
        self.stamps: Stamps = {}

    def begin(self) -> Cancelled | None:
        """Stamp the beginning of the effect; returns what stops the run in its place, or None."""
        self._notify(is_over=False)
        self._begun = self._clock.stamp()
        return None if self._stop is None else self._stop(self._begun)

    def end(self, outcome: Outcome | Cancelled) -> None:
        """Stamp the end of the effect, hand on its outcome, and go on to the next effect."""
        self.keep(outcome)
        self.go_on(outcome)

    def keep(self, outcome: Outcome | Cancelled) -> None:
        """Stamp the end of the effect, and let its outcome be written down."""
        effect = self.effect
        assert effect is not None
        self.stamps[effect.position] = [self._begun, self._clock.stamp()]
        if self._on_outcome is not None:
            self._on_outcome(effect, outcome, self.stamps)

    @abstractmethod
    def go_on(self, outcome: Outcome | Cancelled) -> None:
        """Hand on an outcome that was kept, and go on to the next effect."""

    def _notify(self, *, is_over: bool) -> None:
        """Tell that an attempt begins or is over, as it happens."""
        if self._on_notice is not None and isinstance(self.effect, AskModel | Invoke):
            self._on_notice(Attempted(self.effect, is_over))
