"""Bounded retry: whether a failure may be tried again, and after how long."""

from __future__ import annotations

import hashlib

from ..log.events import Failed
from .sections import Retry


def backoff_ms(retry: Retry, attempt: int, identity: str, retry_after_ms: int | None) -> int:
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


def may_repeat(failed: Failed, *, idempotent: bool) -> bool:
    """Return whether a failed effect may be performed again: only what is named, and never blindly a second time."""
    return failed.kind in ("transient", "timeout") and (idempotent or failed.harmless)
