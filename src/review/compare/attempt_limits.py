"""Where one policy leaves room for another attempt to execute a tool, and another policy does not."""

from __future__ import annotations

from typing import NamedTuple

from ...runtime.policy.policy import Policy


class MoreAttempts(NamedTuple):
    """What a run has used where only the looser policy allows one more call, and the looser and the stricter limit."""

    used: dict[str, int]
    limits: tuple[int | str, int]


def more_attempts(looser: Policy, stricter: Policy) -> MoreAttempts | None:
    """Return a place where only the looser policy allows one more call, None if no run can come there.

    Each call may have been tried as often as the looser policy lets it.
    """
    limit, more = stricter.limits.get("max_attempts"), looser.limits.get("max_attempts")
    if limit is None or (more is not None and more <= limit):
        return None
    tries = 1 + looser.section("retry").get("max_retries", 0)
    calls = -(-limit // tries)
    if calls >= min(policy.limits["max_tool_calls"] for policy in (looser, stricter)):
        return None
    used = {"tool_calls": calls, "attempts": limit}
    return MoreAttempts(used, ("unlimited" if more is None else more, limit))
