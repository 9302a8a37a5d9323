"""What the driver of a run deals with: branches, mailboxes, effects under way, and the world that performs them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from .effects import AskHook, AskModel, Effect, Invoke, Wait
from .formats.strict_json import canonical
from .log import events as log
from .log.values import Message
from .redaction.redactor import Redactor

E = TypeVar("E", bound=log.Event)
_MAX_WORDS: Final = 500  # characters that a person's name and reason may have
# what an effect comes to that neither fails nor is stopped; what a person says enters
_RESULTS = {AskModel: log.ModelReplied, Invoke: log.ToolReturned, AskHook: log.HookAnswered, Wait: log.Waited}


class Branch(msgspec.Struct, eq=False):
    """Something that goes on by itself: the run, and calls that are made side by side."""

    coroutine: Coroutine[Any, Any, Any]
    is_over: bool = False
    result: Any = None
    waiting: list[Branch] = []

    def __await__(self) -> Generator[Branch, None, Any]:
        if not self.is_over:
            yield self
        return self.result


class Mailbox(list[Message]):
    """Messages for an agent. To await it is to wait for one, or for a stop of the agent.

    Attributes:
        waiting: What waits for it.
        on_mail: Is called when one comes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Branch] = []
        self.on_mail: Callable[[], None] = lambda: None

    def __await__(self) -> Generator[Mailbox, None, None]:
        yield self


class Pending(msgspec.Struct, frozen=True):
    """An effect under way.

    Attributes:
        at: Its address.
        effect: The effect.
        base: When its step began, in nanoseconds since the beginning of the run.
        begun: When it began, likewise.
        number: How many effects began before it.
        branch: What waits for it.
    """

    at: str
    effect: Effect
    base: int
    begun: int
    number: int
    branch: Branch


class World(Protocol):
    """What performs effects. Times are nanoseconds since the beginning of the run."""

    def go_live(self, now: int, entered: Sequence[tuple[int, log.Entered]], deadline: int | None) -> None:
        """Take over from the log, which ended at a time; what came from outside stands in it, each with its time.

        At the deadline the run is stopped; None for never.
        """

    def clock(self, now: int) -> int:
        """Return the time, which is at least `now`."""

    async def start(self, pending: Pending) -> None:
        """Begin an effect."""

    async def perform(self, pending: Pending) -> log.Outcome:
        """Perform an effect to its end."""

    def answer(self, pending: Pending) -> log.Answered:
        """Return the answer of a person that a script holds."""

    def finish(self, pending: Pending, now: int, outcome: log.Outcome) -> None:
        """Tell an outcome at once, without performing anything."""

    def cancel(self, pending: Pending, now: int, why: str) -> None:
        """End an effect under way; its outcome is Stopped."""

    async def next(self) -> tuple[int, log.Outcome | log.Entered]:
        """Return what is over or arrives first, and when."""

    async def store(self, do: Callable[[], None]) -> None:
        """Do what puts something on the disk and waits for it."""


def fits(effect: Effect, outcome: log.Outcome) -> bool:
    """Return whether an outcome may be one of an effect: it is of its kind, and of the model that was asked."""
    result, asked = _RESULTS.get(type(effect)), getattr(effect, "fallback", 0)
    kinds = (log.Stopped,) if result is None else (result, log.Failed, log.Stopped)
    return type(outcome) in kinds and getattr(outcome, "fallback", asked) == asked


def redacted(redactor: Redactor, event: E) -> E:
    """Redact what enters a run, before it is used or written."""
    if redactor.is_empty and type(event) not in (log.Answered, log.HookAnswered):
        return event
    plain = redactor.struct(event)
    if type(plain) is log.ModelReplied and plain.raw != event.raw:  # type: ignore[attr-defined]
        plain = msgspec.structs.replace(plain, raw=None)  # it may be signed, and would be refused
    if isinstance(plain, log.Answered):  # cut only now, since half a secret is not found
        by, why = plain.by[:_MAX_WORDS], plain.why[:_MAX_WORDS]
        return msgspec.structs.replace(plain, by=by, why=why)
    # whatever goes through keys meets them as they stand in the log, from where a replay has them; placeholders may
    # have changed their order, and a hook gives any
    if isinstance(plain, log.ModelReplied | log.HookAnswered):
        return msgspec.json.decode(canonical(plain), type=type(plain))
    return plain
