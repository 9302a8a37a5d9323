"""Differences between policies with principals: who may call what under which, with a witness for each."""

from __future__ import annotations

import copy
import itertools
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph import Policy
from tachograph.review.compare.policy_compare import Change, Comparison, compare_policies
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Gate
from tests.runtime.policy.test_argument_rules import DATA, SEND

LOOK = replace(
    SEND, name="look", input_schema={"type": "object", "properties": {}, "additionalProperties": False}
)
TOOLS = {"send": SEND, "look": LOOK}
BASE = {
    **DATA,
    "tool_registry": {"allowed": ["send", "look"]},
    "loop_budget": {"max_iterations": 9, "max_tokens": 999, "max_tool_calls": 8, "max_result_bytes": 500},
}
CLERK: dict[str, Any] = {"clerk": {"tools": {}}}
INTERN: dict[str, Any] = {"intern": {"tools": {"send": "deny"}}}


def policy(principals: Any = None, **sections: Any) -> Policy:
    data = {key: value for key, value in BASE.items() if key != "principals"}
    return Policy.from_dict({**data, **({"principals": principals} if principals else {}), **sections})


def compared(old: Policy, new: Policy) -> Comparison:
    return compare_policies(old, new, TOOLS)


def words(found: Comparison) -> list[tuple[str, str, str]]:
    return [(str(one.kind), str(one.rule), one.description) for one in found.changes]


def principal_of(change: Change) -> str | None:
    return change.witness.principal


def test_a_denial_taken_away_is_a_widening_for_its_principal() -> None:
    old, new = policy({**CLERK, **INTERN}), policy({**CLERK, "intern": {"tools": {}}})
    (change,) = compared(old, new).changes
    assert (change.kind, change.rule) == ("widening", "principal")
    assert change.description == "send may be called for intern"
    assert change.at == "<policy>#/principals/intern"
    assert principal_of(change) == "intern" and change.witness.to_dict()["principal"] == "intern"
    assert (change.witness.before["rule_id"], change.witness.after["decision"]) == ("principal", "allow")
    (back,) = compared(new, old).changes
    assert (back.kind, back.description) == ("tightening", "send may no longer be called for intern")


def test_the_last_principal_taken_away_is_a_widening_for_all_who_were_not_listed() -> None:
    assert words(compared(policy(INTERN), policy())) == [
        ("widening", "principal", "send may be called for intern"),
        ("widening", "principal", "send may be called for anyone not listed"),
        ("widening", "principal", "look may be called for anyone not listed"),
    ]
    assert words(compared(policy(), policy(CLERK))) == [
        ("tightening", "principal", "send may no longer be called for anyone not listed"),
        ("tightening", "principal", "look may no longer be called for anyone not listed"),
    ]


def test_one_principal_more_is_a_widening() -> None:
    found = compared(policy(CLERK), policy({**CLERK, **INTERN}))
    assert words(found) == [("widening", "principal", "look may be called for intern")]
    assert found.changes[0].at == "<policy>#/principals/intern"


def test_another_section_is_compared_for_those_who_may_call_a_tool() -> None:
    old = policy({**CLERK, **INTERN})
    new = policy({**CLERK, **INTERN}, tools={"send": {"arguments": {"/amount": {"maximum": 5}}}})
    (change,) = compared(old, new).changes
    assert (change.kind, change.rule, principal_of(change)) == ("tightening", "arguments", "clerk")
    assert change.description.endswith(" for clerk")
    more = policy({**CLERK, **INTERN}, loop_budget={**BASE["loop_budget"], "max_iterations": 10})
    (change,) = compared(old, more).changes
    assert change.description == "max_iterations is 10, was 9" and principal_of(change) is None
    assert "principal" not in change.witness.to_dict()


def test_the_names_of_those_who_meet_the_same_are_counted() -> None:
    many = {f"p{i}": {"tools": {}} for i in range(6)}
    (change, _) = compared(policy(CLERK), policy({**CLERK, **many})).changes
    assert change.description == "send may be called for p0, p1, p2, p3 and 2 more"


def test_a_principal_who_may_do_the_same_under_both_makes_no_difference() -> None:
    old, new = policy(INTERN), policy({"intern": {"tools": {"send": "deny"}}})
    assert compared(old, new).equal
    assert compared(policy({"a": {"tools": {"send": "deny", "look": "deny"}}, **CLERK}), policy(CLERK)).equal


PAIRS = int(os.environ.get("TACHOGRAPH_POLICY_PAIRS", "60"))
WHO = ("ann", "bob", "cyd", None)
CALLS = [("send", {"amount": 1}), ("send", {"amount": 9}), ("look", {}), ("other", {})]
RANK = {"allow": 0, "escalate": 1, "deny": 2}


@st.composite
def principals(draw: Any) -> Any:
    names = draw(st.lists(st.sampled_from(["ann", "bob"]), unique=True))
    denied = st.lists(st.sampled_from(["send", "look"]), unique=True)
    return {name: {"tools": dict.fromkeys(draw(denied), "deny")} for name in names}


@st.composite
def policies(draw: Any) -> Policy:
    rules: dict[str, Any] = {}
    if draw(st.booleans()):
        rules["tools"] = {"send": {"arguments": {"/amount": {"maximum": 5}}}}
    if draw(st.booleans()):
        rules["approval"] = {"required_for": ["send"], "timeout_s": 9}
    return policy(draw(principals()), **rules)


def ranks(made: Policy) -> dict[tuple[str | None, int], int]:
    gate = Gate(made, TOOLS)
    return {
        (who, i): RANK[gate.decide(Call("c", name, freeze(given)), Counters(principal=who)).decision]
        for who, (i, (name, given)) in itertools.product(WHO, enumerate(CALLS))
    }


@settings(max_examples=PAIRS, deadline=None)
@given(policies(), policies())
def test_what_is_found_is_what_asking_everyone_finds(old: Policy, new: Policy) -> None:
    """Every principal's calls are put to both gates: there are wider and narrower ones exactly where it says so."""
    before, after = ranks(old), ranks(new)
    found = compared(old, new)
    assert not found.undecided
    kinds = {str(change.kind) for change in found.changes}
    assert ("widening" in kinds) == any(after[key] < before[key] for key in before)
    assert bool(kinds - {"widening"}) == any(after[key] > before[key] for key in before)
    gates = Gate(old, TOOLS), Gate(new, TOOLS)
    for change in found.changes:
        seen = change.witness
        assert seen.tool is not None
        call, counters = Call("tc_1_0", seen.tool, freeze(seen.arguments)), Counters(principal=seen.principal)
        one, other = (RANK[gate.decide(call, counters).decision] for gate in gates)
        assert (other < one) == (change.kind == "widening") and one != other


@given(policies(), st.sampled_from(["ann", "bob"]), st.sampled_from(["send", "look"]))
def test_an_entry_never_widens(made: Policy, who: str, tool: str) -> None:
    """A denial more, and principals where there were none, allow nobody anything."""
    data = copy.deepcopy(made.data)
    if who in made.principals:
        data["principals"][who]["tools"][tool] = "deny"
    elif not made.principals:
        data["principals"] = {who: {"tools": {tool: "deny"}}}
    narrower = Policy.from_dict(data)
    before, after = ranks(made), ranks(narrower)
    assert all(after[key] >= before[key] for key in before)
    assert not compared(made, narrower).widens


@given(policies(), st.sampled_from(["ann", "bob"]))
def test_one_name_more_never_tightens(made: Policy, who: str) -> None:
    """Where a policy lists principals, one who is not among them is denied everything."""
    if not made.principals or who in made.principals:
        return
    wider = Policy.from_dict({**made.data, "principals": {**made.data["principals"], who: {"tools": {}}}})
    before, after = ranks(made), ranks(wider)
    assert all(after[key] <= before[key] for key in before)
    assert compared(made, wider).widens


@pytest.mark.parametrize("name", ["clerk", "intern"])
def test_a_question_of_a_person_is_told_for_whom(name: str) -> None:
    asks = policy({name: {"tools": {}}}, approval={"required_for": ["send"], "timeout_s": 9})
    (change,) = compared(policy({name: {"tools": {}}}), asks).changes
    assert change.kind == "needs approval" and change.description.endswith(f" for {name}")
