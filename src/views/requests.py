"""What a page says of the requests of a run: which messages, tools and options the model saw, and where they stand.

A text stands on the page once: a request points to the question, the replies and the results, so that the page grows
with the run, not with its square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..pages.wording import count
from ..runtime.core.lines import Line
from ..runtime.journal.requests import CONTENT, Request

_HEADINGS: Final = {"instructions": "Instructions", "tools": "Tools", "options": "Options"}


@dataclass(frozen=True, slots=True)
class Pointer:
    """One line on a request: what it is, and the place on the page where its text stands, if there is one."""

    words: str
    href: str | None = None
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of requests: `kind` of it, its heading, the place on the page, its content."""

    kind: str
    heading: str
    place: str
    content: Any


def parts_of(lines: Sequence[Line]) -> list[Part]:
    """Return the parts that the lines of a ledger hold, each once, in the order in which they first appear."""
    found: dict[str, Part] = {}
    for line in lines:
        for kind, key in CONTENT.items():
            for entry in line.get("request_parts", {}).get(kind, ()):
                place = _place(kind, entry["digest"])
                heading = _HEADINGS[kind]
                if kind == "tools":
                    heading = f"{heading}: {', '.join(str(tool['name']) for tool in entry[key]) or 'none'}"
                found.setdefault(place, Part(kind, heading, place, entry[key]))
    return list(found.values())


def _place(kind: str, digest: object) -> str:
    letters = "".join(c for c in str(digest) if c.isascii() and c.isalnum())
    return f"asked-{kind}-{letters[:16]}"


def summary_of(request: Request) -> str:
    """Return the heading of a request: how many messages and tools the model saw."""
    tools = "" if request.tools is None else f", {count(len(request.tools), 'tool')}"
    return f"what the model saw: {count(len(request.messages), 'message')}{tools}"


def pointers_of(request: Request, line: Line, before: int | None, earlier: int = 0) -> Iterator[Pointer]:
    """Yield the lines on a request.

    Args:
        request: The request.
        line: The line of its step.
        before: The step of the request before it, None for the first.
        earlier: How many messages stood before the question.
    """
    for problem in request.problems:
        yield Pointer(f"not vouched for: {problem}", bad=True)
    old = len(request.messages) - request.new
    if old:
        first = "message 1" if old == 1 else f"messages 1 to {old}"
        yield Pointer(f"{first}, as in step {before}", f"step-{before}")
    for number in range(old, len(request.messages)):
        is_notice = "notice" in line and number == len(request.messages) - 1
        yield _message(number, request.messages[number], before, earlier, is_notice=is_notice)
    entry = line["llm_input"]
    for kind in CONTENT:
        if getattr(request, kind) is not None:
            yield Pointer(kind, _place(kind, entry[kind]))
    if request.tools is None:
        yield Pointer("tools: the ledger does not say")
    yield Pointer(f"at most {count(request.max_output_tokens, 'token')} of reply")


def _message(number: int, message: Line, before: int | None, earlier: int, *, is_notice: bool) -> Pointer:
    head = f"message {number + 1}"
    if number < earlier:
        return Pointer(f"{head}: of the history", f"history-{number + 1}")
    if message["role"] == "tool":
        return Pointer(f"{head}: the result of {message['tool_call_id']}", message["tool_call_id"])
    if message["role"] == "assistant":
        return Pointer(f"{head}: the reply of step {before}", f"step-{before}")
    if number == earlier:
        return Pointer(f"{head}: the question", "question")
    if is_notice:
        return Pointer(f"{head}: the notice above")
    return Pointer(f"{head}: what it was told after step {before}", f"step-{before}")
