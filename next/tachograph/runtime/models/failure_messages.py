"""What the model reads of a failure or a denial: plain data without the text of any exception, and messages made of it.

A failed call has it in the place of its result. So has each call of a reply that could not be used; a reply without
calls is answered by a message in the user's role. `Told` stands in the ledger as it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...fail.catalog import FailureMode
from ..core.effects import Fault
from ..formats import canonical_json
from .types import Message

Told = dict[str, Any]

_INVALID_REPLY: Final = "Your last reply could not be used. Reply again. What was wrong with it: "
_INVALID_OUTPUT: Final = (
    "Your answer is not what was asked for. Answer again, with nothing but JSON that fits the schema. "
    "What was wrong with it: "
)
# stands for a reply that said nothing, since services refuse empty messages
NO_WORDS: Final = "(no words)"
_MAX_CLASS_NAME: Final = 100
_REASONS: Final = {
    FailureMode.RETRY_EXHAUSTION: "the tool failed temporarily, and is not retried automatically",
    FailureMode.TIMEOUT: "the tool timed out, and what it did is not known",
    FailureMode.CATALOGUED_UNHANDLED: "the tool raised an exception",
    FailureMode.TOOL_OUTPUT_INVALID: "the tool's result does not match its output schema",
}


def tool_failure(mode: FailureMode, fault: Fault | None, *, retryable: bool) -> Told:
    """Return what the model reads of a call that failed for good.

    Args:
        mode: What failed.
        fault: The exception of the last attempt, None for an invalid result.
        retryable: Whether the same call may succeed later, and does no harm if it is made twice.
    """
    told: Told = {"error": "tool_failed", "kind": str(mode), "reason": _REASONS[mode], "retryable": retryable}
    if fault is not None:
        told["exception"] = fault.exception[:_MAX_CLASS_NAME]
        if fault.undeclared is not None:
            told["reason"] = f"the tool used {fault.undeclared}, which its effect kind does not cover"
    return told


def cancelled_call() -> Told:
    """Return what the model reads of a call that was cancelled while the run goes on."""
    reason = "the call was cancelled, and what it did is not known"
    return {"error": "cancelled", "reason": reason, "retryable": False}


def unusable_reply(mode: FailureMode, problem: str, place: Mapping[str, str]) -> Told:
    """Return what the model reads of its own reply that could not be used.

    Args:
        mode: What failed.
        problem: Our line on it.
        place: Where an answer does not fit its schema: pointer, keyword, limit.
    """
    error = "invalid_output" if mode == FailureMode.OUTPUT_MISMATCH else "invalid_reply"
    return {"error": error, "kind": str(mode), "reason": problem, **place, "retryable": True}


def denied_call(rule: str, reason: str, *, executed: bool, retryable: bool) -> Told:
    """Return what the model reads of a call that the policy, a hook or a person denied.

    Args:
        rule: The rule that objected.
        reason: Its reason, one line.
        executed: Whether the call was executed before.
        retryable: Whether time takes the denial away.
    """
    return {
        "error": "policy_denied",
        "rule": rule,
        "reason": reason,
        "executed": executed,
        "retryable": retryable,
    }


def user_message(told: Told) -> Message:
    """Return the message in which the model reads why its reply without calls was of no use."""
    words = _INVALID_OUTPUT if told.get("error") == "invalid_output" else _INVALID_REPLY
    return {"role": "user", "content": words + canonical_json.encode(told)}
