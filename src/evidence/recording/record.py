"""Record runs: write the four files of a run, all or none.

A run under way is in `DIR.partial/`, locked to one process; it is finished by fsync and rename. A recording that
equals the one in place, volatile keys aside, leaves it untouched.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from ... import light_dataclasses
from ...fail.catalog import ENDINGS
from ...fail.errors import (
    ExpectationError,
    InputError,
    Interrupted,
    OutputError,
    StoppedBySignal,
    Suspended,
    system_reason,
)
from ...runtime.agent import Agent
from ...runtime.core.clock import Clock, stopwatch
from ...runtime.core.lines import Line
from ...runtime.driver.interrupts import Interrupts, exit_for
from ...runtime.driver.listeners import listener_list
from ...runtime.driver.ports import Approve, Listener
from ...runtime.driver.processes import marking
from ...runtime.driver.scopes import Scope
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import read_unlinked
from ...runtime.journal.durable_run import DurableRun
from ...runtime.journal.journal import JOURNAL, Journal
from ...runtime.journal.requests import opening_messages
from ...runtime.run_config import RunConfig, RunResult, StepLines
from ...runtime.tools.project_modules import versions_of_packages
from ..files import manifest
from ..files.folder import MOUNTS, Folder
from ..files.manifest import MANIFEST, SEAL, STATE
from ..files.package_digest import package_digest
from ..files.writer import Writer
from ..tasks.code_agent import is_importing
from ..tasks.expect import differences
from .durability import OFF, SUSPEND, durability_of, suspends
from .external import ANSWERED


def record(
    agent: Agent | str,
    question: str,
    out: str | os.PathLike[str] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    history: Iterable[Mapping[str, Any]] | None = None,
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
        return record_task(
            agent,
            question,
            Path(task),
            None if out is None else Path(out),
            variables=variables,
            history=history,
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
        seed=seed,
        run_id=run_id,
        approve=approve,
        clock=clock,
    )
    config = light_dataclasses.replace(config, cancel=cancel, deadline_s=deadline_s, on_signal=on_signal)
    watching = listener_list(listeners)
    if not replace:
        check_replaceable(Path(out), config.run_id, "replace=True")
    with live_export(otlp) as extra:
        try:
            result = record_run(
                agent, config, Path(out), listeners=(*watching, *extra), durability=durability
            )
        except StoppedBySignal as stopped:
            raise exit_for(stopped.signum) from stopped
    if result.mode == "interrupted":
        raise exit_for(result.signum)
    return light_dataclasses.replace(result, steps=steps_in(Path(out)))


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
    durable = durability_of(agent, config, durability)
    keeps_on = suspends(config.on_signal)
    recorder = Recorder(listeners, expected or {}, rejected, durable)
    with Interrupts() as interrupts, Folder(out, discard=discard) as folder:
        if durable == OFF:
            return recorder.make(agent, config, folder, interrupts)
        with contextlib.closing(Journal(folder.partial / JOURNAL, durable)) as journal:
            about = {**package(), "durability": durable, **({ANSWERED: True} if config.answers else {})}
            durable_run = DurableRun(journal, folder.partial / MOUNTS, about, config.clock, suspends=keeps_on)
            with marking(durable_run.marker):
                return recorder.make(
                    agent, light_dataclasses.replace(config, durable_run=durable_run), folder, interrupts
                )


def package() -> Line:
    """Return what a journal notes of the code that makes a run."""
    return {"digest": package_digest()}


@light_dataclasses.dataclass(frozen=True)
class Recorder:
    """Executes a run and writes its four files.

    Attributes:
        listeners: Get the events of the run.
        expected: What the run must meet to replace the one in place.
        rejected: Where a run that does not is kept.
        durability: As for `record`.
    """

    listeners: Iterable[Listener]
    expected: Mapping[str, Any]
    rejected: Path | None
    durability: str

    def make(self, agent: Agent, config: RunConfig, folder: Folder, interrupts: Interrupts) -> RunResult:
        """Execute a run under the lock of its folder and put its files in place."""
        begun = stopwatch()
        resumed = isinstance(config.durable_run, DurableRun) and config.durable_run.is_resumed
        try:
            with contextlib.closing(Writer(folder.partial)) as writer:
                result = agent.execute(
                    config,
                    listeners=self.listeners,
                    on_line=writer.line,
                    keep_steps=False,
                    interrupts=interrupts,
                )
                stable = writer.finish(result.inputs)
            seconds = stopwatch() - begun
            self._put(agent, folder, result, stable, differences(self.expected, writer.tally), seconds)
        except (InputError, OutputError):
            if not resumed and not (
                isinstance(config.durable_run, DurableRun) and config.durable_run.has_noted
            ):
                folder.discard()
            raise
        except OSError as error:
            raise self._lost(error, folder, config) from error
        except StoppedBySignal as stop:
            raise StoppedBySignal(
                f"{signal.Signals(stop.signum).name} stopped the run; go on with {folder.resumed_by}",
                stop.signum,
            ) from None
        return result

    def _put(
        self,
        agent: Agent,
        folder: Folder,
        result: RunResult,
        stable: Line,
        missed: list[str],
        seconds: float,
    ) -> None:
        if not missed and _same_in_place(folder.out, stable):
            folder.discard()
            return
        made = manifest.volatile(seconds, versions_of_packages(agent.gate.tools.values()), self.durability)
        complete = manifest.with_volatile(stable, _in_place(folder.out), made)
        (folder.partial / MANIFEST).write_bytes(manifest.render(complete))
        if missed:
            kept = folder.keep_as(self.rejected) if self.rejected is not None else folder.partial
            cause = Interrupted(result.signum or signal.SIGINT) if result.mode == "interrupted" else None
            raise ExpectationError(missed, str(kept)) from cause
        folder.finish()

    def _lost(self, error: OSError, folder: Folder, config: RunConfig) -> Exception:
        why = system_reason(error)
        if config.durable_run is not None:
            return Suspended(
                f"{folder.shown}: cannot be written ({why}); make room and go on with {folder.resumed_by}"
            )
        kept_in = f"what was written is in {folder.partial}"
        if config.clock.kind == "virtual":
            folder.discard()
            kept_in = "make room or name another place"
        return OutputError(f"{folder.shown}: the run cannot be written ({why}); {kept_in}")


def _in_place(out: Path) -> Line | None:
    """Return the manifest of the record that `out` holds, None without one."""
    try:
        return manifest.read(read_unlinked(out / MANIFEST))
    except (OSError, ValueError):
        return None


def _same_in_place(out: Path, stable: Line) -> bool:
    """Return whether `out` holds this run already, judged by its manifest and the digests of its files."""
    try:
        data = read_unlinked(out / MANIFEST)
        existing = manifest.read(data)
        if manifest.stable(existing) != manifest.stable(stable):
            return False
        names = sorted(path.name for path in out.iterdir() if path.name != SEAL)
        return names == sorted(manifest.FILES) and all(
            canonical_json.digest(read_unlinked(out / name)) == sha
            for name, sha in stable["artifacts"].items()
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def ending_ok(result: RunResult, expected: Mapping[str, Any]) -> bool:
    """Return whether a run ended with an answer, or as its task expects."""
    endings = expected.get("endings") or [expected.get("ending", "final_answer")]
    return result.ending in endings and result.ending in ENDINGS
