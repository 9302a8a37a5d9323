"""A log for people: one sentence for each line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ..fail.errors import RecordError
from ..runtime import clock
from ..runtime.formats.documents import read_plain
from ..runtime.formats.escape import truncate
from ..runtime.formats.strict_json import canonical
from ..runtime.log import events as log
from ..runtime.log.lines import Damaged, read_log
from ..runtime.log.steps import finding, model_words, steps_of
from ..runtime.models.types import call_text
from ..runtime.policy.prices import in_words, key_of
from .record_files import MOST_BYTES, STATE, log_of, unreadable

MOST: Final = 160  # characters of a sentence
_LONGEST: Final = 4_000  # where versions of a log are compared: what is cut off would not differ


def follow(folder: Path, name: str) -> Iterator[log.Event]:
    """Yield the events of a run, first those that it has, until it ends.

    The file stays open, so it does not matter where its folder is moved when the run has ended.

    Raises:
        RecordError: The log cannot be read, is damaged, or was removed before the run ended.
    """
    try:
        fd = os.open(folder / STATE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(error, name, "name a run") from None
    with os.fdopen(fd, "rb", buffering=0):
        told = size = 0
        while True:
            found = os.fstat(fd)  # before it is read: what is written until it is removed counts
            if found.st_size != size:
                size = found.st_size
                whole, end, _ = os.pread(fd, size, 0).rpartition(b"\n")  # a line waits for its end
                events = [line.event for line in log_of(whole + end, name)] if end else []
                yield from events[told:]
                told = len(events)
                if events and isinstance(events[-1], log.RunEnded):
                    return
            if not found.st_nlink:
                raise RecordError("was removed before the run ended", file=name, remedy="follow another run")
            clock.pause(0.25)


def shown_log(file: Path) -> list[str]:
    """Return the lines of a log by itself in words, from the first damaged line on as they are. Raises OSError.

    Git shows no difference at all if the program that it gives a log to fails, and a log with a conflict is damaged.
    """
    data, rest = read_plain(file, MOST_BYTES), []
    try:
        lines = read_log(data)
    except Damaged as error:
        pieces = data.splitlines(keepends=True)
        lines = read_log(b"".join(pieces[: error.number - 1]))
        damaged = b"".join(pieces[error.number - 1 :]).decode(errors="replace")
        rest = [str(error), *damaged.splitlines()]
    return [*(line_of(line.event, _LONGEST) for line in lines), *rest]


def line_of(event: log.Event, most: int = MOST) -> str:
    """Return an event as a line: its address, and what it says, cut at a number of characters."""
    return f"{event.at:>10}  {truncate(words(event), most)}"


def overview(events: Sequence[log.Event]) -> tuple[str, str, int, str]:
    """Return the ending of a log, which may be empty, its failure mode, its number of steps and its model.

    The ending is `open` where there is none. Raises RecordError where the lines make no run.
    """
    try:
        steps = len(steps_of(events))
    except (LookupError, ValueError):  # whole lines at addresses that no run has
        raise RecordError("the lines do not form a run", remedy="restore the log from git") from None
    end = events[-1] if events else None
    ending, mode = (end.ending, end.mode) if isinstance(end, log.RunEnded) else ("open", "")
    model = "".join(key_of(it.model) for it in events[:1] if isinstance(it, log.RunStarted))
    return ending, mode, steps, model


def words(event: log.Event) -> str:
    """Return an event as a sentence."""
    if found := finding(event):
        return found
    match event:
        case log.RunStarted():
            return f"run {event.run_id} started under {policies_of(event)}: {event.question}"
        case log.HandedOver():
            return f"another agent goes on under {policies_of(event)}"
        case log.AgentStarted():
            return f"an agent started under {policies_of(event)}: {event.question}"
        case log.Received():
            each = [f"message of {it.sender or 'the agent of the run'}: {it.text}" for it in event.messages]
            return "; ".join(each)
        case log.Proposed():
            return f"the function proposed {event.call.name} {call_text(event.call)}"
        case log.Arrived():
            return f"somebody said: {event.text}"
        case log.CompactAsked():
            return f"somebody asked for a summary{f': {event.focus}' if event.focus else ''}"
        case log.PlanAsked():
            return "somebody asked for a plan"
        case log.UndoAsked():
            return "somebody took the last turn back"
        case log.Compacted():
            counted = {"summed up": event.messages, "taken back": event.undone}
            told = [f"{n} message{'s' * (n > 1)} {what}" for what, n in counted.items() if n]
            told += [f"{event.results} result{'s' * (event.results > 1)} left out"] if event.results else []
            return f"{', '.join(told) or 'nothing left out'}; the model is shown {event.size} bytes"
        case log.Closed():
            return "nobody says anything more"
        case log.TurnEnded():
            said = event.answer if event.answer is not None else event.mode
            return f"the turn ended: {event.ending}{f', {said}' if said else ''}"
        case log.CallEnded():
            return f"the run answered {canonical(event.told).decode()}"
        case log.ModelReplied(answer=str()):
            return f"{model_words(event)} answered: {event.answer}"
        case log.ModelReplied():
            calls = ", ".join(f"{call.name} {call_text(call)}" for call in event.calls)
            return f"{model_words(event)} proposed {calls or 'nothing'}"
        case log.ToolStarted():
            return "the tool is about to start"
        case log.ToolReturned(result=None):
            return f"the result {f'of {event.size} bytes was not kept' if event.size else 'was lost'}"
        case log.ToolReturned():
            return f"the tool returned {canonical(event.result).decode()}"
        case log.HookAnswered():
            return f"the hook said {canonical(event.answer).decode() if event.answer else 'nothing'}"
        case log.Waited():
            return f"waited {event.took // 1_000_000} ms"
        case log.Stopped():
            return f"stopped: {event.why}"
        case log.StopAsked():
            if event.why == "deadline":
                return "the deadline of the run passed"
            return f"somebody stopped {event.scope or 'the run'}: {event.why}"
        case log.Settled():
            return f"a person, or the tool's probe, said that it {'happened' if event.happened else 'did not happen'}"
        case log.StepEnded():
            cost = in_words(event.cost) if event.cost else ""
            cut = f"{event.cut} shown cut" if event.cut else ""
            return ", ".join(["the step ended", *filter(None, (event.mode, cost, cut))])
        case log.AgentEnded() | log.RunEnded():
            what = "run" if isinstance(event, log.RunEnded) else "agent"
            return f"the {what} ended: {', '.join(dict.fromkeys(filter(None, (event.ending, event.mode))))}"
    return type(event).__name__


def policies_of(head: log.RunStarted | log.AgentStarted) -> str:
    """Return in words which policies an agent begins under."""
    plan = f", and {head.plan.file} until its plan is allowed" if head.plan is not None else ""
    return f"{head.policy.file} {head.policy.version}{plan}"
