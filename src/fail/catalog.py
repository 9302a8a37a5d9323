"""Classify what can happen in a step: its failure mode and the run's ending. Nothing is classified anywhere else.

What happened is a value, a `Happening`; `classify(happening, on_deny, on_failure)` looks it up in one table. A
happening that the table does not hold is a mistake of ours and raises KeyError.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Final, Self

from msgspec import Struct


class Rule(StrEnum):
    """A rule of the gate, in evaluation order; HOOK is what a hook decides, GATE_ERROR a failure of the gate itself."""

    TOOL_REGISTRY = "tool_registry"
    URL_ALLOWLIST = "url_allowlist"
    SANDBOX_PATH = "sandbox_path"
    ARG_SCHEMA = "arg_schema"
    RESOURCES = "resources"
    ARGUMENTS = "arguments"
    REDACT = "redact"
    CYCLE_DETECTION = "cycle_detection"
    TOOL_LIMITS = "tool_limits"
    LOOP_BUDGET = "loop_budget"
    AGENTS = "agents"
    APPROVAL = "approval"
    HOOK = "hook"
    GATE_ERROR = "gate_error"


class _InWords(StrEnum):
    """Texts that records hold, each with words for people."""

    words: str

    def __new__(cls, text: str, words: str) -> Self:
        made = str.__new__(cls, text)
        made._value_, made.words = text, words
        return made


class Ending(_InWords):
    """Why a run ended, with words for people."""

    FINAL_ANSWER = "final_answer", "the model answered"
    POLICY_DENIAL = "policy_denial_terminal", "a call was denied and the policy ends the run there"
    FAILURE = "failure_mode_terminal", "a failure that the run cannot go on from"
    LOOP_BUDGET = "loop_budget", "a budget of the policy was used up"
    APPROVAL_REFUSED = "approval_refused", "a person refused a call, or did not answer in time"
    REFUSED = "refused", "the model, or a filter of its service, refused to answer"
    CANCELLED = "cancelled", "the run was told to stop"


ENDINGS: Final[dict[str, str]] = {it: it.words for it in Ending}


class FailureMode(_InWords):
    """What went wrong in a step, with words for people."""

    SCHEMA_MISMATCH = "schema_mismatch", "the arguments of a call do not fit the tool's input schema"
    CYCLE_DETECTION = "cycle_detection", "the same call gave the same result too often"
    TOOL_CALL_FAILURE = "tool_call_failure", "a tool failed temporarily and recovered within its retries"
    RETRY_EXHAUSTION = (
        "retry_exhaustion",
        "a tool kept failing until its retries were used up, or may not be repeated",
    )
    TIMEOUT = "timeout", "a time-out that may not be repeated, or the run's own deadline"
    CATALOGUED_UNHANDLED = "catalogued_unhandled", "a tool raised an exception that nobody foresaw"
    LLM_FAILURE = "llm_failure", "the model could not be asked, or a graph did not come to its end"
    LLM_INVALID_OUTPUT = "llm_invalid_output", "the model's reply has no usable shape, or is empty"
    LLM_REFUSAL = "llm_refusal", "the model, or a filter of its service, refused to answer"
    TOOL_OUTPUT_INVALID = "tool_output_invalid", "a tool's result does not fit its output schema"
    OUTPUT_MISMATCH = "output_mismatch", "the final answer is not JSON that fits the schema asked for"
    CANCELLED = "cancelled", "the run was stopped with the reason `cancelled`, or its task was cancelled"
    INTERRUPTED = (
        "interrupted",
        "the run was stopped with the reason `interrupted`; a signal leaves it open instead",
    )


MODES: Final[dict[str, str]] = {it: it.words for it in FailureMode}

# modes in which an operation failed, as opposed to being refused, recovered or stopped
BROKEN: Final = frozenset(
    {
        FailureMode.RETRY_EXHAUSTION,
        FailureMode.TIMEOUT,
        FailureMode.CATALOGUED_UNHANDLED,
        FailureMode.LLM_FAILURE,
        FailureMode.LLM_INVALID_OUTPUT,
        FailureMode.TOOL_OUTPUT_INVALID,
        FailureMode.OUTPUT_MISMATCH,
    }
)


class StopReason(StrEnum):
    """What stopped a run from outside."""

    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    DEADLINE = "deadline"


# ---- what can happen ---------------------------------------------------------------------------------------


class Happening(Struct, frozen=True):
    """Base of all that can happen."""


class Answered(Happening, frozen=True):
    """The model gave its final answer."""


class Refused(Happening, frozen=True):
    """The model, or a filter of its service, refused to answer."""


class Succeeded(Happening, frozen=True):
    """An effect succeeded, also where its result was lost when the process ended.

    `recovered` says that attempts failed before.
    """

    recovered: bool = False


class Denied(Happening, frozen=True):
    """A rule refused a call, a result or a step; `repeated` if the same call had been refused before."""

    rule: Rule
    repeated: bool = False


class ApprovalRefused(Happening, frozen=True):
    """A person refused a call, or did not answer in time."""


class StoppedByHook(Happening, frozen=True):
    """A hook ended the run before the model was asked, or failed where the run was to stop."""


class CallStopped(Happening, frozen=True):
    """A call was cancelled on its own; the run goes on."""


class GaveUp(Happening, frozen=True):
    """An effect failed for good; `mode` is one of BROKEN."""

    mode: FailureMode


class Stopped(Happening, frozen=True):
    """The run was told to stop; `reason` says by what."""

    reason: StopReason


class Classification(Struct, frozen=True):
    """What follows: `mode` is None where nothing failed, `ending` is None where the run goes on."""

    mode: FailureMode | None
    ending: Ending | None


CONTINUE: Final = Classification(None, None)

# what happened: (mode, ending under terminate, ending under inform); the word is that of `key_of`
_TABLE: Final[dict[Happening, tuple[FailureMode | None, Ending | None, Ending | None]]] = {
    Answered(): (None, Ending.FINAL_ANSWER, Ending.FINAL_ANSWER),
    Refused(): (FailureMode.LLM_REFUSAL, Ending.REFUSED, Ending.REFUSED),
    Succeeded(): (None, None, None),
    Succeeded(recovered=True): (FailureMode.TOOL_CALL_FAILURE, None, None),
    # what a person says of a call is ApprovalRefused, and some rules are told apart below
    **{Denied(rule): (None, Ending.POLICY_DENIAL, None) for rule in Rule if rule != Rule.APPROVAL},
    Denied(Rule.ARG_SCHEMA): (FailureMode.SCHEMA_MISMATCH, Ending.FAILURE, None),
    Denied(Rule.CYCLE_DETECTION): (FailureMode.CYCLE_DETECTION, Ending.POLICY_DENIAL, Ending.POLICY_DENIAL),
    Denied(Rule.LOOP_BUDGET): (None, Ending.LOOP_BUDGET, Ending.LOOP_BUDGET),
    StoppedByHook(): (None, Ending.POLICY_DENIAL, Ending.POLICY_DENIAL),
    Denied(Rule.GATE_ERROR): (None, Ending.POLICY_DENIAL, Ending.POLICY_DENIAL),
    # a model that proposes a refused call again is not going to adapt
    **{Denied(rule, repeated=True): (None, Ending.POLICY_DENIAL, Ending.POLICY_DENIAL) for rule in Rule},
    ApprovalRefused(): (None, Ending.APPROVAL_REFUSED, None),
    CallStopped(): (None, None, None),
    # a model that cannot be asked cannot be told either
    **{
        GaveUp(mode): (mode, Ending.FAILURE, Ending.FAILURE if mode == FailureMode.LLM_FAILURE else None)
        for mode in sorted(BROKEN)
    },
    Stopped(StopReason.DEADLINE): (FailureMode.TIMEOUT, Ending.FAILURE, Ending.FAILURE),
    Stopped(StopReason.CANCELLED): (FailureMode.CANCELLED, Ending.CANCELLED, Ending.CANCELLED),
    Stopped(StopReason.INTERRUPTED): (FailureMode.INTERRUPTED, Ending.CANCELLED, Ending.CANCELLED),
}


def happenings() -> tuple[Happening, ...]:
    """Return every happening that `classify` knows."""
    return tuple(_TABLE)


def key_of(happening: Happening) -> str:
    """Return the key that says what follows a happening: the policy's `on_failure` or `on_deny`.

    An answer that does not fit is asked for again as often as the agent's `output_retries` says.
    """
    if happening == GaveUp(FailureMode.OUTPUT_MISMATCH):
        return "output_retries"
    return "on_failure" if type(happening) is GaveUp else "on_deny"


@cache
def classify(happening: Happening, on_deny: str, on_failure: str = "terminate") -> Classification:
    """Return the mode and ending of a happening.

    Args:
        happening: What happened.
        on_deny: What the policy says of refusals, `terminate` or `inform`.
        on_failure: What it says of failures of this tool or of the model, `terminate` or `inform`. Of an answer
            that does not fit: `inform` while it is asked for again.
    """
    mode, terminate, inform = _TABLE[happening]
    word = on_deny if key_of(happening) == "on_deny" else on_failure
    return Classification(mode, inform if word == "inform" else terminate)
