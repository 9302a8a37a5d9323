"""The calls of a recorded step as they were decided: with the arguments that hooks gave them, if any."""

from __future__ import annotations

from typing import Any

from ...light_dataclasses import dataclass
from ..core.lines import Line
from ..formats import canonical_json
from ..loop.hooks import MAX_REPLACED


@dataclass(frozen=True, slots=True)
class DecidedProposal:
    """A recorded decision on a proposed call, before the call was performed.

    Attributes:
        entry: The decision.
        call: The call as it was then, as an entry of `intended_tool_calls`.
        by_hook: Whether a hook decided, and not the gate.
        is_last: Whether no other decision on the proposed call followed.
    """

    entry: Line
    call: dict[str, Any]
    by_hook: bool
    is_last: bool


def proposals_of(step: Line, index: int) -> list[DecidedProposal]:
    """Return the decisions on the proposed call at `index`, in order.

    The gate decides the call, then again each time that a hook gave it other arguments; what is left is the decision
    of a hook.
    """
    own = {f"d{index}": 1} | {f"d{index}.{number}": number for number in range(2, MAX_REPLACED + 3)}
    entries = sorted(
        (entry for entry in step["policy_decisions"] if entry["position"] in own),
        key=lambda entry: own[entry["position"]],
    )
    calls = _calls_of_gate(step, index)
    return [
        DecidedProposal(
            entry, calls[min(number, len(calls) - 1)], number >= len(calls), number == len(entries) - 1
        )
        for number, entry in enumerate(entries)
    ]


def decided_calls(step: Line) -> list[dict[str, Any]]:
    """Return the entries of a step's calls; one whose arguments a hook replaced has the new ones."""
    return [_calls_of_gate(step, index)[-1] for index in range(len(step["intended_tool_calls"]))]


def results_of_hooks(step: Line, index: int) -> list[dict[str, Any]]:
    """Return the results that hooks gave for a call and whose size the gate was asked about, in order."""
    answers = [
        entry.get("answer")
        for entry in step.get("hooks", ())
        if entry["event"] == "after_call" and entry["position"].startswith(f"k{index}.")
    ]
    for entry in step["policy_decisions"]:
        if entry["position"] == f"d{index}.r" and entry["rule_id"] == "hook":
            # the last answer is what the denial is about, a result that does not fit the schema too
            answers = answers[:-1]
    given = [
        answer["result"] for answer in answers if isinstance(answer, dict) and list(answer) == ["result"]
    ]
    return [result for result in given if isinstance(result, dict)]


def _calls_of_gate(step: Line, index: int) -> list[dict[str, Any]]:
    """Return a call as the gate was asked about it: as proposed, then with the arguments of each hook."""
    calls = [dict(step["intended_tool_calls"][index])]
    for entry in step.get("hooks", ()):
        answer = entry.get("answer")
        is_of_call = entry["event"] == "before_call" and entry["position"].startswith(f"k{index}.")
        if not is_of_call or not isinstance(answer, dict) or list(answer) != ["arguments"]:
            continue
        given, known = answer["arguments"], calls[-1]["arguments"]
        if not isinstance(given, dict) or len(calls) > MAX_REPLACED:
            continue
        # the arguments that a call has already are none to decide again
        if known is None or canonical_json.encode(given) != canonical_json.encode(known):
            calls.append({**calls[-1], "arguments": given})
    return calls
