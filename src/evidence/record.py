"""Record a run, and go on with one whose process ended."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from ..fail import errors
from ..runtime.clock import wall_time
from ..runtime.driver import Words
from ..runtime.formats.durable_write import write_durably
from ..runtime.log.events import Event
from ..runtime.log.file import LogFile
from ..runtime.log.journal import Journal
from ..runtime.log.lines import Damaged
from ..runtime.log.steps import StepView, all_steps, steps_of
from ..runtime.loop.state import RunSpec
from ..runtime.run import RunMade, make_run, taken_in
from . import folder as folders
from .manifest import MANIFEST, InputLog, read_manifest
from .record_files import NAMES, STATE, derive, read_files, recorded_lines
from .run_source import RunSource, drive
from .sources import earlier_effects, without_failures

# stands among what an open run is made from if an earlier record answers for its external effects
EARLIER: Final = "the earlier record"
Listen = Callable[[Event], None]


def record(
    source: RunSource, folder: Path, listen: Listen | None = None, *, earlier: Sequence[Event] | None = None
) -> RunMade:
    """Make a run and put its record into a folder, in the place of an earlier one.

    Args:
        source: The task, or the agent with its question.
        folder: Where the record goes.
        listen: Is told of each line.
        earlier: The lines of an earlier run, which answer for external effects.

    Raises:
        NotRecorded: The earlier run holds no outcome of an external effect.
        OutputError: The folder cannot be used, or a run that has not ended lies there.
        ExpectationError: The run misses what its task expects. It is kept aside, and replaces nothing.
    """
    return _driven(source, folder, record_async(source, folder, listen, earlier=earlier))


def _driven(source: RunSource, folder: Path, run: Coroutine[Any, Any, RunMade]) -> RunMade:
    """Drive a run to its end; an interrupt says how to go on with it."""
    try:
        return drive(source, run)
    except KeyboardInterrupt as error:  # an event loop raises another one than it met
        if folders.partial_of(folder).exists() and not getattr(error, "__notes__", ()):
            error.add_note(str(folders.not_ended(_called(source, folder), folders.partial_of(folder))))
        raise


def _called(source: RunSource, folder: Path) -> str:
    return "/".join(["runs", *folder.parts[-2:]]) if source.head().task else str(folder)


async def record_async(
    source: RunSource, folder: Path, listen: Listen | None = None, *, earlier: Sequence[Event] | None = None
) -> RunMade:
    """Do as `record` does, in a running event loop if the run needs one."""
    partial = folders.open_folder(folder)
    try:
        return await _go_on(source, folder, {}, listen, earlier)
    except errors.OutputError:
        raise  # what lies in the folder may be of another process
    except BaseException as error:
        # bad input leaves nothing behind, unless something was done that must not be done again unnoticed
        log = partial / STATE
        began = log.read_bytes() if log.exists() else b""
        is_undone = isinstance(error, errors.InputError) and b'"tool_started"' not in began
        # where an earlier record answers for external effects, none was made
        if b"\n" not in began or is_undone or isinstance(error, errors.NotRecorded):
            shutil.rmtree(partial, ignore_errors=True)
        elif errors.asks_to_end(error) or not isinstance(error, errors.TachographError):
            error.add_note(str(folders.not_ended(_called(source, folder), folders.partial_of(folder))))
        raise


def resume(source: RunSource, folder: Path, settled: Words, listen: Listen | None = None) -> RunMade:
    """Go on with a run whose process ended; `settled` is a person's word on each effect in doubt.

    Raises:
        RecordError: No open run lies there.
        InDoubt: Effects had begun, and nobody says whether they happened.
        Diverged: Policy, tools, task or code are not those of the log any more.
    """
    return _driven(source, folder, resume_async(source, folder, settled, listen))


async def resume_async(source: RunSource, folder: Path, settled: Words, listen: Listen | None) -> RunMade:
    """Do as `resume` does, in a running event loop if the run needs one."""
    partial = folders.partial_of(folder)
    if not folders.has_begun(partial):
        remedy = "name the folder of an open run, or record the run"
        raise errors.RecordError("holds no run that can go on", file=str(partial), remedy=remedy)
    earlier = earlier_lines(source, folder) if EARLIER in (folders.noted_sources(partial) or {}) else None
    return await _go_on(source, folder, settled, listen, earlier)


def earlier_lines(source: RunSource, folder: Path) -> list[Event] | None:
    """Return the lines of the record, or else of one that was to be replaced or was kept aside: all that happened.

    Calls that failed have no outcome in them, so that they are neither repeated nor taken as they were.
    """
    places = (folder, folders.old_of(folder), source.rejected)
    lines = next((lines for place in places if (lines := recorded_lines(place))), None)
    return None if lines is None else without_failures(lines, getattr(source, "fault", lambda at: None))


async def _go_on(
    source: RunSource, folder: Path, settled: Words, listen: Listen | None, earlier: Sequence[Event] | None
) -> RunMade:
    spec, head, partial = source.run_spec(), source.head(), folders.partial_of(folder)
    try:
        file = LogFile(partial)
    except Damaged as error:
        remedy = "restore it, or remove the folder and begin anew"
        place = f"{partial.name}/{STATE}"
        raise errors.RecordError(error.what, file=place, line=error.number, remedy=remedy) from None
    with closing(file), closing(InputLog(partial)) as reads:
        sources = _sources_of(source) | ({} if earlier is None else {EARLIER: ""})
        folders.hold_sources(partial, sources, is_new=not file.past)
        if source.key is not None and source.policy.hides:
            # until the run is put in place
            write_durably(partial / folders.KEY, source.key, mode=0o600)
        if not file.past:  # the process may have died while the mounts were set up
            shutil.rmtree(partial / folders.MOUNTS, ignore_errors=True)
        with source.workspace(redacted(reads.add, spec), partial / folders.MOUNTS) as workspace:
            if not file.past:
                source.set_up(workspace)
            doubts = Journal(file.past).doubts
            for at, word in settled.items():
                if word not in ("done", "not_done"):
                    what = f"{word!r} is not a word on an effect"
                    raise errors.InputError(what, file=at, remedy="say done or not_done")
            for at in settled.keys() - {*doubts}:
                known = f"in doubt are {', '.join(doubts)}" if doubts else "no effect has an unknown outcome"
                raise errors.InputError("is no effect in doubt", file=at, remedy=known)
            words = dict(settled)
            if open_doubts := [at for at in doubts if at not in settled]:
                from .doubts import probed  # few runs come here

                spec = taken_in(spec, [line.text for line in file.past])
                words |= probed(open_doubts, [line.event for line in file.past], spec, workspace)
            world = source.world(workspace)
            task, taken = "/".join(folder.parts[-2:]), set[str]()
            if earlier is not None:
                world.earlier = earlier_effects(earlier, task, taken)
            try:
                made = await make_run(spec, head, world, file.past, file=file, settled=words, listen=listen)
            finally:
                await world.close()
        if taken:
            how = "external effects taken from the earlier record: %d; `tachograph run %s --again` makes them"
            errors.warn(how, len(taken), task)
        await world.store(lambda: _finish(source, folder, file, made.journal, reads.inputs))
    world.raise_if_cancelled()
    return made


def redacted(add: Callable[[str, str], None], spec: RunSpec) -> Callable[[str, str], None]:
    """Return what notes an input without a secret that its name may hold."""
    redactor = spec.redactor
    return add if redactor.is_empty else lambda path, sha256: add(redactor.text(path), sha256)


def _finish(
    source: RunSource, folder: Path, file: LogFile, journal: Journal, read: Mapping[str, str]
) -> None:
    partial = folders.partial_of(folder)
    file.sync()
    if not file.is_in_place():
        raise OSError("the folder of the run was moved away while the run went on")
    steps = steps_of(journal.events)
    made = {"platform": platform.system(), "python": platform.python_version(), "time": wall_time()}
    files = derive(journal.data, journal.events, steps, {**read, **inputs_of(source, steps)}, made)
    missed = source.missed(journal.events)
    if not missed and _is_same(files, folder):
        folders.discard(partial, folder)  # recording again leaves every byte as it is, `made` included
        return
    for name in NAMES[1:]:  # what follows from the log
        write_durably(partial / name, files[name])
    if missed:
        kept = source.rejected
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        folders.put_in_place(partial, kept)
        raise errors.ExpectationError(missed, os.path.relpath(kept))
    folders.put_in_place(partial, folder)


def _is_same(files: Mapping[str, bytes], folder: Path) -> bool:
    """Return whether a record in place is the same but for how it was made."""
    try:
        old = read_files(folder, str(folder))
        read_manifest(old[MANIFEST], MANIFEST)
    except (errors.RecordError, KeyError):
        return False
    return _without_made(files) == _without_made(old)


def _without_made(files: Mapping[str, bytes]) -> dict[str, Any]:
    plain = msgspec.json.decode(files[MANIFEST])
    return {**files, MANIFEST: {key: value for key, value in plain.items() if key != "made"}}


def _sources_of(source: RunSource) -> dict[str, str]:
    """Return path and digest of all that a run is made from, whether it comes to use it or not."""
    tools = {tool.file: tool.digest for tool in source.tools}
    modules = {path: sha256 for found in source.modules.values() for path, sha256 in found.items()}
    return {**dict(source.policy.files), **source.files, **tools, **modules}


def inputs_of(source: RunSource, steps: Sequence[StepView]) -> dict[str, str]:
    """Return the inputs beside documents that were read: policy, task, and called tools and functions with modules."""
    called = {call.call.name for step in all_steps(steps) for call in step.calls if call.attempts}
    tools = {tool.file: tool.digest for tool in source.tools if tool.name in called and tool.digest}
    inputs = {**dict(source.policy.files), **source.files, **tools}
    for modules in (source.modules, source.code):
        for name in {*called, ""} & modules.keys():
            inputs |= modules[name]
    return inputs
