"""Compare each decision of a run, as another policy makes it, with the recorded one at its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.core.branches import BRANCH
from ...runtime.core.effects import Decided, Effect, Event, Invoke, Outcome, RunEnded
from ...runtime.core.lines import Line, StepLine
from ...runtime.journal.decided_calls import proposals_of, results_of_hooks
from ...runtime.policy.gate import ALLOW, ESCALATE, Decision, Gate
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.tools.contract import Tool
from .flips import NEEDS_APPROVAL, OTHER_WAY, TIGHTENING, WIDENING, Counterfactual, Flip


class Frontier(BaseException):
    """Ends the replay at the frontier. Not an Exception, which the gate would take for a failure of its own."""


class DecisionComparison:
    """Compares each decision, as it is made, with the recorded one at its place."""

    def __init__(
        self,
        result: Counterfactual,
        recorded: Mapping[tuple[int, str], Line],
        steps: Sequence[Line],
        exactly: bool,
        decisions: dict[tuple[int, str], Line],
    ) -> None:
        self._result = result
        self._recorded = recorded
        self._lines = steps
        self._steps = len(steps)
        self._keys = ("decision", "rule_id") if exactly else ("decision",)
        self._decisions = decisions
        self._step = self._ended = 0
        # the attempts whose facts and results the gate is still to be asked about, in the order of the calls: those of
        # calls that ran together are all over before it is asked about the first
        self._attempts: deque[tuple[Invoke, Outcome]] = deque()
        self._checks = self._results = 0

    def effect_performed(self, item: Effect | Event, outcome: Outcome | None) -> None:
        """Compare a decision of the gate, before a person answers; remember an attempt."""
        if isinstance(item, Decided):
            tool = item.call.name if item.call is not None else None
            self._compare(item.position, item.decision.to_dict(), tool)
        elif isinstance(item, Invoke) and outcome is not None:
            self._attempts.append((item, outcome))

    def line(self, _line: StepLine) -> None:
        """Count a finished step."""
        self._ended += 1
        self._attempts.clear()
        self._checks = self._results = 0

    def begin_step(self, decision: Decision | None) -> None:
        """Begin a step after the budgets were checked; only a denial is an event of its own."""
        self._step += 1
        if self._step > self._steps:
            self._result.why = f"it would go on after step {self._steps}, where the record ends"
            raise Frontier
        if decision is None:
            self._no_objection("d")

    def late(self, decision: Decision) -> None:
        """Compare a decision on a fact that an attempt met."""
        while self._checks == len(self._attempts[0][1].checks):
            self._next_attempt()
        attempt = self._attempts[0][0]
        position = f"{attempt.position}.c{self._checks}"
        self._checks += 1
        if decision.decision != ALLOW:
            self._next_attempt()  # nothing more is asked about this one
        self._compare(position, decision.to_dict(), attempt.call.name)

    def result(self, decision: Decision | None) -> None:
        """Note the check of a result's size; only a denial is an event of its own."""
        while not _has_size(self._attempts[0][1]) or self._results > self._of_hooks():
            self._next_attempt()
        self._results += 1
        # an objection is to the last one: what the tool returned, or what a hook put in its place
        if decision is None and self._results > self._of_hooks():
            attempt = self._attempts[0][0]
            self._no_objection(f"d{attempt.index}.r", attempt.call.name)

    def _next_attempt(self) -> None:
        self._attempts.popleft()
        self._checks = self._results = 0

    def _of_hooks(self) -> int:
        """Return how many results hooks gave for the call of the attempt under way."""
        return len(results_of_hooks(self._lines[self._step - 1], self._attempts[0][0].index))

    def _no_objection(self, position: str, tool: str | None = None) -> None:
        """Compare a place without an objection with the record, which may have one there."""
        entry = self._recorded.get((self._step, position))
        if entry is not None and entry["rule_id"] != "hook":  # hooks are asked after the gate
            self._stop(Flip(_kind(entry, None), self._step, position, tool, entry, None))

    def left_over(self, ending: RunEnded, end: Line, unused: str | None) -> str | None:
        """Say how a run whose decisions are all as recorded still differs from its record, or return None."""
        if unused is not None:
            return f"it would have ended before {unused}"
        if self._ended < self._steps or len(self._decisions) < len(self._recorded):
            return f"it would have ended with step {self._ended}"
        if (ending.reason, ending.mode) != (end["terminal_reason"], end["failure_mode"]):
            return f"it would have ended as {ending.reason} ({ending.mode or 'no mode'})"
        return None

    def _compare(self, position: str, after: Line, tool: str | None) -> None:
        place = (self._step, position)
        self._decisions[place] = after
        before = self._recorded.get(place)
        if before is not None and all(before[key] == after[key] for key in self._keys):
            self._result.same += 1
            return
        self._stop(Flip(_kind(before, after), self._step, position, tool, before, after))

    def _stop(self, flip: Flip) -> None:
        self._result.flip = flip
        raise Frontier


class ObservedGate(Gate):
    """A gate that reports what is not an event: decisions on facts met by attempts, and no objection."""

    def __init__(self, policy: Policy, tools: Mapping[str, Tool], comparing: DecisionComparison) -> None:
        super().__init__(policy, tools)
        self._comparing = comparing

    def decide_step(self, counters: Counters) -> Decision | None:
        """Report the check of the budgets before a step."""
        decision = super().decide_step(counters)
        self._comparing.begin_step(decision)
        return decision

    def decide_late(self, check: Mapping[str, Any], tool: str | None = None) -> Decision:
        """Report a decision on a fact that an attempt met."""
        decision = super().decide_late(check, tool)
        # inside of a group a call only asks whether to try again; what it met is decided later
        if BRANCH.get() is None:
            self._comparing.late(decision)
        return decision

    def decide_result(self, size: int, counters: Counters) -> Decision | None:
        """Report the check of a result's size."""
        decision = super().decide_result(size, counters)
        self._comparing.result(decision)
        return decision


def _has_size(outcome: Outcome) -> bool:
    """Return whether the gate is asked about the size of what an attempt brought."""
    return outcome.fault is None and (outcome.result is not None or outcome.returned_bytes is not None)


def as_decided(entry: Line, step: Line) -> Line:
    """Return a recorded decision as gate or hook made it, before a person answered or the run was stopped."""
    plain = {key: entry[key] for key in ("decision", "rule_id", "reason", "at", "facts")}
    index, _, late = entry["position"][1:].partition(".")
    if not index.isdigit() or late == "r" or f"h{index}" not in step["stamps"]:
        return plain
    was_asked = proposals_of(step, int(index))[-1].entry["position"] == entry["position"]
    return {**plain, "decision": ESCALATE} if was_asked else plain


def _kind(before: Line | None, after: Line | None) -> str:
    """Return the kind of a flip. A missing decision counts as an allow: budgets decide only to deny."""
    old = ALLOW if before is None else before["decision"]
    new = ALLOW if after is None else after["decision"]
    if old == new:
        return OTHER_WAY
    if new == ESCALATE:
        return NEEDS_APPROVAL if old == ALLOW else WIDENING
    return WIDENING if new == ALLOW else TIGHTENING
