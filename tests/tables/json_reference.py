"""A second reader of argument texts, and a second writer of RFC 8785, for the table of texts to be judged by.

It reads with Python's `json` and the rules of the contract: no key twice, no NaN, no half of a character,
integers up to 2^53 - 1, keys up to U+FFFF, at most 128 levels.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

LEVELS = 128
SAFE = 2**53 - 1


class Refused(Exception):
    """The reference takes this text for no arguments."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused
    return dict(pairs)


def _constant(_name: str) -> Any:
    raise Refused


def _number(value: float) -> str:
    """ECMAScript's Number::toString."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value)):
        if abs(value) > SAFE:
            raise Refused
        return str(int(value))
    if not math.isfinite(value):
        raise Refused
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        text = (
            f"{text[0]}{'.' if len(text) > 1 else ''}{text[1:]}e{'+' if point > 0 else '-'}{abs(point - 1)}"
        )
    return "-" * sign + text


def _canonical(value: Any, level: int) -> str:
    if isinstance(value, dict | list) and level > LEVELS:
        raise Refused
    if isinstance(value, dict):
        if any(ord(c) > 0xFFFF for key in value for c in key):
            raise Refused
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_canonical(k, 0)}:{_canonical(value[k], level + 1)}" for k in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_canonical(item, level + 1) for item in value) + "]"
    if isinstance(value, str):
        if any(0xD800 <= ord(c) < 0xE000 for c in value):
            raise Refused
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if value is None or isinstance(value, bool) else _number(value)


def reference(text: str) -> str | None:
    """The canonical text of arguments, or None where they are none."""
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
        return _canonical(value, 1) if isinstance(value, dict) else None
    except (Refused, ValueError, RecursionError):
        return None
