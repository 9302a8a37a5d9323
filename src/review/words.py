"""Tell a comparison of policies: for a terminal, as Markdown, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import to_builtins

from ..runtime.formats.escape import code_span, truncate
from ..runtime.formats.strict_json import canonical
from ..runtime.log.values import Call, Reach, Touch
from ..runtime.models.types import call_text
from ..runtime.policy.leaf import Question, Step
from .compare import Change
from .replays import Flip

_TOOLS: Final = 6
_MOST: Final = 40  # changes of a kind, and runs, that are told
_LONGEST: Final = 160
_KINDS: Final = {"WIDER": "widening", "EXPOSURE": "exposure", "TIGHTER": "tightening", "NOTE": "note"}

Mark = Callable[[str], str]
"""What marks text that comes from a policy or a run."""


def for_tools(change: Change) -> str:
    """Return for which tools something changes, in words; "" where it is no matter of tools."""
    more = ", ..." if change.tools[_TOOLS:] else ""
    return f" for {', '.join(change.tools[:_TOOLS])}{more}" if change.tools else ""


def question_words(question: Question, most: int = _LONGEST) -> str:
    """Return what a question is about, in words, with at most so many characters of a call."""
    match question.about:
        case Call() as call:
            what = f"{call.name} {truncate(call_text(call), most)}"
        case Reach(url=url, method=method, address=address):
            what = f"{question.tool} sends {method} to {url}{f' at {address}' if address else ''}"
        case Touch(path=path, access=access):
            what = f"{question.tool} opens {path} to {access}"
        case Step():
            what = "another step"
        case about:
            what = f"{question.tool} {canonical(about).decode()}"
    used = [f"{number} {name} used" for name, number in question.used.items()]
    again = [f"after {question.repeats} times the same result"] if question.repeats else []
    return ", ".join([what, *used, *again])


def summary(changes: Sequence[Change], flips: Sequence[Flip], runs: int | None) -> str:
    """Return how many changes of each kind there are, and how many of some recorded runs go another way."""
    counted = Counter[str](change.kind for change in changes)
    found = [(counted[kind], noun) for kind, noun in _KINDS.items() if counted[kind]]
    parts = [f"{number} {noun}{'s' * (number != 1)}" for number, noun in found]
    parts = parts or ["the policies allow the same"]
    if runs is not None:
        parts.append(f"{len(flips)} of {runs} recorded runs go another way")
    return ", ".join(parts)


def told(changes: Sequence[Change], flips: Sequence[Flip], *, is_all: bool, mark: Mark = str) -> list[str]:
    """Return the changes and the runs that go another way, a few lines for each.

    Args:
        changes: The changes.
        flips: The runs.
        is_all: Whether all of them are told, however many there are of a kind.
        mark: Marks text of policies and runs, such as `code_span` for Markdown.
    """
    bullet, indent = ("", "  ") if mark is str else ("- ", "  - ")
    lines = []
    counted: Counter[str] = Counter()
    for change in changes:
        counted[change.kind] += 1
        if counted[change.kind] > _MOST and not is_all:
            continue
        lines.append(f"{bullet}{change.kind} {mark(change.place)}: {mark(change.words)}{for_tools(change)}")
        if change.example is not None:
            was, now = change.example.was, change.example.now
            decisions = f"{was.decision} by {was.rule}, now {now.decision} by {now.rule}"
            lines.append(f"{indent}for example {mark(question_words(change.example.question))}: {decisions}")
    for kind, number in counted.items():
        if number > _MOST and not is_all:
            lines.append(f"{bullet}and {number - _MOST} more of {kind}")
    for flip in flips if is_all else flips[:_MOST]:
        lines.append(f"{bullet}RUN {mark(flip.run)} goes another way")
        lines += [f"{indent}{name} {mark(what)}" for name, what in flip.told(_LONGEST)]
    if flips[_MOST:] and not is_all:
        lines.append(f"{bullet}and {len(flips) - _MOST} more runs")
    return lines


def markdown(title: str, changes: Sequence[Change], flips: Sequence[Flip], runs: int | None) -> list[str]:
    """Return a comparison as a comment for a pull request."""
    head = [f"### {code_span(title)}", "", f"**{summary(changes, flips, runs)}**", ""]
    return head + told(changes, flips, is_all=False, mark=code_span)


def as_data(changes: Sequence[Change], flips: Sequence[Flip]) -> dict[str, Any]:
    """Return a comparison as data: `changes`, and `runs` that go another way."""
    # words may be of a class of their own, which only the comparison needs
    return {"changes": to_builtins(changes, enc_hook=str), "runs": to_builtins(flips)}
