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
from ..core.effects import Effect, Invoke, Outcome, Wait
from .effect_sequence import EffectSequence
from .ports import OnNotice, OnOutcome, Stamps, Stop

Perform = Callable[[Effect, Stamps], Outcome | Cancelled]


class BranchRun(EffectSequence):
    """One call of a group under way; its `effect` is None once the call is over.

    Attributes:
        branch: The step, and the call's place in the reply.
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
        super().__init__(clock, on_outcome, stop, on_notice)
        self.branch = branch
        self.performed: dict[str, Outcome | Cancelled] = {}
        self._effects = effects
        self._on_performed = on_performed
        self.effect: Invoke | Wait | None = next(effects, None)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Say that what is done inside is done for this call."""
        token = BRANCH.set(self.branch)
        try:
            yield
        finally:
            BRANCH.reset(token)

    def go_on(self, outcome: Outcome | Cancelled) -> None:
        """Go on to the next effect, after one whose outcome was kept."""
        assert self.effect is not None
        self._notify(is_over=True)
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


def perform_group(runs: Iterable[BranchRun], perform: Perform) -> None:
    """Perform the calls of a group one after another.

    What stops the run during one of them stops that one. The others are stopped by whatever stops them.
    """
    for run in runs:
        with run.here():
            while run.effect is not None:
                run.end(run.begin() or perform(run.effect, run.stamps))
