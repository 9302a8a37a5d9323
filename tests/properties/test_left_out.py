"""What random policies and calls leave out of the comparison of the gate and the second judge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import PolicyError, ToolError
from tachograph.runtime.log.values import Reach, Touch
from tachograph.runtime.policy.consistency import check_tool_rules
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.policy.rules.resources import Places, TextPoint
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import decide, decide_fact
from tests.properties.test_second_judge import closed, resource
from tests.second_judge import judge_fact
from tests.tables.rows import roomy

ITEM = closed(n={"type": "integer", "default": 1})
NESTED = {
    "a property": closed(all=ITEM),
    "items": closed(all={"type": "array", "items": ITEM}),
    "other properties": closed(all={"type": "object", "additionalProperties": ITEM}),
    "a reference": {**closed(all={"$ref": "#/$defs/item"}), "$defs": {"item": ITEM}},
    "items one by one": closed(all={"type": "array", "prefixItems": [ITEM]}),
    "an encoded reference": {**closed(all={"$ref": "#/$defs/%69tem"}), "$defs": {"item": ITEM}},
    "a reference into a list": {
        **closed(all={"$ref": "#/$defs/x/anyOf/1"}),
        "$defs": {"x": {"anyOf": [{}, ITEM]}},
    },
    "what holds as well": closed(all={"allOf": [ITEM]}),
    "a reference to the default": {
        **closed(all=closed(n={"$ref": "#/$defs/one"})),
        "$defs": {"one": {"type": "integer", "default": 1}},
    },
}


@pytest.mark.parametrize("where", NESTED)
def test_a_default_that_is_written_out_makes_no_other_call(where: str) -> None:
    tool = {"name": "t", "input_schema": NESTED[where]}
    policy = roomy(["t"], cycle_detection={"max_repeats": 1})
    wrap, place = {
        "items": (lambda value: [value], "/all/*/n"),
        "items one by one": (lambda value: [value], "/all/*/n"),
        "other properties": (lambda value: {"x": value}, "/all/x/n"),
    }.get(where, (dict, "/all/n"))
    absent, written = ({"name": "t", "arguments": {"all": wrap(value)}} for value in ({}, {"n": 1}))
    narrow = {**policy, "tools": {"t": {"arguments": {place: {"maximum": 0}}}}}
    assert decide(narrow, [tool], [absent])[0].rule_id == "arguments"  # the tool would fill it in
    for calls in ([absent, written], [written, absent]):
        rules = [found.rule_id for found in decide(policy, [tool], calls)]
        assert rules == ["tool_registry", "cycle_detection"]


@pytest.mark.parametrize("text", ["/a/%2541", "/a/%25%34%31", "/a/%2525", "/a/%252541", "/a/%ef%bc%85%34%31"])
def test_a_prefix_covers_no_path_that_is_encoded_twice(text: str) -> None:
    policy = {"schema": "policy/v1", "url_allowlist": ["https://h.test/a"]}
    fact = {"rule": "url_allowlist", "target": f"https://h.test{text}"}
    found = decide_fact(policy, fact)
    assert (found.decision, found.rule_id) == ("deny", "url_allowlist") == judge_fact(policy, fact)[:2]
    assert decide_fact(policy, {**fact, "target": "https://h.test/a/%25"}).decision == "allow"


def test_what_no_tool_of_the_run_met_is_denied() -> None:
    policy = {"schema": "policy/v1", "url_allowlist": ["h.test"], "sandbox": {"mounts": {"box": "read"}}}
    tool = Tool("t", "", closed(), closed(), "network", lambda arguments, io: {})
    gate = Gate(Policy.from_dict(policy), [tool])
    for about in (Reach("https://h.test/"), Touch("box/n", "read")):
        assert gate.ask(Question(about, "t")).decision == "allow"
        assert [gate.ask(Question(about, name)).rule for name in ("", "other")] == ["gate_error"] * 2


def test_folders_have_to_be_those_of_declared_mounts() -> None:
    policy = {"schema": "policy/v1", "sandbox": {"mounts": {"box": "read"}}}
    assert decide(policy, [], [], mounts={"box": "."}) == []
    with pytest.raises(PolicyError):
        decide(policy, [], [], mounts={"bag": "."})
    with pytest.raises(PolicyError):
        decide({"schema": "policy/v1"}, [], [], mounts={"box": "."})


KINDS = ["url", "path:read", "path:write", "text", "any"]
TEXTS = "https://h.test/ https://k.test/ http:k.test box/n book/n no/n a ../n".split()


@pytest.mark.parametrize("narrow", KINDS)
@pytest.mark.parametrize("wide", KINDS)
def test_a_wider_kind_of_text_lets_all_through_that_a_narrower_one_does(narrow: str, wide: str) -> None:
    """The order of the kinds in the leaf is that of what the gate lets through."""
    tool = {"name": "t", "input_schema": closed(a={"type": "string"}), "effect": "external"}
    policy = roomy(["t"], url_allowlist=["h.test"], sandbox={"mounts": {"box": "write", "book": "read"}})
    calls = [{"name": "t", "arguments": {"a": text}} for text in TEXTS]

    def passes(kind: str) -> set[str]:
        said = decide({**policy, "tools": {"t": {"resources": {"/a": kind}}}}, [tool], calls)
        return {text for text, one in zip(TEXTS, said, strict=True) if one.decision == "allow"}

    assert passes(narrow) and passes("any") == {*TEXTS}
    assert Places({"/a": wide}).allows(TextPoint(("a",), narrow)) == (passes(narrow) <= passes(wide))


def test_a_mark_on_other_properties_is_of_none_that_is_declared() -> None:
    schema = closed(all={"type": "object", "properties": {"u": {}}, "additionalProperties": resource("any")})
    tool = Tool("t", "", schema, closed(), "external", lambda arguments, io: {})
    calls = [{"name": "t", "arguments": {"all": {key: "https://bad.test/"}}} for key in ("u", "v")]
    said = [(one.decision, one.rule_id) for one in decide(roomy(["t"]), [tool], calls)]
    assert said[0] == ("deny", "resources") and said[1][0] == "allow"
    with pytest.raises(ToolError):
        Tool("t", "", closed(**{"*": resource("any")}), closed(), "external", lambda arguments, io: {})


LINK = resource("url")
TO_LINK = {"$ref": "#/$defs/link"}
BY_ANOTHER_WAY: list[dict[str, Any]] = [
    {"patternProperties": {"^b": TO_LINK}},
    {"if": {}, "then": {"properties": {"b": TO_LINK}}},
    {"allOf": [{"if": False, "else": {"properties": {"b": TO_LINK}}}]},
    {"dependentSchemas": {"b": {"properties": {"b": TO_LINK}}}},
    {"not": {"not": {"properties": {"b": TO_LINK}}}},
    {"properties": {"b": {"contains": TO_LINK}}},
    {"properties": {"b": {"prefixItems": [True], "unevaluatedItems": TO_LINK}}},
    {"properties": {"b": {"$ref": "#way"}}, "$defs": {"link": {**LINK, "$anchor": "way"}}},
    {"properties": {"b": {"$dynamicRef": "#way"}}, "$defs": {"link": {**LINK, "$dynamicAnchor": "way"}}},
    {"properties": {"b": {"$ref": "https://h.test/own#/$defs/link"}}, "$id": "https://h.test/own"},
    {"properties": {"b": {"$id": "https://h.test/x", "$ref": "#/$defs/y", "$defs": {"y": LINK}}}},
    {"properties": {"b": {"$ref": "#/$defs/link/anyOf/1"}}, "$defs": {"link": {"anyOf": [{}, LINK]}}},
    {"properties": {"b": {"$ref": "#/$defs/l%69nk"}}},
    {"properties": {"b": {"x-resource": "url"}}},
    {"properties": {"b": {"type": ["object", "array", "string"], "x-resource": "url"}}},
]


@pytest.mark.parametrize("more", BY_ANOTHER_WAY, ids=str)
def test_no_way_in_the_schema_leads_past_a_mark(more: dict[str, Any]) -> None:
    own = closed(**{"a": TO_LINK, "b": {}, **more.get("properties", {})})
    schema = {"$defs": {"link": LINK}, **more, **own}
    for value in ("https://bad.test/", ["https://bad.test/"], [1, {"c": ["https://bad.test/"]}]):
        tool = {"name": "t", "input_schema": schema}
        try:
            (said,) = decide(roomy(["t"]), [tool], [{"name": "t", "arguments": {"b": value}}])
        except ToolError:
            continue  # the gate cannot follow it
        assert said.decision == "deny"
    plain = {**closed(a=TO_LINK, b={}), "$defs": {"link": {"type": "string"}}, "if": {"$ref": "#/$defs/link"}}
    tool = {"name": "t", "input_schema": plain}
    (said,) = decide(roomy(["t"]), [tool], [{"name": "t", "arguments": {"b": 1}}])
    assert said.decision == "allow"  # without a mark nothing has to be followed


PROPERTIES = {
    "to": {"type": "string"},
    "page": resource("url"),
    "count": {"type": "integer"},
    "files": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "heads": {"type": "object", "additionalProperties": {"$ref": "#/$defs/name"}},
    "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
    "open": {},
}


@pytest.mark.parametrize("effect", ["external", "network"])
@pytest.mark.parametrize(
    ("places", "are_there"),
    [
        ("/to /files/* /heads/* /pair/* /open/a/b", True), ("/heads/x", True), ("/page", False), ("/count", False),
        ("/files", False), ("/heads", False), ("/other", False), ("/to/x", False), ("/files/*/x", False), ("/*", False),
        ("/heads/x /heads/*", False),
    ],
)  # fmt: skip
def test_resources_are_those_that_the_tool_has(
    effect: str, places: str, are_there: bool, tmp_path: Path
) -> None:
    schema = {**closed(**PROPERTIES), "$defs": {"name": {"type": "string"}}}
    tool = Tool("t", "", schema, closed(), effect, lambda arguments, io: {})
    file = tmp_path / "p.yaml"
    lines = [f"      {place!r}: text\n" for place in places.split()]
    file.write_text("schema: policy/v1\ntools:\n  t:\n    resources:\n" + "".join(lines))
    policy = Policy.load(file, name="p.yaml")
    if are_there and effect == "external":
        check_tool_rules(policy, [tool])
        return
    with pytest.raises(PolicyError) as raised:
        check_tool_rules(policy, [tool])
    assert (raised.value.file, raised.value.line) == ("p.yaml", 5 if effect == "network" else 4 + len(lines))


ORDER = {"$ref": "#/$defs/Order"}
MAYBE = {"anyOf": [{"type": "null"}, ORDER], "default": None}
DEFINED = {"Order": closed(name={"type": "string"}, amount={"type": "integer"})}


@pytest.mark.parametrize("section", ["arguments", "ask_if"])
@pytest.mark.parametrize(
    ("schema", "place", "is_there"),
    [
        ({"type": "array"}, "/a/*", True), ({"type": ["array", "null"]}, "/a/*", True), ({}, "/a/*", True),
        ({"type": "array", "items": {"type": "string"}}, "/a/*", True), ({"type": "string"}, "/a/*", False),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, "/a/*", True),
        ({**closed(), "patternProperties": {"^x": {"type": "string"}}}, "/a/xy", True), (closed(), "/a/xy", False),
        ({"type": "string"}, "/a/b", False), ({"type": "array"}, "/a/b", False), ({"type": "object"}, "/a/*", False),
        (ORDER, "/a/name", True), (ORDER, "/a/nmae", False), (ORDER, "/a/amount", False),
        (MAYBE, "/a/name", True), (MAYBE, "/a/nmae", False), (MAYBE, "/a/amount", False),
        ({"anyOf": [ORDER, {}]}, "/a/nmae", True), ({**MAYBE, "type": "object"}, "/a/nmae", True),
    ],
)  # fmt: skip
def test_conditions_are_on_what_may_stand_there(
    schema: dict[str, Any], place: str, is_there: bool, section: str
) -> None:
    tool = {"name": "t", "input_schema": {**closed(a=schema), "$defs": DEFINED}}
    policy = {**roomy(["t"]), "tools": {"t": {section: {place: {"maxLength": 3}}}}}
    if is_there:
        assert decide(policy, [tool], [{"name": "t", "arguments": {}}])
        return
    with pytest.raises(PolicyError, match=re.escape(place[3:])):
        decide(policy, [tool], [])
