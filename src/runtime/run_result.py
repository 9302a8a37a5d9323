"""What a run is asked with, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from msgspec import Struct

from .log.events import Event
from .models.types import Message
from .schema.answer_type import AnswerType


class RunResult(Struct, frozen=True):
    """What a run came to.

    Attributes:
        run_id: Its name.
        ending: Why it ended, see `fail/catalog.py`.
        answer: The final answer, None where the run ended without one.
        mode: The failure mode; "" where nothing failed.
        steps: How many steps it took.
        messages: What the model saw and said; `history` of a further run goes on from them.
        events: Its log.
        output_type: The type of the answer; None where any text is one.
    """

    run_id: str
    ending: str
    answer: str | None
    mode: str
    steps: int
    messages: list[Message]
    events: list[Event]
    output_type: AnswerType | None = None

    @property
    def output(self) -> Any:
        """The answer as a value of its type; None without an answer or a type.

        Raises:
            AnswerMismatch: Code of the type refuses what fits its schema.
        """
        return None if self.output_type is None or self.answer is None else self.output_type.read(self.answer)


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
