"""Record runs: write the four files of a run, all or none.

A run under way is in `DIR.partial/`, locked to one process; it is finished by fsync and rename. A recording that
equals the one in place, volatile keys aside, leaves it untouched.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from ... import light_dataclasses
from ...fail.catalog import ENDINGS
from ...fail.errors import InputError, OutputError, StoppedBySignal
from ...runtime.agent import Agent
from ...runtime.core.clock import Clock
from ...runtime.driver.disk_work import Entered
from ...runtime.driver.events.listeners import listener_list
from ...runtime.driver.foreign_calls import run_now
from ...runtime.driver.ports import Approve, Listener
from ...runtime.driver.stopping.interrupts import exit_for
from ...runtime.driver.stopping.scopes import Scope
from ...runtime.formats.read_file import read_unlinked
from ...runtime.journal.requests import opening_messages
from ...runtime.setup.run_config import RunConfig, RunResult, StepLines
from ..files import manifest
from ..files.manifest import MANIFEST, STATE
from ..tasks.code.agent import is_importing
from .durability import SUSPEND
from .recorder import recorded_run
from .sync_async import BLOCKING, Way


def record(
    agent: Agent | str,
    question: str,
    out: str | os.PathLike[str] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    history: Iterable[Mapping[str, Any]] | None = None,
    principal: str | None = None,
    task: str | os.PathLike[str] | None = None,
    otlp: str | None = None,
    seed: int = 0,
    run_id: str | None = None,
    listeners: Iterable[Listener] = (),
    approve: Approve | None = None,
    clock: Clock | None = None,
    replace: bool = False,
    durability: str | None = None,
    cancel: Event | Scope | None = None,
    deadline_s: float | None = None,
    on_signal: str = SUSPEND,
) -> RunResult:
    """Run `question` and write the four files of the run into the folder `out`.

    A run that dies is continued by `resume`. Ctrl-C and SIGTERM suspend a run that is kept in a journal, so that
    `resume` continues it too; they end any other run, with a complete record. Both are raised again.

    Args:
        agent: The agent; with `task` also its name, `package.module:name`.
        question: The question.
        out: The folder of the run; `runs/K/N` unless given with `task`.
        variables: The values of the names in the agent's instructions.
        history: The messages before the question, as the model's input holds them; each call has its result.
        principal: On whose behalf the run acts, as the policy's `principals` name it.
        task: The file `tasks/K/N.yaml` of the project, which is written if it is not there: it names the agent, the
            question and the seed, so that `tachograph check` makes the run again. The agent is a value at the top
            of a module of the project. Approvals and the clock are the task's.
        otlp: OTLP endpoint (`http://host:4318`, `grpc://host:4317`) that gets the spans live.
        seed: Seeds the jitter of waits.
        run_id: Name of the run; made up if it is not given.
        listeners: Get the events of the run.
        approve: Answers escalated calls.
        clock: The run's clock; by default virtual for a stub model, else the system's.
        replace: Replace an earlier record in `out`. One of a stub model under the same run id, which can be
            executed again, is always replaced.
        durability: `off`, `step` or `effect`: what must be on the disk before the run continues. By default
            `off` on a virtual clock for a run that can be repeated, else `effect`. A run that offers an external
            tool, or may write to a folder of yours, cannot be repeated.
        cancel: Ends the run when it is set.
        deadline_s: Ends the run so many seconds after its start.
        on_signal: `suspend` or `cancel`: whether a signal suspends a run that is kept in a journal, or ends it.

    Returns:
        How the run ended, with its steps.

    Raises:
        InputError: The task is of another run, or does not lead to the agent.
        OutputError: `out` cannot be used.
        Suspended: The run cannot continue, but can be resumed.
        KeyboardInterrupt: Ctrl-C came.
        SystemExit: SIGTERM came.

    Example:
        >>> from tachograph import Agent, Policy, Stub, record
        >>> agent = Agent(Stub([{"answer": "At the depot."}]), ["search"], Policy.shipped())
        >>> result = record(agent, "Where may a driver sleep?", "my-runs/first")
        >>> result.ending, result.answer
        ('final_answer', 'At the depot.')
    """
    result: RunResult = run_now(
        recorded(
            BLOCKING,
            agent,
            question,
            out,
            variables=variables,
            history=history,
            principal=principal,
            task=task,
            otlp=otlp,
            seed=seed,
            run_id=run_id,
            listeners=listeners,
            approve=approve,
            clock=clock,
            replace=replace,
            durability=durability,
            cancel=cancel,
            deadline_s=deadline_s,
            on_signal=on_signal,
        )
    )
    return result


async def recorded(
    way: Way,
    agent: Agent | str,
    question: str,
    out: str | os.PathLike[str] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    history: Iterable[Mapping[str, Any]] | None = None,
    principal: str | None = None,
    task: str | os.PathLike[str] | None = None,
    otlp: str | None = None,
    seed: int = 0,
    run_id: str | None = None,
    listeners: Iterable[Listener] = (),
    approve: Approve | None = None,
    clock: Clock | None = None,
    replace: bool = False,
    durability: str | None = None,
    cancel: Event | Scope | None = None,
    deadline_s: float | None = None,
    on_signal: str = SUSPEND,
) -> RunResult:
    """Record a run in the calling thread or in an event loop; see `record`."""
    if is_importing():
        raise InputError(
            "a run is recorded while the module of an agent is imported",
            remedy='put the call under `if __name__ == "__main__":`',
        )
    if task is not None:
        from .code_task import record_task  # few runs have a task that is written by code

        given = {
            "run_id": run_id,
            "clock": clock,
            "approve": approve,
        }
        if unfit := [name for name, value in given.items() if value is not None]:
            raise InputError(
                f"{unfit[0]} is given beside task", remedy="leave it out; the task file decides it"
            )
        return await record_task(
            way,
            agent,
            question,
            Path(task),
            None if out is None else Path(out),
            variables=variables,
            history=history,
            principal=principal,
            seed=seed,
            deadline_s=deadline_s,
            on_signal=on_signal,
            replace=replace,
            otlp=otlp,
            listeners=listeners,
            durability=durability,
            cancel=cancel,
        )
    if not isinstance(agent, Agent) or out is None:
        raise InputError("there is no Agent, or no folder for its run", remedy="give both, or a task")
    config = agent.configure_run(
        question,
        variables=variables,
        history=history,
        principal=principal,
        seed=seed,
        run_id=run_id,
        approve=approve,
        clock=clock,
    )
    config = light_dataclasses.replace(config, cancel=cancel, deadline_s=deadline_s, on_signal=on_signal)
    watching = listener_list(listeners)
    folder = Path(out)
    if not replace:
        await way.wait_for(lambda: check_replaceable(folder, config.run_id, "replace=True"))
    async with Entered(way.wait_for, live_export(otlp)) as extra:
        try:
            result = await recorded_run(
                way, agent, config, folder, listeners=(*watching, *extra), durability=durability
            )
        except StoppedBySignal as stopped:
            raise exit_for(stopped.signum) from stopped
    if result.mode == "interrupted":
        raise exit_for(result.signum)
    return light_dataclasses.replace(result, steps=await way.wait_for(lambda: steps_in(folder)))


def steps_in(folder: Path) -> StepLines:
    """Return the steps of the run whose files are in a folder."""
    return StepLines((folder / STATE).read_text(encoding="utf-8").split("\n")[1:-2])


def result_in(folder: Path) -> RunResult:
    """Return how the run in a folder ended."""
    texts = (folder / STATE).read_text(encoding="utf-8").split("\n")
    run, end = json.loads(texts[0]), json.loads(texts[-2])
    return RunResult(
        end["terminal_reason"],
        end["final_answer"],
        steps_in(folder),
        end["run_id"],
        end["failure_mode"],
        opening=tuple(opening_messages(run)),
    )


def check_replaceable(out: Path, run_id: str, remedy: str) -> None:
    """Raise OutputError if `out` holds a record of another run, or one that cannot be executed again."""
    try:
        existing = manifest.read(read_unlinked(out / MANIFEST))
        name, repeatable = existing["run_id"], existing["model"]["execution_path"] == "stub"
        held = f"the record of run {str(name)[:80]}"
    except (FileNotFoundError, NotADirectoryError):
        return  # what is no folder is refused where the run begins
    except (OSError, ValueError, KeyError, TypeError):
        name, repeatable, held = None, False, "a record that cannot be read"
    if name != run_id or not repeatable:
        raise OutputError(
            f"{out}: already holds {held}; give {remedy} to record a new run in its place, or name another folder"
        )


@contextlib.contextmanager
def live_export(
    endpoint: str | None, on_problem: Callable[[str], None] | None = None
) -> Iterator[list[Listener]]:
    """Yield the listeners that send spans to an OTLP endpoint; none, and nothing is imported, without one."""
    if endpoint is None:
        yield []
        return
    from ...tracing.live import LiveExport

    export = LiveExport(endpoint, on_problem=on_problem)
    try:
        yield [export]
    finally:
        export.close()


def record_run(
    agent: Agent,
    config: RunConfig,
    out: Path,
    *,
    listeners: Iterable[Listener] = (),
    expected: Mapping[str, Any] | None = None,
    rejected: Path | None = None,
    durability: str | None = None,
    discard: bool = False,
) -> RunResult:
    """Execute a run and put its four files into `out`.

    Bad input leaves nothing behind, and neither does a full disk if the run can be repeated.

    Args:
        agent: The agent.
        config: The run's configuration.
        out: The folder of the run.
        listeners: Get the events of the run.
        expected: What a task expects; a run that misses it never replaces the one in place.
        rejected: Where such a run is kept, else in `OUT.partial/`.
        durability: As for `record`.
        discard: Drop an unfinished run that is there.

    Raises:
        ExpectationError: The run misses `expected`; Interrupted is its cause if the run was interrupted.
        Suspended: The disk is full or a signal came, and the run can be resumed.
        OutputError: The files cannot be written.
    """
    result: RunResult = run_now(
        recorded_run(
            BLOCKING,
            agent,
            config,
            out,
            listeners=listeners,
            expected=expected,
            rejected=rejected,
            durability=durability,
            discard=discard,
        )
    )
    return result


def ending_ok(result: RunResult, expected: Mapping[str, Any]) -> bool:
    """Return whether a run ended with an answer, or as its task expects."""
    endings = expected.get("endings") or [expected.get("ending", "final_answer")]
    return result.ending in endings and result.ending in ENDINGS
