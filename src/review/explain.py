"""Say of each call of a recorded run what every rule says, and what would allow one that is denied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from ..evidence.run_source import RunSource
from ..runtime.formats.json_pointer import by_index, get
from ..runtime.log.values import Call
from ..runtime.models.types import call_text
from ..runtime.policy.gate import GATE_ERROR, Gate
from ..runtime.policy.leaf import Question
from ..runtime.policy.policy import Policy
from .compare import wider
from .edit import least_edit
from .replays import asked_in
from .words import for_tools, question_words


def explain(source: RunSource, folder: Path, name: str) -> list[str]:
    """Return what every rule says today of each call of a recorded run; a rule without a say is left out.

    Behind a decision that would be another one today nothing is known, and the last line says so.

    Raises:
        RecordError: The record cannot be read.
    """
    asked, diverged = asked_in(source, folder, name)
    found: list[str] = []
    before: object = None
    for gate, question in asked:
        call, verdict = question.about, gate.ask(question)
        if isinstance(call, Call):
            is_above, before = before is call or question.used.get("depth"), call
            if is_above and verdict.decision == "allow":
                continue  # a policy above the agent, which only narrows what its own allows
            what = f"{call.id} {call.name} {call_text(call)}"
        elif verdict.decision == "deny":  # what a tool met, its result, or another step
            what = question_words(structs.replace(question, used={}))
        else:
            continue
        found.append(f"{what}: {verdict.decision} by {verdict.rule}")
        for each in gate.verdicts(question) if verdict.rule != GATE_ERROR else [verdict]:
            # what is allowed may rest on a section that the policy does not have, and need not
            is_told = each.decision != "allow" or _is_held(gate.policy, each.place)
            place = f" ({each.place})" if is_told else ""
            found.append(f"  {each.decision:8} {each.rule:15} {each.reason}{place}")
        if verdict.decision == "deny" and verdict.rule != GATE_ERROR:
            found += [f"  {line}" for line in _what_would_allow(gate, question)]
    return [*found, f"from here on the run goes another way: {diverged}"] if diverged else found


def _what_would_allow(gate: Gate, question: Question) -> Iterator[str]:
    """Yield the least edit that would let a denied call pass, and what else it would open."""
    least = least_edit(gate, question)
    if least.refused is not None:
        yield f"no edit  {least.refused.rule.id:15} for a person to decide: {least.refused.reason}"
        return
    for edit in least.edits:
        yield f"to allow {edit.place}: {edit.words}"
    calls = {question.tool: [question.about]} if isinstance(question.about, Call) else {}
    for change in wider(gate, least.gate, calls):
        yield f"opens    {change.rule:15} {change.words}{for_tools(change)}"


def _is_held(policy: Policy, place: str) -> bool:
    """Return whether there is an entry at a place: one of a policy may be of a section that the policy lacks."""
    pointer = place.partition("#")[2]
    try:
        get(policy.data, by_index(policy.data, pointer) or "/")
    except (LookupError, ValueError, TypeError):
        return place != policy.place(pointer)
    return True
