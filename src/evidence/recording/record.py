"""Recording: the four files of a run, made whole or not at all.

A run under way lives in `DIR.partial/`, which a lock keeps to one process. Finishing is fsync and rename. A
recording that equals the one in place, volatile keys aside, leaves it untouched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from signal import SIGINT
from threading import Event
from typing import Any

from ...fail.catalog import ENDINGS
from ...fail.errors import ExpectationError, InputError, Interrupted, OutputError, Suspended
from ...runtime.agent import Agent
from ...runtime.core.clock import Clock, stopwatch
from ...runtime.core.lines import Line
from ...runtime.driver.interrupts import Interrupts, exit_for
from ...runtime.driver.ports import Approve, Listener
from ...runtime.formats import canonical_json
from ...runtime.formats.shipped_files import package_digest
from ...runtime.journal.durable_run import DurableRun
from ...runtime.journal.journal import DURABILITY, JOURNAL, Journal
from ...runtime.run_config import RunConfig, RunResult, StepLines
from ..files import manifest
from ..files.folder import MOUNTS, Folder
from ..files.manifest import MANIFEST, SEAL, STATE
from ..files.writer import Writer
from ..tasks.expect import differences


def record(
    agent: Agent,
    question: str,
    out: str | os.PathLike[str],
    *,
    otlp: str | None = None,
    seed: int = 0,
    run_id: str | None = None,
    listeners: Iterable[Listener] = (),
    approve: Approve | None = None,
    clock: Clock | None = None,
    replace: bool = False,
    durability: str | None = None,
    cancel: Event | None = None,
    deadline_s: float | None = None,
) -> RunResult:
    """Run `question` and leave the four files in the folder `out`.

    `durability` is `off`, `step` or `effect`: what is on the disk before the run does anything else. Unless
    given it is `off` on a virtual clock, since the run can be made again, else `effect`. A run that died goes
    on with `resume`. Setting `cancel` ends the run, and so does the time `deadline_s` seconds after its start.

    An earlier run there is replaced only where `replace` says so, or where it is a stub's under the same run
    id and so can be made again. `otlp` is an OTLP endpoint (`http://host:4318`, `grpc://host:4317`) that gets
    the same spans live. Raises OutputError where `out` cannot be used. Ctrl-C leaves a whole record and is
    raised again.
    """
    config = agent.configure_run(question, seed=seed, run_id=run_id, approve=approve, clock=clock)
    config = dataclasses.replace(config, cancel=cancel, deadline_s=deadline_s)
    if not replace:
        spare(Path(out), config.run_id, "replace=True")
    with live_export(otlp) as extra:
        result = record_run(agent, config, Path(out), listeners=(*listeners, *extra), durability=durability)
    if result.mode == "interrupted":
        raise exit_for(result.signum)
    return dataclasses.replace(result, steps=steps_in(Path(out)))


def steps_in(folder: Path) -> StepLines:
    """Return the steps of the run whose files are in a folder."""
    return StepLines((folder / STATE).read_text(encoding="utf-8").split("\n")[1:-2])


def spare(out: Path, run_id: str, remedy: str) -> None:
    """Refuse to replace a record that cannot be made again, or is of another run."""
    try:
        there = manifest.read((out / MANIFEST).read_bytes())
        name, again = there["run_id"], there["model"]["execution_path"] == "stub"
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        name, again = "unknown", False
    if name != run_id or not again:
        raise OutputError(
            f"{out}: holds a record already (run {str(name)[:80]}); name another folder, or give {remedy}"
        )


@contextlib.contextmanager
def live_export(
    endpoint: str | None, on_problem: Callable[[str], None] | None = None
) -> Iterator[list[Listener]]:
    """The listeners that send spans to an OTLP endpoint; none, and nothing imported, without one."""
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
    root: Path | None = None,
    listeners: Iterable[Listener] = (),
    expected: Mapping[str, Any] | None = None,
    rejected: Path | None = None,
    durability: str | None = None,
) -> RunResult:
    """Perform a run and put its four files into `out`.

    A run that misses `expected` never replaces the one in place: it is kept in `rejected`, and
    ExpectationError says so, with Interrupted as its cause where the run was. Bad input leaves nothing
    behind, and neither does a full disk where the run can be made again; a run that cannot is Suspended.
    """
    durable = durability or ("off" if config.clock.kind == "virtual" else "effect")
    if durable not in DURABILITY:
        raise InputError(f"durability {durable!r} is unknown", remedy=f"one of {', '.join(DURABILITY)}")
    making = Making(root or out.parent, listeners, expected or {}, rejected, durable)
    with Interrupts() as interrupts, Folder(out) as folder:
        if durable == "off":
            return making.make(agent, config, folder, interrupts)
        with contextlib.closing(Journal(folder.partial / JOURNAL, durable)) as journal:
            about = {**package(), "durability": durable}
            durable_run = DurableRun(journal, folder.partial / MOUNTS, about, config.clock)
            return making.make(
                agent, dataclasses.replace(config, durable_run=durable_run), folder, interrupts
            )


def package() -> Line:
    """What a journal says of the code that makes a run."""
    return {"digest": package_digest()}


@dataclasses.dataclass(frozen=True)
class Making:
    """How the four files of a run are made: by whom it is watched, and what is done with what comes of it."""

    root: Path
    listeners: Iterable[Listener]
    expected: Mapping[str, Any]
    rejected: Path | None
    durability: str

    def make(self, agent: Agent, config: RunConfig, folder: Folder, interrupts: Interrupts) -> RunResult:
        """Perform a run under the lock of its folder and put its files in place."""
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
                stable = writer.finish()
            self._put(folder, result, stable, differences(self.expected, writer.tally), stopwatch() - begun)
        except InputError:
            if not resumed and not (
                isinstance(config.durable_run, DurableRun) and config.durable_run.has_noted
            ):
                folder.discard()
            raise
        except OSError as error:
            raise self._lost(error, folder, config) from error
        return result

    def _put(
        self, folder: Folder, result: RunResult, stable: Line, missed: list[str], seconds: float
    ) -> None:
        if not missed and _same_in_place(folder.out, stable):
            folder.discard()
            return
        whole = {**stable, **manifest.volatile(self.root, seconds, self.durability)}
        (folder.partial / MANIFEST).write_bytes(manifest.render(whole))
        if missed:
            kept = folder.keep_as(self.rejected) if self.rejected is not None else folder.partial
            cause = Interrupted(result.signum or SIGINT) if result.mode == "interrupted" else None
            raise ExpectationError(missed, str(kept)) from cause
        folder.finish()

    def _lost(self, error: OSError, folder: Folder, config: RunConfig) -> Exception:
        if config.durable_run is not None:
            return Suspended(
                f"{folder.shown}: cannot be written down ({type(error).__name__}); make room and go on with "
                f"`tachograph resume {folder.shown}`"
            )
        kept_in = f"what was written is in {folder.partial}"
        if config.clock.kind == "virtual":
            folder.discard()
            kept_in = "make room or name another place"
        return OutputError(
            f"{folder.shown}: the run cannot be written down ({type(error).__name__}); {kept_in}"
        )


def _same_in_place(out: Path, stable: Line) -> bool:
    """Whether `out` holds this very run: its manifest says so and its files have the digests it names."""
    try:
        data = (out / MANIFEST).read_bytes()
        there = manifest.read(data)
        if manifest.stable(there) != manifest.stable(stable):
            return False
        names = sorted(path.name for path in out.iterdir() if path.name != SEAL)
        return names == sorted(manifest.FILES) and all(
            canonical_json.digest((out / name).read_bytes()) == sha
            for name, sha in stable["artifacts"].items()
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def ending_ok(result: RunResult, expected: Mapping[str, Any]) -> bool:
    """Whether a run ended as wanted: with an answer, or as its task expects."""
    wanted = expected.get("endings") or [expected.get("ending", "final_answer")]
    return result.ending in wanted and result.ending in ENDINGS
