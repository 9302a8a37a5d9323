"""What all commands print with: colour, width, text that is safe to show. Imports little, since every command does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

_COLOURS = {"green": "32", "red": "31", "yellow": "33", "bold": "1", "dim": "2"}
Paint = Callable[[str, str], str]


def wants_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal whose owner wants colour: `NO_COLOR` is honoured, as no-color.org asks."""
    return stream.isatty() and not os.environ.get("NO_COLOR")  # noqa: TID251 - decides nothing in a run


def painter(stream: TextIO, no_color: bool) -> Paint:
    """Return a function (text, colour) -> text that adds SGR codes at a terminal, and nothing elsewhere."""
    if no_color or not wants_colour(stream):
        return lambda text, _colour: text
    return lambda text, colour: f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def width_of(stream: TextIO) -> int:
    """Columns of the terminal behind a stream, at least 40; 100 where there is none or it does not say."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(columns, 40) if columns else 100
