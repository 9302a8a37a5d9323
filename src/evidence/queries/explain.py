"""Explain each decision of a recorded run: replay the run and ask every rule again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...fail.errors import InputError, RecordError, ReplayError
from ...light_dataclasses import dataclass, field, replace
from ...runtime.core.lines import Line
from ...runtime.formats.escape import escape_terminal
from ...runtime.journal.cassette import Cassette, ReplayExecutor
from ...runtime.journal.decided_calls import proposals_of
from ...runtime.journal.recorded_clock import RecordedClock
from ...runtime.policy.explain import Budget, Explanation, budgets_of, explain
from ...runtime.policy.gate import Counters, Decision, Gate, GateRequest
from ..files.words.call_words import arguments_of, compact
from ..files.words.rule_places import RulePlaces, moved_on
from ..recording.recorded import Recorded, open_record, revive
from .decide import Paint, budget_lines, decision_line, rule_lines
from .wrap import fold


@dataclass
class Explained:
    """The decisions of a run, explained.

    Attributes:
        recorded: The run.
        calls: Call id -> what every rule says of the call, each time that it was decided: with the model's arguments,
            then with those that hooks gave.
        steps: The budgets before each step.
        notes: How the present policy differs from the recorded one, and where the replay stopped.
        gate: The gate of the replay, None without a replay.
        places: Where the rules stand today, None without a replay.
        more: (step, position) -> what a caller adds to a decision, as data and as lines of text.
    """

    recorded: Recorded
    calls: dict[str, list[Explanation]] = field(default_factory=dict)
    steps: list[tuple[Budget, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gate: Gate | None = None
    places: RulePlaces | None = None
    more: dict[tuple[int, str], tuple[Line, list[str]]] = field(default_factory=dict)

    def shown(self, decision: Line) -> Line:
        """Return a recorded decision with the line of its rule added as `line`, where that is known."""
        place = None if self.places is None else self.places.find(decision["at"])
        return decision if place is None else {**decision, "line": str(place)}

    def of(self, line: Line, decision: Mapping[str, Any]) -> Explanation | None:
        """Return what every rule says of a recorded decision of the gate on a proposed call, where that is known."""
        ids = [call["id"] for call in line["intended_tool_calls"]]
        if decision["phase"] != "proposal" or decision["id"] not in ids:
            return None
        told = self.calls.get(decision["id"], [])
        proposals = proposals_of(line, ids.index(decision["id"]))
        by_gate = [item.entry["position"] for item in proposals if not item.by_hook]
        place = decision["position"]
        number = by_gate.index(place) if place in by_gate else len(told)
        return told[number] if number < len(told) else None

    def additions(self, line: Line, decision: Mapping[str, Any]) -> tuple[Line | None, list[str]]:
        """Return what a caller adds to a decision."""
        return self.more.get((line["step_index"], decision["position"]), (None, []))


class _RecordingGate(Gate):
    """A gate that keeps the verdict of every rule."""

    def __init__(self, gate: Gate, into: Explained) -> None:
        super().__init__(gate.policy, gate.tools)
        self._gate = gate
        self._into = into

    def decide_request(self, request: GateRequest) -> Decision:
        explanation = explain(self._gate, request.call, request.counters)
        self._into.calls.setdefault(request.call.id, []).append(explanation)
        return explanation.decision

    def decide_step(self, counters: Counters) -> Decision | None:
        self._into.steps.append(budgets_of(self, counters))
        return super().decide_step(counters)


def explain_run(folder: Path, *, root: Path | None = None) -> Explained:
    """Replay the run in `folder` and keep the verdict of every rule.

    Raises:
        RecordError: `folder` holds no run.
    """
    recorded = open_record(folder, root)
    explained = Explained(recorded)
    try:
        agent, config = revive(recorded)
    except InputError as error:
        explained.notes.append(f"only what was recorded can be told: {error}")
        return explained
    explained.places = RulePlaces(recorded.base)
    note = moved_on(recorded.run, recorded.base)
    if note is not None:
        explained.notes.append(f"{note}; the rules' verdicts and lines are today's")
    explained.gate = agent.gate
    agent.gate = _RecordingGate(agent.gate, explained)
    clock = config.clock
    assert isinstance(clock, RecordedClock)
    try:
        agent.execute(replace(config, executor=ReplayExecutor(Cassette.of(recorded.lines[1:-1]), clock)))
    except ReplayError as error:
        explained.notes.append(f"the replay ends early: {error}")
    return explained


def steps_of(explained: Explained, step: int | None) -> list[Line]:
    """Return the line of step `step`, or those of all steps for None.

    Raises:
        RecordError: The run has no such step.
    """
    lines = explained.recorded.lines[1:-1]
    chosen = [line for line in lines if step is None or line["step_index"] == step]
    if not chosen:
        raise RecordError(
            f"has no step {step}", file=explained.recorded.name, remedy=f"it has steps 1 to {len(lines)}"
        )
    return chosen


def as_data(explained: Explained, step: int | None) -> Line:
    """Return the explanation of one step, or of all for None, as plain data."""
    return {
        "run_id": explained.recorded.run["run_id"],
        "notes": explained.notes,
        "steps": [
            {
                "step_index": line["step_index"],
                "budgets": [budget.to_dict() for budget in _budgets_before(explained, line["step_index"])],
                "decisions": [
                    {
                        "recorded": explained.shown(decision),
                        "explained": None
                        if (told := explained.of(line, decision)) is None
                        else told.to_dict(),
                        "why": explained.additions(line, decision)[0],
                    }
                    for decision in line["policy_decisions"]
                ],
            }
            for line in steps_of(explained, step)
        ],
    }


def _budgets_before(explained: Explained, step: int) -> tuple[Budget, ...]:
    return explained.steps[step - 1] if step <= len(explained.steps) else ()


def as_text(explained: Explained, step: int | None, paint: Paint, width: int | None = None) -> str:
    """Return the explanation as text, with lines of at most `width` columns if that is given."""
    out = [paint(escape_terminal(explained.recorded.run["run_id"]), "bold")]
    out += [paint(f"note      {escape_terminal(note)}", "yellow") for note in explained.notes]
    for line in steps_of(explained, step):
        out += ["", f"step {line['step_index']}"]
        out += [f"  {text}" for text in budget_lines(_budgets_before(explained, line["step_index"]))]
        for decision in line["policy_decisions"]:
            if decision["id"] is None:
                out += ["", f"  {decision_line(explained.shown(decision), paint)}"]
                out += [f"    {text}" for text in explained.additions(line, decision)[1]]
        for call in line["intended_tool_calls"]:
            out += ["", *_call(explained, line, call, paint)]
    return "\n".join(out if width is None else [piece for line in out for piece in fold(line, width, 4)])


def _call(explained: Explained, line: Line, call: Line, paint: Paint) -> list[str]:
    written = arguments_of(call)
    out = [f"  call {call['id']}  {escape_terminal(call['name'])} {escape_terminal(written)[:200]}"]
    decisions = [d for d in line["policy_decisions"] if d["id"] == call["id"]]
    if not decisions:
        return [*out, "  not reached: the run ended before it was decided"]
    proposals = proposals_of(line, [one["id"] for one in line["intended_tool_calls"]].index(call["id"]))
    by_gate = [item for item in proposals if not item.by_hook]
    rewritten = {item.entry["position"]: item.call["arguments"] for item in by_gate[1:]}
    for decision in decisions:
        if decision["position"] in rewritten:
            given = escape_terminal(compact(rewritten[decision["position"]]))[:200]
            out.append(f"  a hook gave other arguments: {given}")
        late = "while it ran: " if decision["phase"] == "execution" else ""
        out.append(f"  {late}{decision_line(explained.shown(decision), paint)}")
        if "approval" in decision:
            approval = decision["approval"]
            words = [
                approval["answer"],
                f"by {approval['by']}" if approval["by"] else "",
                approval["why"] or "",
            ]
            out.append(f"  a person said: {escape_terminal('  '.join(word for word in words if word))}")
    additions = [text for decision in decisions for text in explained.additions(line, decision)[1]]
    out += [f"    {text}" for text in additions]
    told = [found for item in by_gate if (found := explained.of(line, item.entry)) is not None]
    for explanation in told[-1:]:
        out += [f"    {text}".rstrip() for text in rule_lines(explanation.rules, paint)]
        out += [f"    {text}" for text in budget_lines(explanation.budgets[-1:])]
    return out
