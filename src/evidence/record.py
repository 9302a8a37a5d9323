"""Record a task, and go on with a run whose process ended."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..fail.errors import ExpectationError, InputError, RecordError
from ..runtime.clock import wall_time
from ..runtime.driver import Word
from ..runtime.log.events import Answered, Decided, Event, RunEnded, StepEnded
from ..runtime.log.file import LogFile
from ..runtime.log.journal import Journal
from ..runtime.log.steps import steps_of
from ..runtime.run import make_run
from ..runtime.world.virtual import run_now
from ..tracing.spans import spans_of
from .doubts import probed
from .folder import MOUNTS, open_folder, partial_of, put_in_place, write_files
from .manifest import MANIFEST, InputLog, read_manifest
from .record_files import derive, read_files
from .tasks import Task

Listen = Callable[[Event], None]


def record(task: Task, folder: Path, listen: Listen | None = None) -> RunEnded:
    """Run a task and put its record into a folder, in the place of an earlier one.

    Args:
        task: The task.
        folder: Where the record goes.
        listen: Is told of each line.

    Raises:
        OutputError: The folder cannot be used, or a run that has not ended lies there.
        ExpectationError: The run misses what its task expects. It is kept aside, and replaces nothing.
    """
    partial = open_folder(folder)
    try:
        return _go_on(task, partial, folder, {}, listen)
    except BaseException as error:
        # bad input leaves nothing behind, unless something was done that must not be done again unnoticed
        log = partial / "state.jsonl"
        began = log.read_bytes() if log.exists() else b""
        if not began or (isinstance(error, InputError) and b'"tool_started"' not in began):
            shutil.rmtree(partial, ignore_errors=True)
        raise


def resume(task: Task, folder: Path, settled: Mapping[str, Word], listen: Listen | None = None) -> RunEnded:
    """Go on with a run whose process ended; `settled` is a person's word on each effect in doubt.

    Raises:
        RecordError: No open run lies there.
        InDoubt: Effects had begun, and nobody says whether they happened.
        Diverged: Policy, tools, task or code are not those of the log any more.
    """
    partial = partial_of(folder)
    if not (partial / "state.jsonl").is_file():
        raise RecordError(
            "holds no run that can go on", file=str(partial), remedy="name the folder of an open run"
        )
    return _go_on(task, partial, folder, settled, listen)


def _go_on(
    task: Task, partial: Path, folder: Path, settled: Mapping[str, Word], listen: Listen | None
) -> RunEnded:
    spec, head = task.run_spec(), task.head()
    file = LogFile(partial)
    reads = InputLog(partial)
    try:
        if not file.past:  # the process may have died while the mounts were set up
            shutil.rmtree(partial / MOUNTS, ignore_errors=True)
        with task.workspace(reads.add, partial / MOUNTS) as workspace:
            if not file.past:
                task.set_up(workspace)
            open_doubts = [at for at in Journal(file.past).doubts if at not in settled]
            words = probed(open_doubts, [line.event for line in file.past], spec.gate, workspace)
            run = make_run(
                spec,
                head,
                task.world(workspace),
                file.past,
                file=file,
                settled={**words, **settled},
                listen=listen,
            )
            ended, journal = run_now(run)
        file.sync()
        _finish(task, partial, folder, journal, {**reads.inputs, **inputs_of(task, journal.events)})
    finally:
        reads.close()
        file.close()
    return ended


def _finish(task: Task, partial: Path, folder: Path, journal: Journal, inputs: Mapping[str, str]) -> None:
    files = derive(journal.data, journal.events, inputs, _made())
    missed = missed_expectations(task, journal.events)
    if missed:
        write_files(partial, files)
        kept = task.root / ".tachograph" / "rejected" / task.spec.id
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        put_in_place(partial, kept)
        raise ExpectationError(missed, str(kept.relative_to(task.root)))
    if folder.is_dir() and _is_same(files, folder):
        shutil.rmtree(partial)  # recording again leaves every byte as it is, `made` included
        return
    write_files(partial, files)
    put_in_place(partial, folder)


def _is_same(files: Mapping[str, bytes], folder: Path) -> bool:
    """Return whether a record in place is the same but for how it was made."""
    try:
        old = read_files(folder, str(folder))
        read_manifest(old[MANIFEST], MANIFEST)
    except (RecordError, KeyError):
        return False
    return _without_made(files) == _without_made(old)


def _without_made(files: Mapping[str, bytes]) -> dict[str, Any]:
    plain = msgspec.json.decode(files[MANIFEST])
    return {**files, MANIFEST: {key: value for key, value in plain.items() if key != "made"}}


def _made() -> dict[str, str]:
    return {"platform": platform.system(), "python": platform.python_version(), "time": wall_time()}


def inputs_of(task: Task, events: Sequence[Event]) -> dict[str, str]:
    """Return the inputs beside documents that were read: policy, task, and called tools with their modules."""
    called = {call.call.name for step in steps_of(events) for call in step.calls if call.attempts}
    tools = {tool.file: tool.digest for tool in task.tools if tool.name in called}
    inputs = {**dict(task.policy.files), task.file: task.digest, **tools}
    for name in called & task.loaded.modules.keys():
        inputs |= task.loaded.modules[name]
    return inputs


def missed_expectations(task: Task, events: Sequence[Event]) -> list[str]:
    """Return how a run misses what its task expects, one line each."""
    expected = task.spec.expected
    spans = Counter(span.name for span in spans_of(events))
    decisions = [event for event in events if isinstance(event, Decided)]
    answers = {event.at: event.answer for event in events if isinstance(event, Answered)}
    end = events[-1]
    found: dict[str, Any] = {
        "ending": end.ending if isinstance(end, RunEnded) else "",
        "decisions": [_verdict(decided, answers) for decided in decisions],
        "modes": [event.mode for event in events if isinstance(event, StepEnded) and event.mode],
        "spans": {name: spans[name] for name in expected.spans or ()},
    }
    return [
        f"{name}: expected {wanted}, found {found[name]}"
        for name in found
        if (wanted := getattr(expected, name)) is not None and wanted != found[name]
    ]


def _verdict(decided: Decided, answers: Mapping[str, str]) -> str:
    """Return a decision as a task names it: `allow`, or `deny:RULE`; where a person was asked, by the answer."""
    answer = answers.get(f"{decided.at.removesuffix('.d')}.p")
    is_allowed = decided.decision == "allow" or (decided.decision == "escalate" and answer == "allow")
    return "allow" if is_allowed else f"deny:{decided.rule}"
