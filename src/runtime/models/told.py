"""What the model reads of a failure: plain data without the text of any exception, and the messages made of it.

A failed call has it in the place of its result. So has each call of a reply that could not be used; a reply without
calls is answered by a message in the user's role. `Told` stands in the ledger as it is sent.
"""

from __future__ import annotations

from typing import Any, Final

from ...fail.catalog import FailureMode
from ..core.effects import Fault
from ..formats import canonical_json

Told = dict[str, Any]

_INVALID_REPLY: Final = "Your last reply could not be used. Reply again. What was wrong with it: "
# stands for a reply that said nothing, since services refuse empty messages
NO_WORDS: Final = "(no words)"
_MAX_CLASS_NAME: Final = 100
_REASONS: Final = {
    FailureMode.RETRY_EXHAUSTION: "the tool failed temporarily, and is not retried automatically",
    FailureMode.TIMEOUT: "the tool timed out, and what it did is not known",
    FailureMode.CATALOGUED_UNHANDLED: "the tool raised an exception",
    FailureMode.TOOL_OUTPUT_INVALID: "the tool's result does not match its output schema",
}


def of_tool(mode: FailureMode, fault: Fault | None, *, retryable: bool) -> Told:
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


def of_reply(problem: str) -> Told:
    """Return what the model reads of its own reply that could not be used; `problem` is our line on it."""
    return {
        "error": "invalid_reply",
        "kind": str(FailureMode.LLM_INVALID_OUTPUT),
        "reason": problem,
        "retryable": True,
    }


def user_message(told: Told) -> dict[str, Any]:
    """Return the message in which the model reads why its reply without calls was of no use."""
    return {"role": "user", "content": _INVALID_REPLY + canonical_json.encode(told)}
