"""What another policy would have decided in a recorded run: no tool, no model, no person is asked.

The run is answered from its record up to the *frontier*, the first decision that goes another way. What lies
behind it is hypothetical: the model might have said something else, and an allow that was a denial has no
known effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..fail.errors import ReplayError
from ..runtime.effects import Decided
from ..runtime.gate import ALLOW, ESCALATE
from ..runtime.listeners import Notice
from ..runtime.policy import Policy
from ..runtime.tape import RecordedClock, RecordedWorld, Tape
from .recorded import open_record, revive

Line = dict[str, Any]

WIDENING: Final = "widening"
TIGHTENING: Final = "tightening"
NEEDS_APPROVAL: Final = "needs approval"
OTHER_WAY: Final = "goes another way"


@dataclass(frozen=True)
class Flip:
    """A decision that another policy makes otherwise. `before` and `after` are decisions as recorded."""

    kind: str
    step: int
    position: str
    tool: str | None
    before: Line | None
    after: Line | None

    def record(self) -> Line:
        return {
            "kind": self.kind,
            "step": self.step,
            "position": self.position,
            "tool": self.tool,
            "before": self.before,
            "after": self.after,
        }


@dataclass
class Counterfactual:
    """A run under another policy: how many decisions are the same, and the frontier where there is one.

    `why` says where the run leaves its record without a decision that differs, as under another retry
    schedule; `behind` is how many recorded decisions lie behind the frontier.
    """

    run: str
    recorded_version: str
    version: str
    same: int = 0
    flip: Flip | None = None
    why: str | None = None
    behind: int = 0

    def record(self) -> Line:
        return {
            "run": self.run,
            "recorded_version": self.recorded_version,
            "version": self.version,
            "same": self.same,
            "frontier": None if self.flip is None else self.flip.record(),
            "why": self.why,
            "behind": self.behind,
        }


class _Frontier(BaseException):
    """Nothing behind it is told. Not an Exception: no listener's failure may be mistaken for it."""


def under(folder: Path, policy: Policy, *, root: Path | None = None) -> Counterfactual:
    """The run in `folder` under `policy`. Raises RecordError where it is no run that can be replayed."""
    recorded = open_record(folder, root)
    agent, setting = revive(recorded, policy)
    found = Counterfactual(recorded.name, recorded.run["policy"]["version"], policy.version)
    decisions = [(line, entry) for line in recorded.lines[1:-1] for entry in line["policy_decisions"]]
    comparing = _Comparing(found, {(line["step_index"], e["position"]): (line, e) for line, e in decisions})
    clock = setting.clock
    assert isinstance(clock, RecordedClock)
    tape = Tape.of(recorded.lines[1:-1], any_budget=True)
    try:
        agent.execute(
            replace(setting, world=RecordedWorld(tape, clock)),
            listeners=[comparing.heard],
            on_line=comparing.line,
            keep_steps=False,
        )
        left = tape.left()
        found.why = None if left is None else f"it would have ended before {left}"
    except _Frontier:
        pass
    except ReplayError as error:
        found.why = str(error)
    found.behind = len(decisions) - found.same - (found.flip is not None and found.flip.before is not None)
    return found


class _Comparing:
    def __init__(self, found: Counterfactual, recorded: dict[tuple[int, str], tuple[Line, Line]]) -> None:
        self._found = found
        self._recorded = recorded
        self._done: set[tuple[int, str]] = set()

    def heard(self, notice: Notice) -> None:
        """A decision as the gate makes it; what a person makes of an escalation is not the policy's."""
        item = notice.item
        if isinstance(item, Decided):
            tool = item.call.name if item.call is not None else None
            self._compare(item.step, item.position, item.decision.record(), tool)

    def line(self, line: Line, _text: str) -> None:
        """A whole step: decisions that were made late, and such as are not made any more."""
        if line["type"] != "step":
            return
        index = line["step_index"]
        names = {call["id"]: call["name"] for call in line["intended_tool_calls"]}
        for entry in line["policy_decisions"]:
            self._compare(index, entry["position"], _of_gate(entry), names.get(entry["id"]))
        for (step, position), (_, entry) in self._recorded.items():
            if step == index and (step, position) not in self._done:
                self._stop(Flip(_kind(_of_gate(entry), None), step, position, None, entry, None))

    def _compare(self, step: int, position: str, after: Line, tool: str | None) -> None:
        if (step, position) in self._done:
            return
        self._done.add((step, position))
        known = self._recorded.get((step, position))
        before = None if known is None else _of_gate(known[1])
        if before is not None and before["decision"] == after["decision"]:
            self._found.same += 1
            return
        self._stop(Flip(_kind(before, after), step, position, tool, before, after))

    def _stop(self, flip: Flip) -> None:
        self._found.flip = flip
        raise _Frontier


def _of_gate(entry: Line) -> Line:
    """A recorded decision as the gate made it, before a person spoke."""
    plain = {key: entry[key] for key in ("decision", "rule_id", "reason", "at", "facts")}
    return {**plain, "decision": ESCALATE} if "approval" in entry else plain


def _kind(before: Line | None, after: Line | None) -> str:
    """What a flip means for whoever changes a policy. A budget that speaks is a denial that was none."""
    old = ALLOW if before is None else before["decision"]
    new = ALLOW if after is None else after["decision"]
    if old == new:
        return OTHER_WAY
    if new == ESCALATE:
        return NEEDS_APPROVAL if old == ALLOW else WIDENING
    return WIDENING if new == ALLOW else TIGHTENING
