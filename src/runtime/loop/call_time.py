"""The time at which a call is decided, read and recorded where the decision depends on it."""

from __future__ import annotations

from collections.abc import Generator

from ..core.effects import Effect, Event, Outcome, ReadClock
from ..policy.per_tool.time_windows import zones_of
from ..policy.per_tool.tool_limits import rate_limit
from .step_builder import StepBuilder


def read_clock(step: StepBuilder, index: int, name: str) -> Generator[Effect | Event, Outcome, None]:
    """Read the time for the next decision on a call of a tool, if the policy's rules on that tool ask for it.

    Yields ReadClock. The local times stand in the step's line.
    """
    policy = step.state.run.gate.policy
    zones = zones_of(policy, name)
    if not zones and rate_limit(policy, name) is None:
        return
    clock = ReadClock(step.index, index, step.next_decision(index), zones)
    read = yield clock
    step.state.counters.now, step.state.counters.local_times = read.now, read.local_times
    step.add_local_times(clock.position, read.local_times)
