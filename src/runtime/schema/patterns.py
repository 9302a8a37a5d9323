"""Patterns of a JSON Schema, put for Python's `re`.

`$` is the very end, not before a last newline; `\\d`, `\\w`, `\\b` are ASCII; `.` and `\\s` are those of ECMA-262.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .pattern_cost import longest_text
from .pattern_syntax import Alt, BadPattern, Chars, Edge, Look, Node, Ranges, Repeat, Seq, others, parse


def _char(code: int) -> str:
    if code < 128 and chr(code).isalnum():
        return chr(code)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _chars(ranges: Ranges) -> str:
    if not ranges:
        return r"[^\x00-\U0010ffff]"
    rest = others(ranges)
    if not rest:
        return "(?s:.)"
    if ranges[0][0] == ranges[-1][1]:
        return _char(ranges[0][0])
    short, sign = (rest, "^") if len(rest) < len(ranges) else (ranges, "")
    parts = [_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in short]
    return f"[{sign}{''.join(parts)}]"


_EDGES: Final = {"^": r"\A", "$": r"\Z", "b": r"(?a:\b)", "B": r"(?!(?a:\b))"}


def write(node: Node) -> str:
    """A pattern's parts as Python has them."""
    match node:
        case Chars(ranges):
            return _chars(ranges)
        case Seq(items):
            return "".join(map(write, items))
        case Alt(options):
            return f"(?:{'|'.join(map(write, options))})"
        case Look(opening, item):
            return f"{opening}{write(item)})"
        case Edge(kind):
            return _EDGES[kind]
        case Repeat(item, least, most, lazy):
            count = f"{{{least},{'' if most is None else most}}}{'?' if lazy else ''}"
            return f"{write(item)}{count}" if isinstance(item, Chars) else f"(?:{write(item)}){count}"


class Pattern(str):
    """A pattern for Python's `re`: `written` stands in the schema, `limit` is the longest text to try it on."""

    __slots__ = ("limit", "written")
    limit: int | None
    written: str


@lru_cache(maxsize=1024)
def python_pattern(pattern: str) -> Pattern:
    """A schema's pattern for Python's `re`. Raises BadPattern if it is not supported or takes too long."""
    node = parse(pattern)
    out = Pattern(write(node))
    out.written, out.limit = pattern, longest_text(node)
    try:
        re.compile(out)
    except (re.error, OverflowError, RecursionError):
        # whatever else is wrong was seen before
        raise BadPattern("a look-behind needs a fixed width") from None
    return out


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches somewhere in `text`. One beyond the pattern's limit is not tried."""
    return not too_long(pattern, text) and re.search(pattern, text) is not None


def too_long(pattern: str, text: str) -> bool:
    """Whether `text` is longer than what a pattern is tried on."""
    limit = getattr(pattern, "limit", None)
    return limit is not None and len(text) > limit
