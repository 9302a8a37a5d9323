"""The driver: performs the loop's effects, one after another, to its ending.

`drive` knows no world. A *world* performs effects: `LiveExecutor` with a model, tools and a clock; a replay answers
from a record instead. What does not depend on how effects are performed is in `Stepper`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import (
    Effect,
    Outcome,
    RunEnded,
)
from ..core.lines import StepLine
from ..loop.state import RunGenerator
from .groups import perform_group
from .ports import Executor, OnEvent, OnOutcome, Settle, Stamps, Stop
from .stepper import Stepper


def drive(
    loop: RunGenerator,
    executor: Executor,
    clock: Clock,
    on_step: Callable[[StepLine], None],
    on_event: OnEvent,
    *,
    on_outcome: OnOutcome | None = None,
    stop: Stop | None = None,
    settle: Settle | None = None,
) -> RunEnded:
    """Run a loop to its ending.

    `on_step` gets each step's line with its stamps, in order; `on_event` every decision and every effect with
    its outcome as soon as it has one; those of a group once all its calls are over. `settle` says what an outcome of
    such a call is in the record.
    """
    stepper = Stepper(loop, clock, on_step, on_event, on_outcome=on_outcome, stop=stop, settle=settle)
    while True:
        if (effect := stepper.effect) is not None:
            stepper.end(stepper.begin() or _performed(executor, effect, stepper.stamps))
        elif stepper.group is not None:
            perform_group(stepper.group, partial(_performed, executor))
            stepper.join()
        else:
            return stepper.ended


def _performed(executor: Executor, effect: Effect, stamps: Stamps) -> Outcome | Cancelled:
    try:
        return executor.perform(effect, stamps)
    except Cancelled as cancelled:
        return cancelled
