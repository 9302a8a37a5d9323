"""Resume a run that died from its journal in `DIR.partial/`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, RecordError, ReplayError, StoppedBySignal
from ...light_dataclasses import replace
from ...runtime.agent import Agent
from ...runtime.core.clock import Clock, SystemClock, VirtualClock
from ...runtime.core.lines import Line
from ...runtime.driver.foreign_calls import run_now
from ...runtime.driver.ports import Approve, Listener
from ...runtime.driver.stopping.interrupts import Interrupts, exit_for
from ...runtime.driver.stopping.processes import marking
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import NotPlain, read_unlinked
from ...runtime.journal.durable_run import DONE, NOT_DONE, DurableRun
from ...runtime.journal.journal import JOURNAL, Journal, Journaled, read_journal
from ...runtime.journal.recorded_clock import RecordedClock
from ...runtime.models.request_parts import options_of
from ...runtime.models.types import Model
from ...runtime.policy.policy import Policy
from ...runtime.setup.opening import Opening, opening_of
from ...runtime.setup.run_config import RunConfig, RunResult
from ..files.folder import MOUNTS, Folder, is_unfinished
from ..files.json_diff import differences
from ..files.manifest import STATE
from ..files.words.how_to_resume import how_to_resume, made_in_code
from ..tasks.place import expected_of_run
from ..tasks.task import load_task
from .durability import SUSPEND, suspends
from .external import ANSWERED, answered_from
from .record import result_in, steps_in
from .recorded import agent_of, project_of, relative_name, same_opening
from .recorder import Recorder, package
from .sync_async import BLOCKING

# what a task expects, and where a run is kept that misses it
Expectation = tuple[Mapping[str, Any], Path | None]

# keys of a run line that hold its inputs, in the order in which changes are reported
_INPUTS: Final = (
    "policy",
    "tools",
    "task",
    "model",
    "mounts",
    "hosts",
    "question",
    "seed",
    "clock",
    "request_parts",
    "instructions",
    "history",
    "modules",
    "max_parallel",
    "output",
    "hooks",
)
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
    on_signal: str = SUSPEND,
) -> RunResult:
    """Resume a run that was recorded from code and died.

    Args:
        agent: The agent that the run was started with.
        out: The folder of the run.
        done: Ids of calls in doubt whose effect took place.
        not_done: Ids of calls in doubt whose effect did not take place.
        rebase: Continue although inputs changed; the record notes both.
        listeners: Get the events of the run.
        approve: Answers escalated calls.
        clock: The clock to continue with, if the run was started with one of its own.
        on_signal: As for `record`.

    Returns:
        How the run ended.

    Raises:
        Suspended: The run waits for a person.
        OutputError: There is no unfinished run.
        RecordError: The journal is empty, or inputs changed and `rebase` is not set.

    Example:
        >>> from tachograph import Agent, InputError, LLMOutput, Policy, ToolCall, record, resume
        >>> keys = []
        >>> def model(request):
        ...     if request.step_index == 1:
        ...         return LLMOutput(tool_calls=[ToolCall("search", {"query": "rest"})])
        ...     if not keys:
        ...         raise InputError("the key is missing")
        ...     return LLMOutput(final_answer="At the depot.")
        >>> agent = Agent(model, ["search"], Policy.shipped(), mounts={"corpus": "."})
        >>> record(agent, "Where may a driver sleep?", "my-runs/first")
        Traceback (most recent call last):
        tachograph.fail.errors.InputError: the key is missing
        >>> keys.append("key")
        >>> resume(agent, "my-runs/first").answer
        'At the depot.'
    """
    resumption = Resumption(
        Path(out), {**dict.fromkeys(done, DONE), **dict.fromkeys(not_done, NOT_DONE)}, rebase
    )

    def configure(run: Line) -> tuple[Agent, RunConfig]:
        own = clock or (VirtualClock() if run["clock"]["kind"] == "virtual" else SystemClock())
        then = Opening.of_line(run)
        now = replace(opening_of(agent.instructions, then.variables, None), history=then.history)
        # where it is the recorded one, nothing in it is to be escaped again
        if now.as_text() != then.as_text():
            now = same_opening(then, now, agent.policy.redactor())
        config = agent.configure_run(
            run["question"],
            opening=now,
            seed=run["seed"],
            run_id=run["run_id"],
            approve=approve,
            clock=own,
        )
        return agent, replace(config, as_recorded=True, on_signal=on_signal)

    try:
        result = resumption.go(configure, listeners=listeners)
    except StoppedBySignal as stopped:
        raise exit_for(stopped.signum) from stopped
    if result.mode == "interrupted":
        raise exit_for(result.signum)
    return replace(result, steps=steps_in(Path(out)), output_type=agent.output)


def resume_folder(
    out: Path,
    *,
    resolutions: Mapping[str, str],
    rebase: bool,
    root: Path | None = None,
    open_model: Callable[[Line], Model] | None = None,
    has_model: bool = False,
    listeners: Iterable[Listener] = (),
    approver: Callable[[Policy, str | None], Approve | None] | None = None,
    on_signal: str | None = None,
    concludes: bool = False,
) -> RunResult:
    """Resume the run of a task that died.

    Args:
        out: The folder of the run.
        resolutions: Id of a call in doubt -> `DONE` or `NOT_DONE`.
        rebase: Continue although inputs changed.
        root: The project, unless it is the one around the folder.
        open_model: Makes a live model from its description in the run line, its `options` included.
        has_model: Whether a person named the model that `open_model` opens.
        listeners: Get the events of the run.
        approver: Makes the function that answers escalated calls from the policy and the channel that the run
            was started with: `terminal`, `file`, or None for the answers in its task.
        on_signal: As for `record`; by default as the task says.
        concludes: Perform nothing more, and write the record of a run whose process ended itself.
    """

    def configure(run: Line) -> tuple[Agent, RunConfig]:
        base = project_of(out, root) if run["task"] is None else base_of(out, run, root)
        _refuse_made_in_code(run, out, base, has_model=has_model)
        live = run["model"]["execution_path"] != "stub"
        asked = {**run["model"], "options": options_of(run)}
        model = open_model(asked) if live and open_model is not None else None
        agent, config = agent_of(run, out, base, model=model)
        channel = run.get("approvals")
        approve = None if approver is None else approver(agent.policy, channel)
        if channel is not None:
            config = replace(config, approvals=channel, approve=approve)
        if run["task"] is None:  # question and opening are those of the record, without secrets
            config = replace(config, as_recorded=True)
        return agent, replace(config, on_signal=on_signal or config.on_signal)

    return Resumption(out, resolutions, rebase, concludes=concludes).go(
        configure, listeners=listeners, expectation_of=lambda run: _expectation(out, run, root)
    )


def _refuse_made_in_code(run: Line, out: Path, base: Path, *, has_model: bool) -> None:
    """Raise RecordError for a run that files alone do not describe, before a model is opened for it."""
    what = made_in_code(run, model_given=has_model)
    if what is None:
        return
    shown = relative_name(out, base).removesuffix(".partial")
    call = how_to_resume(shown, run)
    raise RecordError(f"{what} was made in code and is in no file", file=shown, remedy=f"go on with {call}")


def _expectation(out: Path, run: Line, root: Path | None) -> Expectation:
    """Return what the task expects of the run, as if it had not died."""
    if run["task"] is None:
        return {}, None
    base = base_of(out, run, root)
    task = load_task(base / run["task"]["path"], root=base)
    expected = expected_of_run(task, run)
    return expected, task.rejected if expected else None


def base_of(out: Path, run: Line, root: Path | None) -> Path:
    """Return the project that holds the run's task."""
    for base in filter(None, (root, project_of(out, None), project_of(Path.cwd(), None))):
        if (base / run["task"]["path"]).is_file():
            return base
    return project_of(out, root)


class Resumption:
    """Resumes one run: locks its folder, reads the journal, replays it to its end and continues live.

    With `concludes` it performs nothing more and brings the run to its end; see `DurableRun`.
    """

    def __init__(
        self, out: Path, resolutions: Mapping[str, str], rebase: bool, *, concludes: bool = False
    ) -> None:
        shown = out.name.removesuffix(".partial")
        self._out = out.with_name(shown) if shown else out
        self._resolutions = dict(resolutions)
        self._rebase = rebase
        self._concludes = concludes

    def go(
        self,
        configure: Callable[[Line], tuple[Agent, RunConfig]],
        *,
        listeners: Iterable[Listener] = (),
        expectation_of: Callable[[Line], Expectation] = lambda _run: ({}, None),
    ) -> RunResult:
        """Resume the run with the agent and configuration that `configure` builds from the run line."""
        with Interrupts() as interrupts, Folder(self._out, resume=True) as folder:
            name = f"{self._out}.partial/{JOURNAL}"
            if folder.is_whole:
                folder.finish()
                return result_in(folder.out)
            journaled = read_journal(_bytes_of(folder.partial / JOURNAL, name), name)
            if journaled is None:
                folder.discard()
                raise RecordError(
                    "holds nothing: the run died before it began", file=name, remedy="run it again"
                )
            if journaled.torn:
                _LOG.warning(
                    "tachograph: %s: its last %d bytes are torn and were cut off", name, journaled.torn
                )
            self._check_resolutions(journaled, name)
            agent, config = configure(self._latest(journaled)["run"])
            expected, rejected = expectation_of(journaled.begin["run"])
            if journaled.begin["package"].get(ANSWERED):
                config = answered_from(agent, config, self._out, self._out.as_posix(), rejected)
                if config.answers is None:
                    raise RecordError(
                        "was answered by a record that is gone, and performs no external call",
                        file=name,
                        remedy="restore the record, or begin anew: `tachograph run TASK --discard`",
                    )
            config, changed = self._apply_recorded_inputs(journaled, agent, config, name)
            durable = str(journaled.begin["package"].get("durability", "effect"))
            with contextlib.closing(
                Journal(folder.partial / JOURNAL, durable, journaled.chain, journaled.size)
            ) as journal:
                durable_run = DurableRun(
                    journal,
                    folder.partial / MOUNTS,
                    {**package(), "durability": durable},
                    config.clock,
                    before=journaled,
                    said=self._resolutions,
                    rebase=changed,
                    suspends=suspends(config.on_signal),
                    concludes=self._concludes,
                )
                recorder = Recorder(BLOCKING, listeners, expected, rejected, durable)
                try:
                    with marking(durable_run.marker):
                        config = replace(config, durable_run=durable_run)
                        return run_now(recorder.make(agent, config, folder, interrupts))  # type: ignore[no-any-return]
                except ReplayError as error:
                    raise RecordError(
                        f"does not answer the run: {error}", file=name, remedy="go back to the inputs it had"
                    ) from error

    def _check_resolutions(self, journaled: Journaled, name: str) -> None:
        doubts = [str(intent["call"]) for intent in journaled.intents.values()]
        for call in self._resolutions:
            if call not in doubts:
                in_doubt = (
                    f"{' and '.join(doubts)} {'is' if len(doubts) == 1 else 'are'}"
                    if doubts
                    else "no call is"
                )
                raise InputError(f"call {call!r} is not in doubt", file=name, remedy=f"{in_doubt} in doubt")

    def _latest(self, journaled: Journaled) -> Line:
        return journaled.rebased[-1] if journaled.rebased else journaled.begin

    def _apply_recorded_inputs(
        self, journaled: Journaled, agent: Agent, config: RunConfig, name: str
    ) -> tuple[RunConfig, bool]:
        """Return the configuration to continue with, and whether inputs changed since the journal was begun."""
        latest = self._latest(journaled)
        run = journaled.begin["run"]
        seconds = run["deadline_ms"] / 1000 if "deadline_ms" in run else None
        config = replace(config, run_id=run["run_id"], seed=run["seed"], deadline_s=seconds)
        config = replace(config, nonce=run.get("nonce", ""), principal=run.get("principal"))
        config = replace(config, clock=_clock(config.clock, journaled))
        # the values that were known when the run began are named in its first line, whatever is known here
        config = replace(config, redacted=tuple(run["policy"].get("redact", {}).get("values", ())))
        run_line = agent.run_line(config.without_secrets(agent.redactor()))
        changed = [
            f"{key}{escape_terminal(pointer)}"
            for key in _INPUTS
            for pointer, _, _ in differences(latest["run"].get(key), run_line.get(key))
        ]
        changed += _moved(latest.get("inputs", ()), agent.inputs(config))
        if latest["package"]["digest"] != package()["digest"]:
            changed.append("the package's own code")
        if changed and not self._rebase:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise RecordError(
                f"the run began under other inputs: {changed[0]}{more} changed",
                file=name,
                remedy="go back to them, or go on with --rebase, which records both",
            )
        earlier = [entry["run"] for entry in (journaled.begin, *journaled.rebased)]
        replaced = earlier if changed else earlier[:-1]
        rebased = tuple({key: line[key] for key in ("policy", "tools", "task")} for line in replaced)
        return replace(config, rebased=rebased), bool(changed)


def _bytes_of(journal: Path, name: str) -> bytes:
    try:
        return read_unlinked(journal)
    except NotPlain as error:
        raise RecordError(
            str(error), file=name, remedy="restore the file, or remove the folder and run again"
        ) from None


def task_begun(out: Path) -> str | None:
    """Return the task of the unfinished run in the place of `out`, None for one made from code.

    Raises RecordError where its journal cannot be read.
    """
    run = run_begun(out)
    return None if run is None or run["task"] is None else str(run["task"]["path"])


def run_begun(out: Path) -> Line | None:
    """Return the run line of the unfinished run in the place of `out`, None where nothing was begun.

    Raises RecordError where its journal cannot be read.
    """
    partial = out.with_name(f"{out.name}.partial")
    try:
        journaled = read_journal(_bytes_of(partial / JOURNAL, str(partial / JOURNAL)), str(partial / JOURNAL))
        return None if journaled is None else journaled.begin["run"]
    except FileNotFoundError:
        if not is_unfinished(out):
            return None
        first = read_unlinked(partial / STATE).split(b"\n", 1)[0]  # it only has to be put in place
        run: Line = json.loads(first)
        return run


def _moved(before: Iterable[Line], after: Iterable[Line]) -> list[str]:
    """Return the paths of inputs whose digests differ, sorted."""
    then, now = ({str(item["path"]): item["sha256"] for item in items} for items in (before, after))
    moved = [path for path in then.keys() | now.keys() if then.get(path) != now.get(path)]
    return sorted(map(escape_terminal, moved))


def _clock(clock: Clock, journaled: Journaled) -> RecordedClock:
    """Return a clock that repeats the journal's stamps and continues from the last."""
    start, stamps = journaled.begin["run"]["clock"]["start"], journaled.stamps
    if isinstance(clock, VirtualClock) and stamps:  # what a group has taken is added when it is joined
        clock.continue_after(max(stamps))
    next_clock = clock if isinstance(clock, VirtualClock) else SystemClock(start, journaled.last)
    return RecordedClock(clock.kind, start, stamps, next_clock, journaled.branches, journaled.standing_times)
