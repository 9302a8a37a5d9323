"""A run as an outline: every line of its log below what it belongs to, as addresses say it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from ..evidence.show import words
from ..runtime.log import events as log
from ..runtime.log.steps import model_words
from ..runtime.models.types import call_text

Tone = Literal["", "good", "bad", "wait"]
_PART: Final = re.compile(r"[./]?[^./]+")  # of an address
_STEP: Final = re.compile(r"((?:[0-9]+\.c[0-9]+(?:\.g[0-9]+)?/)*)([0-9]{1,9})(?![^.])")
_MOST_PARTS: Final = 40  # a log that somebody forged does not nest without end
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


def outline(events: Sequence[log.Event]) -> Node:
    """Return a log, which need not have ended, as an outline; steps and calls are lines of their own."""
    root = Node(events[0].at, words(events[0]), "", [])
    found: dict[str, Node] = {}

    def add(at: str, text: str, tone: Tone = "") -> None:
        addresses = [*accumulate(_PART.findall(at)[:_MOST_PARTS])]
        above = next((found[address] for address in reversed(addresses) if address in found), root)
        node = Node(at, text, tone, [])
        found.setdefault(at, node)
        above.below.append(node)

    for event in events[1:]:
        # anything may stand in a forged address
        step = match[0] if (match := _STEP.match(event.at)) and int(match[2]) else None
        if step is not None and step not in found:
            add(step, f"step {step}")
        if isinstance(event, log.Proposed):
            add(event.at.removesuffix(".n"), f"{event.call.name} {call_text(event.call)}")
        add(event.at, _text_of(event), tone_of(event))
        for number, call in enumerate(event.calls if isinstance(event, log.ModelReplied) else ()):
            add(f"{step}.c{number}", f"{call.name} {call_text(call)}")
    return root


def _text_of(event: log.Event) -> str:
    """Return what an event says; the calls of a reply are lines of their own."""
    if not isinstance(event, log.ModelReplied) or not event.calls or event.problem:
        return words(event)
    proposed = f"{model_words(event)} proposed {len(event.calls)} call{'' if len(event.calls) == 1 else 's'}"
    return f"{proposed}: {event.text}" if event.text else proposed


def tone_of(event: log.Event) -> Tone:
    """Return whether what an event tells went well."""
    match event:
        case log.Decided(decision=said) | log.Answered(answer=said):
            return _TONES.get(said, "")
        case log.AgentEnded(ending=ending) | log.RunEnded(ending=ending):
            return "good" if ending == "final_answer" else "bad"
        case log.ToolReturned(result=None) | log.Failed() | log.Stopped() | log.StopAsked():
            return "bad"
        case log.ModelReplied(problem=problem):
            return "bad" if problem else ""
    return ""
