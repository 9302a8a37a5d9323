"""Say of each decision of a recorded run what every rule says, and what would allow a call that is denied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..evidence.run_source import RunSource
from ..fail.catalog import Rule
from ..runtime.formats.json_pointer import by_index, get
from ..runtime.log.steps import finding
from ..runtime.log.values import Call
from ..runtime.policy.gate import GATE_ERROR, Gate
from ..runtime.policy.leaf import Question
from ..runtime.policy.policy import Policy
from .compare import wider
from .edit import least_edit
from .replays import asked_in
from .words import for_tools, question_words

_LONGEST: Final = 4_000  # characters of a call


def explain(source: RunSource, folder: Path, name: str) -> list[str]:
    """Return each decision of a run as it would be today, by its address, with what every rule says of the call.

    A rule without a say is left out. Behind a decision that would be another one today nothing is known, and the last
    line says so.

    Raises:
        RecordError: The record cannot be read.
    """
    asked, decided, diverged = asked_in(source, folder, name)
    found: list[str] = []
    for end, line in decided:
        if line.rule == Rule.HOOK:  # no gate was asked
            found.append(f"{line.at} {finding(line)}")
            continue
        gate, question = asked[end := end - 1]
        # before the policies above an agent, which only narrow what its own allows, that one was asked
        while end and asked[end - 1][1].about is question.about and gate.ask(question).decision != "deny":
            gate, question = asked[end := end - 1]
        verdict, what = gate.ask(question), question_words(Question(question.about, question.tool), _LONGEST)
        found.append(f"{line.at} {what}: {line.decision} by {line.rule}")
        for each in gate.verdicts(question) if verdict.rule != GATE_ERROR else [verdict]:
            # what is allowed may rest on a section that the policy does not have, and need not
            is_told = each.decision != "allow" or _is_held(gate.policy, each.place)
            place = f" ({each.place})" if is_told else ""
            found.append(f"  {each.decision:8} {each.rule:15} {each.reason}{place}")
        # a call that was refused before is refused again, and a plan needs a person, whatever the gate says
        if verdict.decision != line.decision or verdict.rule != line.rule:
            found.append(f"  {line.decision:8} {line.rule:15} {line.reason} ({line.place})")
        elif verdict.decision == "deny" and verdict.rule != GATE_ERROR:
            found += [f"  {said}" for said in _what_would_allow(gate, question)]
    return [*found, f"from here on the run goes another way: {diverged}"] if diverged else found


def _what_would_allow(gate: Gate, question: Question) -> Iterator[str]:
    """Yield the least edit that would let a denied call pass, and what else it would open."""
    if isinstance(question.about, Call) and gate.tool_of(question) is None:
        yield "no edit  tool_registry   the run has no such tool: its task, profile or code has to name it first"
        return
    least = least_edit(gate, question)
    if least.refused is not None:
        yield f"no edit  {least.refused.rule.id:15} for a person to decide: {least.refused.reason}"
        return
    for place, words in least.edits:
        yield f"to allow {place}: {words}"
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
