"""`max_attempts` limits the executions of tools in a run, retries among them."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, Tool, ToolCall
from tachograph.review.compare.policy_compare import compare_policies
from tachograph.review.queries.recorded_queries import GateQuestion
from tachograph.review.remedy.minimal_edit import find_minimal_edit
from tachograph.review.testing.mutations import Unlisted, changes
from tachograph.review.testing.probe_questions import Probes
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.explain import budgets_of
from tachograph.runtime.policy.gate import Counters, Gate

EMPTY = {"type": "object", "additionalProperties": False}
TEXT = {**EMPTY, "properties": {"n": {"type": "integer"}}}


def policy(most: int | None, calls: int = 9, retries: int = 20, **sections: Any) -> Policy:
    limits = {"max_iterations": 9, "max_tokens": 10**6, "max_tool_calls": calls, "max_result_bytes": 10**6}
    own = {} if most is None else {"max_attempts": most}
    data = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["read"]},
        "loop_budget": {**limits, **own},
        "cycle_detection": {"max_repeats": 3},
        "retry": {"max_retries": retries, "backoff_base_ms": 1, "backoff_cap_ms": 1},
        "on_deny": "inform",
        "on_failure": "inform",
        **sections,
    }
    return Policy.from_dict(data)


def executed(given: Policy, replies: list[list[int]]) -> tuple[list[int], list[str], list[str]]:
    """Return which calls were executed how often, what was decided, and what else went wrong in the steps."""
    seen: list[int] = []

    def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        seen.append(arguments["n"])
        if arguments["n"] < 0:
            raise ConnectionError
        return {"n": arguments["n"]}

    left = list(replies)

    def model(asked: Any) -> LLMOutput:
        if not left:
            return LLMOutput(final_answer="done")
        return LLMOutput(tool_calls=[ToolCall("read", {"n": n}) for n in left.pop(0)])

    tool = Tool("read", "", TEXT, TEXT, "read", True, run, transient=(ConnectionError,))
    steps = Agent(model, [tool], given).run("?").steps
    decided = [d["decision"] + ":" + d["rule_id"] for s in steps for d in s["policy_decisions"]]
    problems = [error["problem"] for step in steps for error in step["errors"] if "problem" in error]
    return seen, decided, problems


def test_one_call_is_tried_no_more_often_than_attempts_are_left() -> None:
    assert len(executed(policy(None), [[-1]])[0]) == 21
    seen, decided, problems = executed(policy(4), [[1], [-1], [-1]])
    assert seen == [1, -1, -1, -1]
    assert decided == ["allow:tool_registry", "allow:tool_registry", "deny:loop_budget"]
    assert problems == ["max_attempts is used up: 4 of 4"]


def test_no_attempt_at_all_may_be_left() -> None:
    seen, decided, _ = executed(policy(0), [[1]])
    assert (seen, decided) == ([], ["deny:loop_budget"])


def test_calls_of_one_reply_share_what_is_left_in_their_order() -> None:
    seen, decided, _ = executed(policy(3), [[1, -1, 2]])
    assert seen == [1, -1, -1] and decided[-1] == "deny:loop_budget"
    # without the limit they run together, and every one of them runs
    assert sorted(executed(policy(None, retries=1), [[1, -1, 2]])[0]) == [-1, -1, 1, 2]


def test_the_budget_is_explained_and_decided_from_what_is_used() -> None:
    tool = Tool("read", "", TEXT, TEXT, "read", True, lambda arguments, io: {})
    gate = Gate(policy(4), {"read": tool})
    call = Call("tc_1_0", "read", freeze({"n": 1}))
    assert gate.decide(call, Counters(attempts=3)).decision == "allow"
    found = gate.decide(call, Counters(attempts=4))
    assert found.facts == {"budget": "max_attempts", "used": 4, "limit": 4}
    assert found.at == "<policy>#/loop_budget/max_attempts"
    [budget] = [each for each in budgets_of(gate, Counters(attempts=3)) if each.name == "max_attempts"]
    assert (budget.used, budget.limit) == (3, 4)
    assert "max_attempts" not in policy(None).limits
    question = GateQuestion(call, Counters(attempts=4))
    assert [edit.value for edit in find_minimal_edit(policy(4), {"read": tool}, question).edits] == [5]


@pytest.mark.parametrize("old", [None, 0, 2, 3])
@pytest.mark.parametrize("new", [None, 0, 1, 2, 4])
@pytest.mark.parametrize(("calls", "retries"), [(1, 0), (1, 2), (2, 0), (2, 1), (4, 2)])
def test_the_difference_of_two_policies_is_what_trying_shows(
    old: int | None, new: int | None, calls: int, retries: int
) -> None:
    tool = Tool("read", "", TEXT, TEXT, "read", True, lambda arguments, io: {})
    policies = [policy(most, calls, retries) for most in (old, new)]
    gates = [Gate(each, {"read": tool}) for each in policies]
    call = Call("tc_1_0", "read", freeze({}))
    found = {change.kind for change in compare_policies(*policies, {"read": tool}).changes}
    tried = set()
    # each call is tried once at least, and no more often than the policy that allows the next one lets it
    for made in range(calls + 1):
        for attempts in range(made, made * (1 + retries) + 1):
            before, after = (
                gate.decide(call, Counters(tool_calls=made, attempts=attempts)).decision for gate in gates
            )
            if before != after:
                tried.add("widening" if after == "allow" else "tightening")
    assert found == tried


def test_a_changed_limit_is_a_change_that_tests_can_notice() -> None:
    tool = Tool("read", "", TEXT, TEXT, "read", True, lambda arguments, io: {})
    data = policy(4).data
    probes = Probes(policy(4), {"read": tool})
    found = [
        each for each in changes(data, True, probes, Unlisted()) if each.pointer.endswith("max_attempts")
    ]
    assert [each.data["loop_budget"].get("max_attempts") for each in found] == [0, 3, 5, None]
    assert all(each.probes for each in found)
