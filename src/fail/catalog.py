"""Every way a step can go, in one table: failure mode and ending. Nothing is classified anywhere else.

`verdict(what, on_deny)` is the only door. `what` names the happening:

- `answered`
- `deny:<rule>` for a refused call, `deny:again` for a refused call that was proposed once more
- `approval:refused`
- `recovered`, `exhausted`, `timeout`, `unhandled` for a tool
- `llm_failure`, `llm_invalid_output`, `tool_output_invalid`
- `cancelled`, `interrupted`, `deadline`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FINAL_ANSWER: Final = "final_answer"
POLICY_DENIAL: Final = "policy_denial_terminal"
FAILURE: Final = "failure_mode_terminal"
LOOP_BUDGET: Final = "loop_budget"
APPROVAL_REFUSED: Final = "approval_refused"
CANCELLED: Final = "cancelled"

ENDINGS: Final = {
    FINAL_ANSWER: "the model answered",
    POLICY_DENIAL: "a call was denied and the policy ends the run there",
    FAILURE: "a failure that the run cannot go on from",
    LOOP_BUDGET: "a budget of the policy was used up",
    APPROVAL_REFUSED: "a person refused a call, or did not answer in time",
    CANCELLED: "the run was told to stop",
}

MODES: Final = {
    "schema_mismatch": "the arguments of a call do not fit the tool's input schema",
    "cycle_detection": "the same call brought the same result too often",
    "tool_call_failure": "a tool failed for a moment and recovered within its retries",
    "retry_exhaustion": "a tool kept failing until its retries were used up, or may not be repeated",
    "timeout": "a time-out that may not be repeated, or the run's own deadline",
    "catalogued_unhandled": "a tool raised an exception that nobody foresaw",
    "llm_failure": "the model could not be asked",
    "llm_invalid_output": "the model's reply has no usable shape",
    "tool_output_invalid": "a tool's result does not fit its output schema",
    "cancelled": "the run was cancelled by code",
    "interrupted": "the run was cancelled by a signal",
}

# modes in which an operation failed, as opposed to being refused, recovered or stopped
BROKEN: Final = frozenset(
    {
        "retry_exhaustion",
        "timeout",
        "catalogued_unhandled",
        "llm_failure",
        "llm_invalid_output",
        "tool_output_invalid",
    }
)

RULES: Final = (
    "tool_registry",
    "url_allowlist",
    "sandbox_path",
    "arg_schema",
    "cycle_detection",
    "loop_budget",
    "approval",
    "gate_error",
)


@dataclass(frozen=True, slots=True)
class Classification:
    """What follows: `mode` is None where nothing failed, `ending` is None where the run goes on."""

    mode: str | None
    ending: str | None


# what happened: (mode, ending under on_deny=terminate, ending under on_deny=inform)
_TABLE: Final[dict[str, tuple[str | None, str | None, str | None]]] = {
    "answered": (None, FINAL_ANSWER, FINAL_ANSWER),
    "deny:tool_registry": (None, POLICY_DENIAL, None),
    "deny:url_allowlist": (None, POLICY_DENIAL, None),
    "deny:sandbox_path": (None, POLICY_DENIAL, None),
    "deny:arg_schema": ("schema_mismatch", FAILURE, None),
    "deny:cycle_detection": ("cycle_detection", POLICY_DENIAL, POLICY_DENIAL),
    "deny:loop_budget": (None, LOOP_BUDGET, LOOP_BUDGET),
    "deny:gate_error": (None, POLICY_DENIAL, POLICY_DENIAL),
    "deny:again": (None, POLICY_DENIAL, POLICY_DENIAL),
    "approval:refused": (None, APPROVAL_REFUSED, None),
    "recovered": ("tool_call_failure", None, None),
    "exhausted": ("retry_exhaustion", FAILURE, FAILURE),
    "timeout": ("timeout", FAILURE, FAILURE),
    "unhandled": ("catalogued_unhandled", FAILURE, FAILURE),
    "llm_failure": ("llm_failure", FAILURE, FAILURE),
    "llm_invalid_output": ("llm_invalid_output", FAILURE, FAILURE),
    "tool_output_invalid": ("tool_output_invalid", FAILURE, FAILURE),
    "deadline": ("timeout", FAILURE, FAILURE),
    "cancelled": ("cancelled", CANCELLED, CANCELLED),
    "interrupted": ("interrupted", CANCELLED, CANCELLED),
}


def happenings() -> tuple[str, ...]:
    """Every name that `verdict` knows."""
    return tuple(_TABLE)


def verdict(what: str, on_deny: str) -> Classification:
    """The mode and ending of a happening under a policy's `on_deny` (`terminate` or `inform`)."""
    mode, terminate, inform = _TABLE[what]
    return Classification(mode, inform if on_deny == "inform" else terminate)
