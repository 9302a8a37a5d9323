"""Why each call of a recorded run was decided as it was: the run is replayed, and every rule is asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...fail.errors import InputError, RecordError, ReplayError
from ...runtime.core.lines import Line
from ...runtime.journal.cassette import Cassette, RecordedClock, ReplayExecutor
from ...runtime.policy.explain import Budget, Explanation, budgets_of, explain
from ...runtime.policy.gate import Counters, Decision, Gate, GateRequest
from ..files.report import visible
from ..recording.recorded import Recorded, open_record, revive
from .decide import Paint, budget_lines, decision_line, rule_lines
from .wrap import fold


@dataclass
class Explained:
    """A run's decisions explained: `calls` by call id, `steps` the budgets before each step.

    `notes` say in what the rules of today differ from those that the record was made under, and where a
    replay had to stop. `gate` is that of the replay, None where there is none. `more` is what a caller has to say
    besides of a decision, by step and position: as data, and as lines of text.
    """

    recorded: Recorded
    calls: dict[str, Explanation] = field(default_factory=dict)
    steps: list[tuple[Budget, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gate: Gate | None = None
    more: dict[tuple[int, str], tuple[Line, list[str]]] = field(default_factory=dict)

    def said(self, line: Line, decision: Mapping[str, Any]) -> tuple[Line | None, list[str]]:
        """What a caller has to say of a decision."""
        return self.more.get((line["step_index"], decision["position"]), (None, []))


class _Telling(Gate):
    """A gate that keeps what every rule said."""

    def __init__(self, gate: Gate, into: Explained) -> None:
        super().__init__(gate.policy, gate.tools)
        self._gate = gate
        self._into = into

    def decide_request(self, request: GateRequest) -> Decision:
        found = explain(self._gate, request.call, request.counters)
        self._into.calls[request.call.id] = found
        return found.decision

    def decide_step(self, counters: Counters) -> Decision | None:
        self._into.steps.append(budgets_of(self, counters))
        return super().decide_step(counters)


def explain_run(folder: Path, *, root: Path | None = None) -> Explained:
    """Replay the run in `folder` and keep every rule's verdict. Raises RecordError where it is none."""
    recorded = open_record(folder, root)
    found = Explained(recorded)
    try:
        agent, config = revive(recorded)
    except InputError as error:
        found.notes.append(f"only what was recorded can be told: {error}")
        return found
    then = recorded.run["policy"]["version"]
    if agent.policy.version != then:
        found.notes.append(
            f"the policy is version {agent.policy.version} today and was {then}: the rules' verdicts are today's"
        )
    found.gate = agent.gate
    agent.gate = _Telling(agent.gate, found)
    clock = config.clock
    assert isinstance(clock, RecordedClock)
    try:
        agent.execute(replace(config, executor=ReplayExecutor(Cassette.of(recorded.lines[1:-1]), clock)))
    except ReplayError as error:
        found.notes.append(f"the replay ends early: {error}")
    return found


def steps_of(found: Explained, step: int | None) -> list[Line]:
    """The step lines to tell of. Raises RecordError for a step that the run has not."""
    lines = found.recorded.lines[1:-1]
    chosen = [line for line in lines if step is None or line["step_index"] == step]
    if not chosen:
        raise RecordError(
            f"has no step {step}", file=found.recorded.name, remedy=f"it has steps 1 to {len(lines)}"
        )
    return chosen


def as_data(found: Explained, step: int | None) -> Line:
    """The explanation as plain data."""
    return {
        "run_id": found.recorded.run["run_id"],
        "notes": found.notes,
        "steps": [
            {
                "step_index": line["step_index"],
                "budgets": [budget.to_dict() for budget in _budgets_before(found, line["step_index"])],
                "decisions": [
                    {
                        "recorded": decision,
                        "explained": _record(found.calls.get(decision["id"]), decision),
                        "why": found.said(line, decision)[0],
                    }
                    for decision in line["policy_decisions"]
                ],
            }
            for line in steps_of(found, step)
        ],
    }


def _record(found: Explanation | None, decision: Mapping[str, Any]) -> Line | None:
    return found.to_dict() if found is not None and decision["phase"] == "proposal" else None


def _budgets_before(found: Explained, step: int) -> tuple[Budget, ...]:
    return found.steps[step - 1] if step <= len(found.steps) else ()


def as_text(found: Explained, step: int | None, paint: Paint, width: int | None = None) -> str:
    """The explanation as lines of text, no wider than `width` where that is given."""
    out = [paint(visible(found.recorded.run["run_id"]), "bold")]
    out += [paint(f"note      {visible(note)}", "yellow") for note in found.notes]
    for line in steps_of(found, step):
        out += ["", f"step {line['step_index']}"]
        out += [f"  {text}" for text in budget_lines(_budgets_before(found, line["step_index"]))]
        for decision in line["policy_decisions"]:
            if decision["id"] is None:
                out += ["", f"  {decision_line(decision, paint)}"]
                out += [f"    {text}" for text in found.said(line, decision)[1]]
        for call in line["intended_tool_calls"]:
            out += ["", *_call(found, line, call, paint)]
    return "\n".join(out if width is None else [piece for line in out for piece in fold(line, width, 4)])


def _call(found: Explained, line: Line, call: Line, paint: Paint) -> list[str]:
    written = call["arguments_text"] if call["arguments"] is None else json.dumps(call["arguments"])
    out = [f"  call {call['id']}  {visible(call['name'])} {visible(written or '')[:200]}"]
    decisions = [d for d in line["policy_decisions"] if d["id"] == call["id"]]
    if not decisions:
        return [*out, "  not reached: the run ended before it was decided"]
    for decision in decisions:
        late = "while it ran: " if decision["phase"] == "execution" else ""
        out.append(f"  {late}{decision_line(decision, paint)}")
        if "approval" in decision:
            said = decision["approval"]
            words = [said["answer"], f"by {said['by']}" if said["by"] else "", said["why"] or ""]
            out.append(f"  a person said: {visible('  '.join(word for word in words if word))}")
    explained = found.calls.get(call["id"])
    said = [text for decision in decisions for text in found.said(line, decision)[1]]
    out += [f"    {text}" for text in said]
    if explained is not None:
        out += [f"    {text}".rstrip() for text in rule_lines(explained.rules, paint)]
        out += [f"    {text}" for text in budget_lines(explained.budgets[-1:])]
    return out
