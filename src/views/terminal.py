"""A run, or two beside each other, as a terminal shows them: a tree with a time bar, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..evidence.checking.differences.drift import Drift
from ..runtime.core.clock import MS
from ..runtime.formats.escape import escape_terminal
from .model import BUDGETS, Run, limits_of
from .tree import Leaf, first_difference, flat, leaves

_LOOKS: Final = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
}
_FULL, _REST = "█", "·"


def print_run(run: Run, stream: TextIO, *, no_color: bool) -> None:
    """Print a run as a tree."""
    console = _console(stream, no_color)
    wide = min(20, console.width // 5)  # columns of a bar
    console.print(Group(*_head(run), _tree(run, wide), *_foot(run, wide)))


def print_two(left: Run, right: Run, drift: Drift, stream: TextIO, *, no_color: bool) -> None:
    """Print two runs side by side, step by step, with the first difference between what they did marked."""
    console = _console(stream, no_color)
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row("", Group(*_head(left)), Group(*_head(right)))
    first = drift.first.step if drift.first is not None else None
    pair = [leaves(left), leaves(right)]
    for number in range(max(map(len, pair))):
        mark, after = "", False
        if first is not None:
            mark, after = (">" if number + 1 == first else ""), number + 1 > first
        sides = [_side(column[number : number + 1], after) for column in pair]
        grid.add_row(Text(mark, style="bold red"), *sides)
    grid.add_row("", Group(*_ending(left)), Group(*_ending(right)))
    console.print(grid)
    words, look = first_difference(left, right, drift)
    console.print(Text(words, style=_LOOKS[look]))


def _console(stream: TextIO, no_color: bool) -> Console:
    colours: Any = None if no_color else "auto"
    return Console(file=stream, color_system=colours, highlight=False, markup=False, emoji=False)


def _head(run: Run) -> Iterator[RenderableType]:
    line = run.run
    model = line["model"]
    yield Text(escape_terminal(run.title), style="bold", no_wrap=True, overflow="ellipsis")
    about = (
        f"policy {line['policy']['version']}  model {model['provider']}/{model['name']}  seed {line['seed']}"
    )
    yield Text(escape_terminal(about), style="dim", no_wrap=True, overflow="ellipsis")
    if "principal" in line:
        yield Text(escape_terminal(f"on behalf of {line['principal']}", 120))
    if run.remark is not None:
        yield Text(escape_terminal(run.remark), style="yellow", overflow="fold")
    yield Text(escape_terminal(line["question"]), overflow="fold")


def _tree(run: Run, wide: int) -> Table:
    duration = max(run.duration, 1)
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(width=wide, no_wrap=True)
    grid.add_column(width=9, justify="right", no_wrap=True)
    for guides, leaf in flat(leaves(run)):
        grid.add_row(_label(guides, leaf), _bar(leaf, duration, wide), _took(leaf))
    return grid


def _side(steps: list[Leaf], after: bool) -> RenderableType:
    out = []
    for guides, leaf in flat(steps):
        text = _label(guides[3:], leaf)
        if after:
            text.stylize("dim")
        out.append(text)
    return Group(*out) if out else Text("-", style="dim")


def _label(guides: str, leaf: Leaf) -> Text:
    pieces = ((text, _LOOKS[look]) for text, look in leaf.pieces)
    return Text.assemble((guides, "dim"), *pieces, no_wrap=True, overflow="ellipsis")


def _bar(leaf: Leaf, duration: int, wide: int) -> Text:
    if leaf.times is None:
        return Text("")
    begin = min(leaf.times[0] * wide // duration, wide - 1)
    end = max(-(-leaf.times[1] * wide // duration), begin + 1)
    return Text.assemble(
        (_REST * begin, "dim"), (_FULL * (end - begin), "cyan"), (_REST * (wide - end), "dim")
    )


def _took(leaf: Leaf) -> Text:
    return Text("" if leaf.times is None else _time(leaf.times[1] - leaf.times[0]), style="dim")


def _time(ns: int) -> str:
    return f"{ns / 1e9:.1f} s" if ns >= 10_000 * MS else f"{ns / MS:.0f} ms"


def _foot(run: Run, wide: int) -> Iterator[RenderableType]:
    used: Any = run.steps[-1].used if run.steps else (0,) * len(BUDGETS)
    grid = Table.grid(padding=(0, 2))
    for (name, allowed), spent in zip(limits_of(run), used, strict=False):
        part = min(spent / allowed, 1) if allowed else 1
        full = min(max(round(part * wide), 1 if spent else 0), wide)
        bar = Text.assemble(
            (_FULL * full, "yellow" if part >= 0.8 else "green"), (_REST * (wide - full), "dim")
        )
        grid.add_row(Text(name, style="dim"), bar, f"{spent} of {allowed}")
    yield grid
    yield from _ending(run)


def _ending(run: Run) -> Iterator[RenderableType]:
    if run.end is None:
        yield Text("unfinished", style="yellow")
        for words in run.open:
            yield Text(escape_terminal(words), style="yellow")
        return
    if run.end["final_answer"] is not None:
        yield Text.assemble(("answer  ", "bold"), escape_terminal(run.end["final_answer"]), overflow="fold")
    good = run.end["terminal_reason"] == "final_answer"
    yield Text.assemble(
        ("ending  ", "bold"), (escape_terminal(run.end["terminal_reason"]), "green" if good else "bold red")
    )
