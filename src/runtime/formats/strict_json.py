"""JSON, read strictly: what two readers could understand differently is refused, never repaired."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final

import msgspec

MAX_SAFE_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 128
MAX_TEXT: Final = 8_000_000
TOO_BIG: Final = "integer beyond 2^53"


class NotJson(ValueError):
    """A text or value that is not JSON as we accept it; `reason` is a few words of ours."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


canonical: Final = msgspec.json.Encoder(order="deterministic").encode
"""Return plain data as JSON with sorted keys and without blanks: what is digested and compared.

Fields of a struct stand in the order of their class.
"""


def digest(data: bytes | str) -> str:
    """Return the SHA-256 in hex; text is encoded as UTF-8."""
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def as_json(value: Any, *, most: int | None = None) -> Any:
    """Return a copy of a value as plain JSON data: dict, list, str, int, float, bool and None, and no subclasses.

    Tuples become lists and integral floats integers, so that 1 and 1.0 are one.

    Args:
        value: Anything.
        most: How many values it may hold.

    Raises:
        NotJson: It is not JSON, or it is nested deeper than 128 levels or holds more than `most` values.
    """
    return _copy(value, 0, [math.inf if most is None else most - 1, most])


def _copy(value: Any, depth: int, left: list[Any]) -> Any:
    """Return a copy; `left` is how many values may still stand in it, and how many it may be with itself."""
    # no function within `as_json`: one that calls itself is garbage that only a search for cycles finds
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _safe(value)
    if kind is float:
        if not math.isfinite(value):
            raise NotJson("NaN or infinity")
        return _safe(int(value)) if value.is_integer() else value
    if depth >= MAX_DEPTH:
        raise NotJson("nested too deeply")
    if kind not in (dict, list, tuple):
        raise NotJson("not JSON data")
    left[0] -= len(value)
    if left[0] < 0:
        raise NotJson(f"more than {left[1]:,} values")
    if kind is not dict:
        return [_copy(item, depth + 1, left) for item in value]
    out = {}
    for key, item in value.items():
        is_plain = type(item) is str and item.isascii()  # as most are
        out[_text(key)] = item if is_plain else _copy(item, depth + 1, left)
    return out


def _text(text: Any) -> str:
    if type(text) is not str:
        raise NotJson("a key that is not a string")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotJson("half of a character") from None
    return text


def _safe(number: int) -> int:
    if abs(number) > MAX_SAFE_INTEGER:
        raise NotJson(TOO_BIG)
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise NotJson("duplicate key")
    return out


def _int(text: str) -> int:
    if len(text) > 17:
        raise NotJson(TOO_BIG)
    return int(text)


@cache
def _decoder() -> Any:
    import json  # a run of a script reads no JSON that others wrote

    return json.JSONDecoder(object_pairs_hook=_object, parse_int=_int)


def parse(text: str, *, most: int | None = None) -> Any:
    """Read JSON that others wrote, as plain data.

    Raises:
        NotJson: The text holds duplicate keys, NaN, infinities, lone surrogates, integers beyond 2^53, more than 128
            levels, more than 8,000,000 characters or more than `most` values, or is not JSON at all.
    """
    if len(text) > MAX_TEXT:
        raise NotJson("text too long")
    text = text.strip(" \t\n\r")
    try:
        value, end = _decoder().raw_decode(text)
        if end != len(text):
            raise NotJson("not JSON")
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if _is_deep(text) else getattr(error, "reason", "not JSON")
        raise NotJson(reason) from None
    return as_json(value, most=most)


def _is_deep(text: str) -> bool:
    """Return whether brackets are nested too deeply; at which depth a decoder gives up differs between Pythons."""
    brackets = re.sub(r'(?s)"(?:[^"\\]|\\.)*+"?|[^][{}"]', "", text)
    return max(accumulate(1 if it in "[{" else -1 for it in brackets), default=0) > MAX_DEPTH


_NAMES: Final = ("name", "key", "Name", "Key", "ParameterKey", "OptionName")


def map_texts(data: Any, change: Callable[[str, str], str], name: str = "") -> Any:
    """Return JSON data with each string changed, given what it stands beside; no two keys become one.

    A string stands beside its key, or beside what `name` or `key` says where its own key is `value`; an option in a
    list of strings, and what stands behind it, beside the strings before.
    """
    if isinstance(data, str):
        return change(data, name)
    if isinstance(data, list):
        return [map_texts(item, change, _command(data, at) or name) for at, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    out: dict[str, Any] = {}
    for key, value in data.items():
        changed = change(key, "")
        while changed in out:
            changed += "'"
        named = (data[it] for it in _NAMES if key.endswith(("value", "Value")) and data.get(it))
        out[changed] = map_texts(value, change, str(next(named, changed)))
    return out


def _command(items: list[Any], at: int) -> str:
    """Return the strings before an item that is an option of a command or stands behind one, "" for another."""
    texts = [item for item in items[max(0, at - 8) : at + 1] if isinstance(item, str)]
    return " ".join(texts[:-1]) if any(text.startswith("-") for text in texts[-2:]) else ""
