"""`enum`, `const` and `uniqueItems` judged by an index where the library would compare values one after the other.

It compares each value with each of a list that holds more than texts alone, numbers as exact fractions, and short
arrays item by item; and each of its errors holds a copy of the list. Under a name of our own such a keyword is judged
here: what a value costs no longer depends on how many there are to compare it with. What is accepted stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .subschemas import mapped

# steps, as in `work`, of comparing one value with a whole list; from here on an index is cheaper
MIN_INDEXED: Final = 2_000
# values of a list that the library may copy into each of its errors
MAX_SHOWN: Final = 64
_OURS: Final = "tachograph:"
INDEXED: Final = ("enum", "const", "uniqueItems")


def original_keyword(keyword: str) -> str:
    """Return how a schema names a keyword that was renamed, or the keyword."""
    return keyword.removeprefix(_OURS)


def with_indexes(schema: Any, is_indexed: Callable[[dict[str, Any], str], bool]) -> Any:
    """Return a copy of a schema with a name of ours for each keyword in it that `is_indexed`, at any depth."""
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in mapped(schema, lambda part: with_indexes(part, is_indexed)).items():
        if key in INDEXED and is_indexed(schema, key):
            out[_OURS + key] = [value] if key == "const" else value
        elif not key.startswith(_OURS):  # else it is a word without a meaning
            out[key] = value
    return out


def value_key(value: Any) -> Any:
    """Return something hashable that is equal for equal JSON values only: 1 is 1.0, and neither is true."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, dict):
        return (dict, frozenset((name, value_key(item)) for name, item in value.items()))
    if isinstance(value, list):
        return (list, tuple(map(value_key, value)))
    return value


class _Broken(Exception):
    """A value breaks a keyword."""


def keywords_of(failures: list[Exception]) -> dict[str, type]:
    """Return the keywords for the library to call.

    Args:
        failures: Filled with what goes wrong here. The library takes any exception for a broken keyword, which below
            `not` would be a value that is accepted.
    """

    class Keyword:
        def __init__(self, _schema: object, value: Any, _path: object) -> None:
            self.known: frozenset[Any] | None = None
            if isinstance(value, list):
                self.known = frozenset(map(value_key, value))

        def validate(self, value: Any) -> None:
            try:
                fits = self._fits(value)
            except Exception as error:
                failures.append(error)
                raise
            if not fits:
                raise _Broken

        def _fits(self, value: Any) -> bool:
            if self.known is not None:
                return value_key(value) in self.known
            return not isinstance(value, list) or len(frozenset(map(value_key, value))) == len(value)

    return {_OURS + keyword: Keyword for keyword in INDEXED}
