"""What another policy would have decided in a recorded run: no tool, no model, no person is asked.

The run is answered from its record up to the *frontier*, the first decision that goes another way, or the
first thing that the record does not answer. What lies behind it is hypothetical: the model might have said
something else, and an allow that was a denial has no known effect.

The run is as recorded, its question too; only the tools are today's, for their schemas. A run whose tools
are not what they were is not told of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, RecordError, ReplayError
from ...runtime.core.effects import Decided, Effect, Event, Invoke, Outcome, RunEnded
from ...runtime.core.lines import Line, StepLine
from ...runtime.driver.driver import drive
from ...runtime.formats.shipped_files import shipped
from ...runtime.journal import ledger
from ...runtime.journal.cassette import Cassette, RecordedClock, ReplayExecutor
from ...runtime.loop.loop import run_loop
from ...runtime.loop.retry import Schedule
from ...runtime.loop.state import RunSpec
from ...runtime.policy.gate import ALLOW, ESCALATE, Decision, Gate
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import load_named
from ..files.manifest import STATE
from ..recording.recorded import project_of, relative_name

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

    def to_dict(self) -> Line:
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
    schedule; `untold` why nothing can be told of it; `behind` is how many recorded decisions lie behind the
    frontier.
    """

    run: str
    recorded_version: str | None
    version: str
    same: int = 0
    flip: Flip | None = None
    why: str | None = None
    behind: int = 0
    untold: str | None = None

    @property
    def is_same(self) -> bool:
        return self.flip is None and self.why is None and self.untold is None

    def to_dict(self) -> Line:
        return {
            "run": self.run,
            "recorded_version": self.recorded_version,
            "version": self.version,
            "same": self.same,
            "frontier": None if self.flip is None else self.flip.to_dict(),
            "why": self.why,
            "untold": self.untold,
            "behind": self.behind,
        }


def under(folder: Path, policy: Policy, *, root: Path | None = None) -> Counterfactual:
    """The run in `folder` under `policy`. Raises RecordError where it is no run that can be replayed."""
    return _asked(_opened(folder, root), policy)


def against(folder: Path, old: Policy, new: Policy, *, root: Path | None = None) -> Counterfactual:
    """The run in `folder`, which was made under `old`, under `new`.

    Only a run that goes under `old` as recorded tells something of `new`; any other is `untold`. What stands
    before a flip is what `old` says today, so that its line is one of `old`.
    """
    found = Counterfactual(str(folder), None, new.version)
    try:
        recorded = _opened(folder, root)
        found.run = recorded.name
        made: dict[tuple[int, str], Line] = {}
        then = _asked(recorded, old, exactly=True, made=made)
        if then.is_same and new.version != old.version:
            found = _asked(recorded, new)
            flip = found.flip
            if flip is not None and flip.before is not None:
                found.flip = replace(flip, before=made.get((flip.step, flip.position), flip.before))
            return found
    except InputError as error:
        found.untold = str(error)
        return found
    found.same, found.recorded_version = then.same, then.recorded_version
    if not then.is_same:
        found.same, found.behind = 0, then.same + then.behind + (then.flip is not None)
        found.untold = then.untold or f"it does not go as recorded under the old policy either: {_how(then)}"
    return found


def _how(found: Counterfactual) -> str:
    if found.flip is None:
        return str(found.why)
    flip = found.flip
    before, after = (
        "no objection" if side is None else f"{side['decision']} {side['rule_id']}"
        for side in (flip.before, flip.after)
    )
    return f"step {flip.step} {flip.position}: {before} -> {after}"


@dataclass
class _Record:
    """A record's ledger; its other files follow from it. `tools` are those of today, once they were asked for."""

    name: str
    base: Path
    lines: list[Line]
    tools: dict[str, Tool] | None = None


def _opened(folder: Path, root: Path | None) -> _Record:
    base = project_of(folder, root)
    name = relative_name(folder, base)
    place = f"{name}/{STATE}"
    try:
        text = (folder / STATE).read_bytes()
    except OSError as error:
        remedy = "name the folder of one run, such as runs/canonical/v1"
        raise RecordError(f"cannot be read ({type(error).__name__})", file=place, remedy=remedy) from None
    return _Record(name, base, list(ledger.read(text, place)))


class _Frontier(BaseException):
    """Nothing behind it is told. Not an Exception: no failure of the gate may be mistaken for it."""


def _asked(
    recorded: _Record,
    policy: Policy,
    *,
    exactly: bool = False,
    made: dict[tuple[int, str], Line] | None = None,
) -> Counterfactual:
    """The record gone through under a policy; `exactly` asks for the same rules too, `made` gets its decisions."""
    try:
        return _followed(recorded, policy, exactly, {} if made is None else made)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error


def _followed(
    recorded: _Record, policy: Policy, exactly: bool, made: dict[tuple[int, str], Line]
) -> Counterfactual:
    run, steps, end = recorded.lines[0], recorded.lines[1:-1], recorded.lines[-1]
    found = Counterfactual(recorded.name, run["policy"]["version"], policy.version)
    decisions = {
        (line["step_index"], entry["position"]): _of_gate(entry, line)
        for line in steps
        for entry in line["policy_decisions"]
    }
    tools = recorded.tools = recorded.tools or {item["name"]: _tool(recorded, item) for item in run["tools"]}
    found.untold = next((why for item in run["tools"] if (why := _moved(item, tools[item["name"]]))), None)
    if found.untold is not None:
        found.behind = len(decisions)
        return found
    comparing = _Comparing(found, decisions, len(steps), exactly, made)
    clock, cassette = RecordedClock.of(recorded.lines), Cassette.of(steps, counterfactual=True)
    gate = _Watched(policy, tools, comparing)
    schedule = Schedule.of(policy.section("retry"))
    loop = run_loop(RunSpec(run["run_id"], run["question"], run["seed"], gate, schedule, ()))
    try:
        ending = drive(loop, ReplayExecutor(cassette, clock), clock, comparing.line, comparing.heard)
        found.why = comparing.left_over(ending, end, cassette.unused())
    except _Frontier:
        pass
    except ReplayError as error:
        found.why = str(error) if f"step {error.step}" in str(error) else f"step {error.step}: {error}"
    if found.why is not None and schedule != _schedule_of(run) and _RETRIES.search(found.why):
        found.why = f"another retry schedule: {found.why}"
    found.behind = len(decisions) - found.same - (found.flip is not None and found.flip.before is not None)
    return found


# what names a second attempt, or the wait before it
_RETRIES: Final = re.compile(
    r"\b(?:w(?:m|\d+)\.\d+|(?:m|i\d+)\.(?:[2-9]|1\d+)|a wait of|attempt (?:[2-9]|1\d+) of)\b"
)


def _schedule_of(run: Line) -> Schedule:
    names = ("max_retries", "backoff_base_ms", "backoff_cap_ms")
    return Schedule.of({name: run["policy"]["limits"].get(name, 0) for name in names})


# ---- tools --------------------------------------------------------------------------------------------------


def _tool(recorded: _Record, item: Line) -> Tool:
    if item["file"] is None:
        raise RecordError(
            f"its tool {str(item['name'])[:80]!r} was made in code and is in no file",
            file=recorded.name,
            remedy="use code: tachograph.replay(agent, folder)",
        )
    folder = (recorded.base / item["file"]).parent
    folder = folder if folder.is_dir() else shipped("tools")
    name = str(item["name"])
    try:
        now = os.stat(folder / f"{name}.py")
        state = (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
    except (OSError, ValueError):
        state = None
    return _loaded(name, folder, state)


@lru_cache(maxsize=256)
def _loaded(name: str, folder: Path, _state: tuple[int, ...] | None) -> Tool:
    """A tool that is only looked at, so one serves every run while its file is the same."""
    return load_named(name, folder)


def _moved(then: Line, tool: Tool) -> str | None:
    """What decides otherwise with a tool than when the run was made; what it does itself is not asked for."""
    now = {"effect": tool.effect, "idempotent": tool.idempotent, "schema_digest": tool.schema_digest}
    moved = [key for key, value in now.items() if then[key] != value]
    if not moved:
        return None
    words = {"schema_digest": "description or schemas"}
    return f"{then['file']}: {words.get(moved[0], moved[0])} moved since the run was made"


# ---- decision by decision -----------------------------------------------------------------------------------


class _Comparing:
    """Holds each decision, as it is made, against the one that is recorded at its place."""

    def __init__(
        self,
        found: Counterfactual,
        recorded: Mapping[tuple[int, str], Line],
        steps: int,
        exactly: bool,
        made: dict[tuple[int, str], Line],
    ) -> None:
        self._found = found
        self._recorded = recorded
        self._steps = steps
        self._keys = ("decision", "rule_id") if exactly else ("decision",)
        self._done = made
        self._step = self._ended = 0
        self._attempt: Invoke | None = None
        self._checks = 0

    def heard(self, item: Effect | Event, _outcome: Outcome | None) -> None:
        """A decision as the gate makes it; what a person makes of an escalation is not the policy's."""
        if isinstance(item, Decided):
            tool = item.call.name if item.call is not None else None
            self._compare(item.position, item.decision.to_dict(), tool)
        elif isinstance(item, Invoke):
            self._attempt, self._checks = item, 0

    def line(self, _line: StepLine) -> None:
        self._ended += 1

    def begin_step(self, decision: Decision | None) -> None:
        """The budgets were asked; an objection is heard of, none is not."""
        self._step += 1
        if self._step > self._steps:
            self._found.why = f"it would go on after step {self._steps}, where the record ends"
            raise _Frontier
        if decision is None:
            self._silent("d")

    def late(self, decision: Decision) -> None:
        """A fact that an attempt met was judged."""
        assert self._attempt
        position = f"{self._attempt.position}.c{self._checks}"
        self._checks += 1
        self._compare(position, decision.to_dict(), self._attempt.call.name)

    def result(self, decision: Decision | None) -> None:
        """The size of a result was judged; an objection is heard of, none is not."""
        assert self._attempt is not None
        if decision is None:
            self._silent(f"d{self._attempt.index}.r")

    def _silent(self, position: str) -> None:
        """Nothing is objected to at a place where the record may hold an objection."""
        entry = self._recorded.get((self._step, position))
        if entry is not None:
            tool = None if self._attempt is None or position == "d" else self._attempt.call.name
            self._stop(Flip(_kind(entry, None), self._step, position, tool, entry, None))

    def left_over(self, ending: RunEnded, end: Line, unused: str | None) -> str | None:
        """In what a run that made every decision as recorded still differs from its record."""
        if unused is not None:
            return f"it would have ended before {unused}"
        if self._ended < self._steps or len(self._done) < len(self._recorded):
            return f"it would have ended with step {self._ended}"
        if (ending.reason, ending.mode) != (end["terminal_reason"], end["failure_mode"]):
            return f"it would have ended as {ending.reason} ({ending.mode or 'no mode'})"
        return None

    def _compare(self, position: str, after: Line, tool: str | None) -> None:
        place = (self._step, position)
        self._done[place] = after
        before = self._recorded.get(place)
        if before is not None and all(before[key] == after[key] for key in self._keys):
            self._found.same += 1
            return
        self._stop(Flip(_kind(before, after), self._step, position, tool, before, after))

    def _stop(self, flip: Flip) -> None:
        self._found.flip = flip
        raise _Frontier


class _Watched(Gate):
    """A gate that tells of what no event tells of: facts met late, and where it has nothing to object."""

    def __init__(self, policy: Policy, tools: Mapping[str, Tool], comparing: _Comparing) -> None:
        super().__init__(policy, tools)
        self._comparing = comparing

    def decide_step(self, counters: Counters) -> Decision | None:
        found = super().decide_step(counters)
        self._comparing.begin_step(found)
        return found

    def decide_late(self, check: Mapping[str, Any]) -> Decision:
        found = super().decide_late(check)
        self._comparing.late(found)
        return found

    def decide_result(self, size: int, counters: Counters) -> Decision | None:
        found = super().decide_result(size, counters)
        self._comparing.result(found)
        return found


def _of_gate(entry: Line, step: Line) -> Line:
    """A recorded decision as the gate made it, before a person spoke or the run was stopped."""
    plain = {key: entry[key] for key in ("decision", "rule_id", "reason", "at", "facts")}
    return {**plain, "decision": ESCALATE} if f"h{entry['position'][1:]}" in step["stamps"] else plain


def _kind(before: Line | None, after: Line | None) -> str:
    """What a flip means for whoever changes a policy. A budget that speaks is a denial that was none."""
    old = ALLOW if before is None else before["decision"]
    new = ALLOW if after is None else after["decision"]
    if old == new:
        return OTHER_WAY
    if new == ESCALATE:
        return NEEDS_APPROVAL if old == ALLOW else WIDENING
    return WIDENING if new == ALLOW else TIGHTENING
