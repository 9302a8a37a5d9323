"""Conditions on arguments, compared between two policies: each difference has arguments to try."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tachograph.review.compare.policy_compare import (
    NEEDS_APPROVAL,
    TIGHTENING,
    WIDENING,
    Comparison,
    compare_policies,
)
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool
from tests.support import OUTPUT

SEND = Tool(
    "send",
    "Send.",
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["amount"],
        "properties": {
            "amount": {"type": "integer", "minimum": 0, "maximum": 9},
            "to": {"enum": ["a", "b", "c"], "default": "a"},
        },
    },
    OUTPUT,
    "external",
    False,
    lambda arguments, io: {},
)
TOOLS = {"send": SEND}


def policy(
    conditions: dict[str, Any] | None, ask_if: dict[str, Any] | None = None, **sections: Any
) -> Policy:
    data: dict[str, Any] = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["send"]},
        "lists": {"some": ["a", "b"], "one": ["a"], "none": ["z"]},
        "loop_budget": {
            "max_iterations": 2, "max_tokens": 9, "max_tool_calls": 4, "max_result_bytes": 50,
        },
        "cycle_detection": {"max_repeats": 3},
    }  # fmt: skip
    rules = {key: item for key, item in (("arguments", conditions), ("ask_if", ask_if)) if item}
    waits = {"approval": {"required_for": [], "timeout_s": 60}} if ask_if else {}
    return Policy.from_dict({**data, **({"tools": {"send": rules}} if rules else {}), **waits, **sections})


def compare(old: Policy, new: Policy) -> Comparison:
    return compare_policies(old, new, TOOLS)


@pytest.mark.parametrize(
    ("strict", "loose"),
    [
        ({"/amount": {"maximum": 5}}, None),
        ({"/amount": {"maximum": 5}}, {"/amount": {"maximum": 6}}),
        ({"/to": {"in": "one"}}, {"/to": {"in": "some"}}),
        ({"/to": {"enum": ["b", "c"]}}, {"/to": {"enum": ["b", "c", "a"]}}),
        ({"/amount": {"maximum": 5}, "/to": {"in": "one"}}, {"/amount": {"maximum": 5}}),
    ],
)
def test_a_dropped_or_wider_condition_is_a_widening(strict: Any, loose: Any) -> None:
    forth, back = compare(policy(strict), policy(loose)), compare(policy(loose), policy(strict))
    (widening,), (tightening,) = forth.changes, back.changes
    assert (widening.kind, widening.rule, tightening.kind) == (WIDENING, "arguments", TIGHTENING)
    assert (widening.witness.before["decision"], widening.witness.after["decision"]) == ("deny", "allow")
    assert widening.witness.before["rule_id"] == "arguments"
    assert forth.undecided == back.undecided == ()
    assert widening.at == "<policy>#/tools/send/arguments"


def test_conditions_that_the_schema_already_demands_change_nothing() -> None:
    assert compare(policy({"/amount": {"maximum": 9}}), policy(None)).equal
    assert compare(policy({"/to": {"in": "some"}}), policy({"/to": {"enum": ["a", "b", "z"]}})).equal


def test_a_condition_that_nothing_meets_shuts_the_tool() -> None:
    comparison = compare(policy(None), policy({"/amount": {"in": "none"}}))
    assert [(change.kind, change.rule) for change in comparison.changes] == [(TIGHTENING, "arguments")]


def test_a_difference_that_cannot_be_told_is_said() -> None:
    """Where a placeholder may stand for a secret, conditions decide by more than the text."""
    revealed = {"redact": {"kinds": ["email"], "reveal_to": {"send": ["email"]}}}
    comparison = compare(policy({"/amount": {"maximum": 9}}, **revealed), policy(None, **revealed))
    assert not comparison.equal and "conditions does is not known" in comparison.undecided[0]


ARGUMENTS = [
    {"amount": amount, **to} for amount in range(10) for to in ({}, {"to": "a"}, {"to": "b"}, {"to": "c"})
]


def random_conditions(chance: random.Random) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    if chance.random() < 0.7:
        words = ("maximum", "minimum", "exclusiveMinimum", "multipleOf", "enum", "anyOf")
        word = chance.choice(words)
        number = chance.randint(1, 9)
        value: Any = sorted({number, chance.randint(0, 9)}) if word == "enum" else number
        value = [{"maximum": number}, {"const": 9}] if word == "anyOf" else value
        out["/amount"] = {word: value}
    if chance.random() < 0.6:
        out["/to"] = chance.choice(
            [{"in": "some"}, {"in": "one"}, {"in": "none"}, {"const": "c"}, {"pattern": "^[bc]$"}]
        )
    if chance.random() < 0.3:
        out[""] = chance.choice([{"required": ["to"]}, {"minProperties": 2}, {"maxProperties": 1}])
    return out or None


def test_the_difference_is_what_trying_all_arguments_finds(pairs: int) -> None:
    """The tool takes finitely many arguments, so every call can be tried under both policies."""
    chance = random.Random(16)
    seen = set()
    for _ in range(pairs):
        old, new = policy(random_conditions(chance)), policy(random_conditions(chance))
        gates = [Gate(made, TOOLS) for made in (old, new)]
        allowed = [
            {
                i
                for i, arguments in enumerate(ARGUMENTS)
                if gate.decide(Call("c", "send", freeze(arguments)), Counters()).decision == "allow"
            }
            for gate in gates
        ]
        comparison = compare(old, new)
        found = {change.kind for change in comparison.changes}
        wanted = ({WIDENING} if allowed[1] - allowed[0] else set()) | (
            {TIGHTENING} if allowed[0] - allowed[1] else set()
        )
        assert comparison.undecided == () and found == wanted, (old.data, new.data)
        seen.add(frozenset(wanted))
    assert len(seen) == 4


def test_the_difference_between_conditions_that_ask_is_what_trying_all_arguments_finds(pairs: int) -> None:
    """Of each call one of three things is said: the looser one is a widening, or takes a person's approval away."""
    chance = random.Random(18)
    rank = {"allow": 0, "escalate": 1, "deny": 2}
    seen = set()
    for _ in range(pairs):
        made = []
        for _ in range(2):
            asked = random_conditions(chance) or {}
            asked.pop("", None)
            always = (
                {"approval": {"required_for": ["send"], "timeout_s": 60}} if chance.random() < 0.2 else {}
            )
            made.append(policy(random_conditions(chance), None if always else asked, **always))
        gates = [Gate(one, TOOLS) for one in made]
        decided = [
            [
                rank[gate.decide(Call("c", "send", freeze(arguments)), Counters()).decision]
                for arguments in ARGUMENTS
            ]
            for gate in gates
        ]
        comparison = compare(*made)
        found = {change.kind for change in comparison.changes}
        pairs_of_ranks = set(zip(*decided, strict=True))
        wanted = {WIDENING} if any(new < old for old, new in pairs_of_ranks) else set()
        wanted |= {NEEDS_APPROVAL} if (0, 1) in pairs_of_ranks else set()
        wanted |= {TIGHTENING} if pairs_of_ranks & {(0, 2), (1, 2)} else set()
        assert comparison.undecided == () and found == wanted, (made[0].data, made[1].data)
        seen.add(frozenset(wanted))
    assert len(seen) > 4


def test_a_condition_that_asks_about_less_is_a_widening_with_arguments_to_try() -> None:
    strict, loose = policy(None, {"/amount": {"minimum": 5}}), policy(None, {"/amount": {"minimum": 7}})
    (change,) = compare(strict, loose).changes
    assert (change.kind, change.rule) == (WIDENING, "approval")
    assert change.witness.arguments is not None and change.witness.arguments["amount"] in (5, 6)
    (change,) = compare(loose, strict).changes
    assert (change.kind, change.at) == (NEEDS_APPROVAL, "<policy>#/tools/send/ask_if")
    assert compare(strict, policy(None, {"/amount": {"exclusiveMinimum": 4}})).equal


def test_more_calls_of_a_tool_are_a_widening_where_the_budget_leaves_room(pairs: int) -> None:
    """Each number of earlier calls, of this tool and of others, is tried under both policies."""
    used = [(n, own, lately) for n in range(8) for own in range(n + 1) for lately in {0, own}]
    chance = random.Random(19)
    call = Call("c", "send", freeze({"amount": 1}))
    seen = set()
    for _ in range(pairs):
        made = [policy(None, **some_limits(chance)) for _ in range(2)]
        gates = [Gate(one, TOOLS) for one in made]
        decided = [[gate.decide(call, used_up(*counts)).decision for counts in used] for gate in gates]
        both = set(zip(*decided, strict=True))
        wanted = {WIDENING} if ("deny", "allow") in both else set()
        wanted |= {TIGHTENING} if ("allow", "deny") in both else set()
        comparison = compare(*made)
        assert comparison.undecided == () and {change.kind for change in comparison.changes} == wanted
        seen.add(frozenset(wanted))
    assert len(seen) == 4


def some_limits(chance: random.Random) -> dict[str, Any]:
    calls = chance.choice([None, 1, 2, 3, 5, 6])
    budget = {"max_iterations": 2, "max_tokens": 9, "max_tool_calls": 4, "max_result_bytes": 50}
    limits = {"calls": calls, "per_minute": chance.choice([None, 1, 2, 3, 5])}
    limits = {key: value for key, value in limits.items() if value is not None}
    rules = {"tools": {"send": {"limits": limits}}} if limits else {}
    return {"loop_budget": {**budget, "max_tool_calls": chance.choice([2, 4])}, **rules}


def used_up(calls: int, own: int, lately: int) -> Counters:
    return Counters(tool_calls=calls, calls_of={"send": own}, times_of={"send": (0,) * lately})


def allowed_under(made: Policy) -> set[int]:
    gate = Gate(made, TOOLS)
    calls = (Call("c", "send", freeze(arguments)) for arguments in ARGUMENTS)
    return {i for i, call in enumerate(calls) if gate.decide(call, Counters()).decision == "allow"}


def test_a_condition_never_widens_and_one_more_value_of_a_list_never_tightens(pairs: int) -> None:
    chance = random.Random(17)
    everything = allowed_under(policy(None))
    narrowed = widened = 0
    for _ in range(pairs):
        conditions = random_conditions(chance)
        lists = {"some": ["a", "b"], "one": ["a"], "none": ["z"]}
        found = allowed_under(policy(conditions, lists=lists))
        longer = {name: [*values, "c"] for name, values in lists.items()}
        more = allowed_under(policy(conditions, lists=longer))
        assert found <= more <= everything, conditions
        narrowed += found < everything
        widened += found < more
    assert narrowed and widened
