"""The drivers: perform the loop's effects, one after another, to its ending.

`drive` and `drive_async` know no world. A *world* performs effects: `LiveExecutor` with a model, tools and a clock; a
replay answers from a record instead. All that is the same for both is in `Stepper`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import (
    Effect,
    Outcome,
    RunEnded,
)
from ..core.lines import StepLine
from ..loop.state import RunGenerator
from .async_groups import perform_group_async
from .groups import perform_group
from .ports import (
    AsyncExecutor,
    Executor,
    Kept,
    OnEvent,
    OnLocalTimes,
    OnNotice,
    OnOutcome,
    Settle,
    Stamps,
    Stop,
)
from .stepper import Stepper

if TYPE_CHECKING:
    from asyncio import CancelledError


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
    on_notice: OnNotice | None = None,
    on_local_times: OnLocalTimes | None = None,
) -> RunEnded:
    """Run a loop to its ending.

    `on_step` gets each step's line with its stamps, in order; `on_event` every decision and every effect with
    its outcome as soon as it has one; those of a call of a group once the calls before it are over too. `settle` says
    what an outcome of such a call is in the record, `on_local_times` gets local times that a decision rests on.
    """
    stepper = Stepper(
        loop,
        clock,
        on_step,
        on_event,
        on_outcome=on_outcome,
        stop=stop,
        settle=settle,
        on_notice=on_notice,
        on_local_times=on_local_times,
    )
    while True:
        if (effect := stepper.effect) is not None:
            stepper.end(stepper.begin() or _performed(executor, effect, stepper.stamps))
        elif stepper.group is not None:
            perform_group(stepper.group, partial(_performed, executor))
            stepper.join()
        else:
            return stepper.ended


async def drive_async(
    stepper: Stepper,
    executor: AsyncExecutor,
    kept: Kept | None = None,
    cancelled: CancelledError | None = None,
) -> tuple[RunEnded, CancelledError | None]:
    """Run the loop of a stepper to its ending, in an event loop that is not blocked meanwhile.

    A task that is cancelled brings the run to its end as `cancelled`, with a whole record; no effect is performed
    after it. `kept` waits until the disk has an outcome, before anything else is done. `cancelled` is what cancelled
    the task before the run began. Returns how the run ended, and the CancelledError, which the caller raises when the
    record is complete.
    """
    from asyncio import CancelledError, sleep

    step = 0
    while True:
        if (effect := stepper.effect) is not None:
            stopped = stepper.begin() or (None if cancelled is None else Cancelled("by its task"))
            outcome: Outcome | Cancelled
            try:
                if effect.step != step:
                    step = effect.step
                    await sleep(0)  # a run that never waits lets others go on at each step
                outcome = stopped or await _performed_async(executor, effect, stepper.stamps)
            except CancelledError as error:
                cancelled = error
                outcome = Cancelled("by its task")
            stepper.keep(outcome)
            if kept is not None:
                cancelled = await kept() or cancelled
            stepper.go_on(outcome)
        elif stepper.group is not None:
            left = await perform_group_async(stepper.group, partial(_performed_async, executor), kept=kept)
            cancelled = left or cancelled
            stepper.join()
        else:
            return stepper.ended, cancelled


async def _performed_async(executor: AsyncExecutor, effect: Effect, stamps: Stamps) -> Outcome | Cancelled:
    try:
        return await executor.perform_async(effect, stamps)
    except Cancelled as cancelled:
        return cancelled


def _performed(executor: Executor, effect: Effect, stamps: Stamps) -> Outcome | Cancelled:
    try:
        return executor.perform(effect, stamps)
    except Cancelled as cancelled:
        return cancelled
