"""What happened where two ledgers differ: the call, its decision, the rule behind that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...evidence.checking.differences.compare import Findings
from ...evidence.checking.differences.drift import Divergence, counted
from ...evidence.files.words.call_words import arguments_of
from ...evidence.files.words.rule_places import RulePlaces
from ...runtime.core.lines import Line
from ...runtime.formats.json_pointer import parse


def facts_of(findings: Findings, item: Divergence, root: Path) -> list[tuple[str, str]]:
    """Return (name, text) pairs on the step: the call, its decision, the rules behind it, or what the model said."""
    before, after = item.sides
    step = after if isinstance(after, dict) else before
    if not isinstance(step, dict) or step.get("type") != "step":
        return []
    number = _call_number(item, before, after)
    calls = [_call(side, number) for side in (before, after)]
    decisions = [_decision(side, number) for side in (before, after)]
    facts = [("call", _before_and_after(*calls))] if any(calls) else [("model", _reply(step))]
    if any(decisions):
        facts.append(("decision", _before_and_after(*map(_decision_words, decisions))))
    places = RulePlaces(root)
    for side, decision in (("then", decisions[0]), ("now", decisions[1])):
        place = places.find(decision.get("at")) if decision else None
        if place is not None and (side == "now" or place.file not in findings.moved):
            facts.append((f"rule {side}", f"{place}  {place.text.strip()}"))
    if len(facts) > 3 and facts[-1][1] == facts[-2][1]:
        facts[-2:] = [("rule", facts[-1][1])]
    return facts


def _call_number(item: Divergence, before: Any, after: Any) -> int | None:
    """Return which call of its step a difference is about."""
    parts = parse(item.pointer)
    at = int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else None
    if not parts or parts[0] not in ("policy_decisions", "tool_results", "intended_tool_calls") or at is None:
        return None
    if parts[0] != "policy_decisions":
        return at
    for side in (after, before):
        ids = [call.get("id") for call in _list(side, "intended_tool_calls")]
        decisions = _list(side, "policy_decisions")
        name = decisions[at].get("id") if at < len(decisions) else None
        if name in ids:
            return ids.index(name)
    return None


def _list(side: Any, key: str) -> list[Line]:
    listed = side.get(key) if isinstance(side, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _call(side: Any, number: int | None) -> str | None:
    calls = _list(side, "intended_tool_calls")
    if number is None or number >= len(calls):
        return None
    call = calls[number]
    return f"{call.get('name')} {arguments_of(call)}"


def _decision(side: Any, number: int | None) -> Line | None:
    """Return the decision on a call: the one that denied it, else the first."""
    calls = _list(side, "intended_tool_calls")
    decisions = _list(side, "policy_decisions")
    if number is not None:
        name = calls[number].get("id") if number < len(calls) else None
        decisions = [entry for entry in decisions if entry.get("id") == name]
    return next(
        (entry for entry in decisions if entry.get("decision") == "deny"), next(iter(decisions), None)
    )


def _decision_words(decision: Line | None) -> str | None:
    if decision is None:
        return None
    return f"{decision.get('decision')} by {decision.get('rule_id')} ({decision.get('at')})"


def _before_and_after(before: str | None, after: str | None) -> str:
    return str(after) if before == after else f"{before or 'none'} -> {after or 'none'}"


def _reply(step: Line) -> str:
    output = step.get("llm_output")
    if not isinstance(output, dict):
        return "was not asked" if not step.get("llm_attempts") else "gave no reply"
    if output.get("final_answer") is not None:
        return f"answers: {output['final_answer']}"
    return (
        f"says: {output['text']}"
        if output.get("text")
        else f"proposes {counted(len(_list(step, 'intended_tool_calls')), 'call')}"
    )
