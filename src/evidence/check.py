"""Why two runs agree: a recorded run is made again, and every line and every file is compared.

The record says in which order things happen. What can be made again (`sources.py`) is performed then, and the run goes
on from what came of it; the record answers all other effects, if the call is the same. The lines are compared by
address. Then the four files are derived and compared byte for byte, with the inputs that were read now.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..fail.errors import NotRecorded
from ..runtime.effects import Effect, Invoke
from ..runtime.log.events import (
    Decided,
    Event,
    Failed,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepEnded,
    Stopped,
    ToolReturned,
    encode,
)
from ..runtime.run import make_run
from .manifest import MANIFEST, read_manifest
from .record import inputs_of, redacted
from .record_files import NAMES, STATE, derive, read_files, whole_log
from .run_source import RunSource
from .sources import is_performed_again
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


def check(source: RunSource, folder: Path, name: str) -> list[Difference]:
    """Return how a recorded run differs from what its source gives today; nothing if it holds.

    Args:
        source: What the run is made from.
        folder: The folder of the run.
        name: What messages call it.
    """
    damage = [Difference("DAMAGE", name, problem) for problem in verify(folder, name, rendered=False)]
    if damage:
        return damage
    files = read_files(folder, name)
    lines = whole_log(files[STATE], f"{name}/{STATE}")
    found: list[Difference] = []
    read, answered = source.drive(_make_again(source, [line.event for line in lines], found))
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


async def _make_again(
    source: RunSource, record: list[Event], found: list[Difference]
) -> tuple[dict[str, str], bool]:
    """Make a run again and collect the differences. Returns its inputs, and whether the record answered anything."""
    read: dict[str, str] = {}
    made: list[Event] = []
    is_answered = any(
        isinstance(event, Stopped) for event in record
    )  # what was stopped is not performed again
    decides = is_performed_again(record, is_offline=source.is_offline, is_scripted=source.is_scripted)

    def again(at: str, effect: Effect) -> bool:
        nonlocal is_answered
        performed = decides(at, effect)
        is_answered = is_answered or (isinstance(effect, Invoke) and not performed)
        return performed

    is_cut_off = False
    spec = source.run_spec()
    with source.workspace(redacted(read.__setitem__, spec)) as workspace:
        source.set_up(workspace)
        world = source.world(workspace)
        run = make_run(spec, source.head(), world, record=record, again=again, listen=made.append)
        try:
            await run
        except NotRecorded as error:
            is_cut_off = True
            words = "nothing in the record answers this effect; what follows is not compared"
            found.append(Difference("EFFECT", error.at, words))
        finally:
            await world.close()
    found += _differences(record, made, is_cut_off=is_cut_off)
    return {**read, **inputs_of(source, made)}, is_answered


def _differences(record: list[Event], made: list[Event], *, is_cut_off: bool) -> list[Difference]:
    """Compare lines by address; where the run was cut off, those that it did not come to are left out."""
    old = {event.at: event for event in record}
    new = {event.at: event for event in made}
    found = []
    for event in record:
        if event.at in new:
            found += _compared(event, new[event.at])
        elif not is_cut_off:
            found.append(Difference(_kind(event), event.at, f"{_name(event)} is not made any more"))
    for event in made:
        if event.at not in old:
            found.append(Difference(_kind(event), event.at, f"{_name(event)} is new"))
    return found


def _compared(recorded: Event, made: Event) -> list[Difference]:
    if type(recorded) is not type(made):
        return [Difference(_kind(recorded), recorded.at, f"was {_name(recorded)}, is {_name(made)}")]
    old, new = (msgspec.to_builtins(event) for event in (recorded, made))
    # the digest in the last line follows from the lines before it
    fields = sorted(key for key in {*old, *new} if old.get(key) != new.get(key) and key != "sha256")
    words = "; ".join(
        f"{field} was {_short(old.get(field))}, is {_short(new.get(field))}" for field in fields
    )
    return [Difference(_kind(recorded), recorded.at, words)] if fields else []


def _name(event: Event) -> str:
    return str(msgspec.to_builtins(event)["event"])


def _short(value: object) -> str:
    text = encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."


def _kind(event: Event) -> str:
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
