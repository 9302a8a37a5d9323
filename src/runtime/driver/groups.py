"""Perform a group of calls: each branch from its first effect to its last.

`perform_group` is the plain way, one branch after another. On the virtual clock it gives the record that any other
order gives: each branch has a time of its own, and what counts in order is handed to the loop in the order of the
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager

from ...fail.errors import Cancelled
from ..core.branches import BRANCH, Branch
from ..core.clock import Clock
from ..core.effects import Attempted, Effect, Invoke, Outcome, Wait
from .ports import OnNotice, OnOutcome, Stamps, Stop

Perform = Callable[[Effect, Stamps], Outcome | Cancelled]


class BranchRun:
    """One call of a group under way. It performs nothing: a driver performs `effect` between `begin` and `end`.

    Attributes:
        branch: The step, and the call's place in the reply.
        effect: What is to be performed next; None once the call is over.
        stamps: The stamps of the call so far.
        performed: What came of its effects, by position.
    """

    def __init__(
        self,
        branch: Branch,
        effects: Generator[Invoke | Wait, Outcome, None],
        clock: Clock,
        on_outcome: OnOutcome | None,
        stop: Stop | None,
        on_notice: OnNotice | None = None,
        on_performed: Callable[[], None] | None = None,
    ) -> None:
        self.branch = branch
        self.stamps: Stamps = {}
        self.performed: dict[str, Outcome | Cancelled] = {}
        self._effects = effects
        self._clock = clock
        self._on_outcome = on_outcome
        self._stop = stop
        self._on_notice = on_notice
        self._on_performed = on_performed
        self._begun = 0
        self.effect: Invoke | Wait | None = next(effects, None)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Say that what is done inside is done for this call."""
        token = BRANCH.set(self.branch)
        try:
            yield
        finally:
            BRANCH.reset(token)

    def begin(self) -> Cancelled | None:
        """Stamp the beginning of the effect; returns what stops the run in its place, or None."""
        self._tell(is_over=False)
        self._begun = self._clock.stamp()
        return None if self._stop is None else self._stop(self._begun)

    def end(self, outcome: Outcome | Cancelled) -> None:
        """Stamp the end of the effect, note its outcome, and go on to the next effect."""
        self.keep(outcome)
        self.go_on(outcome)

    def keep(self, outcome: Outcome | Cancelled) -> None:
        """Stamp the end of the effect, and let its outcome be written down."""
        effect = self.effect
        assert effect is not None
        self.stamps[effect.position] = [self._begun, self._clock.stamp()]
        if self._on_outcome is not None:
            self._on_outcome(effect, outcome, self.stamps)

    def go_on(self, outcome: Outcome | Cancelled) -> None:
        """Go on to the next effect, after one whose outcome was kept."""
        assert self.effect is not None
        self._tell(is_over=True)
        self.performed[self.effect.position] = outcome
        if isinstance(outcome, Cancelled):
            self._effects.close()
            self.effect = None
        else:
            self.effect = self._sent(outcome)
        if self._on_performed is not None:
            token = BRANCH.set(None)  # what the loop does next is done for no single call
            try:
                self._on_performed()
            finally:
                BRANCH.reset(token)

    def _sent(self, outcome: Outcome) -> Invoke | Wait | None:
        try:
            return self._effects.send(outcome)
        except StopIteration:
            return None

    def _tell(self, *, is_over: bool) -> None:
        """Tell that an attempt begins or is over, as it happens."""
        if self._on_notice is not None and isinstance(self.effect, Invoke):
            self._on_notice(Attempted(self.effect, is_over))


def perform_group(runs: Iterable[BranchRun], perform: Perform) -> None:
    """Perform the calls of a group one after another.

    What stops the run during one of them stops that one. The others are stopped by whatever stops them.
    """
    for run in runs:
        with run.here():
            while run.effect is not None:
                run.end(run.begin() or perform(run.effect, run.stamps))
