"""A change of policy as a comment on a pull request, to be posted as it stands.

Text of policies, tools, runs and paths is made harmless: it can forge neither a heading, a row, a link nor markup. The
comment stays below what a forge takes; rows that do not fit are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from ...evidence.checking.differences.drift import counted
from ...evidence.queries.flips import NEEDS_APPROVAL, OTHER_WAY, TIGHTENING, WIDENING
from ...runtime.formats.escape import code_span, escape_markdown
from .plan import CANNOT_TELL, KINDS, NOT_UNDER, SAME, Plan, RunChange
from .text import event_of, place_of, setting_of, side_of

MOST: Final = 60_000  # characters; a forge takes 65,536
_CALL: Final = 400
_ROWS: Final = 200


def markdown_of(plan: Plan) -> str:
    """Return the whole comment, ending in a line end."""
    rows = _ROWS
    while True:
        text = "\n".join(_blocks(plan, rows)) + "\n"
        if len(text) <= MOST or rows == 0:
            return text
        rows //= 2


def _blocks(plan: Plan, rows: int) -> Iterator[str]:
    yield f"### Policy diff: {escape_markdown(plan.verdict)}"
    yield ""
    yield (
        f"{code_span(plan.old)} (version {code_span(plan.versions[0])}) → "
        f"{code_span(plan.new)} (version {code_span(plan.versions[1])})"
    )
    if plan.closing is not None:
        yield from ("", f"**{plan.closing}**")
    widenings = plan.changes(WIDENING)
    if widenings:
        yield from ("", "#### Widenings", "", *_changes(widenings, rows))
    narrower = [change for kind in (NEEDS_APPROVAL, TIGHTENING) for change in plan.changes(kind)]
    if narrower:
        asks = sum(change.kind == NEEDS_APPROVAL for change in narrower)
        titles = [counted(len(narrower) - asks, TIGHTENING)] if len(narrower) > asks else []
        titles += [f"{asks} {NEEDS_APPROVAL}"] if asks else []
        yield from _folded(", ".join(titles), _changes(narrower, rows))
    if plan.comparison.settings:
        texts = [setting_of(setting) for setting in plan.comparison.settings]
        yield from _folded(counted(len(texts), "other setting"), _bullets(texts, rows))
    if plan.comparison.undecided:
        yield from ("", "#### Untold", "", *_bullets(plan.comparison.undecided, rows))
    if plan.runs is not None:
        yield from _runs(plan, rows)
    if plan.again:
        yield from ("", f"To see it again: {code_span(plan.again, 1000)}")


def _changes(changes: Sequence[Any], rows: int) -> Iterator[str]:
    """Yield a table of changes, each with a call that shows it."""
    yield "| rule | what | such as | before | after |"
    yield "|---|---|---|---|---|"
    yield from _cut(
        changes,
        rows,
        lambda change: (
            f"| {code_span(change.rule)} {code_span(change.at)} | {escape_markdown(change.description, _CALL)} "
            f"| {code_span(event_of(change.witness), _CALL)} "
            f"| {_side(change.witness.before)} | {_side(change.witness.after)} |"
        ),
    )


def _runs(plan: Plan, rows: int) -> Iterator[str]:
    flipped = [item for group in (*KINDS, OTHER_WAY) for item in plan.by_group[group]]
    yield from ("", "#### Recorded runs")
    if flipped:
        yield from (
            "",
            "| run | what | where | before | after | hypothetical |",
            "|---|---|---|---|---|---:|",
        )
        yield from _cut(flipped, rows, _flip)
        yield from ("", "What lies behind the first decision that goes another way is hypothetical.")
    if plan.by_group[CANNOT_TELL]:
        texts = [(item.run, str(item.why)) for item in plan.by_group[CANNOT_TELL]]
        yield from ("", "Of these runs nothing can be told:", "")
        yield from _cut(
            texts, rows, lambda pair: f"- {code_span(pair[0])}: {escape_markdown(pair[1], _CALL)}"
        )
    if plan.by_group[NOT_UNDER]:
        names = [item.run for item in plan.by_group[NOT_UNDER]]
        yield from _folded(f"{counted(len(names), 'run')} not under this policy", _cut(names, rows, _name))
    if plan.by_group[SAME]:
        names = [item.run for item in plan.by_group[SAME]]
        yield from _folded(f"{counted(len(names), 'run')} the same", _cut(names, rows, _name))


def _flip(item: RunChange) -> str:
    result = item.result
    assert result is not None
    if result.flip is None:
        why = escape_markdown(str(result.why), _CALL)
        return f"| {code_span(item.run)} | {item.group} | {why} | | | {result.behind} |"
    flip = result.flip
    return (
        f"| {code_span(item.run)} | {item.group} | {code_span(place_of(flip))} "
        f"| {_side(flip.before)} | {_side(flip.after)} | {result.behind} |"
    )


def _side(decision: Any) -> str:
    return code_span(side_of(decision))


def _name(run: str) -> str:
    return f"- {code_span(run)}"


def _bullets(texts: Sequence[str], rows: int) -> Iterator[str]:
    yield from _cut(texts, rows, lambda text: f"- {escape_markdown(text, _CALL)}")


def _cut(items: Sequence[Any], rows: int, line: Callable[[Any], str]) -> Iterator[str]:
    """Yield one line for each item, as many as there is room for."""
    yield from map(line, items[:rows])
    if len(items) > rows:
        yield from ("", f"… and {len(items) - rows} more, `--json` has all")


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that are folded under `title`, which holds no untrusted text."""
    yield from ("", "<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>")
