"""Drift as lines for a terminal or a pipe. Nothing in them is a control sequence, or a command to a build service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ..evidence.drift import counted
from ..evidence.report import visible
from .drift_story import MENDED, Part, Review, Story

Paint = Callable[[str, str], str]
_LONG: Final = 400
_CONTEXT: Final = 160
_NOTES: Final = 12
_SHORT: Final = 80  # what the line on a difference shows of a value as it is
# build services read their own commands out of what is printed, anywhere in a line or where it begins
_SERVICE: Final = re.compile(r"(##\w*)\[")
_COMMAND: Final = re.compile(r"^(\s*):(?=:)")


def plain(text: str, width: int = _LONG) -> str:
    """Foreign text on one line: inert for a terminal and for a build service, cut at `width`."""
    line = _COMMAND.sub(r"\1\\u{3a}", _SERVICE.sub(r"\1\\u{5b}", visible(text)))
    return line if len(line) <= width else line[: width - 1] + "…"


def lines(review: Review, paint: Paint) -> Iterator[str]:
    """Everything there is to say of drift, and last the command that accepts it. Nothing where there is none."""
    if review.stories:
        yield plain(review.head, 600)
    told: dict[tuple[str, ...], list[Story]] = {}
    for story in review.loud:
        told.setdefault((story.kind, *_body(story, paint)), []).append(story)
    for (kind, *body), stories in told.items():
        names = " ".join(story.run for story in stories)
        word = "" if len(stories) == 1 else f"{len(stories)} runs: "
        yield f"{paint(kind, 'red')}  {word}{plain(names)}"
        yield from body
        accept = stories[0].accept
        if accept and len(stories) == 1 and len(review.stories) > 1:
            yield f"  accept this one: {plain(accept, 1000)}"
    if review.quiet:
        names = " ".join(sorted(story.run for story in review.quiet))
        yield f"{paint('DIGEST-ONLY', 'yellow')}  {counted(len(review.quiet), 'run')}: {plain(names)}"
    for line in review.index:
        yield f"{paint('index', 'red')}  {plain(line)}"
    for line in review.secrets:
        yield f"{paint('secret', 'red')}  {plain(line)}"
    if review.stories:
        yield f"accept it: {plain(review.accept, 1000)}" if review.accept else MENDED


def closing(review: Review, names: str, from_code: int, total: int) -> str:
    """The last line of a check in which no run drifted. `from_code` of the `total` runs have no task."""
    said = []
    if review.index:
        said.append(f"runs, tasks and index disagree in {counted(len(review.index), 'place')}")
    if review.secrets:
        said.append(
            f"{counted(len(review.secrets), 'place')} hold{'s' * (len(review.secrets) == 1)} what looks like a secret"
        )
    if said:
        return f"check: {names} re-derived, but {' and '.join(said)}"
    if from_code == total:
        return (
            f"check: {names} made from code: whole and consistent, but there is no task to make it again from"
        )
    note = f" ({counted(from_code, 'run')} made from code verified only)" if from_code else ""
    return f"check: {names} re-derived, all files identical{note}"


def _body(story: Story, paint: Paint) -> list[str]:
    out = []
    if story.first is not None:
        out += _part(story.first, paint)
    if story.downstream:
        out.append(f"    downstream: {story.downstream}")
    if story.grave is not None:
        out += _part(story.grave, paint)
    out += [f"  {plain(line)}" for line in story.notes[:_NOTES]]
    if len(story.notes) > _NOTES:
        out.append(f"  and {len(story.notes) - _NOTES} lines more, which --json has")
    return out


def _part(part: Part, paint: Paint) -> list[str]:
    long = any(mark == "…" or len(text) > _SHORT for mark, text in part.rows)
    out = [f"  {plain(part.told)}"]
    out += [f"    {paint(name.ljust(12), 'dim')}{plain(text, _CONTEXT)}" for name, text in part.facts]
    if long:
        colours = {"-": "red", "+": "green"}
        out += [
            f"    {paint(f'{mark} {plain(text, 2 * _CONTEXT)}'.rstrip(), colours.get(mark, 'dim'))}"
            for mark, text in part.rows
            if text or mark != " "
        ]
    return out
