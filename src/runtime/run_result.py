"""What a run is asked with, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from msgspec import Struct
from msgspec.structs import astuple

from ..fail.catalog import ENDINGS, MODES, FailureMode
from .log.addresses import place_of
from .log.events import Decided, Ended, Event, ModelReplied, StepEnded
from .log.steps import finding, steps_of
from .log.values import Usage
from .models.types import Message
from .schema.answer_type import AnswerMismatch, AnswerType


class Reached(Struct, frozen=True, kw_only=True):
    """What a run, or a turn of it, came to.

    Attributes:
        ending: Why it ended, see `fail/catalog.py`.
        answer: The final answer, None where it ended without one.
        mode: The failure mode; "" where nothing failed.
        events: Its lines of the log.
        output_type: The type of the answer; None where any text is one.
    """

    ending: str
    answer: str | None
    mode: str
    events: list[Event]
    output_type: AnswerType | None = None

    def __repr__(self) -> str:
        """Return what it came to without its lines, which may be thousands."""
        told = [name for name in self.__struct_fields__ if name not in ("events", "messages", "output_type")]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in told)})"

    @property
    def output(self) -> Any:
        """The answer as a value of its type; None without an answer or a type.

        Raises:
            AnswerMismatch: Code of the type refuses what fits its schema.
        """
        return None if self.output_type is None or self.answer is None else self.output_type.read(self.answer)

    @property
    def usage(self) -> Usage:
        """The tokens of all replies of models, also to the agents below; they are estimated if one of them is."""
        usages = [astuple(event.usage) for event in self.events if isinstance(event, ModelReplied)]
        sent, replied, estimated, *parts = map(sum, zip(*usages, strict=True)) if usages else astuple(Usage())
        return Usage(sent, replied, bool(estimated), *parts)

    @property
    def cost(self) -> float:
        """What all replies cost in US dollars, also to the agents below; 0 where the policy knows no price."""
        return sum(it.cost for it in self.events if isinstance(it, StepEnded)) / 1_000_000

    @property
    def reason(self) -> str:
        """Why it ended, in one line: what failed, or else what the ending means, and what the last step tells of it."""
        told = [MODES.get(self.mode) or ENDINGS[self.ending]]
        # the last step of the agent itself is of the last turn, and so are all lines of it
        for step in steps_of(it for it in self.events if not place_of(it.at))[-1:]:
            about: list[tuple[str, Event | None]] = [("the step", step.refused)]
            about += [("the model", it.outcome) for it in step.asked[-1:]]
            for call in step.calls:
                is_denied = call.verdict is not None and call.verdict.decision == "deny"
                last = call.attempts[-1].outcome if call.attempts else call.answered
                about.append((call.call.name, call.verdict if is_denied else last))
            told += [f"{who}: {said}" for who, it in about if it is not None and (said := finding(it))]
            try:
                if self.mode == FailureMode.OUTPUT_MISMATCH and self.output_type is not None:
                    self.output_type.data(str(getattr(step.asked[-1].outcome, "answer", "")))
            except AnswerMismatch as wrong:
                told.append(f"the answer {wrong}")
        return " ".join("; ".join(told).split())

    @property
    def denials(self) -> list[Decided]:
        """What the gate and hooks denied, in order, also of the agents below."""
        return [it for it in self.events if isinstance(it, Decided) and it.decision == "deny"]


def reached(ended: Ended, events: list[Event], output_type: AnswerType | None) -> dict[str, Any]:
    """Return the fields of what a run or a turn came to, given its last line and all of its lines."""
    about = {"ending": ended.ending, "answer": ended.answer, "mode": ended.mode}
    return {**about, "events": events, "output_type": output_type}


class RunResult(Reached, frozen=True, kw_only=True):
    """What a run came to: besides these, `ending`, `answer`, `mode`, `events` and `output_type`, see Reached.

    Attributes:
        run_id: Its name.
        steps: How many steps it took.
        messages: What the model saw and said; `history` of a further run goes on from them.
    """

    run_id: str
    steps: int
    messages: list[Message]


class Turn(Reached, frozen=True, kw_only=True):
    """A turn of a conversation. It has the fields of Reached, and ends as `cancelled` where it was interrupted.

    Attributes:
        number: Its number, from 1.
    """

    number: int


class RunOptions(TypedDict, total=False):
    """What a single run is made with.

    Attributes:
        seed: Of the jitter of waits.
        history: Messages of an earlier run, which this one goes on from.
        deps: The caller's own object, in place of the agent's.
        deadline_s: Whole seconds after which the run is stopped; never unless given.
    """

    seed: int
    history: Sequence[Message]
    deps: Any
    deadline_s: int
