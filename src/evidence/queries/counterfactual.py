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
from typing import Final

from ...fail.errors import InputError, RecordError, ReplayError
from ...light_dataclasses import dataclass, replace
from ...runtime.core.lines import Line
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
from ...runtime.policy.policy import Policy
from ...runtime.setup.opening import Opening
from ...runtime.setup.output_types import recorded_output
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import load_named
from ..files.manifest import STATE
from ..recording.recorded import RecordedModel, agent_of, project_of, relative_name
from .decision_comparison import DecisionComparison, Frontier, ObservedGate, as_decided
from .flips import Counterfactual


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
        (line["step_index"], entry["position"]): as_decided(entry, line)
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
    comparing = DecisionComparison(result, recorded_decisions, steps, exactly, decisions)
    clock, cassette = RecordedClock.of(recorded.lines), Cassette.of(steps, counterfactual=True)
    gate = ObservedGate(policy, tools, comparing)
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
            run.get("nonce"),
            run.get("principal"),
        )
    )
    try:
        ending = drive(
            loop, ReplayExecutor(cassette, clock), clock, comparing.line, comparing.effect_performed
        )
        result.why = comparing.left_over(ending, end, cassette.unused())
    except Frontier:
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
