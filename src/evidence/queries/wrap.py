"""Wrap lines for a terminal: at most its width, broken at spaces, colours kept."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_RESET: Final = "\x1b[0m"
_SGR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_COLON: Final = "\\u{3a}"
_MARK: Final = 2  # a line is not broken after so few characters, as in `- text`
_Cell = tuple[str, str]  # a character, its colour


def fold(line: str, width: int, hang: int = 2) -> list[str]:
    """Break `line` into pieces of at most `width` columns, all but the first indented by `hang` more than the line.

    Untrusted text in it must be escaped already. No piece begins with `::`, which a build service takes for a
    command.
    """
    cells = _cells(line)
    indent = next((i for i, (character, _) in enumerate(cells) if character != " "), 0)
    out: list[str] = []
    start = lead = 0
    while True:
        end = _end(cells, start, width - lead)
        out.append(" " * lead + _painted(cells[start:end]))
        start = end
        while start < len(cells) and cells[start][0] == " ":
            start += 1
        if start >= len(cells):
            return out
        lead = min(indent + hang, width // 2)
        if [character for character, _ in cells[start : start + 2]] == [":", ":"]:
            cells[start : start + 1] = [(character, cells[start][1]) for character in _COLON]


def _cells(line: str) -> list[_Cell]:
    cells: list[_Cell] = []
    colour = ""
    for piece in _SGR.split(line):
        if _SGR.fullmatch(piece):
            colour = "" if piece == _RESET else piece
        else:
            cells += [(character, colour) for character in piece]
    return cells


def _end(cells: list[_Cell], start: int, room: int) -> int:
    """Return the end of a piece: after the last character that fits, at a space if there is one."""
    used, space, shown = 0, None, 0
    for i in range(start, len(cells)):
        character = cells[i][0]
        used += columns(character)
        if character == " " and shown > _MARK:
            space = i
        shown += character != " "
        if used > room and not (character == " " and shown):
            return space if space is not None else max(i, start + 1)
    return len(cells)


def columns(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _painted(cells: list[_Cell]) -> str:
    """Return characters with their colours, without trailing spaces."""
    end = len(cells)
    while end and cells[end - 1][0] == " ":
        end -= 1
    out, colour = [], ""
    for character, own in cells[:end]:
        if own != colour:
            out.append(_RESET if not own else own if not colour else _RESET + own)
            colour = own
        out.append(character)
    return "".join(out) + (_RESET if colour else "")
