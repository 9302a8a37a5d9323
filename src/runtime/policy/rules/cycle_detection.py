"""`cycle_detection`: the same call has not given the same result too often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...tools.contract import Tool
from ..leaf import Leaves, Policy, Question, Rule, Sample
from .loop_budget import Limits, Need


class CycleDetectionRule(Rule):
    """Judges how often a proposed call was made before."""

    id = "cycle_detection"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Limits]]:
        return [("/cycle_detection", policy.repeats)]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[Need]:
        return [Need("max_repeats", question.repeats, 1)]

    def reason(self, point: Any, leaf: Limits, *, allowed: bool) -> str:
        most = leaf.limits[point.name] or "0 or missing"
        return f"the same call gave the same result {point.used} times; max_repeats is {most}"

    def questions(self, point: Need, sample: Sample) -> Iterator[Question]:
        return sample.asked(repeats=point.used)
