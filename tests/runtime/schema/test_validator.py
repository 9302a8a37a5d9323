"""Data is held against a tool's schema as its author meant it, in bounded time and memory."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tachograph.fail.errors import ToolError
from tachograph.runtime.models.types import MAX_VALUES
from tachograph.runtime.schema.dialect import without_extensions
from tachograph.runtime.schema.number_limits import without_unreachable
from tachograph.runtime.schema.validator import MAX_EXPLAINED, Mismatch, SchemaValidator
from tachograph.runtime.tools.contract import Tool

NONE = {"type": "string", "x-resource": "none"}
TEXT = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def fits(schema: Any, data: Any) -> bool:
    return SchemaValidator(schema).accepts(data)


# ---- schemas and data that are drawn -----------------------------------------------------------------------

LEAF = st.sampled_from(
    [
        {}, {"type": "integer"}, {"type": "string"}, {"minimum": 1}, {"const": "a"}, {"enum": [0, "a"]},
        {"pattern": "^a$"}, {"minLength": 2}, {"type": "array", "maxItems": 1}, {"required": ["a"]},
        {"$ref": "#/$defs/d"}, {"unevaluatedItems": False}, {"unevaluatedProperties": False},
        {"uniqueItems": True},
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
        st.builds(lambda s, t: {"prefixItems": [t], "contains": s, "unevaluatedItems": False}, inner, inner),
        st.builds(lambda s, t: {"allOf": [s], "anyOf": [t, s], "unevaluatedProperties": False}, inner, inner),
        st.builds(lambda s: {"propertyNames": s}, inner),
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


# ---- what the model is shown, and what no number of ours reaches -------------------------------------------


def test_extensions_are_left_out_and_names_are_not() -> None:
    schema = closed(
        **{"x-id": {**NONE, "x-note": 1}, "b": {"enum": [{"x-y": 1}], "x-z": 2, "example": {"x-e": 1}}}
    )
    assert without_extensions(schema) == closed(
        **{"x-id": TEXT, "b": {"enum": [{"x-y": 1}], "example": {"x-e": 1}}}
    )


BIG = 2**63


@pytest.mark.parametrize(
    "limits",
    [
        {"type": "integer", "minimum": -BIG, "maximum": BIG - 1}, {"type": "integer", "maximum": 2**53},
        {"type": "number", "exclusiveMinimum": -1.7976931348623157e308, "exclusiveMaximum": 1.7976931348623157e308},
        {"type": "array", "items": {"type": "integer", "maximum": 9.223372036854776e18}, "maxItems": BIG},
    ],
)  # fmt: skip
def test_limits_beyond_every_number_of_ours_load_and_judge_nothing(limits: dict[str, Any]) -> None:
    tool = Tool("t", "", closed(n=limits), closed(n=limits), "read", True, lambda args, io: {})
    plain = without_unreachable(closed(n=limits))
    assert "7" not in json.dumps(plain) and tool.input_schema == plain == tool.output_schema
    for number in (0, 2**53 - 1, 1 - 2**53, 0.5):
        data = {"n": [number] if limits["type"] == "array" else number}
        assert fits(tool.input_schema, data) == Draft202012Validator(closed(n=limits)).is_valid(data)
    assert json.loads(tool.offered_schema) == plain and len(tool.schema_digest) == 64


@pytest.mark.parametrize(
    "limits",
    [
        {"minimum": BIG},
        {"maximum": -BIG},
        {"const": BIG},
        {"enum": [BIG]},
        {"default": BIG},
        {"multipleOf": 1e300},
    ],
)
def test_other_numbers_beyond_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as refused:
        Tool("t", "", closed(n={"type": "integer", **limits}), closed(), "read", True, lambda args, io: {})
    assert f"2^53 at /properties/n/{next(iter(limits))}" in refused.value.message
    assert "leave it out" in str(refused.value.remedy)


def test_a_limit_within_is_left_as_it_is() -> None:
    schema = closed(
        maximum={"type": "integer", "maximum": 2**53 - 1}, b={"default": {"maximum": 1}, "minimum": 5}
    )
    assert without_unreachable(schema) == schema


# ---- mismatches --------------------------------------------------------------------------------------------


def mismatch(schema: Any, data: Any) -> tuple[str, str, str] | None:
    found = SchemaValidator(schema).first_mismatch(data)
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
        ({"anyOf": [{"type": "null"}, {"items": TEXT}]}, [1], ("", "anyOf", "")),
        ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 1, ("", "oneOf", "")),
        ({"uniqueItems": True}, [1, 1.0], ("", "uniqueItems", "true")),
        ({"uniqueItems": True}, [[{"a": 1}], [{"a": 1.0}]], ("", "uniqueItems", "true")),
        ({"uniqueItems": True}, [1, True, 0, False, None, "1", [1], [True], {"a": 0}, {"a": False}], None),
        ({"minItems": 2}, [], ("", "minItems", "2")),
        ({"properties": {"a": False}}, {"a": 1}, ("/a", "false", "")),
    ],
)
def test_a_mismatch_is_pointer_keyword_limit(schema: Any, data: Any, expected: Any) -> None:
    assert mismatch(schema, data) == expected


@given(VALUES, SCHEMAS)
def test_a_schemas_key_order_does_not_matter(value: Any, schema: dict[str, Any]) -> None:
    def turned(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(part)}
        return part

    whole = {**schema, "$defs": {"d": {"minimum": 1}}}
    assert mismatch(whole, value) == mismatch(turned(whole), value)


PLAIN = {"anyOf": [TEXT, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (closed(a={"items": PLAIN}), {"a": list(range(MAX_VALUES - 10))}),
        ({"additionalProperties": PLAIN}, {f"k{i:05}": i for i in range(MAX_VALUES - 10)}),
        # a copy of the text for each level
        (
            {"properties": {"n": {"$ref": "#"}}, "required": ["x"]},
            {"n": {"n": {"n": {"t": "x" * 4_000_000}}}},
        ),
    ],
)
def test_what_is_wrong_in_many_places_is_told_in_bounded_memory(schema: Any, data: Any) -> None:
    validator = SchemaValidator(schema)
    tracemalloc.start()
    try:
        first = validator.first_mismatch(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first is not None and validator.first_mismatch(data) == first
    assert peak < 12_000_000


def test_the_first_of_many_mismatches_is_named_up_to_the_bound() -> None:
    validator = SchemaValidator({"items": TEXT, "minItems": MAX_EXPLAINED})
    expected = Mismatch("", "minItems", str(MAX_EXPLAINED), "/minItems")
    assert validator.first_mismatch([1] * (MAX_EXPLAINED - 1)) == expected


COSTLY = {"type": "string", "pattern": "^.{1,2000}$"}  # compiles to 4 MiB


@pytest.mark.parametrize(
    ("schema", "data", "pointer"),
    [
        (closed(a=COSTLY, b=TEXT), {"a": "x\n" * 2049}, "/a"),
        (closed(a={"items": COSTLY}), {"a": ["x" * 1000] * 5}, "/a"),
        ({**closed(a={"$ref": "#/$defs/d"}), "$defs": {"d": COSTLY}}, {"a": "x" * 4097}, ""),
        ({"patternProperties": {COSTLY["pattern"]: {}}}, {"x" * 4097: 1}, ""),
        ({"items": COSTLY}, ["x" * 1000] * 5, ""),
        (closed(a=COSTLY, n={"$ref": "#"}), {"n": {"a": "x" * 4097}}, ""),
    ],
)
def test_a_costly_pattern_judges_no_long_text(schema: Any, data: Any, pointer: str) -> None:
    assert mismatch(schema, data) == (pointer, "pattern", "at most 4096 characters")
    assert not fits(schema, data)


def test_the_text_beside_a_costly_pattern_is_not_bounded() -> None:
    schema = closed(a=COSTLY, b={"type": "string", "pattern": "^[a-z]+$"})
    assert fits(schema, {"a": "x" * 2000, "b": "x" * 100_000})
    assert not fits(schema, {"a": "x" * 2001})


def test_a_remote_reference_is_never_fetched() -> None:
    opened: list[object] = []

    def seen(event: str, arguments: object) -> None:
        if watching and event.startswith(("socket.", "urllib.")):
            opened.append((event, arguments))

    watching = True
    sys.addaudithook(seen)
    try:
        with pytest.raises(ValueError, match=r"s\.json"):
            SchemaValidator(closed(x={"$ref": "http://127.0.0.1:9/s.json"}))
    finally:
        watching = False
    assert opened == []


# ---- the verdict --------------------------------------------------------------------------------------


@given(VALUES, SCHEMAS)
def test_the_verdict_is_that_of_the_library(value: Any, schema: dict[str, Any]) -> None:
    whole = {**schema, "$defs": {"d": {"minimum": 1}}}
    assert fits(whole, value) == Draft202012Validator(whole).is_valid(value)


ITEMS = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, -0.0, 1.5, "", "1", "true"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=3,
)


@given(ITEMS, ITEMS)
def test_items_are_the_same_where_the_library_calls_them_equal(one: Any, two: Any) -> None:
    same = Draft202012Validator({"const": one}).is_valid(two)
    assert fits({"uniqueItems": True}, [one, two]) is not same
    assert fits({"uniqueItems": False}, [one, two])


@pytest.mark.parametrize(
    ("divisor", "number", "divides"),
    [
        (0.01, 19.99, True), (0.01, 19.995, False), (0.1, 0.3, True), (0.1, 1, True), (3, 9, True),
        (3, 10, False), (2, 3.5, False), (0.5, 2**53 - 1, True), (1e-8, 12391239123, True),
        (0.123456789, 1e300, False), (1.5, 4.5, True), (1e-300, 1e300, True), (7, 0, True),
        (0.01, -19.99, True),
    ],
)  # fmt: skip
def test_multiples_are_those_of_the_numbers_as_they_are_written(
    divisor: Any, number: Any, divides: bool
) -> None:
    assert fits({"multipleOf": divisor}, number) is divides
    assert fits({"multipleOf": divisor}, True)


def test_patterns_of_properties() -> None:
    # joined into one, the second would be read as part of the first
    named = {**closed(), "patternProperties": {"^(a)$|^(b)$": {"type": "integer"}, "^c": {}}}
    assert (
        fits(named, {"a": 1, "b": 2, "cc": None})
        and not fits(named, {"bb": 1})
        and not fits(named, {"a": "x"})
    )
    # written differently, read alike
    alike = {**closed(), "patternProperties": {r"^\x31$": {"minimum": 3}, "^1$": {"maximum": 5}}}
    assert fits(alike, {"1": 4}) and not fits(alike, {"1": 2}) and not fits(alike, {"1": 6})
    rest = {"patternProperties": {"^a": {}}, "additionalProperties": {"type": "integer"}}
    assert fits(rest, {"a": "x", "b": 1}) and not fits(rest, {"a": "x", "b": "x"})


SLOW: dict[str, tuple[Any, Any]] = {
    "unique objects": (
        {"type": "array", "uniqueItems": True},
        [{"k": i, "l": [i]} for i in range(MAX_VALUES // 4)],
    ),
    "unique, of two types": ({"uniqueItems": True}, [x for i in range(MAX_VALUES // 2) for x in (i, str(i))]),
    "each item wrong": ({"items": TEXT}, [1] * MAX_VALUES),
    "each item wrong in a choice": ({"anyOf": [{"items": TEXT}, {"type": "null"}]}, [1] * MAX_VALUES),
    "each item wrong in one of": (
        {"oneOf": [{"items": TEXT}, {"items": {"type": "null"}}]},
        [1] * MAX_VALUES,
    ),
    "undeclared keys": (closed(a=TEXT), {f"k{i}": 1 for i in range(MAX_VALUES)}),
    "unevaluated items": (
        {"contains": {"type": "integer"}, "unevaluatedItems": False},
        [1] * (4096 + 1),
    ),
    "unevaluated items, some": (
        {"contains": {"type": "integer"}, "unevaluatedItems": False},
        [1] * 4096 + ["x"],
    ),
    "unevaluated keys": (
        {"patternProperties": {"^k": {}}, "unevaluatedProperties": False},
        {f"k{i}": 1 for i in range(MAX_VALUES)},
    ),
}


FITS = {"unique objects", "unique, of two types", "unevaluated items", "unevaluated keys"}


@pytest.mark.parametrize("name", SLOW)
def test_large_data_is_judged(name: str) -> None:
    """The test ends: as many values as a call may hold, each of them wrong or to be compared with all others."""
    schema, data = SLOW[name]
    assert SchemaValidator(schema).accepts(data) is (name in FITS)
    assert (SchemaValidator(schema).first_mismatch(data) is None) is (name in FITS)


def test_where_the_library_says_no_and_names_nothing_the_answer_is_no() -> None:
    judge = SchemaValidator(TEXT)
    judge._library = _Silent()
    assert judge.first_mismatch(1) == Mismatch("", "schema", "")


class _Silent:
    def is_valid(self, data: Any) -> bool:
        return False

    def iter_errors(self, data: Any) -> list[Any]:
        return []


def test_formats_are_described_and_not_asserted() -> None:
    """Which formats a library judges changes with its version; a verdict on recorded data may not."""
    validator = SchemaValidator({"type": "string", "format": "date-time"})
    assert validator.accepts("yesterday") and validator.first_mismatch("yesterday") is None
