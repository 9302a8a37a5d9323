"""Attempts: an effect performed until it succeeds or may not be tried again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator

from ...fail.catalog import CallStopped, Denied, FailureMode, GaveUp, Happening, ResultLost, Succeeded
from ...fail.errors import Cancelled
from ...light_dataclasses import replace
from ..core.effects import DecisionKind, Effect, Event, Fault, FaultKind, Outcome, Wait
from ..core.lines import AttemptStatus
from ..policy.gate import Gate
from .retry import may_repeat
from .step_builder import StepBuilder


def with_retries(
    step: StepBuilder,
    effect: Callable[[int], Effect],
    judge: Callable[[Outcome], Happening | Fault],
    *,
    index: int | None,
    idempotent: bool,
) -> Generator[Effect | Event, Outcome, tuple[Outcome, Happening]]:
    """Perform an effect until it succeeds or may not be tried again; tools and the model share this.

    Yields the effect and, before each further attempt, a Wait. Records every attempt in the step.

    Args:
        step: The step under way.
        effect: Makes the effect of an attempt, counted from 1.
        judge: Says what an outcome amounts to, or returns its fault if that decides.
        index: The call's place in the reply, None for the model.
        idempotent: Whether the effect may be performed twice.

    Returns:
        The last outcome, and what happened.
    """
    for attempt in itertools.count(1):
        performed = effect(attempt)
        if index is not None:
            step.state.counters.attempts += 1
        try:
            outcome = yield performed
        except Cancelled:
            step.add_attempt(index, attempt, AttemptStatus.CANCELLED)
            raise
        if outcome.cancelled:
            step.add_attempt(index, attempt, AttemptStatus.CANCELLED, outcome)
            return outcome, CallStopped()
        judged = judge(outcome)
        if not isinstance(judged, Fault):
            if attempt > 1 and isinstance(judged, Succeeded | ResultLost):
                judged = replace(judged, recovered=True)
            step.add_attempt(index, attempt, _status(judged), outcome)
            return outcome, judged
        step.add_error(performed.position, **judged.to_dict())
        wait = wait_after(step, index, attempt, judged, idempotent)
        spent = (
            None if wait is None or index is None else step.state.run.gate.decide_retry(step.state.counters)
        )
        if spent is not None:
            step.add_error(performed.position, problem=spent.reason)
            wait = None
        if wait is None:
            given_up = GaveUp(_mode(judged, attempt))
            step.add_attempt(index, attempt, _status(given_up), outcome)
            return outcome, given_up
        step.add_attempt(index, attempt, AttemptStatus.TRANSIENT_FAILURE, outcome, backoff_ms=wait)
        yield step.progress()
        waited = yield Wait(step.index, index, attempt, wait)
        if waited.cancelled:
            return waited, CallStopped()
    raise AssertionError  # count() has no end


def wait_after(
    step: StepBuilder, index: int | None, attempt: int, fault: Fault, idempotent: bool
) -> int | None:
    """Return the milliseconds to wait before the next attempt, None where the effect may not be tried again."""
    run = step.state.run
    if attempt > run.schedule.max_retries or not may_repeat(fault, idempotent):
        return None
    identity = f"{run.seed}/{run.run_id}/{step.index}/{index}/{attempt}"
    return run.schedule.backoff_ms(attempt, identity, fault.retry_after_ms)


def fault_of(gate: Gate, tool: str, outcome: Outcome) -> Fault | None:
    """Return the fault of a tool's attempt, None where there is none or a fact that its I/O met is denied."""
    if any(gate.decide_late(check, tool).decision != DecisionKind.ALLOW for check in outcome.checks):
        return None
    return outcome.fault


def _mode(fault: Fault, attempt: int) -> FailureMode:
    """Return the failure mode of an effect that is not tried again."""
    if fault.kind == FaultKind.OTHER:
        return FailureMode.CATALOGUED_UNHANDLED
    if fault.kind == FaultKind.TIMEOUT and attempt == 1:
        return FailureMode.TIMEOUT  # one that may not be repeated, by the tool or by the policy
    return FailureMode.RETRY_EXHAUSTION


def _status(happening: Happening) -> AttemptStatus:
    if isinstance(happening, Succeeded | ResultLost):
        return AttemptStatus.SUCCESS
    if isinstance(happening, Denied):
        return AttemptStatus.DENIED
    exhausted = happening == GaveUp(FailureMode.RETRY_EXHAUSTION)
    return AttemptStatus.EXHAUSTED if exhausted else AttemptStatus.FAILED
