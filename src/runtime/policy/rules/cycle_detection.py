"""`cycle_detection`: the same call has not given the same result too often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...log.values import Call
from ..leaf import Instead, Leaf, Leaves, Question, Rule, Sample

if TYPE_CHECKING:
    from ...tools.contract import Tool
    from ..policy import Policy


class MostRepeats(Leaf[int]):
    """How often the same call may give the same result. A point is how often it did.

    Args:
        most: The number; the call after that many is not allowed.
    """

    def __init__(self, most: int = 0) -> None:
        self.most = most

    def allows(self, point: int) -> bool:
        return point < self.most

    def beyond(self, old: MostRepeats) -> Iterator[tuple[str, int]]:
        if self.most > old.most:
            yield Instead("", self.most, old.most), self.most - 1

    def larger(self, point: int) -> MostRepeats:
        return MostRepeats(point + 1)

    def changes(self) -> Iterator[tuple[str, MostRepeats]]:
        for most in (self.most - 1, self.most + 1):
            if most >= 0:
                yield f"{most} instead of {self.most}", MostRepeats(most)

    def data(self) -> int:
        return self.most


class CycleDetectionRule(Rule):
    """Judges how often a proposed call was made before."""

    id = "cycle_detection"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, MostRepeats]]:
        return [("/cycle_detection/max_repeats", policy.repeats)]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[int]:
        return [question.repeats] if isinstance(question.about, Call) else []

    def reason(self, point: Any, leaf: MostRepeats, *, allowed: bool) -> str:
        most = leaf.most or "0 or missing"
        return f"the same call gave the same result {point} times; max_repeats is {most}"

    def questions(self, point: int, sample: Sample) -> Iterator[Question]:
        if sample.call is not None:
            yield Question(sample.call, sample.call.name, repeats=point)
