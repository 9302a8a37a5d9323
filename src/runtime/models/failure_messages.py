"""What the model reads that no model and no tool said: of denials, of stopped calls, of messages.

Plain data, without the text of any exception but ToolFailure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...fail.catalog import FailureMode
from ..formats.strict_json import canonical
from ..log.events import Failed
from ..log.values import USER
from .types import Message

# stands for a reply that said nothing, since services refuse empty messages
NO_WORDS: Final = "(no words)"
SUMMARIZE: Final = (
    "Do not go on. Sum up all that went before for yourself: what was asked, facts and where they stand, decisions, "
    "what is still open."
)
_REASONS: Final = {
    FailureMode.RETRY_EXHAUSTION: "the tool failed temporarily, and is not retried automatically",
    FailureMode.TIMEOUT: "the tool timed out, and what it did is not known",
    FailureMode.CATALOGUED_UNHANDLED: "the tool raised an exception",
    FailureMode.TOOL_OUTPUT_INVALID: "the tool's result does not match its output schema",
}


def failed_call(mode: FailureMode, failed: Failed, *, retryable: bool) -> dict[str, Any]:
    """Return what the model reads of a call that failed for good.

    Args:
        mode: What failed.
        failed: The outcome of the last attempt.
        retryable: Whether the same call may succeed later, and does no harm if it is made twice.
    """
    reason = failed.said or _REASONS[mode]
    told = {"error": "tool_failed", "kind": str(mode), "reason": reason, "retryable": retryable}
    return told if failed.kind == "invalid" else {**told, "exception": failed.error}


def unusable_reply(problem: str) -> dict[str, Any]:
    """Return what the model reads in the place of the results of a reply that could not be used."""
    return {"error": "invalid_reply", "reason": problem, "executed": False, "retryable": True}


def reply_again(problem: str) -> Message:
    """Return the message that asks the model to reply again."""
    return {"role": "user", "content": f"Your last reply could not be used: {problem}. Reply again."}


def denied_call(
    rule: str, reason: str, *, executed: bool, retry_after_ms: int | None = None
) -> dict[str, Any]:
    """Return what the model reads of a call that the policy denied.

    Args:
        rule: The rule that objected.
        reason: Its reason, one line.
        executed: Whether the call was executed before.
        retry_after_ms: After what time it would be allowed; None where no time takes the denial away.
    """
    told = {"error": "policy_denied", "rule": rule, "reason": reason, "executed": executed}
    if retry_after_ms is None:
        return {**told, "retryable": False}
    return {**told, "retryable": True, "retry_after_ms": retry_after_ms}


def stopped_call() -> dict[str, Any]:
    """Return what the model reads of a call that was stopped while the run goes on."""
    reason = "the call was cancelled, and what it did is not known"
    return {"error": "cancelled", "reason": reason, "retryable": False}


def lost_result() -> dict[str, Any]:
    """Return what the model reads of a call that was made, and whose result was lost when the process ended."""
    return {"done": True, "result": None, "reason": "the result was lost when the process ended"}


def refused_answer(reason: str) -> Message:
    """Return the message that asks again for an answer that is not of the type asked for."""
    again = "Give it again as JSON that fits the schema, with nothing before or after it."
    return {"role": "user", "content": f"The answer {reason}. {again}"}


def not_reached() -> dict[str, Any]:
    """Return what the model reads of a call that was not made, since the turn ended or another agent goes on."""
    return {"error": "not_reached", "executed": False}


def with_all_results(messages: Iterable[Message]) -> list[Message]:
    """Return messages of a run in which each call has a result: those that an ending left out were not made."""
    full = [*messages]
    without: dict[str, Message] = {}
    for message in full:
        without |= {call["id"]: call for call in message.get("tool_calls", ())}
        without.pop(message.get("tool_call_id", ""), None)
    result = {"role": "tool", "content": canonical(not_reached()).decode()}
    return full + [{**result, "tool_call_id": it, "name": call["name"]} for it, call in without.items()]


def heard(sender: str, text: str) -> Message:
    """Return what a model reads of a message: of another agent, or of somebody outside."""
    if sender != USER:
        text = f"Message from {sender or 'the agent of the run'}: {text}"
    return {"role": "user", "content": text}


def ask_for_summary(focus: str) -> Message:
    """Return what asks a model for a summary of the messages before it."""
    more = f" Above all: {focus}" if focus else ""
    return {"role": "user", "content": f"{SUMMARIZE}{more}"}


def summed_up(summary: str) -> Message:
    """Return what a model reads in the place of the messages that it summed up."""
    return {"role": "user", "content": f"Summary of what went before: {summary}"}
