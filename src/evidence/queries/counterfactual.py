"""Compute what another policy would have decided in a recorded run, without any tool, model or person.

The run is replayed from its record up to the *frontier*: the first decision that differs, or the first effect
that the record does not answer. Everything after it is hypothetical: the model might have replied otherwise, and
a call that was denied and is now allowed has no known effect.

Everything is as recorded, except the tools, whose present schemas are used. If a tool has changed since, the run
is undecided.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, RecordError, ReplayError
from ...light_dataclasses import dataclass, replace
from ...runtime.core.effects import Decided, Effect, Event, Invoke, Outcome, RunEnded
from ...runtime.core.lines import Line, StepLine
from ...runtime.driver.driver import drive
from ...runtime.formats.read_file import read_unlinked, why_unread
from ...runtime.formats.shipped_files import shipped
from ...runtime.journal import ledger
from ...runtime.journal.cassette import Cassette, ReplayExecutor
from ...runtime.journal.recorded_clock import RecordedClock
from ...runtime.loop.loop import run_loop
from ...runtime.loop.retry import Schedule
from ...runtime.loop.state import MAX_PARALLEL, HookSpec, RunSpec
from ...runtime.models.request_parts import first_digests
from ...runtime.opening import Opening
from ...runtime.output_types import recorded_output
from ...runtime.policy.gate import ALLOW, ESCALATE, Decision, Gate
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import load_named
from ..files.manifest import STATE
from ..recording.recorded import RecordedModel, agent_of, project_of, relative_name
from .flips import NEEDS_APPROVAL, OTHER_WAY, TIGHTENING, WIDENING, Counterfactual, Flip


class ToolsInCode(RecordError):
    """A run has tools that were made in code, and no task names the agent that has them."""


def under(folder: Path, policy: Policy, *, root: Path | None = None) -> Counterfactual:
    """Return how the run in `folder` goes under `policy`.

    Raises:
        RecordError: The run cannot be replayed.
        ToolsInCode: Its tools were made in code.
    """
    return _followed_under(_open(folder, root), policy)


def against(folder: Path, old: Policy, new: Policy, *, root: Path | None = None) -> Counterfactual:
    """Return how the run in `folder`, recorded under `old`, goes under `new`.

    A run that does not go as recorded under `old` is undecided. The decision before a flip is that of `old`
    today, so that it names a line of `old`. Bad input makes the run undecided too.
    """
    result = Counterfactual(str(folder), None, new.version)
    try:
        recorded = _open(folder, root)
        result.run = recorded.name
        decisions: dict[tuple[int, str], Line] = {}
        under_old = _followed_under(recorded, old, exactly=True, decisions=decisions)
        if under_old.is_same and new.version != old.version:
            result = _followed_under(recorded, new)
            flip = result.flip
            if flip is not None and flip.before is not None:
                result.flip = replace(flip, before=decisions.get((flip.step, flip.position), flip.before))
            return result
    except InputError as error:
        result.undecided = str(error)
        return result
    result.same, result.recorded_version = under_old.same, under_old.recorded_version
    if not under_old.is_same:
        result.same, result.behind = 0, under_old.same + under_old.behind + (under_old.flip is not None)
        result.undecided = (
            under_old.undecided
            or f"it does not go as recorded under the old policy either: {_departure(under_old)}"
        )
    return result


def _departure(result: Counterfactual) -> str:
    """Say where a run leaves its record."""
    if result.flip is None:
        return str(result.why)
    flip = result.flip
    before, after = (
        "no objection" if side is None else f"{side['decision']} {side['rule_id']}"
        for side in (flip.before, flip.after)
    )
    return f"step {flip.step} {flip.position}: {before} -> {after}"


@dataclass
class _Record:
    """The ledger of a recorded run. `tools` are the present ones, kept for the next policy."""

    name: str
    folder: Path
    base: Path
    lines: list[Line]
    tools: dict[str, Tool] | None = None


def _open(folder: Path, root: Path | None) -> _Record:
    base = project_of(folder, root)
    name = relative_name(folder, base)
    place = f"{name}/{STATE}"
    try:
        text = read_unlinked(folder / STATE)
    except OSError as error:
        remedy = "name the folder of one run, such as runs/canonical/v1"
        raise RecordError(f"cannot be read ({why_unread(error)})", file=place, remedy=remedy) from None
    return _Record(name, folder, base, list(ledger.read(text, place)))


class _Frontier(BaseException):
    """Ends the replay at the frontier. Not an Exception, which the gate would take for a failure of its own."""


def _followed_under(
    recorded: _Record,
    policy: Policy,
    *,
    exactly: bool = False,
    decisions: dict[tuple[int, str], Line] | None = None,
) -> Counterfactual:
    """Replay a record under a policy.

    Args:
        recorded: The record.
        policy: The policy.
        exactly: Compare the rules of decisions too.
        decisions: Gets each decision, by step and position.
    """
    try:
        return _followed(recorded, policy, exactly, {} if decisions is None else decisions)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error


def _followed(
    recorded: _Record, policy: Policy, exactly: bool, decisions: dict[tuple[int, str], Line]
) -> Counterfactual:
    run, steps, end = recorded.lines[0], recorded.lines[1:-1], recorded.lines[-1]
    result = Counterfactual(recorded.name, run["policy"]["version"], policy.version)
    recorded_decisions = {
        (line["step_index"], entry["position"]): _of_gate(entry, line)
        for line in steps
        for entry in line["policy_decisions"]
    }
    tools = recorded.tools = recorded.tools or _tools_of(recorded)
    result.undecided = next(
        (why for item in run["tools"] if (why := _moved(item, tools[item["name"]]))), None
    )
    if result.undecided is not None:
        result.behind = len(recorded_decisions)
        return result
    comparing = _Comparison(result, recorded_decisions, len(steps), exactly, decisions)
    clock, cassette = RecordedClock.of(recorded.lines), Cassette.of(steps, counterfactual=True)
    gate = _ObservedGate(policy, tools, comparing)
    schedule = Schedule.of(policy.section("retry"))
    parallel = run.get("max_parallel", MAX_PARALLEL)
    opening = Opening.of_line(run)
    loop = run_loop(
        RunSpec(
            run["run_id"],
            run["question"],
            run["seed"],
            gate,
            schedule,
            (),
            first_digests(run.get("request_parts", {})),
            parallel,
            opening.instructions,
            opening.history,
            recorded_output(run),
            HookSpec.of(run),
        )
    )
    try:
        ending = drive(
            loop, ReplayExecutor(cassette, clock), clock, comparing.line, comparing.effect_performed
        )
        result.why = comparing.left_over(ending, end, cassette.unused())
    except _Frontier:
        pass
    except ReplayError as error:
        result.why = str(error) if f"step {error.step}" in str(error) else f"step {error.step}: {error}"
    if result.why is not None and schedule != _schedule_of(run) and _RETRIES.search(result.why):
        result.why = f"another retry schedule: {result.why}"
    result.behind = (
        len(recorded_decisions) - result.same - (result.flip is not None and result.flip.before is not None)
    )
    return result


# a reason that names a second attempt, or the wait before it
_RETRIES: Final = re.compile(
    r"\b(?:w(?:m|\d+)\.\d+|(?:m|i\d+)\.(?:[2-9]|1\d+)|a wait of|attempt (?:[2-9]|1\d+) of)\b"
)


def _schedule_of(run: Line) -> Schedule:
    names = ("max_retries", "backoff_base_ms", "backoff_cap_ms")
    return Schedule.of({name: run["policy"]["limits"].get(name, 0) for name in names})


# ---- tools --------------------------------------------------------------------------------------------------


def _tools_of(recorded: _Record) -> dict[str, Tool]:
    """Return the present tools of a record; those made in code are the ones that the agent of its task has."""
    run = recorded.lines[0]
    made: Mapping[str, Tool] = {}
    if run["task"] is not None and any(item["file"] is None for item in run["tools"]):
        agent, _ = agent_of(run, recorded.folder, recorded.base, model=RecordedModel(run["model"]))
        made = agent.gate.tools
    return {
        item["name"]: made[item["name"]]
        if item["file"] is None and item["name"] in made
        else _tool(recorded, item)
        for item in run["tools"]
    }


def _tool(recorded: _Record, item: Line) -> Tool:
    if item["file"] is None:
        raise ToolsInCode(
            f"its tool {str(item['name'])[:80]!r} was made in code and is not in a file",
            file=recorded.name,
            remedy="use code: tachograph.replay(agent, folder)",
        )
    folder = (recorded.base / item["file"]).parent
    folder = folder if folder.is_dir() else shipped("tools")
    name = str(item["name"])
    try:
        status = os.stat(folder / f"{name}.py")
        state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except (OSError, ValueError):
        state = None
    return _loaded(name, folder, state)


@lru_cache(maxsize=256)
def _loaded(name: str, folder: Path, _state: tuple[int, ...] | None) -> Tool:
    """Load a tool. Only its declaration is used, so one serves every run until its file changes."""
    return load_named(name, folder)


def _moved(recorded: Line, tool: Tool) -> str | None:
    """Say how a tool's declaration differs from the recorded one, or return None. Its code does not matter."""
    current = {"effect": tool.effect, "idempotent": tool.idempotent, "schema_digest": tool.schema_digest}
    moved = [key for key, value in current.items() if recorded[key] != value]
    if not moved:
        return None
    words = {"schema_digest": "description or schemas"}
    return f"{recorded['file'] or recorded['name']}: {words.get(moved[0], moved[0])} moved since the run was made"


# ---- decision by decision -----------------------------------------------------------------------------------


class _Comparison:
    """Compares each decision, as it is made, with the recorded one at its place."""

    def __init__(
        self,
        result: Counterfactual,
        recorded: Mapping[tuple[int, str], Line],
        steps: int,
        exactly: bool,
        decisions: dict[tuple[int, str], Line],
    ) -> None:
        self._result = result
        self._recorded = recorded
        self._steps = steps
        self._keys = ("decision", "rule_id") if exactly else ("decision",)
        self._decisions = decisions
        self._step = self._ended = 0
        self._attempt: Invoke | None = None
        self._checks = 0

    def effect_performed(self, item: Effect | Event, _outcome: Outcome | None) -> None:
        """Compare a decision of the gate, before a person answers; remember the attempt under way."""
        if isinstance(item, Decided):
            tool = item.call.name if item.call is not None else None
            self._compare(item.position, item.decision.to_dict(), tool)
        elif isinstance(item, Invoke):
            self._attempt, self._checks = item, 0

    def line(self, _line: StepLine) -> None:
        """Count a finished step."""
        self._ended += 1

    def begin_step(self, decision: Decision | None) -> None:
        """Begin a step after the budgets were checked; only a denial is an event of its own."""
        self._step += 1
        if self._step > self._steps:
            self._result.why = f"it would go on after step {self._steps}, where the record ends"
            raise _Frontier
        if decision is None:
            self._no_objection("d")

    def late(self, decision: Decision) -> None:
        """Compare a decision on a fact that an attempt met."""
        assert self._attempt
        position = f"{self._attempt.position}.c{self._checks}"
        self._checks += 1
        self._compare(position, decision.to_dict(), self._attempt.call.name)

    def result(self, decision: Decision | None) -> None:
        """Note the check of a result's size; only a denial is an event of its own."""
        assert self._attempt is not None
        if decision is None:
            self._no_objection(f"d{self._attempt.index}.r")

    def _no_objection(self, position: str) -> None:
        """Compare a place without an objection with the record, which may have one there."""
        entry = self._recorded.get((self._step, position))
        if entry is not None:
            tool = None if self._attempt is None or position == "d" else self._attempt.call.name
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
        raise _Frontier


class _ObservedGate(Gate):
    """A gate that reports what is not an event: decisions on facts met by attempts, and no objection."""

    def __init__(self, policy: Policy, tools: Mapping[str, Tool], comparing: _Comparison) -> None:
        super().__init__(policy, tools)
        self._comparing = comparing

    def decide_step(self, counters: Counters) -> Decision | None:
        decision = super().decide_step(counters)
        self._comparing.begin_step(decision)
        return decision

    def decide_late(self, check: Mapping[str, Any]) -> Decision:
        decision = super().decide_late(check)
        self._comparing.late(decision)
        return decision

    def decide_result(self, size: int, counters: Counters) -> Decision | None:
        decision = super().decide_result(size, counters)
        self._comparing.result(decision)
        return decision


def _of_gate(entry: Line, step: Line) -> Line:
    """Return a recorded decision as the gate made it, before a person answered or the run was stopped."""
    plain = {key: entry[key] for key in ("decision", "rule_id", "reason", "at", "facts")}
    return {**plain, "decision": ESCALATE} if f"h{entry['position'][1:]}" in step["stamps"] else plain


def _kind(before: Line | None, after: Line | None) -> str:
    """Return the kind of a flip. A missing decision counts as an allow: budgets decide only to deny."""
    old = ALLOW if before is None else before["decision"]
    new = ALLOW if after is None else after["decision"]
    if old == new:
        return OTHER_WAY
    if new == ESCALATE:
        return NEEDS_APPROVAL if old == ALLOW else WIDENING
    return WIDENING if new == ALLOW else TIGHTENING
