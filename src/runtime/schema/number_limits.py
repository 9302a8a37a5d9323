"""Find numbers in a schema that lie beyond those of canonical JSON, and drop limits that no number of ours reaches."""

from __future__ import annotations

from typing import Any, Final

from ..formats.canonical_json import MAX_SAFE_INTEGER
from ..formats.json_pointer import escape_pointer
from .subschemas import mapped

_UPPER: Final = "maximum exclusiveMaximum maxLength maxItems maxProperties maxContains".split()
_LOWER: Final = ("minimum", "exclusiveMinimum")


def without_unreachable(schema: Any) -> Any:
    """Return a schema without limits that lie beyond every number of ours, such as those of 64-bit integers."""
    if not isinstance(schema, dict):
        return schema
    out = mapped(schema, without_unreachable)
    for keywords, sign in ((_UPPER, 1), (_LOWER, -1)):
        for key in keywords:
            if type(out.get(key)) in (int, float) and sign * out[key] > MAX_SAFE_INTEGER:
                del out[key]
    return out


def place_beyond(value: Any, pointer: str = "") -> str | None:
    """Return the JSON Pointer of the first number in `value` that is beyond every number of ours, or None."""
    if type(value) in (int, float):
        return pointer if abs(value) > MAX_SAFE_INTEGER else None
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    places = (place_beyond(item, f"{pointer}/{escape_pointer(str(key))}") for key, item in pairs)
    return next((place for place in places if place is not None), None)
