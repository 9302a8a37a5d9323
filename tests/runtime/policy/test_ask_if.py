"""Conditions under which a person is asked: what meets any of them, and what they cannot judge."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tachograph import Policy, PolicyError
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.loop.groups import _may_share
from tachograph.runtime.policy.explain import explain
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tests.runtime.policy.test_argument_rules import DATA, SEND

WAITS = {"approval": {"required_for": [], "timeout_s": 60}}


def policy(ask_if: dict[str, Any], **sections: Any) -> Policy:
    return Policy.from_dict({**DATA, **WAITS, "tools": {"send": {"ask_if": ask_if}}, **sections})


def decide(ask_if: dict[str, Any], arguments: dict[str, Any], **sections: Any) -> Decision:
    gate = Gate(policy(ask_if, **sections), {"send": SEND})
    return gate.decide(Call("tc_1_0", "send", freeze(arguments)), Counters())


OVER: dict[str, Any] = {"/amount": {"exclusiveMinimum": 20}}


@pytest.mark.parametrize(
    ("ask_if", "arguments", "said"),
    [
        (OVER, {"amount": 20}, "allow"),
        (OVER, {"amount": 20.5}, "/amount"),
        (OVER, {"amount": "1000"}, "deny"),
        (OVER, {}, "allow"),
        ({"/to": {"const": "everybody"}}, {}, ""),
        ({"/to": {"const": "everybody"}}, {"to": "a"}, "allow"),
        ({"/to": {"in": "payees"}}, {"to": "a"}, "/to"),
        ({"/amount": {"const": "all"}}, {"amount": 5}, "deny"),
        ({"/amount": {"anyOf": [{"minimum": 9}, {"const": "all"}]}}, {"amount": "all"}, "/amount"),
        ({"/amount": {"anyOf": [{"minimum": 9}, {"const": "all"}]}}, {"amount": "some"}, "allow"),
        ({"/amount": {"type": "integer", "minimum": 5}}, {"amount": 5.5}, "deny"),
        ({**OVER, "/to": {"const": "x"}}, {"amount": 1, "to": "x"}, "/to"),
        ({**OVER, "/to": {"const": "x"}}, {"amount": 21, "to": "y"}, "/amount"),
        ({"/lines/*/sum": {"minimum": 9}}, {"lines": [{"sum": 1}, {"sum": 9}]}, "/lines/1/sum"),
        ({"/lines/*/sum": {"minimum": 9}}, {"lines": [{"sum": 1}, {}]}, "allow"),
    ],
)
def test_a_person_is_asked_if_any_condition_is_met(
    ask_if: dict[str, Any], arguments: dict[str, Any], said: str
) -> None:
    """A default is judged like a value; a value of a type that the condition does not name is denied."""
    found = decide(ask_if, arguments)
    if said == "allow":
        assert (found.decision, found.rule_id) == ("allow", "tool_registry")
    elif said == "deny":
        assert (found.decision, found.rule_id) == ("deny", "arguments")
        assert found.at == "<policy>#/tools/send/ask_if/~1amount"
        assert found.reason.endswith(", without which ask_if cannot judge it")
    else:
        assert (found.decision, found.rule_id) == ("escalate", "approval")
        assert found.facts == {"timeout_s": 60, "pointer": said}


def test_a_placeholder_that_the_tool_gets_resolved_is_denied() -> None:
    revealed = {"redact": {"kinds": ["email"], "reveal_to": {"send": ["email"]}}}
    found = decide({"/to": {"pattern": "@bank"}}, {"to": "<secret:email:1>"}, **revealed)
    assert (found.decision, found.rule_id, found.facts["keyword"]) == ("deny", "arguments", "redact")


def test_the_rules_before_it_and_approval_for_all_calls_decide_as_without() -> None:
    asked = Policy.from_dict({**DATA, "approval": {"required_for": ["send"], "timeout_s": 60}})
    call = Call("tc_1_0", "send", freeze({"amount": 1}))
    assert Gate(asked, {"send": SEND}).decide(call, Counters()).decision == "escalate"
    used = Counters(tool_calls=4)
    assert Gate(policy(OVER), {"send": SEND}).decide(call, used).rule_id == "loop_budget"


def test_explain_says_that_no_condition_is_met() -> None:
    explained = explain(
        Gate(policy(OVER), {"send": SEND}), Call("c", "send", freeze({"amount": 1})), Counters()
    )
    assert explained.rules[-1].reason == "no condition of ask_if is met"


def test_a_call_that_a_person_may_be_asked_about_runs_alone() -> None:
    """Whoever answers knows what was done before."""

    together = replace(SEND, parallel=True)
    call = Call("c", "send", freeze({"amount": 1}))

    def may_share(made: Policy) -> bool:
        gate = Gate(made, {"send": together})
        return _may_share(SimpleNamespace(run=SimpleNamespace(gate=gate)), call)  # type: ignore[arg-type]

    assert may_share(Policy.from_dict(DATA)) and not may_share(policy(OVER))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"tools": {"send": {"ask_if": OVER}}},
            "/tools/send/ask_if: nothing says how long a person is waited for; add approval: ",
        ),
        (
            {"tools": {"send": {"ask_if": OVER}}, "approval": {"required_for": ["send"], "timeout_s": 9}},
            "/tools/send/ask_if: these conditions never decide, since approval.required_for names 'send'",
        ),
        (
            {"tools": {"send": {"ask_if": {"/to": {"in": "payes"}}}}, **WAITS},
            "/tools/send/ask_if/~1to/in: there is no list 'payes'; did you mean 'payees'?",
        ),
    ],
)
def test_conditions_that_cannot_decide_are_refused_with_their_place(
    sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_dict({**DATA, **sections})
    assert str(caught.value).startswith(f"<policy>#{message}")
    assert "\n" not in str(caught.value)
