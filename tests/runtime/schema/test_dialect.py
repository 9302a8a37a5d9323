"""Schemas that no call should meet are refused when they are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.fail.errors import ToolError
from tachograph.runtime.schema.dialect import DIALECT, check_input, check_output, shape
from tachograph.runtime.schema.validator import SchemaValidator
from tachograph.runtime.tools.contract import SHIPPED, Tool
from tachograph.runtime.tools.loader import load_named

TEXT = {"type": "string"}
CLOSED = {"type": "object", "additionalProperties": False}


def closed(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": properties}


def refused(schema: dict[str, Any]) -> ToolError:
    with pytest.raises(ToolError) as found:
        check_output(schema, "t")
    assert found.value.file == "t" and found.value.remedy
    return found.value


def refused_input(schema: dict[str, Any]) -> ToolError:
    with pytest.raises(ToolError) as found:
        check_input(schema, "t")
    assert found.value.file == "t" and found.value.remedy
    return found.value


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_tools_are_sound(name: str) -> None:
    tool = load_named(name)
    check_output(dict(tool.input_schema), "t")
    check_output(dict(tool.output_schema), "t")


# ---- keywords that change what a schema means --------------------------------------------------------------


@pytest.mark.parametrize(
    "keyword",
    "$schema $id $vocabulary $anchor $dynamicAnchor $dynamicRef $recursiveRef $recursiveAnchor".split(),
)
def test_nothing_below_the_root_changes_the_dialect_or_the_base(keyword: str) -> None:
    values = {"$schema": DIALECT, "$vocabulary": {}, "$recursiveAnchor": True}
    part = {**TEXT, keyword: values.get(keyword, "#a")}
    for schema in (
        closed(a=part),
        {**closed(a=TEXT), "$defs": {"t": part}},
        closed(a={"anyOf": [part]}),
        closed(a={"not": part}),
    ):
        assert keyword in refused(schema).message
    if keyword not in ("$schema", "$id"):
        assert keyword in refused({**closed(), keyword: values.get(keyword, "#a")}).message
    check_output(closed(**{keyword: TEXT}), "t")  # a property of that name
    check_output(
        closed(a={**TEXT, "default": {keyword: 1}, "x-more": {keyword: 1}, "example": {keyword: 1}}), "t"
    )


def test_the_root_may_name_itself_and_the_dialect_that_we_read() -> None:
    check_output(
        {
            **closed(a={"$ref": "#/$defs/t"}),
            "$schema": DIALECT,
            "$id": "https://x.test/t",
            "$defs": {"t": TEXT},
        },
        "t",
    )
    check_output({**closed(), "$schema": f"{DIALECT}#"}, "t")
    for other in (
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "",
    ):
        assert "Draft 2020-12" in refused({**closed(), "$schema": other}).message


@pytest.mark.parametrize(
    "key",
    [
        "x-ressource",
        "x_resource",
        "X-Resource",
        "x-resources",
        "xResource",
        "x-resourse",
        "x resource",
        "x-Resource",
    ],
)
def test_a_misspelt_keyword_of_ours_is_refused(key: str) -> None:
    for schema in (
        closed(a={**TEXT, key: "url"}),
        {**closed(), key: "none"},
        closed(a={"anyOf": [{key: "url"}]}),
    ):
        found = refused(schema)
        assert repr(key) in found.message and "'x-resource'" in str(found.remedy)
    check_output(closed(**{key: TEXT}), "t")
    check_output(closed(a={"default": {key: 1}}), "t")


@pytest.mark.parametrize("key", ["x-source", "x-note", "x-order", "x-enum-varnames", "resource", "X-Rate"])
def test_other_extensions_are_none_of_our_business(key: str) -> None:
    check_output(closed(a={**TEXT, key: "url"}), "t")


@pytest.mark.parametrize(
    "said", [None, "path", "URL", "urls", "", 1, True, ["url"], {"kind": "url"}, "path:rw"]
)
def test_an_unknown_kind_of_resource_is_refused(said: Any) -> None:
    assert "x-resource" in refused(closed(a={**TEXT, "x-resource": said})).message
    if said == "urls":
        assert refused(closed(a={"x-resource": said})).remedy == "did you mean 'url'?"


# ---- references --------------------------------------------------------------------------------------------

HIDDEN = {"properties": {"url": TEXT}}


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/none", "#/definitions/t", "#/$defs/", "#/$defs/t/type", "#/$defs/t/default",
        "#/$defs/t/x-more", "#/$defs/t/examples/0", "#/$defs/t/enum/0", "#/$defs/t/zzz", "#/properties/a",
        "#/$defs", "#a", "a", "other.json", "http://example.test/s.json", "#/$defs/a%20b", "#/%24defs/t", "",
        "##", "#/", "/$defs/t", "#/$defs/t\n", "#\n", "https://x.test/t#/$defs/t",
    ],
)  # fmt: skip
def test_a_reference_leads_to_a_named_schema_or_the_whole(reference: str) -> None:
    target = {
        "type": "integer",
        "default": HIDDEN,
        "x-more": HIDDEN,
        "examples": [HIDDEN],
        "enum": [HIDDEN],
        "zzz": HIDDEN,
    }
    whole = {"$defs": {"t": target, "a b": TEXT, "a%20b": TEXT}, "$id": "https://x.test/t"}
    for part in ({"$ref": reference}, {"anyOf": [{"$ref": reference}]}, {"not": {"$ref": reference}}):
        assert "$ref" in refused({**closed(x=part), **whole}).message


def test_references_that_are_followed() -> None:
    names = {"t": TEXT, "a/b": {"items": {"$ref": "#/$defs/a~1b"}}, "m~n": True, "": TEXT, "ü": TEXT}
    for reference in (
        "#/$defs/t",
        "#/$defs/a~1b",
        "#/$defs/m~0n",
        "#/$defs/",
        "#/$defs/ü",
        "#/definitions/d",
    ):
        check_output({**closed(x={"$ref": reference}), "$defs": names, "definitions": {"d": TEXT}}, "t")
    check_output(closed(next={"$ref": "#"}), "t")


@pytest.mark.parametrize(
    "schema",
    [
        {**closed(a={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {
            **closed(a={"$ref": "#/$defs/a"}),
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}},
        },
        {**closed(), "allOf": [{"$ref": "#"}]}, {**closed(), "anyOf": [TEXT, {"$ref": "#"}]},
        {**closed(), "if": {"$ref": "#"}}, {**closed(), "dependentSchemas": {"a": {"$ref": "#"}}},
        {**closed(a=TEXT), "oneOf": [{"then": {"$ref": "#"}}]},
    ],
)  # fmt: skip
def test_a_reference_that_comes_back_without_a_step_down_is_refused(schema: dict[str, Any]) -> None:
    assert "back to itself" in refused(schema).message


# ---- patterns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"pattern": "("}, "not well formed"), ({"patternProperties": {"[": TEXT}}, "not supported"),
        ({"items": {"anyOf": [{"pattern": "a{2,1}"}]}}, "not well formed"),
        ({"pattern": "^(?=a)$"}, "(?=a"), ({"pattern": "^(?P<y>a)$"}, "(?P<"),
        ({"pattern": "(a{1000}){1000}"}, "counts too far"), ({"patternProperties": {"(?i)^b": TEXT}}, "(?i)"),
    ],
)  # fmt: skip
def test_a_pattern_that_is_not_usable_is_refused_with_its_place(part: dict[str, Any], said: str) -> None:
    found = refused(closed(x=part))
    assert said in found.message and "at /properties/x" in found.message


def test_what_only_looks_like_a_pattern_or_a_reference_is_data() -> None:
    data = {"$ref": "nowhere", "pattern": "(", "$id": 3, "x_resource": 1}
    holds = {
        "enum": [data],
        "default": data,
        "examples": [data],
        "example": data,
        "x-note": data,
        "unknown": data,
    }
    check_output(closed(x=holds, pattern=TEXT, **{"$ref": TEXT}), "t")


# ---- how much may meet -------------------------------------------------------------------------------------


def _doubling(steps: int, keyword: str = "anyOf") -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(steps)
    }
    return {**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**defs, f"d{steps}": {"type": "integer"}}}


def _itself(node: dict[str, Any]) -> dict[str, Any]:
    return {**closed(a={"$ref": "#/$defs/t"}), "$defs": {"t": node}}


AGAIN = {"$ref": "#/$defs/t"}
ARRAY = {"type": "array", "items": AGAIN}


@pytest.mark.parametrize(
    "schema",
    [
        _doubling(14), _doubling(60), _doubling(14, "allOf"), _doubling(14, "oneOf"),
        _itself({"anyOf": [ARRAY, {**ARRAY, "minItems": 1}]}), _itself({"allOf": [ARRAY, ARRAY]}),
        _itself({"oneOf": [closed(op={"const": "and"}, of=ARRAY), closed(op={"const": "or"}, of=ARRAY)]}),
        _itself({"type": "object", "patternProperties": {"^a": AGAIN, "a$": AGAIN}, "additionalProperties": False}),
        _itself({"type": "object", "additionalProperties": AGAIN, "unevaluatedProperties": False}),
        _itself({"type": "array", "contains": AGAIN, "items": AGAIN}),
    ],
    ids=lambda schema: str(schema)[-60:],
)  # fmt: skip
def test_a_schema_whose_parts_meet_too_often_is_refused(schema: dict[str, Any]) -> None:
    assert "10,000" in refused(schema).message


@pytest.mark.parametrize(
    "schema",
    [
        _doubling(8),
        closed(left={"$ref": "#"}, right={"$ref": "#"}, any={"type": "array", "items": {"$ref": "#"}}),
        _itself({"anyOf": [{"type": "integer"}, ARRAY]}),
        _itself({"oneOf": [closed(all=ARRAY), closed(any=ARRAY), closed(no=AGAIN)]}),
        _itself({"type": "object", "properties": {"kids": ARRAY}, "unevaluatedProperties": False}),
        _itself({"type": "object", "properties": {"a": AGAIN}, "additionalProperties": AGAIN}),
        _itself({"type": "array", "prefixItems": [AGAIN, AGAIN], "items": AGAIN}),
        closed(**{f"p{i}": {"oneOf": [{"const": n} for n in range(50)]} for i in range(50)}),
    ],
    ids=lambda schema: str(schema)[-60:],
)  # fmt: skip
def test_a_schema_that_holds_itself_once_a_step_is_fine(schema: dict[str, Any]) -> None:
    check_output(schema, "t")


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(1500):
        deep = {"items": deep}
    with pytest.raises(ToolError, match="nested too deeply"):
        Tool("t", "", CLOSED, closed(a=deep), "read", True, lambda args, io: {})
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(6000)}
    for make in (refused, refused_input):
        assert (
            "too deeply"
            in make({**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**chain, "d6000": TEXT}}).message
        )


def test_an_output_schema_is_held_to_the_same() -> None:
    for output in (
        {**CLOSED, "allOf": [{"$ref": "#"}]},
        closed(a={"$id": "x"}),
        _doubling(20),
    ):
        with pytest.raises(ToolError) as found:
            Tool("t", "", CLOSED, output, "read", True, lambda args, io: {})
        assert "OUTPUT_SCHEMA" in str(found.value)
    # where nothing has to be declared, since the model says none of it
    assert Tool("t", "", CLOSED, closed(url=TEXT, any={}), "read", True, lambda args, io: {}).resources == ()


# ---- the subset for input schemas --------------------------------------------------------------------------

OUTSIDE: dict[str, Any] = {
    "allOf": [TEXT], "not": TEXT, "if": TEXT, "then": TEXT, "else": TEXT, "prefixItems": [TEXT], "contains": TEXT,
    "minContains": 1, "maxContains": 1, "patternProperties": {"^a": TEXT}, "propertyNames": TEXT,
    "dependentSchemas": {"a": TEXT}, "dependentRequired": {"a": ["b"]}, "dependencies": {"a": ["b"]},
    "unevaluatedProperties": False, "unevaluatedItems": False, "contentSchema": TEXT, "nullable": True,
    "maxLenght": 3, "additionalproperties": False, "$anchor": "a", "$dynamicRef": "#a", "$comments": "x",
}  # fmt: skip


@pytest.mark.parametrize("keyword", OUTSIDE)
def test_what_lies_outside_the_subset_is_refused_with_its_place(keyword: str) -> None:
    part = {"type": "object", "additionalProperties": False, keyword: OUTSIDE[keyword]}
    for schema, place in (
        (closed(a=part), "/properties/a"),
        (
            closed(a={"anyOf": [{"type": "array", "items": part}, {"type": "null"}]}),
            "/properties/a/anyOf/0/items",
        ),
        ({**closed(a=TEXT), "$defs": {"d": part}}, "/$defs/d"),
        ({**part, "properties": {}}, "/"),
    ):
        found = refused_input(schema)
        assert found.message == f"{keyword} at {place} is not supported in an input schema"
    check_input(closed(**{keyword: TEXT}), "t")  # a property of that name
    check_input(closed(a={**TEXT, "default": {keyword: 1}, "x-more": {keyword: 1}}), "t")


def test_a_refusal_says_what_to_do() -> None:
    assert refused_input(closed(a={**TEXT, "maxLenght": 3})).remedy == "did you mean 'maxLength'?"
    assert refused_input(closed(a={"allOf": [TEXT]})).remedy == "merge its schemas into one"
    assert "look-around" in str(refused_input(closed(a={**TEXT, "pattern": "(?=a)"})).remedy)


@pytest.mark.parametrize(
    "beside", [{"type": "string"}, {"maxLength": 3}, {"enum": ["a"]}, {"properties": {}}, {"required": ["a"]}]
)
def test_beside_a_reference_or_a_choice_stand_only_words(beside: dict[str, Any]) -> None:
    for leading in ({"$ref": "#/$defs/t"}, {"anyOf": [TEXT]}, {"oneOf": [TEXT]}):
        part = {**leading, **beside}
        assert "beside" in refused_input({**closed(a=part), "$defs": {"t": TEXT}}).message
    assert "beside" in refused_input(closed(a={"anyOf": [TEXT], "oneOf": [TEXT]})).message
    assert "anyOf at /" in refused_input({**closed(), "anyOf": [{"required": ["a"]}]}).message
    words = {
        "title": "A",
        "description": "b",
        "default": "c",
        "examples": ["d"],
        "x-order": 1,
        "x-resource": "none",
    }
    check_input(
        {**closed(a={"$ref": "#/$defs/t", **words}, b={"anyOf": [TEXT], **words}), "$defs": {"t": TEXT}}, "t"
    )


SHAPES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "integer", "minimum": 1, "maximum": 2}, 99, "x"),
    ({"type": "string", "maxLength": 1, "pattern": "^a$"}, "bbb", 1),
    ({"type": "string", "minLength": 2, "enum": ["a"]}, "a", "b"), ({"const": 1}, 1, 2),
    ({"type": "array", "maxItems": 1, "uniqueItems": True, "items": {"type": "integer"}}, [1, 1], ["x"]),
    (closed(minimum={"type": "integer", "minimum": 3}), {"minimum": 1}, {"maximum": 1}),
    ({**closed(a=TEXT), "required": ["a"], "minProperties": 2}, {"a": ""}, {}),
    ({"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "minimum": 2}]}, 1, "x"),
    ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "a", "c"),
    # nothing in it is wider, so that it stays a choice of exactly one
    ({"oneOf": [{"const": "a"}, {"enum": ["a", "b"]}]}, "b", "a"),
    ({"oneOf": [{"$ref": "#/$defs/t"}, {"const": "aa"}], "$defs": {"t": {"maxLength": 1}}}, "aa", ...),
    ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "string", "maxLength": 1}}}, "bbb", 1),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "loose", "still_wrong"), SHAPES)
def test_shape_drops_limits_of_values_and_nothing_else(
    schema: dict[str, Any], loose: Any, still_wrong: Any
) -> None:
    judge = SchemaValidator(shape(schema))
    assert judge.accepts(loose)
    assert still_wrong is ... or not judge.accepts(still_wrong)
    assert shape(shape(schema)) == shape(schema)
