"""Drift as lines for a terminal or a pipe. Nothing in them is a control sequence, or a command to a build service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ...evidence.checking.drift import counted
from ...evidence.files.report import visible
from ...evidence.queries.wrap import fold
from .report import LINES_ONLY, Part, Review, Story

Paint = Callable[[str, str], str]
_LONG: Final = 400
_CONTEXT: Final = 160
_NOTES: Final = 12
_SHORT: Final = 80  # what the line on a difference shows of a value as it is
# build services read their own commands out of what is printed, anywhere in a line or where it begins
_SERVICE: Final = re.compile(r"(##\w*)\[")
_COMMAND: Final = re.compile(r"^(\s*):(?=:)")
_RUNS: Final = 200  # names in a line


def plain(text: str, width: int = _LONG) -> str:
    """Foreign text on one line: inert for a terminal and for a build service, cut at `width`."""
    line = _COMMAND.sub(r"\1\\u{3a}", _SERVICE.sub(r"\1\\u{5b}", visible(text)))
    return line if len(line) <= width else line[: width - 1] + "…"


def lines(review: Review, paint: Paint, width: int | None = None) -> Iterator[str]:
    """Everything there is to say of drift, and last the command that accepts it. Nothing where there is none.

    `width` is that of a terminal: lines are broken to fit it, but for a command, which is to be copied whole.
    """
    for line in _lines(review, paint):
        if width is None:
            yield line.text + line.copied
        elif not line.copied:
            yield from fold(line.text, width, line.hang)
        elif len(line.text + line.copied) <= width:
            yield line.text + line.copied
        else:
            yield line.text.rstrip()
            yield f"    {line.copied}"


class _Line(NamedTuple):
    """A line to be shown: `hang` is how far its other lines are indented, `copied` a command at its end."""

    text: str
    hang: int = 2
    copied: str = ""


def _lines(review: Review, paint: Paint) -> Iterator[_Line]:
    if review.stories:
        yield _Line(plain(review.head, 600))
    told: dict[tuple[str, tuple[_Line, ...]], list[Story]] = {}
    for story in review.loud:
        told.setdefault((story.kind, tuple(_body(story, paint))), []).append(story)
    for (kind, body), stories in told.items():
        word = "" if len(stories) == 1 else f"{len(stories)} runs: "
        yield _Line(f"{paint(kind, 'red')}  {word}{_names(stories)}")
        yield from body
        accept = stories[0].accept
        if accept and len(stories) == 1 and len(review.stories) > 1:
            yield _Line("  accept this one: ", copied=plain(accept, 1000))
    if review.shifted:
        head = f"{paint('TEXT', 'yellow')}  {len(review.shifted)} runs, {LINES_ONLY}: "
        yield _Line(head + _names(review.shifted))
        yield from _shifts(review, paint)
    if review.quiet:
        head = f"{paint('DIGEST-ONLY', 'yellow')}  {counted(len(review.quiet), 'run')}: "
        yield _Line(head + _names(review.quiet))
    for word, found in (("index", review.index), ("secret", review.secrets)):
        yield from (_Line(f"{paint(word, 'red')}  {plain(line)}") for line in found)
    if review.takes:
        yield _Line(review.takes)
    if review.accept:
        yield _Line("accept it: ", copied=plain(review.accept, 1000))
    elif review.stories:
        yield _Line(plain(review.mended))


def _names(stories: Sequence[Story]) -> str:
    """Runs by name, as many as a line is read for."""
    names = " ".join(plain(name, 200) for name in sorted(story.run for story in stories)[:_RUNS])
    return names + (f" and {len(stories) - _RUNS} more, which --json has" if len(stories) > _RUNS else "")


def _shifts(review: Review, paint: Paint) -> Iterator[_Line]:
    for shift in review.shifts[:_NOTES]:
        yield _fact(plain(shift.told, _CONTEXT), plain(shift.text or "", _CONTEXT), paint, 28)
    if len(review.shifts) > _NOTES:
        yield _Line(f"    and {counted(len(review.shifts) - _NOTES, 'line')} more, which --json has")


def _fact(name: str, text: str, paint: Paint, room: int = 12) -> _Line:
    """A name, and beside it a text whose further lines begin below it."""
    return _Line(f"    {paint(name.ljust(room), 'dim')}{text}".rstrip(), room)


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


def _body(story: Story, paint: Paint) -> Iterator[_Line]:
    if story.first is not None:
        yield from _part(story.first, paint)
    if story.downstream:
        yield _Line(f"    downstream: {story.downstream}", 12)
    if story.grave is not None:
        yield from _part(story.grave, paint)
    yield from (_Line(f"  {plain(line)}") for line in story.notes[:_NOTES])
    if len(story.notes) > _NOTES:
        yield _Line(f"  and {counted(len(story.notes) - _NOTES, 'line')} more, which --json has")


def _part(part: Part, paint: Paint) -> Iterator[_Line]:
    long = any(mark == "…" or len(text) > _SHORT for mark, text in part.rows)
    yield _Line(f"  {plain(part.told)}")
    yield from (_fact(name, plain(text, _CONTEXT), paint) for name, text in part.facts)
    if long:
        colours = {"-": "red", "+": "green"}
        for mark, text in part.rows:
            if text or mark != " ":
                shown = f"{mark} {plain(text, 2 * _CONTEXT)}".rstrip()
                yield _Line(f"    {paint(shown, colours.get(mark, 'dim'))}")
