"""Short texts that a pattern matches. They are candidates: whoever uses one checks it against the schema."""

from __future__ import annotations

import re
from typing import Any, Final

MAX_TEXT: Final = 4096
_PREFERRED: Final = tuple(map(ord, "xa0XA-_/. "))  # they read well, and most classes hold one of them
_CODE: Final = re.compile(r"\\u\{([0-9A-Fa-f]{1,6})\}")  # Python has no such escape
_CLASSES: Final = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}


def pattern_samples(pattern: str, most: int = 6) -> list[str]:
    """Return at most `most` texts that the pattern may match."""
    # the standard library has no public parser of patterns; where its private one is gone, nothing is sampled
    parser: Any = getattr(re, "_parser", None)
    try:
        parsed = parser.parse(_CODE.sub(lambda code: re.escape(chr(int(code[1], 16))), pattern))
    except (AttributeError, re.error, ValueError, OverflowError, RecursionError):
        return []
    samples = (_sample(parsed, turn, extra) for turn in range(most) for extra in (0, 1))
    return list(dict.fromkeys(text for text in samples if text is not None))[:most]


def _sample(parsed: Any, turn: int, extra: int) -> str | None:
    """Return one text; `turn` rotates through the choices, `extra` repeats once more than necessary."""
    out = ""
    for operation, argument in parsed:
        part: str | None = None
        match str(operation):
            case "LITERAL":
                part = chr(argument)
            case "ANY":
                part = chr(_PREFERRED[turn % len(_PREFERRED)])
            case "NOT_LITERAL":
                part = "x" if argument != ord("x") else "a"
            case "IN":
                part = _character(argument, turn)
            case "BRANCH":
                part = _sample(argument[1][turn % len(argument[1])], turn // len(argument[1]), extra)
            case "SUBPATTERN":
                part = _sample(argument[-1], turn, extra)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, repeated = argument
                times = min(least + extra, int(most))
                one = _sample(repeated, turn, extra) if times else ""
                part = None if one is None or len(one) * times > MAX_TEXT else one * times
            case "AT":
                part = ""
        if part is None or len(out) + len(part) > MAX_TEXT:
            return None
        out += part
    return out


def _character(members: list[tuple[Any, Any]], turn: int) -> str | None:
    """Return one character of a class in brackets."""
    named = [(str(kind), value) for kind, value in members]
    ends = [value if kind == "LITERAL" else value[0] for kind, value in named if kind in ("LITERAL", "RANGE")]
    negated = named[0][0] == "NEGATE"
    codes = [*_PREFERRED, *(end for end in ends if not 0xD800 <= end < 0xE000)]
    held = [code for code in codes if any(_holds(code, *item) for item in named) != negated]
    return chr(held[turn % len(held)]) if held else None


def _holds(code: int, kind: str, value: Any) -> bool:
    if kind == "CATEGORY":
        *_, negation, name = f"CATEGORY_{value}".removeprefix("CATEGORY_CATEGORY").split("_")
        return (re.match(_CLASSES[name], chr(code), re.ASCII) is None) == (negation == "NOT")
    return value == code if kind == "LITERAL" else kind == "RANGE" and value[0] <= code <= value[1]
