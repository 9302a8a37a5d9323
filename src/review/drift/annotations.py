"""Drift in a forge's own forms: annotations for GitHub's runner, and a summary of the job in Markdown.

An annotation is a line `::error file=...,line=...,title=...::message`. In it `%`, CR and LF are written as `%25`,
`%0D`, `%0A`, and in a property `:` and `,` too. The forge shows at most ten errors of a step and swallows the rest, so
the gravest ten are told here and the last of them says how many there are besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...evidence.checking.drift import counted
from ...evidence.files.manifest import STATE
from ...evidence.files.report import code, inert, visible
from .report import LINES_ONLY, Part, Review, Shift, Story

MOST: Final = 10
_MESSAGE: Final = 2000
_ROWS: Final = 100  # runs in a summary, which a forge drops as a whole where it is over a megabyte


def commands(review: Review, prefix: str = "") -> list[str]:
    """Lines for the runner of the forge. `prefix` leads from the repository's root to the project, with a slash."""
    found = [*_of_runs(review, prefix), *_of_the_rest(review)]
    if len(found) <= MOST:
        return found
    more = f"{len(found) - MOST + 1} more findings stand in the log and the summary of this step"
    return [*found[: MOST - 1], _command(f"and {len(found) - MOST + 1} more", more)]


def _of_runs(review: Review, prefix: str) -> Iterator[str]:
    for story in review.loud:
        title = f"{story.kind}: {story.run} drifted" if story.judged else f"{story.run} cannot be made again"
        place = f"{prefix}{story.run}/{STATE}"
        yield _command(title, _message(story), file=place, line=story.first.line if story.first else 1)
    if review.shifted:
        names = " ".join(sorted(story.run for story in review.shifted))
        yield _command(f"TEXT: {len(review.shifted)} runs drifted, {LINES_ONLY}", names)
    if review.quiet:
        names = " ".join(sorted(story.run for story in review.quiet))
        yield _command(f"DIGEST-ONLY: {counted(len(review.quiet), 'run')} drifted", names)


def _of_the_rest(review: Review) -> Iterator[str]:
    for line in review.index:
        yield _command("runs, tasks and index disagree", line)
    for line in review.secrets:
        yield _command("a secret in what is committed", line)


def _message(story: Story) -> str:
    lines = []
    for part in filter(None, (story.first, story.grave)):
        lines += [part.told, *(f"{name}: {text}" for name, text in part.facts)]
    if story.downstream:
        lines.append(f"downstream: {story.downstream}")
    lines += story.notes
    if story.accept:
        lines.append(f"accept it: {story.accept}")
    return "\n".join(line if len(line) <= 400 else line[:399] + "…" for line in map(visible, lines))


def _command(title: str, message: str, *, file: str | None = None, line: int | None = None) -> str:
    named = {"file": file, "line": None if line is None else str(line), "title": visible(title)[:200]}
    properties = ",".join(f"{key}={_property(value)}" for key, value in named.items() if value is not None)
    text = "\n".join(map(visible, message.split("\n")))
    return f"::error {properties}::{_data(text if len(text) <= _MESSAGE else text[: _MESSAGE - 1] + '…')}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")


# ---- the summary of a job ------------------------------------------------------------------------------------


def summary(review: Review) -> str:
    """A check in Markdown, in which text of models and tools forges nothing."""
    if review.ok:
        return f"## Tachograph: {counted(review.total, 'run')} re-derived, all files identical\n\n"
    out = [f"## Tachograph: {inert(review.head.removeprefix('check: '), 600)}", ""]
    if review.loud:
        out += ["| class | run | first difference | downstream |", "|---|---|---|---|"]
        out += [_row(story) for story in review.loud[:_ROWS]]
        out += [f"| | and {len(review.loud) - _ROWS} more | | |"] * (len(review.loud) > _ROWS) + [""]
    for story in review.loud[:_ROWS]:
        out += _details(story)
    if review.shifted:
        head = f"TEXT in {len(review.shifted)} runs, {LINES_ONLY}"
        out += [f"{head}: {_names(review.shifted)}", "", *map(_shift, review.shifts[:_ROWS]), ""]
    if review.quiet:
        out += [f"Digests only, in {counted(len(review.quiet), 'run')}: {_names(review.quiet)}", ""]
    for word, lines in (("index", review.index), ("secret", review.secrets)):
        out += [f"- {word}: {inert(line, 400)}" for line in lines[:_ROWS]]
    if review.takes:
        out += ["", f"{review.takes[0].upper()}{review.takes[1:]}."]
    if review.accept:
        out += ["", f"Accept it: {code(review.accept, 1000)}"]
    elif review.stories:
        out += ["", f"{review.mended[0].upper()}{inert(review.mended[1:], 400)}."]
    return "\n".join([*out, "", ""])


def _names(stories: Sequence[Story]) -> str:
    return ", ".join(code(story.run, 200) for story in stories[:_ROWS])


def _shift(shift: Shift) -> str:
    return f"- {code(shift.told, 200)}" + (f": {code(shift.text, 200)}" if shift.text else "")


def _row(story: Story) -> str:
    first = inert(story.first.told.partition("first difference: ")[2], 240) if story.first else ""
    if story.first is None and story.notes:
        first = inert(story.notes[0], 240)
    return f"| {story.kind} | {code(story.run, 200)} | {first} | {story.downstream} |"


def _details(story: Story) -> list[str]:
    out = [f"<details><summary>{story.kind} in {inert(story.run, 200)}</summary>", ""]
    for part in filter(None, (story.first, story.grave)):
        out += _part(part)
    out += [f"- {inert(line, 400)}" for line in story.notes]
    if story.accept:
        out.append(f"- accept this one: {code(story.accept, 1000)}")
    return [*out, "", "</details>", ""]


def _part(part: Part) -> list[str]:
    out = [f"- {inert(part.told, 400)}"]
    out += [f"  - {name}: {code(text, 300)}" for name, text in part.facts]
    marks = {"-": "then", "+": "now"}
    return out + [f"  - {marks[mark]}: {code(text, 300)}" for mark, text in part.rows if mark in marks]
