"""What the model reads of a denial or of a call that was stopped: plain data, without the text of any exception."""

from __future__ import annotations

from typing import Any


def denied_call(rule: str, reason: str, *, executed: bool) -> dict[str, Any]:
    """Return what the model reads of a call that the policy denied.

    Args:
        rule: The rule that objected.
        reason: Its reason, one line.
        executed: Whether the call was executed before.
    """
    return {
        "error": "policy_denied",
        "rule": rule,
        "reason": reason,
        "executed": executed,
        "retryable": False,
    }


def stopped_call() -> dict[str, Any]:
    """Return what the model reads of a call that was stopped while the run goes on."""
    reason = "the call was cancelled, and what it did is not known"
    return {"error": "cancelled", "reason": reason, "retryable": False}


def lost_result() -> dict[str, Any]:
    """Return what the model reads of a call that was made, and whose result was lost when the process ended."""
    return {"done": True, "result": None, "reason": "the result was lost when the process ended"}
