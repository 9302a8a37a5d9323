"""Drift as lines for a terminal or a pipe, without control sequences and commands to a build service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ...evidence.checking.differences.cause import Cause
from ...evidence.checking.differences.compare import BROKEN
from ...evidence.checking.differences.drift import counted
from ...evidence.files.json_diff import CLASSES
from ...evidence.queries.wrap import fold
from ...runtime.formats.escape import escape_build_log
from .report import DifferenceContext, DriftedRun, DriftReport

Paint = Callable[[str, str], str]
_CONTEXT: Final = 160
_NOTES: Final = 13
_SHORT: Final = 80  # what the line on a difference shows of a value as it is
_RUNS: Final = 200  # names in a line
_FEW: Final = 5  # names in a line of what is folded
_CAUSES: Final = 3  # causes whose inputs are shown
_DIFF: Final = 6  # lines of the differences of all inputs that are shown
_MOST: Final = 30  # lines where runs drifted for one cause
_EXAMPLE: Final = 4  # lines on the run that stands for the others
_ORDER: Final = (BROKEN, *CLASSES)


def lines(
    report: DriftReport, paint: Paint, width: int | None = None, *, verbose: bool = False
) -> Iterator[str]:
    """Yield what there is to report, and last the command that accepts it; nothing without drift.

    Args:
        report: the report.
        paint: colours a text by the name of a colour.
        width: columns of a terminal; lines are broken to fit, except for commands, which are to be copied whole.
        verbose: each run is reported; else runs that drifted for one cause are folded where there are many lines.
    """
    for line in _lines(report, paint, verbose=verbose):
        if width is None:
            yield line.text + line.command
        elif not line.command:
            yield from fold(line.text, width, line.hang)
        elif len(line.text + line.command) <= width:
            yield line.text + line.command
        else:
            yield line.text.rstrip()
            yield f"    {line.command}"


def run_lines(run: DriftedRun, paint: Paint, width: int) -> Iterator[str]:
    """Yield what is told of one run, its name first, broken to fit the columns of a terminal."""
    head = _Line(f"{paint(run.kind, 'red')}  {escape_build_log(run.run, 200)}")
    for line in (head, *_body(run, paint)):
        yield from fold(line.text, width, line.hang)


def closing(report: DriftReport, names: str, from_code: int, total: int) -> str:
    """Return the last line of a check in which no run drifted; `from_code` of the `total` runs have no task."""
    wrong = []
    if report.index:
        wrong.append(f"runs, tasks and index disagree in {counted(len(report.index), 'place')}")
    if report.secrets:
        wrong.append(f"{counted(len(report.secrets), 'place')} may hold a secret")
    if wrong:
        return f"check: {names} re-derived, but {' and '.join(wrong)}"
    if from_code == total:
        return (
            f"check: {names} made from code: whole and consistent, but there is no task to make it again from"
        )
    note = f" ({counted(from_code, 'run')} made from code verified only)" if from_code else ""
    return f"check: {names} re-derived, all files identical{note}"


class _Line(NamedTuple):
    """A line to print: `hang` is the indentation of its continuation lines, `command` stands at its end."""

    text: str
    hang: int = 2
    command: str = ""


def _lines(report: DriftReport, paint: Paint, *, verbose: bool) -> Iterator[_Line]:
    if report.runs:
        yield _Line(escape_build_log(report.head, 600))
    shown = [cause for cause in report.causes if cause.diff][:_CAUSES]
    inputs = [line for cause in shown for line in _input(cause, paint, _DIFF // len(shown))]
    yield from inputs
    ending = list(_ending(report, paint))
    room = _MOST - 1 - len(inputs) - len(ending)
    by_cause: dict[tuple[str, ...], list[DriftedRun]] = {}
    for run in report.loud:
        by_cause.setdefault(run.causes[:1], []).append(run)
    for runs in by_cause.values():
        every = list(_runs(runs, paint, several=len(report.runs) > 1))
        is_short = verbose or len(report.runs) == 1 or len(every) <= room
        yield from every if is_short else _folded(runs, paint)
    yield from ending


def _ending(report: DriftReport, paint: Paint) -> Iterator[_Line]:
    """Yield what stands below the runs that are reported by themselves."""
    if report.quiet:
        head = f"{paint('DIGEST-ONLY', 'yellow')}  {counted(len(report.quiet), 'run')}: "
        yield _Line(head + _names(report.quiet))
    for word, problems in (("index", report.index), ("secret", report.secrets)):
        yield from (_Line(f"{paint(word, 'red')}  {escape_build_log(line)}") for line in problems)
    guesses = report.guesses
    yield from (
        _Line(f"{paint('guess', 'yellow')}  {escape_build_log(line, 400)}") for line in guesses[:_CAUSES]
    )
    yield from _more(len(guesses), "", _CAUSES)
    if report.takes:
        yield _Line(report.takes)
    if report.accept:
        yield _Line("accept it: ", command=escape_build_log(report.accept, 1000))
    elif report.runs:
        yield _Line(escape_build_log(report.nothing_to_accept))


def _input(cause: Cause, paint: Paint, most: int) -> Iterator[_Line]:
    """Yield how an input differs from what was recorded, in at most so many lines and one more."""
    texts = [text for text in cause.diff if not text.startswith(("@@", " "))]
    more = f"; {counted(len(texts) - most, 'line')} more, which --json has" if len(texts) > most else ""
    source = escape_build_log(cause.source, 400)
    yield _Line(f"{paint('input', 'yellow')}  {source}, as recorded (-) and now (+){more}")
    for text in texts[:most]:
        colour = {"-": "red", "+": "green"}.get(text[:1], "dim")
        yield _Line(f"  {paint(escape_build_log(text, _CONTEXT), colour)}".rstrip(), 4)


def _runs(runs: Sequence[DriftedRun], paint: Paint, *, several: bool) -> Iterator[_Line]:
    """Yield what there is to say of each run; runs of which the same is to be said share it."""
    alike: dict[tuple[str, tuple[_Line, ...]], list[DriftedRun]] = {}
    for run in runs:
        alike.setdefault((run.kind, tuple(_body(run, paint))), []).append(run)
    for (kind, body), same in alike.items():
        number = "" if len(same) == 1 else f"{len(same)} runs: "
        yield _Line(f"{paint(kind, 'red')}  {number}{_names(same)}")
        yield from body
        accept = same[0].accept
        if accept and len(same) == 1 and several:
            yield _Line("  accept this one: ", command=escape_build_log(accept, 1000))


def _folded(runs: Sequence[DriftedRun], paint: Paint) -> Iterator[_Line]:
    """Yield, for runs that drifted for one cause, how many there are of each class and the gravest of them."""
    counts = Counter(run.kind for run in runs)
    for kind, number in sorted(counts.items(), key=lambda item: _ORDER.index(item[0])):
        same = [run for run in runs if run.kind == kind]
        yield _Line(f"{paint(kind, 'red')}  {counted(number, 'run')}: {_names(same, _FEW)}")
    first = min(runs, key=lambda run: (run.first is None, _ORDER.index(run.kind)))
    body = list(_body(first, paint))
    yield _Line(f"  such as {escape_build_log(first.run, 200)}")
    yield from body[:_EXAMPLE]
    yield _Line("  see one: ", command=f"tachograph check {escape_build_log(first.run, 200)}")
    yield _Line("  see all: ", command="tachograph check --verbose")


def _body(run: DriftedRun, paint: Paint) -> Iterator[_Line]:
    if run.first is not None:
        yield from _difference(run.first, paint)
    if run.follow_ups:
        yield _Line(f"    downstream: {run.follow_ups}", 12)
    if run.gravest is not None:
        yield from _difference(run.gravest, paint)
    yield from (_Line(f"  {escape_build_log(line)}") for line in run.notes[:_NOTES])
    yield from _more(len(run.notes), "  ")


def _difference(item: DifferenceContext, paint: Paint) -> Iterator[_Line]:
    yield _Line(f"  {escape_build_log(item.summary)}")
    yield from (_fact(name, escape_build_log(text, _CONTEXT), paint) for name, text in item.facts)
    if any(mark == "…" or len(text) > _SHORT for mark, text in item.rows):
        colours = {"-": "red", "+": "green"}
        for mark, text in item.rows:
            if text or mark != " ":
                row = f"{mark} {escape_build_log(text, 2 * _CONTEXT)}".rstrip()
                yield _Line(f"    {paint(row, colours.get(mark, 'dim'))}")


def _fact(name: str, text: str, paint: Paint) -> _Line:
    """Return a name with a text beside it, whose further lines begin below the text."""
    return _Line(f"    {paint(name.ljust(12), 'dim')}{text}".rstrip(), 12)


def _names(runs: Sequence[DriftedRun], most: int = _RUNS) -> str:
    """Return the names of runs, as many as anyone reads in a line."""
    names = " ".join(escape_build_log(name, 200) for name in sorted(run.run for run in runs)[:most])
    return names + (f" and {len(runs) - most} more, which --json has" if len(runs) > most else "")


def _more(number: int, indent: str, most: int = _NOTES) -> Iterator[_Line]:
    if number > most:
        yield _Line(f"{indent}and {counted(number - most, 'line')} more, which --json has")
