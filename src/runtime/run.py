"""Record, resume, replay, check: one way through the loop, with another past and another world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

from .branches import Pending, World
from .driver import Driver, Words
from .formats.strict_json import canonical
from .log.events import Event, RunEnded, RunStarted
from .log.journal import Journal, LogWriter
from .log.lines import Line
from .loop.loop import run_loop
from .loop.state import RunSpec
from .models.types import Messages


class RunMade(Struct, frozen=True):
    """A run that came to its end: its last line, its log, and the messages that its model saw."""

    ended: RunEnded
    journal: Journal
    messages: Messages


def head_of(spec: RunSpec, *, task: str = "", clock: str = "virtual", began: int = 0) -> RunStarted:
    """Return the first line of a run."""
    return RunStarted(
        at="0",
        run_id=spec.run_id,
        task=task,
        seed=spec.seed,
        clock=clock,  # type: ignore[arg-type]
        began=began,
        history=[*spec.history],
        deadline_s=spec.deadline_s,
        session=spec.is_session,
        forked=spec.forked,
        **spec.head(),
    )


def taken_in(spec: RunSpec, lines: Iterable[bytes]) -> RunSpec:
    """Return what a run is made with, redacted, once its redactor knows the placeholders in some recorded lines.

    To do it twice changes nothing.
    """
    redactor = spec.redactor
    for text in lines:
        redactor.admit(text)
    question = redactor.text(spec.question)
    instructions = redactor.text(spec.instructions)
    history = redactor.data([*spec.history])
    return structs.replace(spec, question=question, instructions=instructions, history=history)


async def make_run(
    spec: RunSpec,
    head: RunStarted,
    world: World | None,
    past: Sequence[Line] = (),
    *,
    file: LogWriter | None = None,
    settled: Words | None = None,
    record: Sequence[Event] | None = None,
    again: Callable[[Pending, Iterable[Pending]], bool] = lambda pending, under_way: False,
    listen: Callable[[Event], None] | None = None,
    agrees: Callable[[Event, Event], bool] = lambda recorded, made: False,
) -> RunMade:
    """Make a run, for the first time or again.

    Args:
        spec: What it is made with.
        head: Its first line.
        world: What performs effects; None where the log alone answers.
        past: The lines that stand already.
        file: Where further lines are written.
        settled: A person's word on each effect in doubt.
        record: Of a check: the recorded lines.
        again: Of a check: whether an effect is performed again, given all that are under way.
        listen: Is told of each new line.
        agrees: As of Journal.

    Returns:
        The last line, the log and the messages.
    """
    lines = [line.text for line in past] + [canonical(event) for event in record or ()]
    spec.redactor.recall(lines)
    spec = taken_in(spec, lines)
    redactor = spec.redactor
    history = [*spec.history]
    head = structs.replace(head, question=spec.question, instructions=spec.instructions, history=history)
    guard = None if redactor.is_empty else redactor.holds
    journal = Journal(past, file=file, listen=listen, guard=guard, agrees=agrees)
    driver = Driver(journal, world, settled=settled, record=record, again=again, redactor=redactor)
    journal.append(head)
    ended, messages = await driver.drive(run_loop(spec, driver))
    return RunMade(ended, journal, messages)
