"""The decisions of the step in which a run left its record, which has no line of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.core.effects import Decided
from ...runtime.core.lines import Line, Phase
from ...runtime.driver.ports import RunEvent
from ...runtime.policy.gate import ALLOW, ESCALATE


class DecisionsUnderWay:
    """Listens to a run and keeps the decisions of the step that is not over."""

    def __init__(self) -> None:
        self._decided: dict[str, Decided] = {}

    def __call__(self, event: RunEvent) -> None:
        """Take note of an event of the run."""
        if event.what == "line":
            self._decided.clear()
        elif isinstance(event.item, Decided):
            self._decided[event.item.position] = event.item

    def line(self, recorded: Sequence[Line], number: int) -> Line | None:
        """Return the recorded line of the step with today's decisions in it; None where each is as recorded.

        Args:
            recorded: The recorded ledger.
            number: How many of its lines the run has written.
        """
        line = recorded[number] if number < len(recorded) else {}
        if line.get("type") != "step":
            return None
        entries = list(line["policy_decisions"])
        places = {entry["position"]: i for i, entry in enumerate(entries)}
        for position, decided in self._decided.items():
            place = places.get(position)
            if place is None:
                if decided.decision.decision != ALLOW:  # what allows a step or a result is not recorded
                    entries.append(_entry(decided))
            elif not _is_same(entries[place], decided):
                entries[place] = _entry(decided)
        return None if entries == line["policy_decisions"] else {**line, "policy_decisions": entries}


def _is_same(entry: Line, decided: Decided) -> bool:
    """Return whether a decision is the recorded one; a recorded escalation has its answer in place."""
    decision = decided.decision
    if decision.decision == ESCALATE and ("approval" in entry or entry["rule_id"] == str(decision.rule_id)):
        return True
    return (entry["decision"], entry["rule_id"]) == (str(decision.decision), str(decision.rule_id))


def _phase(decided: Decided) -> Phase:
    if decided.late:
        return Phase.EXECUTION
    return Phase.STEP if decided.call is None else Phase.PROPOSAL


def _entry(decided: Decided) -> Line:
    decision = decided.decision
    return {
        "position": decided.position,
        "phase": str(_phase(decided)),
        "id": None if decided.call is None else decided.call.id,
        "decision": str(decision.decision),
        "rule_id": str(decision.rule_id),
        "reason": decision.reason,
        "at": decision.at,
        "facts": decision.facts,
    }
