"""`tool_limits`: a tool has calls left, in the run and in this minute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...formats.json_pointer import escape_pointer
from ...tools.contract import Tool
from ..leaf import Leaves, Policy, Question, Rule, Sample
from .loop_budget import Limits, Need

_WORDS = {"calls": "in this run", "per_minute": "in this minute"}


class ToolLimitsRule(Rule):
    """Judges how often the tool of a proposed call was called."""

    id = "tool_limits"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Limits]]:
        return [(f"/tools/{escape_pointer(tool)}/limits", policy.tool_rules(tool).limits)]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[Need]:
        return [Need(name, question.used.get(name, 0), 1) for name in _WORDS]

    def reason(self, point: Any, leaf: Limits, *, allowed: bool) -> str:
        if allowed:
            return "the tool may be called again"
        most = leaf.limits.get(point.name)
        times = "once" if point.used == 1 else f"{point.used} times"
        return f"the tool was called {times} {_WORDS[point.name]}; at most {most} are allowed"

    def questions(self, point: Need, sample: Sample) -> Iterator[Question]:
        return sample.asked(used={point.name: point.used})
