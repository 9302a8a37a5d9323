"""Execute a run and write its four files, in the calling thread or in an event loop.

Written once, as coroutines. The way of a sync recording never suspends, so that `run_now` takes them to their end.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ... import light_dataclasses
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
from ...runtime.core.clock import stopwatch
from ...runtime.core.lines import Line
from ...runtime.driver.disk_work import Entered
from ...runtime.driver.ports import Listener
from ...runtime.driver.stopping.interrupts import Interrupts
from ...runtime.driver.stopping.processes import marking
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import read_unlinked
from ...runtime.journal.durable_run import DurableRun
from ...runtime.journal.journal import JOURNAL, Journal
from ...runtime.setup.run_config import RunConfig, RunResult
from ...runtime.tools.project_modules import versions_of_packages
from ..files import manifest
from ..files.claims.package_digest import package_digest
from ..files.folder import MOUNTS, Folder
from ..files.manifest import MANIFEST, SEAL
from ..files.writer import Writer
from ..tasks.expect import differences
from .durability import OFF, durability_of, suspends
from .external import ANSWERED
from .sync_async import Way


async def recorded_run(
    way: Way,
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
    """Execute a run and put its four files into `out`; see `record_run`.

    Args:
        way: In the calling thread, or in an event loop.
        agent: As for `record_run`.
        config: As for `record_run`.
        out: As for `record_run`.
        listeners: As for `record_run`.
        expected: As for `record_run`.
        rejected: As for `record_run`.
        durability: As for `record_run`.
        discard: As for `record_run`.
    """
    durable = durability_of(agent, config, durability)
    keeps_on = suspends(config.on_signal)
    recorder = Recorder(way, listeners, expected or {}, rejected, durable)
    with way.interrupts() as interrupts:
        async with Entered(way.wait_for, Folder(out, discard=discard)) as folder:
            if durable == OFF:
                return await recorder.make(agent, config, folder, interrupts)
            journal = await way.wait_for(
                lambda: Journal(folder.partial / JOURNAL, durable, defers=way.is_async)
            )
            with contextlib.closing(journal):
                about = {**package(), "durability": durable, **({ANSWERED: True} if config.answers else {})}
                durable_run = DurableRun(
                    journal, folder.partial / MOUNTS, about, config.clock, suspends=keeps_on
                )
                kept = light_dataclasses.replace(config, durable_run=durable_run)
                with marking(durable_run.marker):
                    return await recorder.make(agent, kept, folder, interrupts)


def package() -> Line:
    """Return what a journal notes of the code that makes a run."""
    return {"digest": package_digest()}


@light_dataclasses.dataclass(frozen=True)
class Recorder:
    """Executes a run and writes its four files.

    Attributes:
        way: In the calling thread, or in an event loop.
        listeners: Get the events of the run.
        expected: What the run must meet to replace the one in place.
        rejected: Where a run that does not is kept.
        durability: As for `record`.
    """

    way: Way
    listeners: Iterable[Listener]
    expected: Mapping[str, Any]
    rejected: Path | None
    durability: str

    async def make(
        self, agent: Agent, config: RunConfig, folder: Folder, interrupts: Interrupts
    ) -> RunResult:
        """Execute a run under the lock of its folder and put its files in place."""
        begun = stopwatch()
        resumed = isinstance(config.durable_run, DurableRun) and config.durable_run.is_resumed
        try:
            with contextlib.closing(Writer(folder.partial)) as writer:
                result = await self.way.execute(agent, config, self.listeners, writer.line, interrupts)
                stable = await self.way.wait_for(lambda: writer.finish(result.inputs))
            seconds = stopwatch() - begun
            missed = differences(self.expected, writer.tally)
            await self.way.wait_for(lambda: self._put(agent, folder, result, stable, missed, seconds))
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
