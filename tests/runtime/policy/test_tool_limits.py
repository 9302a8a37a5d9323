"""How often a run may call one tool: what counts, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tachograph import Agent, Policy, PolicyError, Stub
from tachograph.review.queries.recorded_queries import questions_in
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.explain import explain
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tests.runtime.policy.test_argument_rules import DATA, SEND

ANSWER = {"answer": "done", "usage": {"input_tokens": 1, "output_tokens": 1}}


def policy(calls: int, **sections: Any) -> Policy:
    budget = {"max_iterations": 9, "max_tokens": 999, "max_tool_calls": 8, "max_result_bytes": 500}
    rules = {"send": {"limits": {"calls": calls}}}
    return Policy.from_dict({**DATA, "loop_budget": budget, "tools": rules, "on_deny": "inform", **sections})


def decide(calls: int, used: Counters) -> Decision:
    gate = Gate(policy(calls), {"send": SEND})
    return gate.decide(Call("tc_1_0", "send", freeze({"amount": 1})), used)


def turn(*amounts: int) -> dict[str, Any]:
    calls = [{"tool": "send", "arguments": {"amount": amount}} for amount in amounts]
    return {"calls": calls, "usage": {"input_tokens": 1, "output_tokens": 1}}


def test_a_tool_is_denied_once_it_was_called_as_often_as_it_may() -> None:
    assert decide(2, Counters(tool_calls=5, calls_of={"send": 1, "other": 4})).decision == "allow"
    found = decide(2, Counters(tool_calls=2, calls_of={"send": 2}))
    assert (found.decision, found.rule_id) == ("deny", "tool_limits")
    assert found.reason == 'tool "send" was called 2 times; its limit is 2'
    assert (found.at, found.facts) == ("<policy>#/tools/send/limits/calls", {"used": 2, "limit": 2})


def test_it_speaks_before_the_budget_of_all_calls() -> None:
    assert decide(2, Counters(tool_calls=8, calls_of={"send": 2})).rule_id == "tool_limits"
    assert decide(3, Counters(tool_calls=8, calls_of={"send": 2})).rule_id == "loop_budget"


def rules_of(steps: list[Any]) -> list[tuple[str, str]]:
    return [
        (entry["decision"], entry["rule_id"])
        for step in steps
        for entry in step["policy_decisions"]
        if entry["phase"] == "proposal"
    ]


@pytest.mark.parametrize("parallel", [False, True])
def test_calls_count_when_they_are_allowed_and_refused_ones_do_not(parallel: bool) -> None:
    """Calls of a group count like calls one after another; a refused call leaves the limit to those after it."""
    tool = replace(SEND, parallel=parallel)
    rules = {"send": {"limits": {"calls": 3}, "arguments": {"/amount": {"maximum": 50}}}}
    agent = Agent(Stub([turn(1), turn(2, 99, 3, 4), ANSWER]), [tool], policy(3, tools=rules))
    done = agent.run("Send.", seed=0)
    allowed, refused = ("allow", "tool_registry"), ("deny", "arguments")
    assert rules_of(done.steps) == [allowed, allowed, refused, allowed, ("deny", "tool_limits")]
    told = done.steps[1]["tool_results"][-1]["told"]
    assert told["rule"] == "tool_limits" and told["retryable"] is False


def test_the_same_call_again_after_the_limit_ends_the_run() -> None:
    done = Agent(Stub([turn(1), turn(2), turn(2), ANSWER]), [SEND], policy(1)).run("Send.", seed=0)
    assert str(done.ending) == "policy_denial_terminal"


def test_a_reader_of_the_ledger_counts_like_the_loop() -> None:
    agent = Agent(Stub([turn(1), turn(2, 3), ANSWER]), [SEND], policy(2))
    done = agent.run("Send.", seed=0)
    found = [
        item.question.put(agent.gate)
        for item in questions_in(done.steps, agent.gate.tools)
        if item.question.call is not None
    ]
    assert [(str(one.decision), str(one.rule_id)) for one in found if one is not None] == rules_of(done.steps)


def test_explain_says_how_much_of_the_limit_is_used() -> None:
    gate = Gate(policy(3), {"send": SEND})
    told = explain(gate, Call("c", "send", freeze({})), Counters(calls_of={"send": 1}))
    said = {str(rule.rule_id): rule.reason for rule in told.rules}
    assert said["tool_limits"] == "1 of 3 calls of the tool are used"
    assert list(said)[-3:] == ["tool_limits", "loop_budget", "approval"]


RATE = {"send": {"limits": {"per_minute": 2}}}


def test_the_minute_slides() -> None:
    """A call exactly 60 seconds old counts no more."""
    gate = Gate(policy(1, tools=RATE), {"send": SEND})
    call = Call("c", "send", freeze({}))
    times = {"send": (0, 10_000_000)}
    found = gate.decide(call, Counters(now=59_999_500_000, times_of=times))
    assert (found.decision, found.rule_id) == ("deny", "tool_limits")
    assert found.at == "<policy>#/tools/send/limits/per_minute"
    assert found.facts == {"used": 2, "limit": 2, "retry_after_ms": 1}
    assert gate.decide(call, Counters(now=60_000_000_000, times_of=times)).decision == "allow"


@pytest.mark.parametrize("parallel", [False, True])
def test_a_call_over_the_rate_may_be_proposed_again(parallel: bool) -> None:
    tool = replace(SEND, parallel=parallel)
    turns = [turn(1, 2), turn(3), turn(3), turn(3), ANSWER]
    clock = VirtualClock(costs_ms={"model": 29_950})
    agent = Agent(Stub(turns), [tool], policy(1, tools=RATE), max_parallel=4)
    done = agent.run("Send.", seed=0, clock=clock)
    allowed, refused = ("allow", "tool_registry"), ("deny", "tool_limits")
    assert rules_of(done.steps) == [allowed, allowed, refused, refused, allowed]
    assert done.steps[1]["tool_results"][0]["told"]["retryable"] is True
    assert [sorted(at for at in step["stamps"] if at[0] == "t") for step in done.steps] == [
        ["t0", "t1"], ["t0"], ["t0"], ["t0"], [],
    ]  # fmt: skip


def test_the_time_is_read_only_where_a_rate_is_limited() -> None:
    done = Agent(Stub([turn(1), ANSWER]), [SEND], policy(2)).run("Send.", seed=0)
    assert "t0" not in done.steps[0]["stamps"]


def test_a_reader_of_the_ledger_finds_the_same_rates() -> None:
    agent = Agent(Stub([turn(1), turn(2), turn(3), ANSWER]), [SEND], policy(1, tools=RATE))
    done = agent.run("Send.", seed=0)
    asked = [item for item in questions_in(done.steps, agent.gate.tools) if item.question.call is not None]
    found = [item.question.put(agent.gate) for item in asked]
    assert [one.to_dict() for one in found if one] == [
        {key: entry[key] for key in ("decision", "rule_id", "reason", "at", "facts")}
        for step in done.steps
        for entry in step["policy_decisions"]
    ]
    assert found[-1] is not None and found[-1].rule_id == "tool_limits"


@pytest.mark.parametrize(
    ("limits", "place"),
    [({"calls": 0}, "/calls"), ({"call": 1}, "/call"), ({}, ""), ({"calls": True}, "/calls")],
)
def test_limits_that_cannot_be_read_are_refused_with_their_place(limits: Any, place: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(1, tools={"send": {"limits": limits}})
    assert str(caught.value).startswith(f"<policy>#/tools/send/limits{place}: ")
    assert "\n" not in str(caught.value)
