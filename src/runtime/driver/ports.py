"""The protocols and callables that driver, journal and evidence share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...fail.errors import Cancelled, EffectNotRecorded
from ...light_dataclasses import dataclass
from ..core.branches import Branch
from ..core.effects import (
    Answer,
    AskHuman,
    Attempted,
    Effect,
    Event,
    Invoke,
    Outcome,
    ReadClock,
    StepProgress,
)
from ..core.lines import RunLine
from ..core.lines import Stamps as Stamps
from ..core.redaction import Redactor
from ..events import EventListener
from ..formats.document_digest import RunInput
from ..policy.gate import Gate
from ..workspace.tool_io import IO
from ..workspace.workspace import Workspace
from .stopping.interrupts import Interrupts

if TYPE_CHECKING:
    from asyncio import CancelledError


class Executor(Protocol):
    """Performs one effect. May add stamps for what happened inside it."""

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform `effect` and return its outcome. Raises Cancelled if the run is to stop."""


class AsyncExecutor(Protocol):
    """Performs one effect in an event loop, which it does not block."""

    async def perform_async(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform `effect` and return its outcome. Raises Cancelled if the run is to stop."""


class Answers(Protocol):
    """Answers attempts to execute tools from a record, which messages call `place`, in place of performing them."""

    place: str

    def holds(self, effect: Invoke) -> bool:
        """Return whether the record has the outcome of this very attempt."""

    def take(self, effect: Invoke) -> Outcome:
        """Return the recorded outcome. Raises EffectNotRecorded where there is none."""

    def refuse(self, effect: Invoke) -> EffectNotRecorded:
        """Return the error for an outcome that says nothing under the present policy."""


OnEvent = Callable[[Effect | Event, Outcome | None], None]


# gets what is new in the step under way, and each attempt as it begins and when it is over
OnNotice = Callable[[StepProgress | Attempted], None]


# gets an effect, what came of it and the stamps of its step so far, before anything else is done
OnOutcome = Callable[[Effect, Outcome | Cancelled, Stamps], None]


# gets the local times that a decision rests on, before it is made
OnLocalTimes = Callable[[ReadClock, Mapping[str, str]], None]


# waits until what was noted last is on the disk; returns what cancelled the task that waits, None if nothing did
Kept = Callable[[], Awaitable["CancelledError | None"]]


# gets the stamp at which an effect would begin; what it returns stops the run there
Stop = Callable[[int], Cancelled | None]


# gets what came of an effect of a branch; returns it with the placeholders that the record has. Asked in the order of
# the calls, and within a call in the order of its effects, as soon as the calls before it are over
Settle = Callable[[Branch, Outcome], Outcome]


class DurabilityPort(Protocol):
    """Writes down what happens as it happens, so that a run that dies can be gone on with.

    `private` is the folder for a run's private mounts, None for fresh ones; `is_prepared` says that they
    were set up before. `secrets` are the numbers of placeholders given out before, by kind.
    """

    private: Path | None
    is_prepared: bool
    secrets: Mapping[str, int]

    def number(self, redactor: Redactor) -> None:
        """Let a run's redactor go on with the numbers that were given out, and note those that it gives out."""

    def begin(self, run_line: RunLine, inputs: list[RunInput]) -> None:
        """Begin a run, or resume it; `inputs` are the files that it rests on, with digests."""

    def prepared(self) -> None:
        """Note that the private mounts are set up."""

    def around(self, live: Executor, gate: Gate, workspace: Workspace, interrupts: Interrupts) -> Executor:
        """Return the executor to use instead of `live`: it does not perform again what was performed before."""

    def on_outcome(self, effect: Effect, outcome: Outcome | Cancelled, stamps: Stamps) -> None:
        """Note the outcome of an effect, before anything else is done."""

    def on_local_times(self, asked: ReadClock, times: Mapping[str, str]) -> None:
        """Note the local times that a decision rests on, before anything else is done."""

    async def kept(self) -> CancelledError | None:
        """Wait until the disk has what was noted, in an event loop; see `Kept`."""


Approve = Callable[[AskHuman], Answer | bool | None]


# stands between an effect and the model or tool behind it: gets the effect, the tool's way out (None for a
# model) and the real call; may raise, return something else, or call the real one
Inject = Callable[[Effect, IO | None, Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What a listener hears.

    `what` is `line` (a ledger line was written: `line`, `text`), `decided` (the gate spoke: `item`) or
    `performed` (an effect has its outcome: `item`, `outcome`).
    """

    what: str
    line: dict[str, Any] | None = None
    text: str | None = None
    item: Effect | Event | None = None
    outcome: Outcome | None = None


Listener = Callable[[RunEvent], None] | EventListener
