"""The driver: performs the loop's effects, stamps them, and hands each step on as one line.

`drive` knows no world. A *world* performs effects: `LiveExecutor` with a model, tools and a clock; a replay
answers from a record instead.
"""

from __future__ import annotations

from collections.abc import Callable

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import (
    Decided,
    Effect,
    Outcome,
    RunEnded,
    StepEnded,
)
from ..core.lines import StepLine
from ..loop.state import RunGenerator
from .ports import Executor, OnEvent, OnOutcome, Stamps, Stop


def drive(
    loop: RunGenerator,
    executor: Executor,
    clock: Clock,
    on_step: Callable[[StepLine], None],
    on_event: OnEvent,
    *,
    on_outcome: OnOutcome | None = None,
    stop: Stop | None = None,
) -> RunEnded:
    """Run a loop to its ending.

    `on_step` gets each step's line with its stamps, in order; `on_event` every decision and every effect with
    its outcome as soon as it has one.
    """
    stamps: Stamps = {}
    try:
        item = next(loop)
        while True:
            if isinstance(item, StepEnded):
                item.line["stamps"] = stamps
                on_step(item.line)
                stamps = {}
                item = next(loop)
                continue
            begun = clock.stamp()
            if isinstance(item, Decided):
                clock.spend("decision")
                stamps[item.position] = [begun, clock.stamp()]
                on_event(item, None)
                item = next(loop)
                continue
            outcome = _performed(executor, item, stamps, stop(begun) if stop is not None else None)
            stamps[item.position] = [begun, clock.stamp()]
            if on_outcome is not None:
                on_outcome(item, outcome, stamps)
            if isinstance(outcome, Cancelled):
                item = loop.throw(outcome)
                continue
            on_event(item, outcome)
            item = loop.send(outcome)
    except StopIteration as stop:
        ending: RunEnded = stop.value
        return ending


def _performed(
    executor: Executor, effect: Effect, stamps: Stamps, stopped: Cancelled | None
) -> Outcome | Cancelled:
    if stopped is not None:
        return stopped
    try:
        return executor.perform(effect, stamps)
    except Cancelled as cancelled:
        return cancelled
