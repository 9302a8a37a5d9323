"""Attempts: an effect performed until it succeeds or may not be tried again. Tools and the model share this."""

from __future__ import annotations

from collections.abc import Callable

from ..effects import Effect, Wait
from ..log.events import Decided, Failed, Outcome, Stopped
from ..policy.retry import backoff_ms, may_repeat
from .state import RunState


async def with_retries(
    run: RunState,
    key: str,
    effect: Effect,
    *,
    idempotent: bool,
    judge: Callable[[str, Outcome], Decided | None] | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
    before: int = 0,
) -> tuple[Outcome | Decided, int]:
    """Perform an effect until it succeeds or may not be tried again.

    Args:
        run: The run.
        key: The address of an attempt in the step, without its number: `m`, or `c0.i`.
        effect: The effect.
        idempotent: Whether it may be performed twice.
        judge: Decides what an attempt met, given its address and outcome; an objection ends the matter.
        may_go_on: Takes another attempt from the budget, and returns False where that has none.
        before: How many attempts were made before, of another effect in its place.

    Returns:
        The last outcome or the objection, and the number of the last attempt.
    """
    attempt = 0
    while True:
        attempt += 1
        at = run.at(f"{key}{before + attempt}")
        outcome = await run.driver.perform(at, effect)
        if judge is not None and (objection := judge(at, outcome)) is not None:
            return objection, before + attempt
        if type(outcome) is not Failed:
            return outcome, before + attempt
        retries = min(one.gate.policy.retry.max_retries for one in run.authority.chain)
        repeatable = attempt <= retries and may_repeat(outcome, idempotent=idempotent)
        identity = f"{run.spec.seed}/{run.spec.run_id}/{at}"
        backoff = backoff_ms(run.gate.policy.retry, attempt, identity, outcome.retry_after_ms)
        wait = Wait(backoff * 1_000_000)
        if not repeatable or not run.authority.has_time(wait.ns) or not may_go_on():
            return outcome, before + attempt
        waited = await run.driver.perform(f"{at}.w", wait)
        if isinstance(waited, Stopped):
            return waited, before + attempt
