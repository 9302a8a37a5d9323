"""The gate: whatever breaks in it denies, and of two readings of a condition the stricter one holds."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.fail.errors import PolicyError
from tachograph.runtime.log.values import Call, Reach, Touch
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question, Rule, Step
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.policy.rules import RULES
from tachograph.runtime.schema.validator import SchemaValidator
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import Refused, decide, parse
from tests.tables.rows import closed, roomy

POLICY = roomy(["t"], url_allowlist=["h.test"], sandbox={"mounts": {"box": "read"}})
# any value may stand in its arguments, so that the conditions alone judge them
ANY = closed(x={}, l={"items": {}}, n={"type": "integer", "default": 5})
TOOL = Tool("t", "", ANY, closed(), "network", lambda arguments, io: {})
ABOUT = [Step(), Call("tc_1_0", "t", {}), Reach("https://h.test/"), Touch("box/n", "read")]


class Odd(Rule):
    """Does the same at every question, and is the one that everything needs a word of."""

    id = "odd"
    judges = tuple(type(about) for about in ABOUT)

    def __init__(self, points: Any) -> None:
        self.points = points  # type: ignore[method-assign]

    def leaves(self, policy: Policy, tool: str) -> Any:
        return [("", policy.names)]


def out_of_memory(*_: Any) -> Any:
    """Raise an exception whose class does not tell its name."""
    nameless = type("Nameless", (type,), {"__name__": property(lambda cls: 1 / 0)})
    raise nameless("OutOfMemory", (MemoryError,), {})


@pytest.mark.parametrize(
    "act", [lambda *_: {}["x"], lambda *_: 1 / 0, lambda *_: next(iter(())), out_of_memory, lambda *_: ()]
)
def test_what_breaks_or_is_silent_denies(act: Any) -> None:
    for about in ABOUT:
        question, policy = Question(about, "" if isinstance(about, Step) else "t"), Policy.from_dict(POLICY)
        assert Gate(policy, [TOOL]).ask(question).decision == "allow"
        for rules in ((), (Odd(act),), (Odd(act), *RULES)):
            found = Gate(policy, [TOOL], rules).ask(question)
            assert (found.decision, found.rule) == ("deny", "gate_error")


def test_an_allow_rests_on_the_same_budget_whichever_are_limited() -> None:
    for more in ({}, {"max_attempts": 5, "max_wall_clock_s": 60}):  # tests of policies name the entry
        policy = Policy.from_dict({**POLICY, "loop_budget": {**POLICY["loop_budget"], **more}})
        said = Gate(policy, [TOOL]).ask(Question(Step()))
        assert (said.decision, said.place.rpartition("/")[2]) == ("allow", "max_wall_clock_s")


def ruled(section: str, conditions: dict[str, Any], *given: dict[str, Any]) -> list[tuple[str, str]]:
    policy = {**POLICY, "tools": {"t": {section: conditions}}}
    found = decide(policy, [TOOL], [{"name": "t", "arguments": arguments} for arguments in given])
    return [(each.decision, each.rule_id) for each in found]


TYPED = {
    # a condition, the values that meet it, and those that do not
    "maximum": ({"maximum": 100}, [1, 99.5, 100, -3], ["1000", "1", True, None, [1], {"a": 1}, 101]),
    "minimum": ({"minimum": 1}, [1, 1.5], ["1", True, None, 0, [2]]),
    "maxLength": ({"maxLength": 2}, ["", "ab"], ["abc", 1, None, [], {}]),
    "pattern": ({"pattern": "^[a-z]*$"}, ["", "ab"], ["ab\n", "A", 1, None, ["a"]]),
    "whole numbers": ({"in": [1]}, [1, 1.0], [True, "1", 1.5, [1], None]),
    "truth": ({"in": [True]}, [True], [1, 1.0, "true", "True"]),
    "nothing": ({"in": [0, None]}, [0, 0.0, None], [False, "", [], "null"]),
}


WRAPPED: dict[str, Any] = {
    "/x": lambda value: {"x": value},
    "/l/*": lambda value: {"l": [value]},
    "/x/y": lambda value: {"x": {"y": value}},
}


@pytest.mark.parametrize("name", TYPED)
def test_a_condition_demands_its_type(name: str) -> None:
    condition, met, broken = TYPED[name]
    for pointer, wrap in WRAPPED.items():
        found = ruled("arguments", {pointer: condition}, *map(wrap, [*met, *broken]))
        assert [each == ("deny", "arguments") for each in found] == [False] * len(met) + [True] * len(broken)
        # of what it cannot judge nobody is asked: it is denied
        odd = [value for value in broken if type(value) in (list, dict) or (name[0] == "m" and value is None)]
        assert {*ruled("ask_if", {pointer: condition}, *map(wrap, odd))} <= {("deny", "arguments")}


def test_each_step_of_a_pointer_demands_its_type() -> None:
    for pointer, odd in (("/x/y", [[], [{"y": 1}]]), ("/l/*", [{"0": 1}])):
        given = [{pointer[1]: value} for value in ("text", 1, None, *odd)]
        for condition in ({"maximum": 9}, {"in": [1]}):
            found = ruled("arguments", {pointer: condition}, *given)
            assert {*found} == {("deny", "arguments")}


@pytest.mark.parametrize("section", ["arguments", "ask_if"])
def test_a_condition_that_can_say_nothing_is_refused(section: str) -> None:
    for low, high in (({"minimum": 5}, {"maximum": 4}), ({"exclusiveMinimum": 5}, {"maximum": 5})):
        with pytest.raises(PolicyError, match="no number"):
            ruled(section, {"/x": {**low, **high}})
    with pytest.raises(PolicyError, match="of type integer"):
        ruled(section, {"/n": {"in": ["5"]}})
    for pointer in ("/x~", "/x~2", "x", ""):
        with pytest.raises(PolicyError, match="/top_k"):
            ruled(section, {pointer: {"maximum": 1}})


def test_an_absent_argument_is_its_default() -> None:
    denied, allowed = ruled("arguments", {"/n": {"maximum": 4}}, {}, {"n": 4})
    assert (denied, allowed) == (("deny", "arguments"), ("allow", "tool_registry"))
    assert ruled("ask_if", {"/n": {"minimum": 5}}, {}) == [("escalate", "approval")]


@pytest.mark.parametrize("section", ["arguments", "ask_if"])
def test_null_as_the_default_is_as_good_as_absent(section: str) -> None:
    some = {"type": ["array", "null"], "items": {"type": "string"}, "default": None}
    name = {"type": ["string", "null"]}
    inner = closed(to={**name, "default": None})
    own = {**name, "default": "a"}
    schema = {**closed(cc=some, who=name, own=own, l={"type": "array", "items": inner}), "required": ["who"]}
    tool = Tool("t", "", schema, closed(), "network", lambda arguments, io: {})
    conditions = {place: {"maxLength": 1} for place in ("/cc/*", "/who", "/own", "/l/*/to")}
    given = [{}, *({"cc": it} for it in (None, ["a"], ["bb"]))]
    given += [{"l": it} for it in ([{}, {"to": None}], [{"to": "bb"}])]
    calls = [{"name": "t", "arguments": {"who": "a", **it}} for it in given]
    # null that is not a default is a value
    calls += [{"name": "t", "arguments": it} for it in ({"who": None}, {"who": "a", "own": None})]
    policy = {**POLICY, "tools": {"t": {section: conditions}}, "cycle_detection": {"max_repeats": 9}}
    found = [each.decision for each in decide(policy, [tool], calls)]
    if section == "arguments":
        assert found == ["allow", "allow", "allow", "deny", "allow", "deny", "deny", "deny"]
    else:  # "who" is "a" in all but the last, and so a person is asked
        assert found == [*["escalate"] * 6, "deny", "deny"]


def test_of_several_defaults_the_first_counts() -> None:
    for first, second, found in ((5, None, "deny"), (None, 50, "allow")):
        x = {"type": ["integer", "null"]}
        other = {"properties": {"x": {**x, "default": second}}}
        schema = {**closed(x={**x, "default": first}), "allOf": [other]}
        tool = Tool("t", "", schema, closed(), "network", lambda arguments, io: {})
        policy = {**POLICY, "tools": {"t": {"arguments": {"/x": {"maximum": 10}}}}}
        said = decide(policy, [tool], [{"name": "t", "arguments": {"x": None}}])
        assert [it.decision for it in said] == [found]


def test_a_condition_on_each_item_of_an_object_denies() -> None:
    """Where the schema does not say by itself that the arguments are not a list."""
    tool = Tool("t", "", {**ANY, "allOf": [{}]}, closed(), "network", lambda arguments, io: {})
    policy = {**POLICY, "tools": {"t": {"arguments": {"/*": {"maximum": 1}}}}}
    (said,) = decide(policy, [tool], [{"name": "t", "arguments": {"x": 0}}])
    assert said.rule_id == "arguments"


def test_calls_are_the_same_by_type_and_value() -> None:
    policy = {**POLICY, "cycle_detection": {"max_repeats": 1}}
    values = [1, True, "1", 0, False, None, "", [], {}, 1.0]
    found = decide(policy, [TOOL], [{"name": "t", "arguments": {"x": value}} for value in values])
    assert [each.decision for each in found] == ["allow"] * 9 + ["deny"]


def test_of_very_many_errors_one_is_told() -> None:
    """To make all of them would take minutes and gigabytes."""
    schema = {"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    found = SchemaValidator(schema).first_mismatch([1] * 200_000)
    assert found is not None and (found.pointer, found.keyword) == ("/0", "anyOf")
    with pytest.raises(Refused):
        parse("policy", "schema: policy/v1\nurl_allowlist:\n" + "- {}\n" * 60_000)
    for text in ("extends: base.yaml", "extends:"):
        with pytest.raises(Refused, match="extend"):
            parse("policy", f"schema: policy/v1\n{text}\n")


def test_arguments_are_held_to_their_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    first_mismatch = SchemaValidator.first_mismatch
    monkeypatch.setattr(
        SchemaValidator, "first_mismatch", lambda own, data: asked.append(data) or first_mismatch(own, data)
    )
    call = {"name": "t", "arguments": {"n": "1"}}
    said = decide(POLICY, [TOOL], [call])
    assert [it.rule_id for it in said] == ["arg_schema"] and len(asked) == 1


def test_patterns_are_linear_and_may_be_large() -> None:
    """An engine that backtracks would stand still here."""
    assert SchemaValidator({"pattern": "(a|a)*b(a+)+c"}).first_mismatch("a" * 100_000 + "b" + "a" * 100_000)
    assert SchemaValidator({"pattern": "^.{1,2000}$"}).first_mismatch("\u00e9" * 2000) is None
    with pytest.raises(ValueError):
        SchemaValidator({"pattern": "^.{1,6000}$"})
