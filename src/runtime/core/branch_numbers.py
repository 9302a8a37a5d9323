"""Numbers for the time being of the secrets that one call of a group is the first to meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# above every number that a record holds; each call of a group has as many for itself
PROVISIONAL: Final = 10_000_000


class BranchNumbers:
    """What one call of a group has met that no call before the group had.

    `numbers` are the provisional ones, from `base` on, `secrets` the same turned round, `final` are the numbers that
    they have in the record, `untold` those that the journal was not told of, `counts` numbers that recorded outcomes
    hold.
    """

    def __init__(self, free: int, base: int) -> None:
        self.base = base
        self.numbers: dict[tuple[str, str], int] = {}
        self.secrets: dict[tuple[str, int], str] = {}
        self.final: dict[tuple[str, int], int] = {}
        self.untold: list[tuple[str, int, str | None, str]] = []
        self.counts: list[Mapping[str, int]] = []
        self._free = free

    def add(self, key: tuple[str, str], earlier: int | None) -> None:
        """Give a secret the number that an earlier process of the run gave it, or the next free one."""
        kind, secret = key
        number = self._free if earlier is None else earlier
        if number >= self.base + PROVISIONAL:
            raise OverflowError("too many secrets in one call")
        self._free += earlier is None
        self.numbers[key] = number
        self.secrets[kind, number] = secret
        self.untold.append((kind, number, secret, ""))
