"""Drawings of a run: where its time went, its spans as a tree, its budgets over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .markup import Html, el, svg
from .model import LANES, Row, Run, Step, lane_totals, limits_of

WIDTH: Final = 1000
EXACT: Final = 200  # steps; with more, a lane shows which part of each moment it took
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
}


def duration(ns: int) -> str:
    """A time for a person: `5.02 s`, `200 ms`, `40 µs`."""
    if ns >= 10_000_000_000:
        return f"{ns / 1e9:,.1f} s"
    if ns >= 1_000_000_000:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1_000_000 or ns == 0:
        return f"{ns / 1e6:.0f} ms"
    return f"{ns / 1e3:.0f} µs"


def count(number: int, noun: str) -> str:
    """`1 step`, `1,200 steps`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


# ---- where the time went -------------------------------------------------------------------------------------


def lanes(run: Run) -> Html:
    """A lane each for the model, the gate, tools, waits and people, over the run's time."""
    total = max(run.duration, 1)
    spent = lane_totals(run.steps)
    shown = [lane for lane in LANES.values() if spent[lane]]
    rows = []
    for lane in shown:
        pieces = [(a, b) for step in run.steps for name, a, b in step.pieces if name == lane]
        shape = _exact(pieces, total) if len(run.steps) <= EXACT else _shares(pieces, total)
        rows.append(
            el(
                "tr",
                el("th", _WHO[lane], scope="row", class_="k"),
                el("td", svg(WIDTH, _HEIGHT, el("path", d=shape, class_=f"f {lane}"), class_="bar")),
                el("td", f"{duration(spent[lane])} · {_percent(spent[lane], total)}", class_="num"),
            )
        )
    head = el(
        "tr",
        el("th", "who", scope="col"),
        el("th", f"from the start to {duration(total)}", scope="col"),
        el("th", "time", scope="col", class_="num"),
    )
    caption = el("caption", "Where the time went", class_="hide")
    return el("table", caption, el("thead", head), el("tbody", rows), class_="spans lanes")


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 1 or part == 0 else "< 1 %"


def _exact(pieces: Sequence[tuple[int, int]], total: int) -> str:
    return "".join(
        f"M{_x(a, total)} 0h{max((b - a) * WIDTH / total, 1.5):.1f}v{_HEIGHT}H{_x(a, total)}z"
        for a, b in pieces
    )


def _x(at: int, total: int) -> str:
    return f"{min(at * WIDTH / total, WIDTH - 1.5):.1f}"


def _shares(pieces: Sequence[tuple[int, int]], total: int) -> str:
    """Which part of each of `BINS` equal times the pieces took, as the height of a bar."""
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


# ---- spans ---------------------------------------------------------------------------------------------------


def tree_of(run: Run) -> list[Row]:
    """The rows of the whole run, its own first; none where there are too many to look at."""
    if run.end is None or sum(len(step.rows) for step in run.steps) >= TREE:
        return []
    begin = run.steps[0].begin if run.steps else 0
    root = Row("agent_run", str(run.end["terminal_reason"]), 0, begin, run.duration, "step", False)
    below = [
        Row(row.name, row.what, row.depth + 1, row.start, row.end, row.lane, row.bad)
        for step in run.steps
        for row in step.rows
    ]
    return [root, *below]


def waterfall(rows: Sequence[Row], begin: int, end: int, caption: str, *, linked: bool = False) -> Html:
    """Rows of the tree of spans against time. `linked` lets each step's row lead to the step."""
    total = max(end - begin, 1)
    body = []
    for row in rows:
        name: Html | str = row.name
        if linked and row.name == "agent_step":
            name = el("a", row.name, href=f"#step-{row.what}")
        wide = max((row.end - row.start) * WIDTH / total, 3)
        left = min((row.start - begin) * WIDTH / total, WIDTH - wide)
        bar = el(
            "rect",
            x=f"{left:.1f}",
            y="2",
            width=f"{wide:.1f}",
            height="8",
            class_=f"f {'bad' if row.bad else row.lane}",
        )
        body.append(
            el(
                "tr",
                el(
                    "th",
                    name,
                    el("span", f" {row.what}", class_="bad-text" if row.bad else "soft")
                    if row.what
                    else None,
                    scope="row",
                    class_=f"d{min(row.depth, 6)}",
                ),
                el("td", svg(WIDTH, _HEIGHT, bar, class_="bar")),
                el("td", duration(row.end - row.start), class_="num"),
            )
        )
    head = el(
        "tr",
        el("th", "span", scope="col"),
        el("th", f"over {duration(end - begin)}", scope="col"),
        el("th", "time", scope="col", class_="num"),
    )
    return el(
        "table", el("caption", caption, class_="hide"), el("thead", head), el("tbody", body), class_="spans"
    )


def outline(rows: Sequence[Row], begin: int, end: int) -> Html:
    """The same as `waterfall` in few bytes: a list of rows beside one drawing of all their bars."""
    total = max(end - begin, 1)
    bars: dict[str, list[str]] = {}
    lines = []
    for number, row in enumerate(rows):
        wide = max(round((row.end - row.start) * WIDTH / total), 4)
        left = min(round((row.start - begin) * WIDTH / total), WIDTH - wide)
        bars.setdefault("bad" if row.bad else row.lane, []).append(
            f"M{left} {number * 9 + 2}h{wide}v5h-{wide}z"
        )
        words = f"{row.name} {row.what}".rstrip()
        lines.append(
            el("li", words, " ", el("i", duration(row.end - row.start)), class_=f"d{min(row.depth, 6)}")
        )
    shapes = [el("path", d="".join(parts), class_=f"f {lane}") for lane, parts in bars.items()]
    return el("div", el("ul", lines), svg(WIDTH, 9 * len(rows), shapes, class_="bars"), class_="outline")


# ---- budgets -------------------------------------------------------------------------------------------------


def budgets(run: Run) -> Html:
    """Each budget: used of allowed, and how it was used up over the steps."""
    figures = []
    for number, (name, allowed) in enumerate(limits_of(run)):
        used = [step.used[number] for step in run.steps]
        figures.append(_budget(name, used, allowed))
    return el("div", figures, class_="budgets")


def _budget(name: str, used: Sequence[int], allowed: int) -> Html:
    last = used[-1] if used else 0
    is_full = last >= allowed
    said = f"{last:,} of {allowed:,}" + (f" ({_percent(last, allowed)})" if allowed else "")
    drawing = svg(
        200,
        44,
        el("line", x1=0, x2=200, y1=2, y2=2, class_="limit"),
        el("path", d=_curve(_thinned(used), allowed), class_=f"f {'bad' if is_full else 'used'}"),
        class_="curve",
        label=f"{name}: {said} after {count(len(used), 'step')}",
    )
    full = el("span", "used up", class_="b deny") if is_full else None
    words = el("figcaption", el("span", name, class_="k"), el("span", said, " ", full, class_="v"))
    return el("figure", words, drawing, class_="budget")


def _thinned(used: Sequence[int]) -> Sequence[int]:
    """At most POINTS of the values, the last one among them."""
    if len(used) <= POINTS:
        return used
    return [used[(number + 1) * len(used) // POINTS - 1] for number in range(POINTS)]


def _curve(used: Sequence[int], allowed: int) -> str:
    """A staircase: what was used after each step, up to the line of what is allowed."""
    if not used:
        return "M0 42h200"
    wide = 200 / len(used)
    out = ["M0 42"]
    for number, value in enumerate(used):
        high = 42 - 40 * min(value / allowed, 1) if allowed else 2
        out.append(f"V{min(high, 41.5):.1f}H{(number + 1) * wide:.1f}")
    return "".join([*out, "V42z"])


def moments(step: Step) -> str:
    """When a step began and how long it took."""
    return f"{duration(step.end - step.begin)} from {duration(step.begin)}" if step.pieces else ""
