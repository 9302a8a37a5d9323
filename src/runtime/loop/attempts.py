"""Attempts: an effect performed until it succeeds or may not be tried again. Tools and the model share this."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ..effects import Effect, Wait
from ..log.events import Decided, Failed, Outcome, Stopped
from ..policy.sections import Retry
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
        repeatable = attempt <= retries and _may_repeat(outcome, idempotent=idempotent)
        identity = f"{run.spec.seed}/{run.spec.run_id}/{at}"
        backoff = _backoff_ms(run.gate.policy.retry, attempt, identity, outcome.retry_after_ms)
        wait = Wait(backoff * 1_000_000)
        if not repeatable or not run.authority.has_time(wait.ns) or not may_go_on():
            return outcome, before + attempt
        waited = await run.driver.perform(f"{at}.w", wait)
        if isinstance(waited, Stopped):
            return waited, before + attempt


def _backoff_ms(retry: Retry, attempt: int, identity: str, retry_after_ms: int | None) -> int:
    """Return the wait after a failed attempt in milliseconds: `min(base * 2^(attempt-1) +- 20 %, cap)`.

    Args:
        retry: What the policy says.
        attempt: The number of the attempt, from 1.
        identity: What the jitter is a pure function of.
        retry_after_ms: What the service asked for; it replaces the exponential part, up to the cap.
    """
    if retry_after_ms is not None:
        return max(0, min(retry_after_ms, retry.backoff_cap_ms))
    draw = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") % 401
    return min((retry.backoff_base_ms << (attempt - 1)) * (800 + draw) // 1000, retry.backoff_cap_ms)


def _may_repeat(failed: Failed, *, idempotent: bool) -> bool:
    """Return whether a failed effect may be performed again: only what is named, and never blindly a second time."""
    return failed.kind in ("transient", "timeout") and (idempotent or failed.harmless)
