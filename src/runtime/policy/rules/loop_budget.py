"""`loop_budget`: steps, tokens, calls, attempts, bytes of results, money and time are left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from ...log.values import Call
from ...tools.contract import Tool
from ..leaf import Instead, Leaf, Leaves, Policy, Question, Result, Rule, Sample, Step
from ..prices import in_words

# the budgets that a step and a call need more of, as what counts them is called
_OF_STEP = "iterations tokens cost turn_iterations turn_tokens wall_clock_s".split()
_OF_CALL = "tool_calls result_bytes attempts cost turn_tool_calls wall_clock_s".split()
# what a question needs: the budget, what it counts, and how much more
_NEEDS = {
    Step: [(f"max_{it}", it, 1) for it in _OF_STEP],
    # a call costs nothing itself: money may only not be overdrawn, nor tokens where that is denied
    Call: [("overdraft", "tokens", 0), *((f"max_{it}", it, int(it != "cost")) for it in _OF_CALL)],
}


def said(name: str, amount: int) -> int | str:
    """Return an amount of a budget as a policy writes it."""
    return in_words(amount) if name == "max_cost" else amount


class Need(Struct, frozen=True):
    """What is needed of a budget.

    Attributes:
        name: The budget, such as `max_tokens`.
        used: How much of it is used up.
        more: How much more is needed; 0 where it only may not be overdrawn.
    """

    name: str
    used: int
    more: int


class Limits(Leaf[Need]):
    """Budgets of a run.

    Args:
        limits: A number for each budget; one that is absent is unlimited.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = dict(limits)
        self.allows_all = not self.limits
        # an allow rests on the last need of a kind, whatever the policy limits
        self.needs = {
            kind: [need for need in needs if need[0] in limits or need is needs[-1]]
            for kind, needs in _NEEDS.items()
        }

    def allows(self, point: Need) -> bool:
        limit = self.limits.get(point.name)
        return limit is None or point.used + point.more <= limit

    def entry(self, point: Need) -> str:
        return f"/{point.name}"

    def beyond(self, old: Limits) -> Iterator[tuple[str, Need]]:
        for name in {**self.limits, **old.limits}:
            mine, theirs = self.limits.get(name), old.limits.get(name)
            if theirs is not None and (mine is None or mine > theirs):
                words = "max_tokens with overdraft: deny" if name == "overdraft" else name
                more = "unlimited" if mine is None else said(name, mine)
                yield Instead(f"{words}: ", more, said(name, theirs)), Need(name, theirs, 1)

    def larger(self, point: Need) -> Limits:
        return Limits({**self.limits, point.name: point.used + point.more})

    def changes(self) -> Iterator[tuple[str, Limits]]:
        for name, limit in self.limits.items():
            for other in (limit - 1, limit + 1):
                if other >= 0:
                    words = f"{name}: {said(name, other)} instead of {said(name, limit)}"
                    yield words, Limits({**self.limits, name: other})
        if "max_attempts" not in self.limits:
            yield "max_attempts: 1", Limits({**self.limits, "max_attempts": 1})

    def data(self) -> dict[str, Any]:
        budgets: dict[str, Any] = {name: said(name, most) for name, most in self.limits.items()}
        if (overdraft := budgets.get("overdraft")) is not None:
            budgets |= {"max_tokens": max(budgets["max_tokens"], overdraft), "overdraft": "deny"}
        return budgets


class LoopBudgetRule(Rule):
    """Judges whether the budgets leave room for a step, a call or a result."""

    id = "loop_budget"
    is_of_run = True
    judges = (Step, Call, Result)

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Limits]]:
        return [("/loop_budget", policy.limits)]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[Need]:
        about, used = question.about, question.used
        if type(about) is Result:
            return [Need("max_result_bytes", used.get("result_bytes", 0), about.size)]
        needs = leaves[0][1].needs.get(type(about), ())
        return [Need(name, used.get(key, 0), more) for name, key, more in needs]

    def reason(self, point: Any, leaf: Limits, *, allowed: bool) -> str:
        if allowed:
            return "the budgets leave room"
        limit = leaf.limits[point.name]
        name = "max_tokens" if point.name == "overdraft" else point.name
        if not limit:
            return f"{name} is 0 or missing"
        more = f", {point.more} more are needed" if point.more > 1 else ""
        return f"{name} is used up: {said(name, point.used)} of {said(name, limit)}{more}"

    def questions(self, point: Need, sample: Sample) -> Iterator[Question]:
        for asked in (Question(Step()), *sample.asked()):
            for name, counter, more in _NEEDS[type(asked.about)]:
                if name == point.name:
                    yield structs.replace(asked, used={counter: point.used + point.more - more})
