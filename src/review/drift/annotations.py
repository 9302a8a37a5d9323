"""Drift in a forge's own forms: annotations for GitHub's runner, and a summary of the job in Markdown.

An annotation is a line `::error file=...,line=...,title=...::message`. In it `%`, CR and LF are written as `%25`,
`%0D`, `%0A`, and in a property `:` and `,` too. The forge shows at most ten errors of a step and drops the rest, so
the ten gravest are printed, and the last of them says how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...evidence.checking.differences.drift import counted
from ...evidence.files.manifest import STATE
from ...runtime.formats.escape import code_span, escape_markdown, escape_terminal, truncate
from .report import DifferenceContext, DriftedRun, DriftReport

MOST: Final = 10
_MESSAGE: Final = 2000
_ROWS: Final = 100  # runs in a summary, which a forge drops as a whole if it is over a megabyte


def commands(report: DriftReport, prefix: str = "") -> list[str]:
    """Return the lines for the runner; `prefix` leads from the repository's root to the project, with a slash."""
    annotations = list(_commands(report, prefix))
    if len(annotations) <= MOST:
        return annotations
    rest = len(annotations) - MOST + 1
    more = f"{rest} more findings stand in the log and the summary of this step"
    return [*annotations[: MOST - 1], _command(f"and {rest} more", more)]


def _commands(report: DriftReport, prefix: str) -> Iterator[str]:
    for run in report.loud:
        title = f"{run.kind}: {run.run} drifted" if run.judged else f"{run.run} cannot be made again"
        place = f"{prefix}{run.run}/{STATE}"
        yield _command(title, _message(run), file=place, line=run.first.line if run.first else 1)
    if report.quiet:
        title = f"DIGEST-ONLY: {counted(len(report.quiet), 'run')} drifted"
        yield _command(title, " ".join(sorted(run.run for run in report.quiet)))
    for line in report.index:
        yield _command("runs, tasks and index disagree", line)
    for line in report.secrets:
        yield _command("a secret in what is committed", line)


def _message(run: DriftedRun) -> str:
    lines = []
    for item in run.differences:
        lines += [item.summary, *(f"{name}: {text}" for name, text in item.facts)]
    if run.follow_ups:
        lines.append(f"downstream: {run.follow_ups}")
    lines += run.notes
    if run.accept:
        lines.append(f"accept it: {run.accept}")
    return "\n".join(line if len(line) <= 400 else line[:399] + "…" for line in map(escape_terminal, lines))


def _command(title: str, message: str, *, file: str | None = None, line: int | None = None) -> str:
    named = {"file": file, "line": None if line is None else str(line), "title": escape_terminal(title)[:200]}
    properties = ",".join(f"{key}={_property(value)}" for key, value in named.items() if value is not None)
    text = "\n".join(map(escape_terminal, message.split("\n")))
    return f"::error {properties}::{_data(truncate(text, _MESSAGE))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape_terminal(text)).replace(":", "%3A").replace(",", "%2C")


# ---- the summary of a job ------------------------------------------------------------------------------------


def summary(report: DriftReport) -> str:
    """Return a check in Markdown, in which text of models and tools forges nothing."""
    if report.ok:
        return f"## Tachograph: {counted(report.total, 'run')} re-derived, all files identical\n\n"
    return "\n".join([*_blocks(report), "", ""])


def _blocks(report: DriftReport) -> Iterator[str]:
    yield from (f"## Tachograph: {escape_markdown(report.head.removeprefix('check: '), 600)}", "")
    if report.loud:
        yield from ("| class | run | first difference | downstream |", "|---|---|---|---|")
        yield from map(_row, report.loud[:_ROWS])
        if len(report.loud) > _ROWS:
            yield f"| | and {len(report.loud) - _ROWS} more | | |"
        yield ""
    for run in report.loud[:_ROWS]:
        yield from _details(run)
    if report.quiet:
        yield from (f"Digests only, in {counted(len(report.quiet), 'run')}: {_names(report.quiet)}", "")
    for word, lines in (("index", report.index), ("secret", report.secrets)):
        yield from (f"- {word}: {escape_markdown(line, 400)}" for line in lines[:_ROWS])
    if report.takes:
        yield from ("", f"{report.takes[0].upper()}{report.takes[1:]}.")
    if report.accept:
        yield from ("", f"Accept it: {code_span(report.accept, 1000)}")
    elif report.runs:
        words = report.nothing_to_accept
        yield from ("", f"{words[0].upper()}{escape_markdown(words[1:], 400)}.")


def _names(runs: Sequence[DriftedRun]) -> str:
    return ", ".join(code_span(run.run, 200) for run in runs[:_ROWS])


def _row(run: DriftedRun) -> str:
    first = run.first.summary.partition("first difference: ")[2] if run.first else "".join(run.notes[:1])
    return f"| {run.kind} | {code_span(run.run, 200)} | {escape_markdown(first, 240)} | {run.follow_ups} |"


def _details(run: DriftedRun) -> Iterator[str]:
    yield from (f"<details><summary>{run.kind} in {escape_markdown(run.run, 200)}</summary>", "")
    for item in run.differences:
        yield from _difference(item)
    yield from (f"- {escape_markdown(line, 400)}" for line in run.notes)
    if run.accept:
        yield f"- accept this one: {code_span(run.accept, 1000)}"
    yield from ("", "</details>", "")


def _difference(item: DifferenceContext) -> Iterator[str]:
    yield f"- {escape_markdown(item.summary, 400)}"
    yield from (f"  - {name}: {code_span(text, 300)}" for name, text in item.facts)
    marks = {"-": "then", "+": "now"}
    yield from (f"  - {marks[mark]}: {code_span(text, 300)}" for mark, text in item.rows if mark in marks)
