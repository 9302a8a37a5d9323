"""The numbers behind the drawings of a run: where its time went, its spans as a tree, its budgets over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..pages.wording import percent
from .model import LANES, Row, Run, lane_totals, limits_of

WIDTH: Final = 1000
EXACT: Final = 200  # steps; with more, a lane shows which share of each moment it took
BINS: Final = 250
POINTS: Final = 300
TREE: Final = 120  # rows of the tree of spans that are drawn for a run as a whole
_HEIGHT: Final = 12
_WHO: Final = {
    "model": "the model",
    "gate": "the gate",
    "tool": "tools",
    "wait": "waits between attempts",
    "person": "people",
    "hook": "hooks",
}


class Lane(NamedTuple):
    """Who took time, how much of it in nanoseconds, and the path that draws when."""

    name: str
    who: str
    spent: int
    shape: str


class Budget(NamedTuple):
    """A budget in words, and the path that draws how it was used up over the steps."""

    name: str
    words: str
    is_full: bool
    steps: int
    curve: str


def lanes(run: Run) -> list[Lane]:
    """Return a lane each for the model, the gate, tools, waits, people and hooks, where they took any time."""
    total = max(run.duration, 1)
    spent = lane_totals(run.steps)
    draw = _exact if len(run.steps) <= EXACT else _shares
    drawn = []
    for lane in filter(spent.get, LANES.values()):
        pieces = [(start, end) for step in run.steps for name, start, end in step.pieces if name == lane]
        drawn.append(Lane(lane, _WHO[lane], spent[lane], draw(pieces, total)))
    return drawn


def _exact(pieces: Sequence[tuple[int, int]], total: int) -> str:
    return "".join(
        f"M{_x(a, total)} 0h{max((b - a) * WIDTH / total, 1.5):.1f}v{_HEIGHT}H{_x(a, total)}z"
        for a, b in pieces
    )


def _x(at: int, total: int) -> str:
    return f"{min(at * WIDTH / total, WIDTH - 1.5):.1f}"


def _shares(pieces: Sequence[tuple[int, int]], total: int) -> str:
    """Draw which share of each of `BINS` equal times the pieces took, as the height of a bar."""
    width = -(-total // BINS)
    took = [0] * BINS
    for a, b in pieces:
        while a < b:
            bin_ = min(a // width, BINS - 1)
            upto = b if bin_ == BINS - 1 else min(b, (bin_ + 1) * width)
            took[bin_] += upto - a
            a = upto
    step = WIDTH // BINS
    out = []
    for index, part in enumerate(took):
        if part:
            high = max(_HEIGHT * part / width, 0.6)
            out.append(f"M{index * step} {_HEIGHT}v-{min(high, _HEIGHT):.1f}h{step}V{_HEIGHT}z")
    return "".join(out)


def tree_of(run: Run) -> list[Row]:
    """Return the rows of the whole run, the run itself first; none where there are too many to look at."""
    if run.end is None or sum(len(step.rows) for step in run.steps) >= TREE:
        return []
    begin = run.steps[0].begin if run.steps else 0
    root = Row("agent_run", str(run.end["terminal_reason"]), 0, begin, run.duration, "step", False)
    below = [
        Row(row.name, row.detail, row.depth + 1, row.start, row.end, row.lane, row.bad)
        for step in run.steps
        for row in step.rows
    ]
    return [root, *below]


def bars(rows: Sequence[Row]) -> list[tuple[Row, str, str]]:
    """Return each row with the place and the width of its bar, against the time of the first row."""
    placed = []
    for row in rows:
        total = max(rows[0].end - rows[0].start, 1)
        wide = max((row.end - row.start) * WIDTH / total, 3)
        left = min((row.start - rows[0].start) * WIDTH / total, WIDTH - wide)
        placed.append((row, f"{left:.1f}", f"{wide:.1f}"))
    return placed


def outline_shapes(rows: Sequence[Row], begin: int, end: int) -> dict[str, str]:
    """Return a path for each lane that draws the bars of its rows, all in one drawing."""
    total = max(end - begin, 1)
    shapes: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        wide = max(round((row.end - row.start) * WIDTH / total), 4)
        left = min(round((row.start - begin) * WIDTH / total), WIDTH - wide)
        shapes.setdefault("bad" if row.bad else row.lane, []).append(
            f"M{left} {number * 9 + 2}h{wide}v5h-{wide}z"
        )
    return {lane: "".join(parts) for lane, parts in shapes.items()}


def budgets(run: Run) -> list[Budget]:
    """Return each budget: used of allowed, and how it was used up over the steps."""
    drawn = []
    for number, (name, allowed) in enumerate(limits_of(run)):
        used = [step.used[number] for step in run.steps]
        last = used[-1] if used else 0
        words = f"{last:,} of {allowed:,}" + (f" ({percent(last, allowed)})" if allowed else "")
        drawn.append(Budget(name, words, last >= allowed, len(used), _curve(_thinned(used), allowed)))
    return drawn


def _thinned(used: Sequence[int]) -> Sequence[int]:
    """Return at most POINTS of the values, the last one among them."""
    if len(used) <= POINTS:
        return used
    return [used[(number + 1) * len(used) // POINTS - 1] for number in range(POINTS)]


def _curve(used: Sequence[int], allowed: int) -> str:
    """Draw a staircase: what was used after each step, up to the line of what is allowed."""
    if not used:
        return "M0 42h200"
    wide = 200 / len(used)
    out = ["M0 42"]
    for number, value in enumerate(used):
        high = 42 - 40 * min(value / allowed, 1) if allowed else 2
        out.append(f"V{min(high, 41.5):.1f}H{(number + 1) * wide:.1f}")
    return "".join([*out, "V42z"])
