"""The walk over an input schema: declared resources are found, a schema that could hide one is not loaded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import ToolError
from tachograph.runtime.schema.dialect import check_input
from tachograph.runtime.schema.resource_places import Resource
from tests.runtime.schema.test_resource_names import FOREIGN, OTHERS, RESOURCES

URL = {"type": "string", "x-resource": "url"}
READ = {"type": "string", "x-resource": "path:read"}
NONE = {"type": "string", "x-resource": "none"}
VOUCHED = {"x-resource": "none"}
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
NULL = {"type": "null"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def load(schema: dict[str, Any]) -> tuple[Resource, ...]:
    return check_input(schema, "t")


def places(schema: dict[str, Any]) -> set[tuple[tuple[str, ...], str]]:
    return {(resource.path, resource.kind) for resource in load(schema)}


def refused(schema: dict[str, Any]) -> ToolError:
    with pytest.raises(ToolError) as found:
        load(schema)
    assert found.value.file == "t" and found.value.remedy
    return found.value


# ---- declared resources are found --------------------------------------------------------------------------


def test_resources_are_found_at_any_depth_and_in_arrays() -> None:
    schema = closed(
        url=URL,
        jobs={
            "type": "array",
            "items": closed(out={"type": "string", "x-resource": "path:write"}, note=TEXT),
        },
        pairs={"type": "array", "items": READ},
        by_name={"type": "object", "additionalProperties": URL},
        deep=closed(a=closed(b={"type": "array", "items": {"type": "array", "items": URL}})),
    )
    assert places(schema) == {
        (("url",), "url"),
        (("jobs", "*", "out"), "path:write"),
        (("pairs", "*"), "path:read"),
        (("by_name", "*"), "url"),
        (("deep", "a", "b", "*", "*"), "url"),
    }
    arguments = {
        "url": "U", "jobs": [{"out": "W0"}, {"note": "x"}, {"out": "W2"}], "pairs": ["R"],
        "by_name": {"a/b": "V"}, "deep": {"a": {"b": [["D"], []]}},
    }  # fmt: skip
    found = [pair for resource in load(schema) for pair in resource.find(arguments)]
    assert found == [
        ("/url", "U"), ("/jobs/0/out", "W0"), ("/jobs/2/out", "W2"), ("/pairs/0", "R"),
        ("/by_name/a~1b", "V"), ("/deep/a/b/0/0", "D"),
    ]  # fmt: skip


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "b", "0", "*", "~", "/"]), inner, max_size=3)
        ),
    ),
    st.lists(st.sampled_from(["a", "b", "0", "*"]), max_size=3),
)
def test_finding_is_total_and_its_pointers_are_true(arguments: Any, path: list[str]) -> None:
    for pointer, value in Resource(tuple(path), "url").find(arguments):
        here = arguments
        for token in pointer.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            here = here[int(token)] if isinstance(here, list) else here[token]
        assert here is value and isinstance(value, str)


MAYBE = {"type": ["string", "null"], "x-resource": "url"}
OPTIONAL: dict[str, dict[str, Any]] = {
    "two types": MAYBE,
    "a choice": {"anyOf": [URL, NULL], "default": None, "title": "Url"},
    "a choice, null first": {"oneOf": [NULL, URL]},
    "said beside the choice": {"x-resource": "url", "anyOf": [TEXT, NULL]},
    "a reference": {"$ref": "#/$defs/u"},
    "a choice of a reference": {"anyOf": [{"$ref": "#/$defs/u"}, NULL]},
    "a reference with a description": {"$ref": "#/$defs/u", "description": "where to"},
    "an enum besides": {**URL, "enum": ["https://a.test/", "https://b.test/"]},
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_resource_may_be_left_out(name: str) -> None:
    assert places({**closed(url=OPTIONAL[name]), "$defs": {"u": URL}}) == {(("url",), "url")}


def test_what_may_be_left_out_may_hold_resources() -> None:
    job = closed(url=URL, out={"type": "string", "x-resource": "path:write"}, name=TEXT)
    schema = {
        **closed(
            one={"anyOf": [{"$ref": "#/$defs/job"}, NULL]},
            more={"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/job"}}, NULL]},
            urls={"type": ["array", "null"], "items": URL},
        ),
        "$defs": {"job": job},
    }
    assert places(schema) == {
        (("one", "url"), "url"), (("one", "out"), "path:write"), (("more", "*", "url"), "url"),
        (("more", "*", "out"), "path:write"), (("urls", "*"), "url"),
    }  # fmt: skip


def test_what_is_said_twice_of_a_place_has_to_agree() -> None:
    defs = {"$defs": {"u": URL, "n": NONE}}
    for x in (
        {"$ref": "#/$defs/u", **VOUCHED},
        {**VOUCHED, "anyOf": [URL, NULL]},
        {"$ref": "#/$defs/n", "x-resource": "url"},
    ):
        assert "is declared" in refused({**closed(x=x), **defs}).message
    assert places({**closed(x={"$ref": "#/$defs/u", "x-resource": "url"}), **defs}) == {(("x",), "url")}


# ---- what looks like a resource and says nothing is refused ------------------------------------------------


@pytest.mark.parametrize("name", [*RESOURCES, *FOREIGN])
def test_a_suspicious_name_has_to_say_what_it_is(name: str) -> None:
    assert "looks like a resource" in refused(closed(**{name: TEXT})).message
    assert load(closed(**{name: NONE})) == ()
    assert places(closed(**{name: URL})) == {((name,), "url")}
    assert load(closed(**{name: NUMBER})) == ()


@pytest.mark.parametrize("name", OTHERS)
def test_another_name_may_hold_any_text(name: str) -> None:
    assert load(closed(**{name: TEXT})) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {}, True, {"type": ["string", "null"]}, {"anyOf": [TEXT, NULL]}, {"$ref": "#/$defs/t"},
        {"type": "array"}, {"type": "array", "items": TEXT}, {"type": "array", "items": {}},
        {"type": "array", "items": True}, {"type": "array", "prefixItems": [TEXT], "items": False},
        {"type": "array", "prefixItems": [NUMBER]},
        {"type": "array", "items": {"type": "array", "items": TEXT}},
        {"type": "object", "additionalProperties": TEXT}, {"properties": {}, "additionalProperties": False},
        {"type": "object", "additionalProperties": False, "patternProperties": {"^f": TEXT}},
        {"allOf": [{"minLength": 1}]}, {"not": {"const": 1}}, {"minLength": 2},
        {"type": "string", "not": {"const": "a"}}, {"anyOf": [{"enum": ["a"]}, TEXT]},
        {"if": {"const": "a"}, "then": {"const": "a"}},
        # its keys are texts too, and names that say nothing are what their parent is
        {"type": "object", "additionalProperties": NUMBER}, {"type": "object", "additionalProperties": NONE},
        {"type": "object", "additionalProperties": False, "patternProperties": {"^": NUMBER}},
        closed(name=TEXT), {"type": "array", "items": closed(name=TEXT)}, closed(value=TEXT),
        closed(Name=TEXT), closed(entries={"type": "array", "items": closed(key=TEXT)}),
        closed(source={"type": "array", "items": TEXT}),
    ],
)  # fmt: skip
def test_a_suspicious_name_is_seen_whatever_holds_the_string(schema: Any) -> None:
    for name in ("files", "url"):
        refused({**closed(**{name: schema}), "$defs": {"t": TEXT}})


@pytest.mark.parametrize(
    "schema",
    [
        NUMBER, {"type": "boolean"}, {"type": ["number", "null"]}, {"enum": ["a", "b"]},
        {"type": "string", "enum": ["a"]}, {"const": "a"}, {"type": "array", "items": NUMBER},
        {"type": "array", "items": False}, {"type": "array", "items": NONE}, False,
        {"anyOf": [{"const": "a"}, {"enum": ["b"]}, NULL]},
        closed(title=TEXT),
        closed(name=NONE), {"type": "array", "x-resource": "none", "items": TEXT},
        {"x-resource": "none", "anyOf": [TEXT, NULL]},
        {"type": "object", "x-resource": "none", "additionalProperties": TEXT}, {"$ref": "#/$defs/none"},
        VOUCHED,
    ],
)  # fmt: skip
def test_a_suspicious_name_without_free_text_is_no_resource(schema: Any) -> None:
    assert load({**closed(files=schema), "$defs": {"none": NONE}}) == ()


@pytest.mark.parametrize("form", ["uri", "URI", "iri", "hostname", "ipv4", "url", "file-path", "http-url"])
def test_a_format_of_a_resource_is_seen_under_any_name(form: str) -> None:
    said = {"type": "string", "format": form}
    for schema in (said, {"anyOf": [said, NULL]}, {"type": "array", "items": said}, {"allOf": [said]}):
        refused(closed(x=schema))
    refused({**closed(x={"$ref": "#/$defs/u"}), "$defs": {"u": said}})
    assert places(closed(x={**URL, "format": form})) == {(("x",), "url")}
    assert load(closed(x={"x-resource": "none", "anyOf": [said, NULL]})) == ()
    refused(closed(x={"type": "object", "propertyNames": {"format": form}, "additionalProperties": NUMBER}))


def test_what_is_said_of_a_property_goes_for_what_it_holds() -> None:
    said = {"description": "The files to copy"}
    refused(closed(source={**TEXT, **said}))
    refused(closed(sources={"type": "array", "items": TEXT, **said}))
    refused(closed(source={**closed(name=TEXT), **said}))
    assert load(closed(source=TEXT, sources={"type": "array", "items": TEXT}, note={**TEXT, **said})) == ()
    assert load(closed(source={**NONE, **said}, sources={**VOUCHED, **said, "items": TEXT})) == ()


HIDING: dict[str, dict[str, Any]] = {
    "a choice of several": {"anyOf": [URL, NUMBER]}, "a choice of three": {"anyOf": [URL, NULL, NUMBER]},
    "anyOf": {"anyOf": [closed(a=URL), closed(b=TEXT)]}, "oneOf": {"oneOf": [closed(a=URL), closed(b=TEXT)]},
    "a choice in a choice": {"anyOf": [{"anyOf": [URL, NUMBER]}, NULL]},
    "a reference to a choice": {"$ref": "#/$defs/several"},
    "said beside a choice": {"x-resource": "url", "anyOf": [TEXT, NUMBER]},
    "free keys beside properties": {"type": "object", "properties": {"a": TEXT}, "additionalProperties": URL},
    "too many types": {"type": ["string", "integer"], "x-resource": "url"},
    "no type": {"x-resource": "path:read"}, "no string": {"type": "integer", "x-resource": "url"},
    "null": {"anyOf": [TEXT, {"type": "null", "x-resource": "url"}]},
    "an array": {"type": "array", "items": TEXT, "x-resource": "url"},
}  # fmt: skip


@pytest.mark.parametrize("name", HIDING)
def test_a_resource_where_the_gate_cannot_follow_is_refused(name: str) -> None:
    several = {"$defs": {"several": {"oneOf": [URL, NUMBER]}}}
    assert "the gate cannot follow" in refused({**closed(x=HIDING[name]), **several}).message


@pytest.mark.parametrize("name", ["*", "0", "12"])
def test_a_resource_under_a_name_that_reads_as_a_wildcard_is_refused(name: str) -> None:
    refused(closed(**{name: URL}))


# ---- what lets more pass than it says ----------------------------------------------------------------------

OPEN: list[Any] = [
    {"type": "object"}, {"type": "object", "additionalProperties": True}, {"properties": {"a": TEXT}},
    {"type": "object", "additionalProperties": {}}, {"type": ["object", "null"], "properties": {"a": TEXT}},
    {"anyOf": [{"type": "object"}, NULL]}, {"type": "array", "items": {"type": "object"}}, {}, True,
    {"minProperties": 1}, {"required": ["a"]}, {"anyOf": [{}]}, {"minLength": 2}, {"format": "date"},
    {"anyOf": [{"required": ["a"]}, NULL]}, {"type": "array"}, {"type": "array", "items": {}},
    {"type": ["object", "string"]}, {"type": "array", "items": True}, {"type": "array", "maxItems": 0},
    {"$ref": "#/$defs/any"}, {"description": "anything"}, {"items": NUMBER},
    closed(v={}), {"type": "array", "items": closed(v={"minLength": 2})},
]  # fmt: skip


@pytest.mark.parametrize("schema", OPEN, ids=str)
def test_a_value_that_may_be_anything_is_refused_unless_it_says_none(schema: Any) -> None:
    whole = {**closed(x=schema), "$defs": {"any": {}}}
    assert "undeclared" in refused(whole).message
    if isinstance(schema, dict):
        assert load({**whole, **closed(x={**schema, "x-resource": "none"})}) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "additionalProperties": {"anyOf": [TEXT, NULL]}},
        {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}},
    ],
)  # fmt: skip
def test_any_text_under_any_key_is_refused_unless_it_says_none(schema: dict[str, Any]) -> None:
    assert "under any key" in refused(closed(x=schema)).message
    assert load(closed(x={**schema, "x-resource": "none"})) == ()
    if "items" not in str(schema):
        said = {
            **schema,
            **{key: {**NONE, "type": ["string", "null"]} for key in schema if key.endswith("Properties")},
        }
        assert load(closed(x=said)) == ()


def test_none_goes_for_what_is_inside_but_not_for_names_that_speak() -> None:
    aside = {
        "allOf": [closed(url=TEXT, n={"type": "string"}), {"type": "object", "additionalProperties": NONE}]
    }
    refused(closed(x=aside))
    inside = {"a": {}, "b": {"type": "array"}, "c": {"type": "object", "additionalProperties": TEXT}}
    assert load(closed(files={**closed(**inside, name=TEXT), "x-resource": "none"})) == ()
    for name, schema in (("url", TEXT), ("x", {"type": "string", "format": "uri"}), ("path", {})):
        refused(closed(files={**closed(**{name: schema}), "x-resource": "none"}))
        refused({**closed(**{name: schema}), "x-resource": "none"})


# ---- references --------------------------------------------------------------------------------------------


AGAIN = {"$ref": "#/$defs/t"}


def test_references_are_followed_and_what_nothing_refers_to_declares_nothing() -> None:
    shared = {**closed(url=URL, a={"$ref": "#/$defs/n"}), "$defs": {"n": NUMBER, "unused": closed(url=URL)}}
    assert places(shared) == {(("url",), "url")}
    twice = {**closed(a=AGAIN, b={"type": "array", "items": AGAIN}), "$defs": {"t": closed(url=URL)}}
    assert places(twice) == {(("a", "url"), "url"), (("b", "*", "url"), "url")}
    refused({**closed(files=AGAIN), "$defs": {"t": closed(name=TEXT)}})


@pytest.mark.parametrize(
    "schema",
    [
        closed(next={"$ref": "#"}), closed(next={"anyOf": [{"$ref": "#"}, NULL]}),
        {**closed(a=AGAIN), "$defs": {"t": AGAIN}}, {**closed(), "$defs": {"t": closed(next=AGAIN)}},
        {**closed(a=AGAIN), "$defs": {"t": {"anyOf": [URL, {"type": "array", "items": AGAIN}]}}},
        {**closed(), "$defs": {"t": {"$ref": "#/definitions/u"}}, "definitions": {"u": {"items": AGAIN}}},
        {**closed(), "$defs": {"t": {"type": "object", "additionalProperties": AGAIN}}},
    ],
)  # fmt: skip
def test_a_schema_that_holds_itself_is_refused(schema: dict[str, Any]) -> None:
    assert "leads back to itself" in refused(schema).message


def test_choices_that_double_are_refused() -> None:
    defs = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    for start in (26, 0):
        assert (
            "too many places"
            in refused({**closed(a={"$ref": f"#/$defs/d{start}"}), "$defs": {**defs, "d40": NUMBER}}).message
        )
    assert load({**closed(a={"$ref": "#/$defs/d34"}), "$defs": {**defs, "d40": NUMBER}}) == ()


def test_a_walk_that_would_not_end_is_refused() -> None:
    names = [f"p{i}" for i in range(12)]
    defs = {f"d{i}": closed(**{name: {"$ref": f"#/$defs/d{i + 1}"} for name in names}) for i in range(6)}
    schema = {**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**defs, "d6": NUMBER}}
    assert "too many places" in refused(schema).message


def test_a_hostile_name_leaves_no_line() -> None:
    with pytest.raises(ToolError) as found:
        check_input(closed(**{"\x1b[31m\n\u202e_url": TEXT}), "tool \u115f")
    assert str(found.value).isprintable() and "\u115f" not in str(found.value)
