"""Going on with a run that died, from its journal in `DIR.partial/`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, RecordError, ReplayError
from ...runtime.agent import Agent
from ...runtime.core.clock import Clock, SystemClock, VirtualClock
from ...runtime.core.lines import Line
from ...runtime.driver.interrupts import Interrupts, exit_for
from ...runtime.driver.ports import Approve, Listener
from ...runtime.formats.escape import escape_terminal
from ...runtime.journal.cassette import RecordedClock
from ...runtime.journal.durable_run import DONE, NOT_DONE, DurableRun
from ...runtime.journal.journal import JOURNAL, Journal, Journaled, read_journal
from ...runtime.models.types import Model
from ...runtime.policy.policy import Policy
from ...runtime.run_config import RunConfig, RunResult
from ..files.folder import MOUNTS, Folder
from ..files.json_diff import differences
from ..files.manifest import STATE
from ..tasks.task import load_task
from .record import Making, package, steps_in
from .recorded import agent_of, project_of

# what a run is held to, and where it is kept if it misses that
Wanted = tuple[Mapping[str, Any], Path | None]

# what a run line says of its inputs, in the order in which a change is told
_INPUTS: Final = ("policy", "tools", "task", "model", "mounts", "hosts", "question", "seed", "clock")
_LOG = logging.getLogger("tachograph")


def resume(
    agent: Agent,
    out: str | os.PathLike[str],
    *,
    done: Iterable[str] = (),
    not_done: Iterable[str] = (),
    rebase: bool = False,
    listeners: Iterable[Listener] = (),
    approve: Approve | None = None,
    clock: Clock | None = None,
) -> RunResult:
    """Go on with a run that was recorded from code and died, with the agent that it was made with.

    `done` and `not_done` settle calls in doubt. `approve` is who is asked about escalated calls, `clock` what
    the run goes on with where it was given one of its own. Raises Suspended where the run cannot go on by
    itself, RecordError where its inputs changed and `rebase` does not allow that.
    """
    going = Resuming(Path(out), {**dict.fromkeys(done, DONE), **dict.fromkeys(not_done, NOT_DONE)}, rebase)

    def same(run: Line) -> tuple[Agent, RunConfig]:
        own = clock or (VirtualClock() if run["clock"]["kind"] == "virtual" else SystemClock())
        config = agent.configure_run(
            run["question"], seed=run["seed"], run_id=run["run_id"], approve=approve, clock=own
        )
        return agent, replace(config, as_recorded=True)

    result = going.go(same, listeners=listeners)
    if result.mode == "interrupted":
        raise exit_for(result.signum)
    return result


def resume_folder(
    out: Path,
    *,
    said: Mapping[str, str],
    rebase: bool,
    root: Path | None = None,
    open_model: Callable[[Line], Model] | None = None,
    listeners: Iterable[Listener] = (),
    approver: Callable[[Policy, str | None], Approve | None] | None = None,
) -> RunResult:
    """Go on with the run of a task that died. `open_model` gets what the run line says of a live model.

    `approver` gives who is asked: it gets the policy and by which way the run was begun to ask (`terminal`,
    `file`, None for the answers of its task).
    """

    def again(run: Line) -> tuple[Agent, RunConfig]:
        base = project_of(out, root) if run["task"] is None else _base(out, run, root)
        live = run["model"]["execution_path"] != "stub"
        model = open_model(run["model"]) if live and open_model is not None else None
        agent, config = agent_of(run, out, base, model=model)
        way = run.get("approvals")
        approve = None if approver is None else approver(agent.policy, way)
        if way is not None:
            config = replace(config, approvals=way, approve=approve)
        return agent, config

    return Resuming(out, said, rebase).go(
        again, listeners=listeners, wanted=lambda run: _wanted(out, run, root)
    )


def _wanted(out: Path, run: Line, root: Path | None) -> Wanted:
    """What the run's task expects of it: what the run would have been held to, had it not died."""
    if run["task"] is None:
        return {}, None
    base = _base(out, run, root)
    task = load_task(base / run["task"]["path"], root=base)
    if (run["model"]["execution_path"] != "stub" and task.is_scripted) or "approvals" in run:
        return {}, None  # what a task expects was written for its script and its answers
    return task.expected, base / ".tachograph" / "rejected" / "-".join(task.kind_and_name)


def _base(out: Path, run: Line, root: Path | None) -> Path:
    """The project that the run's task is in."""
    for base in filter(None, (root, project_of(out, None), project_of(Path.cwd(), None))):
        if (base / run["task"]["path"]).is_file():
            return base
    return project_of(out, root)


class Resuming:
    """One going on: the folder locked, the journal read, the run made again up to its end and then live."""

    def __init__(self, out: Path, said: Mapping[str, str], rebase: bool) -> None:
        shown = out.name.removesuffix(".partial")
        self._out = out.with_name(shown) if shown else out
        self._said = dict(said)
        self._rebase = rebase

    def go(
        self,
        again: Callable[[Line], tuple[Agent, RunConfig]],
        *,
        listeners: Iterable[Listener] = (),
        wanted: Callable[[Line], Wanted] = lambda _run: ({}, None),
    ) -> RunResult:
        with Interrupts() as interrupts, Folder(self._out, resume=True) as folder:
            name = f"{self._out}.partial/{JOURNAL}"
            if folder.is_whole:
                folder.finish()
                return _result_in(folder.out)
            found = read_journal((folder.partial / JOURNAL).read_bytes(), name)
            if found is None:
                folder.discard()
                raise RecordError(
                    "holds nothing: the run died before it began", file=name, remedy="run it again"
                )
            if found.torn:
                _LOG.warning("tachograph: %s: its last %d bytes are torn and were cut off", name, found.torn)
            self._check_said(found, name)
            agent, config = again(self._latest(found)["run"])
            config, changed = self._settle(found, agent, config, name)
            durable = str(found.begin["package"].get("durability", "effect"))
            with contextlib.closing(
                Journal(folder.partial / JOURNAL, durable, found.chain, found.size)
            ) as journal:
                durable_run = DurableRun(
                    journal,
                    folder.partial / MOUNTS,
                    {**package(), "durability": durable},
                    config.clock,
                    before=found,
                    said=self._said,
                    rebase=changed,
                )
                expected, rejected = wanted(found.begin["run"])
                making = Making(project_of(self._out, None), listeners, expected, rejected, durable)
                try:
                    return making.make(agent, replace(config, durable_run=durable_run), folder, interrupts)
                except ReplayError as error:
                    raise RecordError(
                        f"does not answer the run: {error}", file=name, remedy="go back to the inputs it had"
                    ) from error

    def _check_said(self, found: Journaled, name: str) -> None:
        doubt = None if found.intent is None else str(found.intent["call"])
        for call in self._said:
            if call != doubt:
                what = f"{doubt} is" if doubt is not None else "no call is"
                raise InputError(f"call {call!r} is not in doubt", file=name, remedy=f"{what} in doubt")

    def _latest(self, found: Journaled) -> Line:
        return found.rebased[-1] if found.rebased else found.begin

    def _settle(self, found: Journaled, agent: Agent, config: RunConfig, name: str) -> tuple[RunConfig, bool]:
        """The setting to go on with, and whether its inputs are others than the journal's."""
        latest = self._latest(found)
        run = found.begin["run"]
        seconds = run["deadline_ms"] / 1000 if "deadline_ms" in run else None
        config = replace(config, run_id=run["run_id"], seed=run["seed"], deadline_s=seconds)
        config = replace(config, clock=_clock(config.clock, found))
        plain = config.question
        now = agent.run_line(config, plain if config.as_recorded else agent.redactor()(plain))
        changed = [
            f"{key}{escape_terminal(pointer)}"
            for key in _INPUTS
            for pointer, _, _ in differences(latest["run"][key], now[key])
        ]
        if latest["package"]["digest"] != package()["digest"]:
            changed.append("the package's own code")
        if changed and not self._rebase:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise RecordError(
                f"the run began under other inputs: {changed[0]}{more} changed",
                file=name,
                remedy="go back to them, or go on with --rebase, which records both",
            )
        earlier = [entry["run"] for entry in (found.begin, *found.rebased)]
        past = earlier if changed else earlier[:-1]
        rebased = tuple({key: line[key] for key in ("policy", "tools", "task")} for line in past)
        return replace(config, rebased=rebased), bool(changed)


def _result_in(folder: Path) -> RunResult:
    """How the run ended whose files are in a folder."""
    end = json.loads((folder / STATE).read_text(encoding="utf-8").split("\n")[-2])
    return RunResult(
        end["terminal_reason"], end["final_answer"], steps_in(folder), end["run_id"], end["failure_mode"]
    )


def _clock(clock: Clock, found: Journaled) -> RecordedClock:
    """The run's clock: what is known is stamped as it was, what follows goes on from there."""
    start, last = found.begin["run"]["clock"]["start"], found.last
    then: Clock = clock
    if isinstance(clock, VirtualClock):
        if found.stamps:
            clock.continue_after(last)
    else:
        then = SystemClock(start, last)
    return RecordedClock(clock.kind, start, found.stamps, then)
