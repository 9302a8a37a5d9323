"""A decision has a ceiling: what would cost more to judge is denied as a failure of the gate, without being judged."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import costs
from tachograph import Policy, PolicyError, Tool
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.call_cost import MAX_TEXT
from tachograph.runtime.policy.explain import NOT_ASKED, explain
from tachograph.runtime.policy.gate import Counters, Decision, Gate, call_key
from tachograph.runtime.policy.requests import GateRequest
from tachograph.runtime.schema.validator import SchemaValidator
from tachograph.runtime.schema.work import MAX_WORK, sizes_by_name

EMPTY = {"type": "object", "additionalProperties": False}
OBJECTS = [{"a": i, "b": "x"} for i in range(2000)]
MANY = [i / 2 for i in range(20_000)]
DATA: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["put"]},
    "url_allowlist": ["https://a.test/"],
    "lists": {"many": MANY},
    "redact": {"kinds": ["email"], "reveal_to": {"put": ["email"]}},
    "loop_budget": {"max_iterations": 2, "max_tokens": 9, "max_tool_calls": 4, "max_result_bytes": 50},
    "cycle_detection": {"max_repeats": 3},
}


def gate(schema: dict[str, Any], **sections: Any) -> Gate:
    properties = {"a": schema, "text": {"type": "string"}}
    tool = Tool("put", "", {**EMPTY, "properties": properties}, EMPTY, "external", False, lambda a, io: {})
    return Gate(Policy.from_dict({**DATA, **sections}), {"put": tool}).prepared()


def call(value: Any, name: str = "put") -> Call:
    return Call("tc_1_0", name, freeze({"a": value}))


def decide(schema: dict[str, Any], value: Any, **sections: Any) -> Decision:
    return gate(schema, **sections).decide(call(value), Counters())


def rules(**conditions: Any) -> dict[str, Any]:
    return {"tools": {"put": {"arguments": {f"/{name}": rule for name, rule in conditions.items()}}}}


TEXT = {"type": "string"}
NUMBERS = {"type": "array", "items": {"type": "number"}}
URLS = {"type": "array", "items": {"type": "string", "x-resource": "url"}}
HIDDEN = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "value", "sections"),
    [
        ({"type": "array", "items": {"enum": OBJECTS}}, [OBJECTS[-1]] * 20_000, {}),
        (
            {"type": "array", "items": {"enum": ["a", *range(8)]}},
            [1] * 20_000,
            {"arg_schema_enforcement": "shape"},
        ),
        (NUMBERS, [0.5] * 2_000, rules(a={"items": {"multipleOf": 0.3}})),
        ({"type": "array", "items": URLS}, [["https://a.test/x"] * 100] * 100, {}),
        (URLS, ["https://a.test/" + "%25" * 600] * 200, {}),
        (HIDDEN, ["<secret:email:1>"] * 10_000, {}),
        (
            HIDDEN,
            ["<secret:email:1>", *["x"] * 45_000],
            rules(**{"a": {"minItems": 1}, "a/*": {"maxLength": 99}, "text": {"minLength": 1}}),
        ),
        ({"type": "string", "pattern": "^(?:a?a?a?a?a?a?a?){0,7}c"}, "a" * 200_000, {}),
        ({"type": "string", "pattern": "(a{0,7}){0,7}(a{0,7}){0,7}c"}, "a" * 200_000, {}),
        ({"type": "string"}, "a" * MAX_TEXT, {}),
    ],
)
def test_what_would_cost_too_much_is_denied_without_being_judged(
    schema: Any, value: Any, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = gate(schema, **sections)

    def judged(self: object, data: object) -> None:
        raise AssertionError("it was judged")

    monkeypatch.setattr(SchemaValidator, "first_mismatch", judged)
    found = asked.decide(call(value), Counters())
    assert (found.decision, found.rule_id, found.at) == ("deny", "gate_error", "<policy>#")
    assert found.facts["used"] > found.facts["limit"] in (MAX_WORK, MAX_TEXT)
    assert "at most" in found.reason and "are judged" in found.reason


@pytest.mark.parametrize(
    "value",
    [
        [1] * 900_000,
        [[]] * 500_000,
        [[[[[[]]]]]] * 100_000,
        [{}] * 500_000,
        [""] * 500_000,
        {str(number): 1 for number in range(100_000)},
    ],
)
def test_what_costs_too_much_to_decode_is_denied_without_being_decoded(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = gate({"type": "string"})

    def decoded(self: object) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(GateRequest, "arguments", property(decoded))
    for proposed in (
        call(value),
        Call("tc_1_0", "put", freeze(value if isinstance(value, dict) else {"a": value})),
    ):
        found = asked.decide(proposed, Counters())
        assert found.rule_id == "gate_error" and found.facts["used"] > found.facts["limit"] == MAX_WORK


@pytest.mark.parametrize(
    ("schema", "value", "sections"),
    [
        ({"type": "array", "items": {"enum": OBJECTS}}, [OBJECTS[-1]] * 4, {}),
        (NUMBERS, [0.5] * 2_000, rules(a={"items": {"in": "many"}})),
        (NUMBERS, [*range(40_000)], {}),
        ({**NUMBERS, "uniqueItems": True}, [*range(40_000)], {}),
        (URLS, ["https://a.test/x"] * 1000, {}),
        (HIDDEN, ["<secret:email:1>"] * 100, {}),
        ({"type": "string", "pattern": "^[a-z]+$"}, "a" * 200_000, {}),
        ({"type": "string"}, "a" * (MAX_TEXT - 100), {}),
    ],
)
def test_large_calls_that_are_cheap_to_judge_are_judged(
    schema: Any, value: Any, sections: dict[str, Any]
) -> None:
    assert decide(schema, value, **sections).rule_id != "gate_error"


def test_names_that_no_rule_knows_are_counted_together() -> None:
    data = {"a": [1, 2.5], "b": {"c": "text"}, "": None, "bb": "x"}
    apart, together = sizes_by_name(data), sizes_by_name(data, {"a", "none"})
    assert together["a"] == apart["a"] and set(together) == {"a", "none."}
    others = [size for name, size in apart.items() if name != "a"]
    assert together["none."] == tuple(map(sum, zip(*others, strict=True)))
    assert sizes_by_name({"a": 1}, {"a"}) == sizes_by_name({"a": 1})


@pytest.mark.parametrize(("others", "count"), [(False, 1), (TEXT, 1), ({"anyOf": [TEXT, NUMBERS]}, 50)])
def test_an_explanation_sizes_undeclared_names_apart_only_below_choices(others: Any, count: int) -> None:
    judge = SchemaValidator({"type": "object", "additionalProperties": others})
    assert len(judge._sizes({f"q{number}": [] for number in range(50)})) == count


def test_a_tool_that_the_registry_denies_is_denied_by_it() -> None:
    asked = gate({"type": "string"})
    found = asked.decide(call("a" * MAX_TEXT, "other"), Counters())
    assert found.rule_id == "tool_registry"


def test_the_identity_of_a_costly_call_is_that_of_its_text() -> None:
    asked = gate(URLS)
    urls = ["HTTPS://A.test/x"] * 10_000
    request = asked.request_for(call(urls), Counters())
    assert asked.decide_request(request).rule_id == "gate_error"
    assert request.is_costly and request.key == call_key(call(urls))


def test_no_rule_behind_the_ceiling_is_asked_to_explain() -> None:
    asked = gate({"type": "array", "items": {"enum": OBJECTS}})
    found = explain(asked, call([OBJECTS[-1]] * 20_000), Counters(), every=True)
    assert found.decision.rule_id == "gate_error"
    assert [rule.verdict for rule in found.rules] == ["pass", *[NOT_ASKED] * (len(found.rules) - 1)]
    assert found.rules[-1].reason == "gate_error decided first"


def test_a_condition_is_refused_under_which_no_value_could_be_judged() -> None:
    many = {"anyOf": [{"pattern": "^.{1,2000}$"}] * 70}
    with pytest.raises(PolicyError, match=r"/tools/put/arguments/~1a: judging one value may take"):
        gate(NUMBERS, **rules(a=many))


def test_generated_costly_calls_are_decided() -> None:
    for data in list(costs.seeds())[:12]:
        costs.measure(data)
    assert costs.costliest[0] > 0 and "characters" in costs.said()
