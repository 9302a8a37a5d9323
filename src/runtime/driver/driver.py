"""The driver: performs the loop's effects, stamps them, and hands each step on as one line.

`drive` knows no world. A *world* performs effects: `LiveWorld` with a model, tools and a clock; a replay
answers from a record instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...fail.errors import Cancelled
from ..core.clock import Clock
from ..core.effects import (
    Decided,
    Effect,
    Ending,
    Outcome,
    StepEnded,
)
from ..loop.state import Steps
from .ports import Heard, Note, Stamps, Stop, World


def drive(
    loop: Steps,
    world: World,
    clock: Clock,
    on_step: Callable[[dict[str, Any]], None],
    heard: Heard,
    *,
    note: Note | None = None,
    stop: Stop | None = None,
) -> Ending:
    """Run a loop to its ending.

    `on_step` gets each step's line with its stamps, in order; `heard` every decision and every effect with
    its outcome as soon as it has one.
    """
    stamps: Stamps = {}
    try:
        item = next(loop)
        while True:
            if isinstance(item, StepEnded):
                item.record["stamps"] = stamps
                on_step(item.record)
                stamps = {}
                item = next(loop)
                continue
            begun = clock.stamp()
            if isinstance(item, Decided):
                clock.spend("decision")
                stamps[item.position] = [begun, clock.stamp()]
                heard(item, None)
                item = next(loop)
                continue
            outcome = _performed(world, item, stamps, stop(begun) if stop is not None else None)
            stamps[item.position] = [begun, clock.stamp()]
            if note is not None:
                note(item, outcome, stamps)
            if isinstance(outcome, Cancelled):
                item = loop.throw(outcome)
                continue
            heard(item, outcome)
            item = loop.send(outcome)
    except StopIteration as stop:
        ending: Ending = stop.value
        return ending


def _performed(
    world: World, effect: Effect, stamps: Stamps, stopped: Cancelled | None
) -> Outcome | Cancelled:
    if stopped is not None:
        return stopped
    try:
        return world.perform(effect, stamps)
    except Cancelled as cancelled:
        return cancelled
