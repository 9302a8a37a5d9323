"""Why two runs agree: a recorded run is made again, and every line and every file is compared.

    check_async         for the folder of one run
      in_itself           the files agree with their log and the log with its chain (verify.py); if not, nothing is made
      _Rerun.make         makes the run again, from the same task or agent
        is_performed_again  of each effect, whether the world answers it again or the record (sources.py)
        make_run            the loop and gate of any run (runtime/run.py)
      Comparison          the lines by address, each with the inputs that have moved and may be the reason (compare.py)
      _Rerun.make         once more if nothing differs and a task has a script, which now says what enters from outside

A run is determined by its inputs, by what the world answered (Outcome) and by what came from outside (Entered), in the
order of these lines; all else the loop makes of them. So the record gives the order, and also the answers that cannot
be had again. What is performed again and what the loop makes has to come out byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..fail.errors import InputError, NotRecorded
from ..runtime.branches import Pending
from ..runtime.effects import Invoke
from ..runtime.formats.strict_json import canonical
from ..runtime.log.events import Event, Outcome, Settled, Stopped
from ..runtime.log.journal import Leak
from ..runtime.log.steps import steps_of
from ..runtime.run import RunMade, make_run, taken_in
from ..runtime.world.virtual import run_now
from .compare import Comparison, Difference, Origin, moved_inputs, moved_offers, with_inputs
from .manifest import MANIFEST, Inputs, read_manifest
from .record import inputs_of, redacted
from .record_files import STATE, read_files, recorded_log, whole_log
from .run_source import RunSource, drive
from .sources import is_performed_again
from .verify import verify


def check(source: RunSource, folder: Path, name: str) -> list[Difference]:
    """Return how a recorded run differs from what its source gives today; nothing if it holds.

    Args:
        source: What the run is made from.
        folder: The folder of the run.
        name: What messages call it.

    Returns:
        The inputs that have moved, then the lines in order, then the files.
    """
    return drive(source, check_async(source, folder, name))


async def check_async(source: RunSource, folder: Path, name: str) -> list[Difference]:
    """Do as `check` does, in a running event loop if the run needs one."""
    own = in_itself(folder, name)
    if any(difference.kind == "DAMAGE" for difference in own):
        return own
    files = read_files(folder, name)
    record = [line.event for line in whole_log(files[STATE], f"{name}/{STATE}")]
    inputs, _ = read_manifest(files[MANIFEST], f"{name}/{MANIFEST}")
    rerun = _Rerun(source, record)
    await rerun.make(inputs)
    kinds = {*map(type, record)}
    # what the record answered, what was stopped and what comes after the end here is not performed, so that what it
    # read is not read again; and a fork of a conversation in code names the inputs of later turns of that, too
    is_fork = not source.is_scripted and source.head().forked is not None
    reads_less = rerun.is_answered or rerun.cut_off is not None or Stopped in kinds or is_fork
    moved = moved_inputs(inputs, rerun.read, is_all=not reads_less)
    uncalled = {tool.name: tool.file for tool in source.tools if tool.file not in inputs}
    moved |= moved_offers(uncalled, record, rerun.made)
    tools = {tool.name: {tool.file, *source.modules.get(tool.name, ())} for tool in source.tools}
    origin = Origin({name for policy in source.policies for name, _ in policy.files}, {*source.files}, tools)
    comparison = Comparison(origin, record, rerun.made, moved, source.policy)
    found = comparison.differences(is_cut_off=rerun.cut_off is not None)
    if rerun.cut_off is not None:
        found.append(Difference(*rerun.cut_off, comparison.rests_on(rerun.cut_off[0])))
    elif source.is_scripted and Settled not in kinds and not found:
        # the record said what entered from outside, and when what happened; the task may say something else
        scripted = _Rerun(source, record, script_enters=True)
        await scripted.make(inputs)
        comparison = Comparison(origin, record, scripted.made, moved, source.policy)
        found = comparison.differences(is_cut_off=False)
    return with_inputs(moved, found + own)  # of its own, files that are rendered in another way remain


def in_itself(folder: Path, name: str) -> list[Difference]:
    """Return what is wrong with a record in itself: DAMAGE, or OTHER where files are rendered in another way alone."""
    problems = verify(folder, name)
    kind = "DAMAGE" if problems and verify(folder, name, rendered=False) else "OTHER"
    parts = [problem.removeprefix(f"{name}/").partition(": ") for problem in problems]
    return [Difference(kind, at, words) for at, _, words in parts]


def replay(source: RunSource, folder: Path, name: str) -> RunMade:
    """Make a run again under today's policy and code from its log alone: no model, no tool and no file is touched.

    Raises:
        RecordError: The record cannot be read.
        Diverged: A line would be another one today.
    """
    return run_now(make_run(source.run_spec(), source.head(), None, recorded_log(folder, name)))


class _Rerun:
    """A recorded run that is made again.

    Args:
        source: What the run is made from.
        record: Its lines.
        script_enters: Whether the script says what comes from outside and when; the record then gives all outcomes.
            Else the record says both, and its answers stand for the effects that cannot be performed again.

    Attributes:
        made: The lines.
        read: Path and digest of the inputs.
        is_answered: Whether the record answered a tool, so that what it did is not there.
        cut_off: Kind, address and words of what ended it before its end.
    """

    def __init__(self, source: RunSource, record: list[Event], *, script_enters: bool = False) -> None:
        self._source, self._record, self._script_enters = source, record, script_enters
        self._outcomes = {event.at: event for event in record if isinstance(event, Outcome)}
        self.made: list[Event] = []
        self.read: dict[str, str] = {}
        self.is_answered = False
        self.cut_off: tuple[str, str, str] | None = None

    async def make(self, inputs: Inputs) -> None:
        """Make it again; `inputs` are those that the manifest names."""
        source, record = self._source, self._record
        decides = is_performed_again(record, is_offline=source.is_offline, is_scripted=source.is_scripted)

        def again(pending: Pending, under_way: Iterable[Pending]) -> bool:
            performed = decides(pending, under_way)
            self.is_answered = self.is_answered or (isinstance(pending.effect, Invoke) and not performed)
            return performed

        spec = source.run_spec()
        spec.redactor.recall([canonical([*inputs])])
        with source.workspace(redacted(self.read.__setitem__, spec)) as workspace:
            source.set_up(workspace)
            world = source.world(workspace)
            by: dict[str, Any] = {"record": record, "again": again}
            if self._script_enters:
                spec, by = taken_in(spec, map(canonical, record)), {}
                world.perform = self._recorded  # type: ignore[method-assign]
            try:
                await make_run(spec, source.head(), world, listen=self.made.append, **by)
            except NotRecorded as error:
                words = "nothing in the record answers this effect; what follows is not compared"
                self.cut_off = "EFFECT", error.at, words
            except InputError as error:  # of the script, where the run has gone another way
                self.cut_off = "ASKED", self.made[-1].at, f"the script cannot go on: {error}"
            except Leak as error:
                self.cut_off = "EXPOSURE", error.at, str(error)
            finally:
                await world.close()
        self.read |= inputs_of(source, steps_of(self.made))

    async def _recorded(self, pending: Pending) -> Outcome:
        """Return what the record says of an effect; one that it does not know is not performed either."""
        return self._outcomes.get(pending.at, Stopped(at=pending.at, why="cancelled"))
