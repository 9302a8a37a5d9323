"""Attempts: an effect performed until it succeeds or may not be tried again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ...fail.errors import Cancelled
from ..core.effects import Effect, Event, Fault, Outcome, Wait
from .retry import may_repeat
from .state import StepBuilder


def with_retries(
    step: StepBuilder,
    effect: Callable[[int], Effect],
    attempts: list[dict[str, Any]],
    *,
    index: int | None,
    idempotent: bool,
    judge: Callable[[Outcome], str],
) -> Generator[Effect | Event, Outcome, tuple[Outcome, str]]:
    """Perform an effect until it succeeds or may not be tried again; tools and the model share it.

    Returns the last outcome and what happened: `ok`, a happening of the catalog, or `deny:<rule>`.
    """
    run = step.state.run
    attempt = 0
    while True:
        attempt += 1
        wanted = effect(attempt)
        try:
            outcome = yield wanted
        except Cancelled:
            attempts.append({"attempt": attempt, "outcome": "cancelled"})
            raise
        what = "fault" if index is None and outcome.fault is not None else judge(outcome)
        entry = _entry(step, attempt, outcome)
        attempts.append(entry)
        fault = outcome.fault
        if what != "fault" or fault is None:
            entry["outcome"] = (
                "success" if what in ("ok", "unseen") else "denied" if what.startswith("deny:") else "failed"
            )
            return outcome, what
        step.note_error(wanted.position, fault.to_dict())
        if attempt > run.schedule.max_retries or not may_repeat(fault, idempotent):
            what = _given_up(fault, attempt)
            entry["outcome"] = "exhausted" if what == "exhausted" else "failed"
            return outcome, what
        identity = f"{run.seed}/{run.run_id}/{step.index}/{index}/{attempt}"
        wait = run.schedule.backoff_ms(attempt, identity, fault.retry_after_ms)
        entry["outcome"] = "transient_failure"
        entry["backoff_ms"] = wait
        yield Wait(step.index, index, attempt, wait)


def _given_up(fault: Fault, attempt: int) -> str:
    if fault.kind == "other":
        return "unhandled"
    if fault.kind == "timeout" and attempt == 1:
        return "timeout"  # one that may not be repeated, by the tool or by the policy
    return "exhausted"


def _entry(step: StepBuilder, attempt: int, outcome: Outcome) -> dict[str, Any]:
    """An attempt as the ledger keeps it: with all that a replay needs of it."""
    entry: dict[str, Any] = {"attempt": attempt, "outcome": None}
    if outcome.fault is not None:
        entry["fault"] = outcome.fault.to_dict()
    if outcome.invalid is not None:
        entry["invalid"] = outcome.invalid
    if outcome.checks:
        entry["checks"] = list(outcome.checks)
    reads = [pair for pair in outcome.reads if pair not in step.state.known_inputs]
    if reads:
        step.state.known_inputs.update(reads)
        entry["reads"] = [list(pair) for pair in reads]
    if outcome.writes:
        entry["writes"] = [list(pair) for pair in outcome.writes]
    return entry
