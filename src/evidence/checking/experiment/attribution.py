"""Which inputs are behind a difference, given what each of them does alone, and what is left without it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final

from ....runtime.core.lines import Line
from ..differences.drift import Divergence, divergences

# a difference: number of the line, JSON Pointer, the new value
Key = tuple[int, str, str]

FAILS: Final[Key] = (0, "", "the run cannot be made")

_MOST: Final = 10_000


def key_of(item: Divergence) -> Key:
    """Return what makes two differences the same."""
    return item.line, item.pointer, json.dumps(item.after, sort_keys=True, default=str)


def keys_of(before: list[Line], after: list[Line]) -> set[Key]:
    """Return the differences of two ledgers that are more than digests."""
    found = islice(divergences(before, after), _MOST)
    return {key_of(item) for item in found if item.kind != "DIGEST-ONLY"}


def behind(
    key: Key, alone: Mapping[str, Collection[Key]], without: Mapping[str, Collection[Key]]
) -> list[tuple[str, ...]]:
    """Return what is behind a difference: inputs each of which is enough, or inputs that are so only together.

    Args:
        key: The difference.
        alone: Input -> the differences that are there when it alone moved.
        without: Input -> the differences that are there when all others moved.
    """
    enough: list[tuple[str, ...]] = [(path,) for path, keys in alone.items() if key in keys]
    if enough:
        return enough
    needed = tuple(path for path, keys in without.items() if key not in keys)
    return [needed or tuple(alone)]
