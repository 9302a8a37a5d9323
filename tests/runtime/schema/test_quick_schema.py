"""The quick yes: true only of what the library accepts, and worth having for the shipped tools."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tachograph.runtime.schema.quick_schema import compile_fits
from tachograph.runtime.schema.tool_schema import first_mismatch, validator
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.tools.loader import load_named

NAMES = ("a", "b", "c")
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-4, 8)
    | st.floats(-4, 8)
    | st.sampled_from(["", "x", "xx", "xxxxxx", "\U0001f600"])
)
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
bound = st.integers(-2, 5)


def keywords(kind: str, **options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=options)


schemas = st.recursive(
    keywords("string", minLength=st.integers(0, 3), maxLength=st.integers(0, 5))
    | keywords("string", enum=st.lists(scalars, min_size=1, max_size=3))
    | keywords("integer", minimum=bound, maximum=bound)
    | keywords("number", minimum=bound | st.floats(-2, 5), maximum=bound)
    | keywords("integer", multipleOf=st.integers(1, 3), enum=st.lists(scalars, min_size=1, max_size=2))
    | keywords("boolean", title=st.just("t"), enum=st.lists(scalars, min_size=1, max_size=2))
    | keywords("null")
    | st.fixed_dictionaries(
        {
            "type": st.lists(
                st.sampled_from(["string", "integer", "null", "boolean"]), min_size=1, unique=True
            )
        },
        optional={"minLength": st.integers(0, 3), "maximum": bound, "minItems": st.just(1)},
    )
    | st.booleans(),
    lambda inner: (
        st.fixed_dictionaries(
            {"anyOf": st.lists(inner, min_size=1, max_size=3)},
            optional={"title": st.just("t"), "minimum": bound},
        )
        | keywords("array", items=inner, minItems=st.integers(0, 2), maxItems=st.integers(0, 3))
        | keywords(
            "object",
            properties=st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            required=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            additionalProperties=st.just(False) | st.just(True) | inner,
            anyOf=st.lists(inner, min_size=1, max_size=2),
        )
    ),
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(schemas, data)
def test_it_accepts_only_what_the_library_accepts(schema: Any, value: Any) -> None:
    fits = compile_fits(schema)
    if fits is not None and fits(value):
        assert Draft202012Validator(schema).is_valid(value)
        assert first_mismatch(validator(schema), value) is None


@settings(max_examples=300, deadline=None)
@given(schemas, data)
def test_what_it_knows_it_knows_exactly(schema: Any, value: Any) -> None:
    """Integral floats aside, which canonical arguments never hold, it says yes wherever the library does."""
    fits = compile_fits(schema)
    if fits is not None and "." not in json.dumps(value):
        assert fits(value) == Draft202012Validator(schema).is_valid(value)


unknown = (
    st.fixed_dictionaries({"type": st.just("string"), "pattern": st.sampled_from(["^x", "xx", "^$"])})
    | st.fixed_dictionaries({"multipleOf": st.integers(1, 3)})
    | st.fixed_dictionaries({"not": schemas})
    | st.fixed_dictionaries({"type": st.just("array"), "uniqueItems": st.just(True)})
)
mixed = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "additionalProperties": st.just(False),
        "properties": st.dictionaries(st.sampled_from(NAMES), schemas | unknown, max_size=3),
    },
    optional={"required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True)},
)


@settings(max_examples=600, deadline=None)
@given(mixed, data | st.dictionaries(st.sampled_from(NAMES), data, max_size=3))
def test_with_the_library_for_what_it_does_not_know_it_is_the_library(schema: Any, value: Any) -> None:
    fits = compile_fits(schema, lambda part: Draft202012Validator(part).is_valid)
    if any(isinstance(part, bool) for part in schema["properties"].values()):
        assert fits is None
        return
    assert fits is not None
    if "." not in json.dumps(value):
        assert fits(value) == Draft202012Validator(schema).is_valid(value)
    elif fits(value):
        assert Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "part", [{"$ref": "#/$defs/x"}, {"anyOf": [{"items": {"$ref": "#"}}]}, True], ids=repr
)
def test_what_leads_away_is_left_to_the_whole(part: Any) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"a": part}, "required": []}
    assert compile_fits(schema, lambda _part: lambda _data: True) is None


@pytest.mark.parametrize("name", SHIPPED)
def test_it_knows_the_shipped_tools(name: str) -> None:
    tool = load_named(name)
    assert compile_fits(tool.input_schema) is not None
    assert compile_fits(tool.output_schema) is not None


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "enum": ["a"]},
        {"type": ["string", "null"], "minimum": 1},
        {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "a"}]},
        {"anyOf": [{"type": "null"}], "minLength": 1},
        {"type": "string", "pattern": "a"},
        {"type": "string", "format": "uri"},
        {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": False, "minProperties": 1},
        {"type": "object", "additionalProperties": False, "properties": {"a": {"$ref": "#"}}},
        {"type": "integer", "minimum": 0.5},
        {"type": "array", "prefixItems": []},
        {"type": "array", "uniqueItems": True},
    ],
    ids=repr,
)
def test_what_it_does_not_know_it_leaves(schema: Any) -> None:
    assert compile_fits(schema) is None


def test_rows_of_the_json_schema_test_suite() -> None:
    corpora = os.environ.get("TACHOGRAPH_CORPORA")
    if corpora is None:
        pytest.skip("TACHOGRAPH_CORPORA is not set")
    rows = (Path(corpora) / "3-schema" / "jsonschema_cases.jsonl").read_text(encoding="utf-8").splitlines()
    known = accepted = 0
    for text in rows:
        row = json.loads(text)
        schema = row["schema"]
        if isinstance(schema, dict):
            schema = {key: value for key, value in schema.items() if key != "$schema"}
        fits = compile_fits(schema)
        if fits is None:
            continue
        known += 1
        if fits(row["data"]):
            accepted += 1
            assert row["valid"], row["id"]
    assert known > 20 and accepted > 5
    print(f"{known} rows known, {accepted} accepted")
