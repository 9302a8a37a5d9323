"""What every table asks of its classes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

LEAST = 50
Row = TypeVar("Row", bound=Hashable)


def rows(cases: Iterable[Row]) -> list[Row]:
    """The different cases of a class, in order; fails where they are too few to be a class."""
    found = list(dict.fromkeys(cases))
    assert len(found) >= LEAST, f"{len(found)} cases, at least {LEAST} make a class"
    return found
