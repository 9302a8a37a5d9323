"""The stepping core of every driver: takes a loop from one effect to the next, stamps, and hands on what is whole."""

from __future__ import annotations

from collections.abc import Callable

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import (
    Decided,
    Effect,
    Event,
    Group,
    Invoke,
    Outcome,
    ReadClock,
    RunEnded,
    StepEnded,
    StepProgress,
    Wait,
)
from ..core.lines import StepLine
from ..loop.state import RunGenerator
from .effect_sequence import EffectSequence
from .groups import BranchRun
from .ports import OnEvent, OnLocalTimes, OnNotice, OnOutcome, Settle, Stop


class Stepper(EffectSequence):
    """A loop under way; its `effect` is None where a group is to be performed, and once the loop is over.

    Attributes:
        group: The calls of a group, each to be taken to its end; then the driver says `join`.
        ended: How the run ended, once the loop is over.
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
        settle: Settle | None = None,
        on_notice: OnNotice | None = None,
        on_local_times: OnLocalTimes | None = None,
    ) -> None:
        """Take the loop to its first effect.

        Args:
            loop: The loop, not begun yet.
            clock: Where the stamps come from.
            on_step: Gets each step's line with its stamps, in order.
            on_event: Gets every decision, and every effect with its outcome as soon as it has one.
            on_outcome: Gets what came of an effect before anything else is done.
            stop: Says at the beginning of each effect what stops the run in its place.
            settle: Says what an outcome of a call of a group is in the record.
            on_notice: Gets what is new in the step under way, and each attempt as it begins and when it is over.
            on_local_times: Gets the local times that a decision rests on, before it is made.
        """
        super().__init__(clock, on_outcome, stop, on_notice)
        self._loop = loop
        self._on_step = on_step
        self._on_event = on_event
        self._settle = settle
        self._on_local_times = on_local_times
        self.effect: Effect | None = None
        self.group: list[BranchRun] | None = None
        self._runs: list[BranchRun] = []  # the calls of the group that was begun last
        self._held: Effect | Group | ReadClock | StepEnded | None = (
            None  # what the loop has come to while a group is open
        )
        self._undated: list[Decided] = []  # decisions of a group that is open, which have no stamps yet
        self._ended: RunEnded | None = None
        self._advance(None)

    @property
    def ended(self) -> RunEnded:
        """How the run ended."""
        assert self._ended is not None
        return self._ended

    def go_on(self, outcome: Outcome | Cancelled) -> None:
        """Hand on an outcome that was kept, and go on to the next effect."""
        effect = self.effect
        assert effect is not None
        self._notify(is_over=True)
        if not isinstance(outcome, Cancelled):
            self._on_event(effect, outcome)
        self._advance(outcome)

    def join(self) -> None:
        """Put together the times of the calls of the group, all of which are over, and go on to the next effect."""
        assert self.group is not None
        runs, self.group = self.group, None
        undated, self._undated = self._undated, []
        self._clock.join([run.branch for run in runs])
        for run in runs:
            self.stamps.update(run.stamps)
            run.performed = {at: self._settled(run, outcome) for at, outcome in run.performed.items()}
        for decided in undated:
            self._date(decided)
        item, self._held = self._held, None
        self._handle(item)

    def _on_performed(self) -> None:
        """Let the loop have what was performed for a call of the group, if that is what it waits for."""
        item, self._held = self._held, None
        self._handle(item)

    def _advance(self, outcome: Outcome | Cancelled | None) -> None:
        """Let the loop go on to its next effect, or to its end; decisions and steps are handed on on the way."""
        self._handle(self._sent(outcome))

    def _handle(self, item: Effect | Group | Event | None) -> None:
        """Go on from what the loop yielded; while a group is open, as far as its calls have brought what it asks."""
        self.effect = None
        while item is not None:
            outcome: Outcome | Cancelled | None = None
            if isinstance(item, StepProgress):
                if self._on_notice is not None:
                    self._on_notice(item)
            elif isinstance(item, Decided):
                if self.group is None:
                    self._date(item)
                else:
                    self._undated.append(item)
                self._on_event(item, None)
            elif self._runs and isinstance(item, Invoke | Wait) and (outcome := self._brought(item)):
                if isinstance(outcome, Outcome):
                    self._on_event(item, outcome)
            elif self.group is not None:
                self._held = item
                return
            elif isinstance(item, ReadClock):
                self.stamps[item.position] = [self._clock.stamp(), self._clock.stamp()]
                outcome = self._time(item)
            elif isinstance(item, Group):
                self.group = self._runs = [
                    BranchRun(
                        (item.step, index),
                        effects,
                        self._clock,
                        self._on_outcome,
                        self._stop,
                        self._on_notice,
                        self._on_performed,
                    )
                    for index, effects in item.branches.items()
                ]
            elif isinstance(item, StepEnded):
                item.line["stamps"] = self.stamps
                self._on_step(item.line)
                self.stamps, self._runs = {}, []
            else:
                self.effect = item
                return
            item = self._sent(outcome)

    def _brought(self, effect: Invoke | Wait) -> Outcome | Cancelled | None:
        """Return what came of an effect that was performed for a call of a group, None if it was not."""
        position = effect.position
        for run in self._runs:
            if position in run.performed:
                outcome = run.performed.pop(position)
                return outcome if self.group is None else self._settled(run, outcome)
        return None

    def _settled(self, run: BranchRun, outcome: Outcome | Cancelled) -> Outcome | Cancelled:
        """Return what came of an effect as the record has it; once a group is joined all of its outcomes are so."""
        if self._settle is None or isinstance(outcome, Cancelled):
            return outcome
        return self._settle(run.branch, outcome)

    def _time(self, item: ReadClock) -> Outcome:
        """Return the time of the stamp that was given last, with local times where they are asked for."""
        now = self.stamps[item.position][0]
        if not item.zones:
            return Outcome(now=now)
        local_times = self._clock.local_times(item, now)
        if self._on_local_times is not None:
            self._on_local_times(item, local_times)
        return Outcome(now=now, local_times=local_times)

    def _date(self, decided: Decided) -> None:
        """Stamp a decision."""
        begun = self._clock.stamp()
        self._clock.spend("decision")
        self.stamps[decided.position] = [begun, self._clock.stamp()]

    def _sent(self, outcome: Outcome | Cancelled | None) -> Effect | Group | Event | None:
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
