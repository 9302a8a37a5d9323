"""One encoder for every byte that is digested, compared or recorded.

Canonical JSON here is RFC 8785 on the data a record may hold: object keys without characters above U+FFFF,
integers up to 2^53 - 1, finite floats, no lone surrogates. On that data the bytes equal RFC 8785's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring as _quote
from typing import Any, Final

MAX_SAFE_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 128
# a record holds foreign data some levels down, and is read back as strictly as it was written
_MARGIN: Final = 32
MAX_TEXT: Final = 8_000_000
TOO_BIG: Final = "integer beyond 2^53"


# for canonical text, which has no space around it: `json.loads` would look for some
_read: Final = json.JSONDecoder().raw_decode


class NotJson(ValueError):
    """A text or value that has no canonical form; `reason` is a few words of ours."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Fragment:
    """Text that is canonical JSON already; the encoder puts it in as it stands.

    A call's arguments and a tool's result are encoded once, then carried, digested and recorded as this.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fragment) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Fragment({self.text!r})"

    def value(self) -> Any:
        """Return a fresh decoded copy, so that no reader can change another's."""
        value, end = _read(self.text)
        if end != len(self.text):
            raise NotJson("not JSON")
        return value


def encode(value: Any) -> str:
    """Return the canonical JSON of dicts with str keys, lists, tuples, str, int, float, bool, None and Fragments.

    Integral floats become integers, so that 1 and 1.0 are one. Raises NotJson for anything else.
    """
    return _checked(_emit(value, 0))


# texts of one process before the fast encoder is imported: its import takes as long as `encode` does for some 300
_BEFORE_IMPORT: Final = 100
_encoded = 0


def encode_trusted(value: Any) -> str:
    """Return the canonical text of data that this package made: the same as `encode`, several times faster.

    Such data has ASCII keys, no floats and foreign values in Fragments only; a test holds the lines of all runs to
    that. What the fast encoder refuses is put to `encode`, which says why. A short run does without the fast encoder.
    """
    global _encoded
    if _encoded < _BEFORE_IMPORT:
        _encoded += 1
        return encode(value)
    return fast_encoder()(value)


@lru_cache(maxsize=1)
def fast_encoder() -> Callable[[Any], str]:
    """Return the fast encoder for `encode_trusted`."""
    import orjson

    dumps, ready_made, refused = orjson.dumps, orjson.Fragment, orjson.JSONEncodeError
    options = (
        orjson.OPT_SORT_KEYS
        | orjson.OPT_STRICT_INTEGER
        | orjson.OPT_PASSTHROUGH_DATACLASS
        | orjson.OPT_PASSTHROUGH_DATETIME
    )

    def fragment(value: Any) -> Any:
        if type(value) is Fragment:
            return ready_made(value.text.encode())
        raise TypeError

    def fast(value: Any) -> str:
        try:
            return dumps(value, fragment, options).decode()
        except refused:
            return encode(value)

    return fast


def freeze(value: Any, *, most: int | None = None) -> Fragment:
    """Return a value as canonical text. Raises NotJson above 128 levels or `most` values, or if it is not JSON."""
    if most is not None and _holds_more(value, most):
        raise NotJson(f"more than {most:,} values")
    return Fragment(_checked(_emit(value, _MARGIN)))


def _holds_more(value: Any, most: int) -> bool:
    count, left = 0, [value]
    while left and count <= most:
        value = left.pop()
        count += 1
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return count + len(left) > most


def _checked(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotJson("lone surrogate") from None
    return text


def _emit(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is Fragment:
        return value.text  # type: ignore[no-any-return]
    if kind is int:
        if abs(value) <= MAX_SAFE_INTEGER:
            return repr(value)
        raise NotJson(TOO_BIG)
    if kind is dict:
        return _emit_dict(value, depth + 1)
    if kind is list or kind is tuple:
        if depth >= MAX_DEPTH + _MARGIN:
            raise NotJson("nested too deeply")
        return "[" + ",".join([_emit(item, depth + 1) for item in value]) + "]"
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if kind is float:
        return _emit_float(value)
    raise NotJson("not JSON data")


def _emit_dict(value: dict[Any, Any], depth: int) -> str:
    if depth > MAX_DEPTH + _MARGIN:
        raise NotJson("nested too deeply")
    try:
        keys = sorted(value)
    except TypeError:  # so some key is no string
        raise NotJson("a key that is no string") from None
    parts = []
    for key in keys:
        if type(key) is not str:
            raise NotJson("a key that is no string")
        # RFC 8785 orders keys by UTF-16 unit, Python by code point: they part above U+FFFF.
        if not key.isascii() and max(key) > "\uffff":
            raise NotJson("a key beyond U+FFFF")
        item = value[key]
        text = _quote(item) if type(item) is str else _emit(item, depth)
        parts.append(f"{_quote(key)}:{text}")
    return "{" + ",".join(parts) + "}"


def _emit_float(value: float) -> str:
    """Return a float as ECMAScript's Number::toString, which RFC 8785 asks for; repr has the same digits."""
    if not math.isfinite(value):
        raise NotJson("NaN or infinity")
    if value.is_integer():
        if abs(value) > MAX_SAFE_INTEGER:
            raise NotJson(TOO_BIG)
        return repr(int(value))
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    integer, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (integer + fraction).lstrip("0")
    # the decimal point stands `point` digits after the first one
    point = len(integer) + int(exponent or 0)
    if integer == "0":
        point -= 1 + len(fraction) - len(fraction.lstrip("0"))
    if point > 0:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if point > -6:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise NotJson("duplicate key")
    return out


def _refuse_constant(_name: str) -> Any:
    raise NotJson("NaN or infinity")


def _int(text: str) -> int:
    if len(text) > 17:
        raise NotJson(TOO_BIG)
    return int(text)


_read_strictly: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_int
).raw_decode


def parse(text: str, *, most: int | None = None) -> Fragment:
    """Read untrusted JSON strictly and return it as canonical text.

    Duplicate keys, NaN, infinities, lone surrogates, integers beyond 2^53, more than 128 levels, more than
    8,000,000 characters and more than `most` values are refused with NotJson.
    """
    if len(text) > MAX_TEXT:
        raise NotJson("text too long")
    text = text.strip(" \t\n\r")
    try:
        value, end = _read_strictly(text)
        if end != len(text):
            raise NotJson("not JSON")
        # a value takes a character at least
        return freeze(value, most=most if most is not None and len(text) > most else None)
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except ValueError:
        raise NotJson("not JSON") from None


def digest(text: str | bytes) -> str:
    """Return the SHA-256 in hex; text is encoded as UTF-8."""
    return hashlib.sha256(text.encode("utf-8") if isinstance(text, str) else text).hexdigest()


def map_strings(
    value: Any, change: Callable[[str], str], change_under: Callable[[str, str], str] | None = None
) -> Any:
    """Return a copy of plain data with `change` applied to every string, keys included.

    With `change_under`, that is applied to a string which stands under a key, with the key as it was.

    Raises:
        NotJson: two keys of an object become one.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {
            change(key): map_strings(item, change, change_under)
            if change_under is None or not isinstance(item, str)
            else change_under(key, item)
            for key, item in value.items()
        }
        if len(changed) != len(value):
            raise NotJson("two keys become one when secrets are taken out")
        return changed
    if isinstance(value, list):
        return [map_strings(item, change, change_under) for item in value]
    return value
