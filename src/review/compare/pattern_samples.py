"""Short texts that a pattern matches, for arguments that a schema accepts. Candidates: who uses one tries it."""

from __future__ import annotations

from typing import Final

from ...runtime.schema.pattern_syntax import (
    Alt,
    BadPattern,
    Chars,
    Edge,
    Look,
    Node,
    Ranges,
    Repeat,
    Seq,
    parse,
)

MAX_TEXT: Final = 4096
_LIKED: Final = tuple(map(ord, "xa0XA-_/. "))  # what reads well, and what most classes hold one of


def texts_of(pattern: str, most: int = 6) -> list[str]:
    """At most `most` texts that the pattern may match; looks around and word edges are left to who tries them."""
    try:
        node = parse(pattern)
    except BadPattern:
        return []
    found = (_write(node, turn, longer) for turn in range(most) for longer in (0, 1))
    return list(dict.fromkeys(text for text in found if text is not None and len(text) <= MAX_TEXT))[:most]


def _write(node: Node, turn: int, longer: int) -> str | None:
    """One text of a part. `turn` rotates what is chosen, `longer` repeats more often than need be."""
    match node:
        case Chars(ranges):
            return _char(ranges, turn)
        case Seq(items):
            parts = [_write(item, turn, longer) for item in items]
            return None if None in parts else "".join(part for part in parts if part is not None)
        case Alt(options):
            return _write(options[turn % len(options)], turn // len(options), longer)
        case Repeat(item, least, most, _):
            times = least + longer if most is None else min(least + longer, most)
            one = _write(item, turn, longer) if times else ""
            return None if one is None or len(one) * times > MAX_TEXT else one * times
        case Look() | Edge():
            return ""


def _char(ranges: Ranges, turn: int) -> str | None:
    held = [code for code in _LIKED if any(low <= code <= high for low, high in ranges)]
    held += [low for low, _ in ranges[:3] if low not in held and not 0xD800 <= low < 0xE000]
    return chr(held[turn % len(held)]) if held else None
