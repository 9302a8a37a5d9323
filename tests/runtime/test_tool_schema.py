"""Tool schemas: no resource stays unseen, and data is held against them as their author meant it."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import ToolError
from tachograph.runtime.tool_schema import (
    Resource,
    check_sound,
    first_mismatch,
    looks_like_resource,
    resources_of,
    shape,
    validator,
    without_extensions,
)

URL = {"type": "string", "x-resource": "url"}
READ = {"type": "string", "x-resource": "path:read"}
NONE = {"type": "string", "x-resource": "none"}
TEXT = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def places(schema: dict[str, Any]) -> set[tuple[tuple[str, ...], str]]:
    return {(resource.path, resource.kind) for resource in resources_of(schema, "t")}


# ---- declared resources are found --------------------------------------------------------------------------


def test_resources_are_found_at_any_depth_and_in_arrays() -> None:
    schema = closed(
        url=URL,
        jobs={
            "type": "array",
            "items": closed(out={"type": "string", "x-resource": "path:write"}, note=TEXT),
        },
        pairs={"type": "array", "prefixItems": [READ, TEXT], "items": False},
        by_name={"type": "object", "additionalProperties": URL},
        deep=closed(a=closed(b={"type": "array", "items": {"type": "array", "items": URL}})),
    )
    assert places(schema) == {
        (("url",), "url"),
        (("jobs", "*", "out"), "path:write"),
        (("pairs", "0"), "path:read"),
        (("by_name", "*"), "url"),
        (("deep", "a", "b", "*", "*"), "url"),
    }
    arguments = {
        "url": "U", "jobs": [{"out": "W0"}, {"note": "x"}, {"out": "W2"}], "pairs": ["R", "x"],
        "by_name": {"a/b": "V"}, "deep": {"a": {"b": [["D"], []]}},
    }  # fmt: skip
    found = [pair for resource in resources_of(schema, "t") for pair in resource.find(arguments)]
    assert found == [
        ("/url", "U"), ("/jobs/0/out", "W0"), ("/jobs/2/out", "W2"), ("/pairs/0", "R"), ("/by_name/a~1b", "V"),
        ("/deep/a/b/0/0", "D"),
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
        assert here is value


# ---- what looks like a resource and says nothing is refused ------------------------------------------------

SUSPICIOUS = """
url URL urls imageUrl image_url IMAGE_URL imageURLs baseurl base-url callbackUrl uri redirectURI href link host
hostname server_host endpoint apiEndpoint webhook domain domains path file_path filePath FilePath filepath
inputpath outputPath file files filename fileName file2 logfile sourceFile dir workdir outDir directory
subdirectory folder dest destination cwd root src website websites ip proxy URLPath HTTPLink
""".split()
HARMLESS = """
profile profiles userProfile title limit query text content original_text origin origin_airport department
arrival hosting ghost hostel pathology empathy urlaub curly curl fileless filed compile profiler directive
linked blinker uriah subject body message name id page cursor lang language tags count format timeout
start_date end_date amount currency card_id user_email from to recipients seats direct_flight blank
""".split()


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_names_that_look_like_a_resource(name: str) -> None:
    assert looks_like_resource(name)
    with pytest.raises(ToolError):
        resources_of(closed(**{name: TEXT}), "t")
    assert resources_of(closed(**{name: NONE}), "t") == ()
    assert places(closed(**{name: URL})) == {((name,), "url")}


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_do_not(name: str) -> None:
    assert not looks_like_resource(name)
    assert resources_of(closed(**{name: TEXT}), "t") == ()


@pytest.mark.parametrize(
    "schema",
    [
        {}, True, {"type": ["string", "null"]}, {"anyOf": [TEXT, {"type": "null"}]}, {"$ref": "#/$defs/t"},
        {"type": "array"}, {"type": "array", "items": TEXT}, {"type": "array", "items": {}},
        {"type": "array", "items": True}, {"type": "array", "prefixItems": [TEXT], "items": False},
        {"type": "array", "prefixItems": [{"type": "integer"}]},
        {"type": "array", "items": {"type": "array", "items": TEXT}},
        {"type": "object", "additionalProperties": TEXT}, {"properties": {}, "additionalProperties": False},
        {"type": "object", "additionalProperties": False, "patternProperties": {"^f": TEXT}},
        {"allOf": [{"minLength": 1}]}, {"not": {"const": 1}}, {"minLength": 2},
    ],
)  # fmt: skip
def test_a_suspicious_name_is_seen_whatever_holds_the_string(schema: Any) -> None:
    whole = {**closed(files=schema), "$defs": {"t": TEXT}}
    with pytest.raises(ToolError) as refused:
        resources_of(whole, "t")
    assert refused.value.file == "t" and refused.value.remedy


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"}, {"type": "boolean"}, {"type": ["number", "null"]}, {"enum": ["a", "b"]},
        {"type": "string", "enum": ["a"]}, {"const": "a"}, {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": False}, {"type": "array", "items": NONE}, False,
    ],
)  # fmt: skip
def test_a_suspicious_name_without_free_text_is_no_resource(schema: Any) -> None:
    assert resources_of(closed(files=schema), "t") == ()


@pytest.mark.parametrize("form", ["uri", "uri-reference", "iri", "hostname", "ipv4", "ipv6", "url"])
def test_a_format_of_a_resource_is_seen_under_any_name(form: str) -> None:
    with pytest.raises(ToolError):
        resources_of(closed(x={"type": "string", "format": form}), "t")
    assert places(closed(x={**URL, "format": form})) == {(("x",), "url")}


HIDING = {
    "anyOf": {"anyOf": [closed(a=URL)]},
    "oneOf": {"oneOf": [closed(a=URL)]},
    "allOf": {"allOf": [closed(a=URL)]},
    "not": {"not": closed(a=URL)},
    "if": {"if": closed(a=URL)},
    "then": {"if": True, "then": closed(a=URL)},
    "else": {"if": True, "else": closed(a=URL)},
    "contains": {"type": "array", "items": {"type": "object", "x-resource": "none"}, "contains": closed(a=URL)},
    "propertyNames": {"propertyNames": URL},
    "patternProperties": {"patternProperties": {"^x": URL}},
    "dependentSchemas": {"dependentSchemas": {"b": closed(a=URL)}},
    "unevaluatedProperties": {"unevaluatedProperties": URL},
    "unevaluatedItems": {"unevaluatedItems": URL},
    "$defs": {"$defs": {"t": URL}},
    "definitions": {"definitions": {"t": closed(a=URL)}},
    "items after prefixItems": {"type": "array", "prefixItems": [{"type": "null"}], "items": URL},
    "additionalProperties beside properties": {
        "type": "object", "properties": {"a": TEXT}, "additionalProperties": URL,
    },
    "more than one type": {"type": ["string", "null"], "x-resource": "url"},
    "no type": {"x-resource": "path:read"},
    "an unknown kind": {"type": "string", "x-resource": "path"},
}  # fmt: skip


@pytest.mark.parametrize("name", HIDING)
def test_a_resource_where_the_gate_cannot_follow_is_refused(name: str) -> None:
    with pytest.raises(ToolError):
        resources_of(closed(x=HIDING[name]), "t")
    if "type" not in HIDING[name] and "x-resource" not in HIDING[name]:
        with pytest.raises(ToolError):
            resources_of({**closed(), **HIDING[name]}, "t")


@pytest.mark.parametrize("name", ["*", "0", "12"])
def test_a_resource_under_a_name_that_reads_as_a_wildcard_is_refused(name: str) -> None:
    with pytest.raises(ToolError):
        resources_of(closed(**{name: URL}), "t")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"}, {"type": "object", "additionalProperties": True}, {"properties": {"a": TEXT}},
        {"type": ["object", "null"], "properties": {"a": TEXT}}, {"anyOf": [{"type": "object"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "object"}},
    ],
)  # fmt: skip
def test_an_open_object_is_refused_unless_it_says_none(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        resources_of(closed(x=schema), "t")
    assert resources_of(closed(x={"type": "object", "x-resource": "none"}), "t") == ()


@pytest.mark.parametrize(
    "reference", ["#", "#/properties/a", "#/properties/a/properties/url", "#a", "other.json"]
)
def test_a_reference_to_a_declared_place_is_refused(reference: str) -> None:
    """What a declared place says of itself is not said of a second place that refers to it."""
    schema = closed(a=closed(url=URL), b={"$ref": reference})
    with pytest.raises(ToolError):
        resources_of(schema, "t")
    with pytest.raises(ToolError):
        resources_of({**closed(a=closed(url=URL)), "$defs": {"x": {"$ref": reference}}}, "t")


def test_references_that_hide_nothing_are_fine() -> None:
    tree = closed(value={"type": "integer"}, left={"$ref": "#"}, right={"$ref": "#"})
    assert resources_of(tree, "t") == ()
    shared = {**closed(url=URL, a={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}}
    assert places(shared) == {(("url",), "url")}


# ---- schemas that would only fail at a call ----------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#/$defs/none"}, {"$ref": "http://example.test/s.json"}, {"$ref": "s.json"}, {"$ref": "#a"},
        {"$ref": "#/$defs/t/type"}, {"$dynamicRef": "#/$defs/none"}, {"pattern": "("},
        {"patternProperties": {"[": TEXT}}, {"items": {"anyOf": [{"pattern": "a{2,1}"}]}},
    ],
)  # fmt: skip
def test_what_would_fail_at_a_call_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        check_sound({**closed(x=part), "$defs": {"t": TEXT}}, "t")


def test_data_inside_a_schema_is_no_schema() -> None:
    schema = closed(
        x={"enum": [{"$ref": "nowhere"}], "default": {"pattern": "("}, "examples": [{"$ref": "n"}]}
    )
    check_sound({**schema, "$defs": {"a/b": {"items": {"$ref": "#/$defs/a~1b"}}}}, "t")


def test_a_remote_reference_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def seen(event: str, arguments: object) -> None:
        if watching and event.startswith(("socket.", "urllib.")):
            opened.append((event, arguments))

    watching = True
    sys.addaudithook(seen)
    try:
        broken = validator(closed(x={"$ref": "http://127.0.0.1:9/s.json"}))
        with pytest.raises(Exception, match=r"s\.json"):
            first_mismatch(broken, {"x": 1})
    finally:
        watching = False
    assert opened == []


# ---- shape -------------------------------------------------------------------------------------------------


def fits(schema: Any, data: Any) -> bool:
    return first_mismatch(validator(schema), data) is None


@pytest.mark.parametrize(
    ("schema", "loose", "still_wrong"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 2}, 99, "x"),
        ({"type": "string", "maxLength": 1, "pattern": "^a$"}, "bbb", 1),
        ({"type": "string", "enum": ["a"]}, "b", None),
        ({"type": "array", "maxItems": 1, "uniqueItems": True, "items": {"type": "integer"}}, [1, 1], ["x"]),
        (closed(minimum={"type": "integer", "minimum": 3}), {"minimum": 1}, {"maximum": 1}),
        ({**closed(a=TEXT), "required": ["a"]}, {"a": ""}, {}),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "c", ...),
        ({"type": "string", "not": {"pattern": "x"}}, "x", 1),
        ({"not": TEXT}, 1, "x"),
        (
            {
                "if": {"properties": {"k": {"const": 1}}},
                "then": {"required": ["a"]},
                "else": {"required": ["b"]},
            },
            {"k": 1, "b": 0},
            {"k": 1},
        ),
        ({"dependentRequired": {"enum": ["a"]}}, {"b": 1}, {"enum": 1}),
        ({"propertyNames": {"enum": ["a"]}}, {"a": 1}, {"b": 1}),
    ],
)
def test_shape_drops_limits_of_values_and_nothing_else(schema: Any, loose: Any, still_wrong: Any) -> None:
    assert fits(shape(schema), loose)
    assert still_wrong is ... or not fits(shape(schema), still_wrong)


LEAF = st.sampled_from(
    [
        {}, {"type": "integer"}, {"type": "string"}, {"minimum": 1}, {"const": "a"}, {"enum": [0, "a"]},
        {"pattern": "^a$"}, {"minLength": 2}, {"type": "array", "maxItems": 1}, {"required": ["a"]},
        {"$ref": "#/$defs/d"},
    ]
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "minimum"])


def _compound(inner: Any) -> Any:
    return st.one_of(
        st.builds(lambda s: {"not": s}, inner),
        st.builds(lambda s, t: {"oneOf": [s, t]}, inner, inner),
        st.builds(lambda s, t: {"anyOf": [s, t]}, inner, inner),
        st.builds(lambda s, t: {"allOf": [s, t], "oneOf": [t, s]}, inner, inner),
        st.builds(lambda i, t, e: {"if": i, "then": t, "else": e}, inner, inner, inner),
        st.builds(lambda i, t: {"if": i, "then": t}, inner, inner),
        st.builds(lambda s: {"items": s, "contains": s}, inner),
        st.builds(
            lambda n, s, o: {"properties": {n: s}, "additionalProperties": o},
            NAMES,
            inner,
            st.booleans() | inner,
        ),
    )


SCHEMAS = st.recursive(LEAF, _compound, max_leaves=6)
VALUES = st.recursive(
    st.sampled_from([0, 1, "a", "aa", "b", None, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)


@given(SCHEMAS, st.sampled_from([{"minimum": 1}, {"type": "string"}, {"const": "a"}]), VALUES)
def test_what_fits_a_schema_fits_its_shape(schema: dict[str, Any], d: dict[str, Any], value: Any) -> None:
    whole = {**schema, "$defs": {"d": d}}
    if fits(whole, value):
        assert fits(shape(whole), value)


@given(SCHEMAS)
def test_shape_is_idempotent_and_leaves_the_schema_alone(schema: dict[str, Any]) -> None:
    before = json.dumps(schema)
    assert shape(shape(schema)) == shape(schema)
    assert json.dumps(schema) == before


# ---- what the model is shown -------------------------------------------------------------------------------


def test_extensions_are_left_out_and_names_are_not() -> None:
    schema = closed(**{"x-id": {**NONE, "x-note": 1}, "b": {"enum": [{"x-y": 1}], "x-z": 2}})
    assert without_extensions(schema) == closed(**{"x-id": TEXT, "b": {"enum": [{"x-y": 1}]}})


# ---- mismatches --------------------------------------------------------------------------------------------


def mismatch(schema: Any, data: Any) -> tuple[str, str, str] | None:
    found = first_mismatch(validator(schema), data)
    return None if found is None else (found.pointer, found.keyword, found.limit)


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        (closed(a=TEXT), {}, None),
        ({"required": ["b", "a"]}, {}, ("", "required", "a,b")),
        (closed(a=TEXT), {"z": 1, "y": 2}, ("", "additionalProperties", "y,z")),
        ({**closed(), "patternProperties": {"^p": {}}}, {"p": 1, "q": 1}, ("", "additionalProperties", "q")),
        (closed(a={"type": ["string", "null"]}), {"a": 1}, ("/a", "type", "string,null")),
        (closed(a={"enum": ["x", None, True, 1]}), {"a": 2}, ("/a", "enum", "x,null,true,1")),
        (closed(a={"const": True}), {"a": 2}, ("/a", "const", "true")),
        (closed(a={"minimum": 1e-7}), {"a": 0}, ("/a", "minimum", "1e-7")),
        (closed(a={"pattern": r"^\d$"}), {"a": "x"}, ("/a", "pattern", r"^\d$")),
        (closed(**{"a/b": {"items": {"type": "null"}}}), {"a/b": [None, 1]}, ("/a~1b/1", "type", "null")),
        ({"not": {}}, 1, ("", "not", "")),
        ({"minItems": 2}, [], ("", "minItems", "2")),
        ({"properties": {"a": False}}, {"a": 1}, ("", "false", "")),
    ],
)
def test_a_mismatch_is_pointer_keyword_limit(schema: Any, data: Any, expected: Any) -> None:
    assert mismatch(schema, data) == expected


def test_the_first_mismatch_does_not_depend_on_the_order_of_errors() -> None:
    class Backwards:
        def __init__(self, seed: int) -> None:
            self.seed = seed

        def iter_errors(self, data: Any) -> Any:
            errors = list(validator(schema).iter_errors(data))
            random.Random(self.seed).shuffle(errors)
            return errors

    schema = {
        "required": ["x", "y"],
        "allOf": [{"minProperties": 9}, {"minProperties": 8}, {"required": ["z"]}],
        "properties": {
            "b": {"type": "string", "minimum": 3},
            "a": {"allOf": [{"minimum": 5}, {"minimum": 4}]},
        },
    }
    data = {"b": 1, "a": 1}
    assert {first_mismatch(Backwards(seed), data) for seed in range(20)} == {
        first_mismatch(validator(schema), data)
    }
    assert mismatch({"properties": schema["properties"]}, data) == ("/a", "minimum", "4")


@given(VALUES, SCHEMAS)
def test_a_schemas_key_order_does_not_matter(value: Any, schema: dict[str, Any]) -> None:
    def turned(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(part)}
        return part

    whole = {**schema, "$defs": {"d": {"minimum": 1}}}
    assert mismatch(whole, value) == mismatch(turned(whole), value)


# ---- regular expressions as JSON Schema means them ---------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^[a-z]+$", "abc", "abc\n"),
        ("^a$|^b$", "b", "b\n"),
        (r"^a\$$", "a$", "a$\n"),
        ("^[$]$", "$", "a"),
        ("^[]$]$", "]", "]\n"),
        (r"^[\]$]$", "$", "$\n"),
        (r"\\$", "a\\", "\\\n"),
        (r"^\d+$", "09", "\u0663"),
        (r"^[\d.]+$", "1.2", "\u0663"),
        (r"^\w+$", "a_1", "\u00e9"),
        (r"^[\w-]+$", "a-b", "\u00e9"),
        (r"^\D$", "\u0663", "3"),
        (r"^\W$", "\u00e9", "a"),
        ("^[^\\x00-\\x1f]+$", "a b", "a\n"),
    ],
)
def test_patterns_mean_what_ecma_262_says(pattern: str, good: str, bad: str) -> None:
    schema = {"pattern": pattern}
    assert fits(schema, good)
    assert not fits(schema, bad)
    named = {"type": "object", "additionalProperties": False, "patternProperties": {pattern: {}}}
    assert fits(named, {good: 1})
    assert not fits(named, {bad: 1})
