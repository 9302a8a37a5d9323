"""Why two runs agree: a recorded run is made again, and every line and every file is compared.

The record is the scheduler: it says what happens next. Where that is an outcome which can be made again (`sources.py`),
the effect is performed then, alone, and compared; the record answers all others. What the loop makes of the outcomes is
compared line by line. Then the four files are derived and compared byte for byte, with the inputs that were read now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ..runtime.driver import NotRecorded
from ..runtime.effects import Effect, Invoke
from ..runtime.log.events import (
    Decided,
    Event,
    Failed,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepEnded,
    ToolReturned,
    encode,
)
from ..runtime.log.journal import Diverged
from ..runtime.log.lines import Line
from ..runtime.run import make_run
from ..runtime.world.virtual import run_now
from .manifest import MANIFEST, read_manifest
from .record import inputs_of
from .record_files import NAMES, STATE, derive, read_files, whole_log
from .sources import is_performed_again
from .tasks import Task
from .verify import verify


class Difference(msgspec.Struct, frozen=True):
    """What differs between a record and the run made again.

    Attributes:
        kind: The gravest first: DAMAGE, VERDICT (a decision), EFFECT (what a tool did), ASKED (what the model is asked
            or replies), ENDING, INPUT, OTHER.
        at: The address, or the file.
        words: What differs, one line.
    """

    kind: str
    at: str
    words: str


def check(task: Task, folder: Path, name: str) -> list[Difference]:
    """Return how a recorded run differs from what its task gives today; nothing if it holds.

    Args:
        task: The task of the run.
        folder: The folder of the run.
        name: What messages call it.
    """
    damage = [Difference("DAMAGE", name, problem) for problem in verify(folder, name)]
    if damage:
        return damage
    files = read_files(folder, name)
    lines = whole_log(files[STATE], f"{name}/{STATE}")
    found: list[Difference] = []
    read, answered = _make_again(task, lines, found)
    inputs, made = read_manifest(files[MANIFEST], f"{name}/{MANIFEST}")
    found += _moved_inputs(inputs, read, answered)
    if not found:
        derived = derive(files[STATE], [line.event for line in lines], inputs, made)
        found += [
            Difference("OTHER", file, "is rendered otherwise")
            for file in NAMES
            if derived[file] != files[file]
        ]
    return found


def _make_again(task: Task, lines: list[Line], found: list[Difference]) -> tuple[dict[str, str], bool]:
    """Make a run again and collect the differences. Returns its inputs, and whether the record answered anything."""
    record = [line.event for line in lines]
    read = inputs_of(task, record)
    is_answered = False
    decides = is_performed_again(record, is_offline=True)  # no run reaches the network yet

    def again(at: str, effect: Effect) -> bool:
        nonlocal is_answered
        performed = decides(at, effect)
        is_answered = is_answered or (isinstance(effect, Invoke) and not performed)
        return performed

    with task.workspace(read.__setitem__) as workspace:
        task.set_up(workspace)
        run = make_run(
            task.run_spec(), task.head(), task.world(workspace), lines, again=again, differs=_collects(found)
        )
        try:
            run_now(run)
        except Diverged as error:
            kind = _kind(error.recorded or error.made)
            found.append(
                Difference(kind, _at(error.recorded or error.made), f"{error}; what follows was not compared")
            )
        except NotRecorded as error:
            found.append(Difference("EFFECT", error.at, "the record holds no outcome of this effect"))
    return read, is_answered


def _collects(found: list[Difference]) -> Callable[[Event, Event], None]:
    def differs(recorded: Event, made: Event) -> None:
        old, new = (msgspec.to_builtins(event) for event in (recorded, made))
        fields = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        words = "; ".join(
            f"{field} was {_short(old.get(field))}, is {_short(new.get(field))}" for field in fields
        )
        found.append(Difference(_kind(recorded), recorded.at, words))

    return differs


def _short(value: object) -> str:
    text = encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."


def _at(event: Event | None) -> str:
    return "end" if event is None else event.at


def _kind(event: Event | None) -> str:
    if isinstance(event, Decided):
        return "VERDICT"
    if isinstance(event, ToolReturned | Failed):
        return "EFFECT"
    if isinstance(event, RunStarted | ModelReplied | StepEnded):
        return "ASKED"
    return "ENDING" if isinstance(event, RunEnded) else "OTHER"


def _moved_inputs(recorded: dict[str, str], read: dict[str, str], answered: bool) -> list[Difference]:
    """Compare the inputs. Where the record answered an effect, what that effect read cannot be read again."""
    found = []
    for path in sorted({*recorded, *read}):
        if path not in recorded:
            found.append(Difference("INPUT", path, "is read now, and was not"))
        elif path not in read and not answered:
            found.append(Difference("INPUT", path, "was read, and is not any more"))
        elif path in read and recorded[path] != read[path]:
            found.append(Difference("INPUT", path, "has changed"))
    return found
