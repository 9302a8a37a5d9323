"""`agents`: a call may start another agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...tools.contract import Tool
from ..leaf import Leaves, Policy, Question, Rule, Sample
from .loop_budget import Limits, Need

# what a question needs: the limit, and what it counts
_NEEDS = {"max_depth": "depth", "max_children": "children", "max_parallel": "at_once"}


class AgentsRule(Rule):
    """Judges whether a call may start an agent: how deep, how many, and how many at once."""

    id = "agents"
    is_of_run = True

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Limits]]:
        return [("/agents", policy.agents)]

    def concerns(self, tool: Tool) -> bool:
        return tool.agent is not None

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[Need]:
        if tool is None or tool.agent is None:
            return []
        if question.used.get("at_work"):  # a team mate that is told more is not started again
            return []
        needs = [Need(name, question.used.get(counter, 0), 1) for name, counter in _NEEDS.items()]
        return needs[:-1] if tool.hands_over else needs  # then no more agents are at work than before

    def reason(self, point: Any, leaf: Limits, *, allowed: bool) -> str:
        if allowed:
            return "another agent may be started"
        return f"{point.name} is {leaf.limits[point.name]}, and {point.used + 1} would be needed"

    def questions(self, point: Need, sample: Sample) -> Iterator[Question]:
        return sample.asked(used={_NEEDS[point.name]: point.used})
