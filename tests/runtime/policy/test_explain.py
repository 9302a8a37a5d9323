"""Every rule's verdict for a call: the same decision as the gate's, nothing asked behind the first objection."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.explain import ASKS, FAILED, NOT_ASKED, PASSED, explain
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tests.support import policy_data, tool

RULES = (
    "tool_registry",
    "url_allowlist",
    "sandbox_path",
    "arg_schema",
    "redact",
    "cycle_detection",
    "loop_budget",
    "approval",
)


def gate(**sections: Any) -> Gate:
    return Gate(Policy.from_dict(policy_data(**sections)), {"probe": tool(), "echo": tool("echo")})


def call(name: str = "probe", **arguments: Any) -> Call:
    return Call("tc_1_0", name, freeze(arguments))


def counters(**used: int) -> Counters:
    return Counters(**used)


GOOD = {"url": "https://good.test/x", "path": "books/a"}


@pytest.mark.parametrize(
    ("asked", "used", "objects"),
    [
        (call("nope"), {}, "tool_registry"),
        (call(url="https://evil.test/"), {}, "url_allowlist"),
        (call(path="elsewhere/x"), {}, "sandbox_path"),
        (call(n=99), {}, "arg_schema"),
        (call(**GOOD), {"tool_calls": 20}, "loop_budget"),
        (call(**GOOD), {}, None),
    ],
    ids=["tool", "url", "path", "schema", "budget", "none"],
)
def test_rules_before_the_objection_pass_and_those_after_are_not_asked(
    asked: Call, used: dict[str, int], objects: str | None
) -> None:
    found = explain(gate(), asked, counters(**used))
    said = {rule.rule_id: rule.verdict for rule in found.rules}
    at = RULES.index(objects) if objects else len(RULES)
    wanted = {name: PASSED if i < at else FAILED if i == at else NOT_ASKED for i, name in enumerate(RULES)}
    assert said == wanted
    assert found.decision == gate().decide(asked, counters(**used))


def test_a_repeat_is_counted_and_an_escalation_asks() -> None:
    asked, used = call(n=1), Counters()
    for _ in range(3):
        used.count_result(asked, "{}")
    found = explain(gate(), asked, used)
    assert found.decision.rule_id == "cycle_detection"
    assert [(b.used, b.limit) for b in found.budgets if b.name == "max_repeats"] == [(3, 3)]
    asks = explain(gate(approval={"required_for": ["probe"], "timeout_s": 5}), call(n=2), used)
    assert asks.rules[-1].verdict == ASKS and asks.decision.decision == "escalate"


def test_budgets_name_their_line_and_use() -> None:
    used = counters(iterations=1, tokens=2, tool_calls=3, result_bytes=4)
    found = {budget.name: budget for budget in explain(gate(), call(**GOOD), used).budgets}
    assert [found[name].used for name in ("max_iterations", "max_tokens", "max_tool_calls")] == [1, 2, 3]
    assert found["max_result_bytes"].used == 4 and found["max_result_bytes"].limit == 10_000
    assert found["max_tokens"].at.endswith("/loop_budget/max_tokens")


def test_a_rule_that_breaks_fails() -> None:
    def broken(_asked: object) -> None:
        raise ZeroDivisionError

    asked = gate()
    asked.rules = (asked.rules[0], ("cycle_detection", broken), *asked.rules[6:])
    found = explain(asked, call(**GOOD), Counters())
    assert [rule.verdict for rule in found.rules] == [PASSED, FAILED, NOT_ASKED, NOT_ASKED]
    assert found.decision.rule_id == "gate_error"


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(["probe", "echo", "nope", "write"]),
    arguments=st.fixed_dictionaries(
        {},
        optional={
            "n": st.integers(0, 20),
            "url": st.sampled_from(["https://good.test/", "https://evil.test/", "x"]),
            "path": st.sampled_from(["books/a", "nowhere/a", "../x"]),
        },
    ),
    used=st.integers(0, 21),
)
def test_an_explanation_is_what_the_gate_decides(name: str, arguments: dict[str, Any], used: int) -> None:
    asked, spent = call(name, **arguments), counters(tool_calls=used)
    found = explain(gate(), asked, spent)
    assert found.decision == gate().decide(asked, spent)
    objections = [rule for rule in found.rules if rule.verdict in (FAILED, ASKS)]
    if found.decision.decision == "allow":
        assert not objections
    else:
        assert [rule.rule_id for rule in objections] == [found.decision.rule_id]
        assert objections[0].reason == found.decision.reason and objections[0].at == found.decision.at


def test_every_rule_is_asked_where_that_is_wanted() -> None:
    asked = call(url="https://evil.test/", path="elsewhere/x", n=99)
    used = counters(tool_calls=20)
    found = explain(gate(approval={"required_for": ["probe"], "timeout_s": 5}), asked, used, every=True)
    assert {rule.rule_id: rule.verdict for rule in found.rules} == {
        "tool_registry": PASSED,
        "url_allowlist": FAILED,
        "sandbox_path": FAILED,
        "arg_schema": FAILED,
        "redact": PASSED,
        "cycle_detection": PASSED,
        "loop_budget": FAILED,
        "approval": ASKS,
    }
    assert found.decision == gate().decide(asked, used)
    assert found.decision.rule_id == "url_allowlist"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (call("nope"), "there is no such tool"),
        (Call("tc_1_0", "probe", None, "[", "not JSON"), "the arguments are not a JSON object"),
    ],
)
def test_rules_that_need_a_tool_and_arguments_are_not_asked_without(asked: Call, why: str) -> None:
    found = explain(gate(), asked, counters(), every=True)
    assert {rule.reason for rule in found.rules if rule.verdict == NOT_ASKED} == {why}
    assert found.rules[-1].verdict == NOT_ASKED


def test_every_rule_names_the_line_of_its_own_section() -> None:
    policy = Policy.shipped()
    sections = {
        "tool_registry": "/tool_registry/allowed",
        "sandbox_path": "/sandbox/mounts",
        "arg_schema": "/arg_schema_enforcement",
        "cycle_detection": "/cycle_detection/max_repeats",
        "approval": "/approval/required_for",
    }
    found = explain(Gate(policy, {"search": tool("search")}), call("nope"), counters())
    assert tuple(rule.rule_id for rule in found.rules) == RULES
    for rule in found.rules[1:]:
        assert rule.at == policy.at(sections.get(rule.rule_id, f"/{rule.rule_id}")), rule
    assert len({rule.at for rule in found.rules}) == len(RULES), "no two sections stand in one line"
