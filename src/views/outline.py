"""A run as an outline: every line of its log below what it belongs to, as addresses say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ..evidence.show import words
from ..runtime.log.addresses import step_of
from ..runtime.log.events import (
    Answered,
    Decided,
    Event,
    Failed,
    ModelReplied,
    RunEnded,
    StopAsked,
    Stopped,
    ToolReturned,
)
from ..runtime.log.steps import model_words
from ..runtime.models.types import call_text

Tone = Literal["", "good", "bad", "wait"]
_MOST_PARTS: Final = 16  # of an address: a log that somebody forged does not nest without end
_TONES: Final[dict[str, Tone]] = {"allow": "good", "deny": "bad", "escalate": "wait", "silence": "bad"}


class Node(NamedTuple):
    """A line of an outline.

    Attributes:
        at: The address.
        text: What it says, whole and not escaped.
        tone: Whether it went well, badly, or has to wait; "" of all else.
        below: What belongs to it, in the order of the log.
    """

    at: str
    text: str
    tone: Tone
    below: list[Node]


def outline(events: Sequence[Event]) -> Node:
    """Return a log, which need not have ended, as an outline; steps and calls are lines of their own."""
    root = Node(events[0].at, words(events[0]), "", [])
    found: dict[str, Node] = {}

    def add(at: str, text: str, tone: Tone = "") -> None:
        parts = at.split(".")[:_MOST_PARTS]
        addresses = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
        above = next((found[address] for address in addresses if address in found), root)
        node = Node(at, text, tone, [])
        found.setdefault(at, node)
        above.below.append(node)

    for event in events[1:]:
        step = step_of(event.at)
        if step.isdecimal() and step not in found:
            add(step, f"step {step}")
        add(event.at, _text_of(event), tone_of(event))
        for number, call in enumerate(event.calls if isinstance(event, ModelReplied) else ()):
            add(f"{step}.c{number}", f"{call.name} {call_text(call)}")
    return root


def _text_of(event: Event) -> str:
    """Return what an event says; the calls of a reply are lines of their own."""
    if not isinstance(event, ModelReplied) or not event.calls or event.problem:
        return words(event)
    proposed = f"{model_words(event)} proposed {len(event.calls)} call{'' if len(event.calls) == 1 else 's'}"
    return f"{proposed}: {event.text}" if event.text else proposed


def tone_of(event: Event) -> Tone:
    """Return whether what an event tells went well."""
    match event:
        case Decided(decision=said) | Answered(answer=said):
            return _TONES.get(said, "")
        case RunEnded(ending=ending):
            return "good" if ending == "final_answer" else "bad"
        case ToolReturned(result=None) | Failed() | Stopped() | StopAsked():
            return "bad"
        case ModelReplied(problem=problem):
            return "bad" if problem else ""
    return ""
