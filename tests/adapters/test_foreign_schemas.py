"""A schema may come from anywhere: whatever it says, it is taken over or refused with one plain line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.adapters.common import Foreign, changed, govern
from tachograph.adapters.schemas import adopt
from tachograph.fail.errors import ToolError
from tachograph.runtime.formats.invisible_chars import HIDDEN
from tachograph.runtime.schema.resource_places import Resource
from tachograph.runtime.tools.contract import Tool
from tests.adapters.kit import refused
from tests.tables.output_texts import TEXTS

OPEN: dict[str, Any] = {"type": "object", "properties": {}}


def made(parameters: Any, resources: Any = None, name: str = "probe") -> Tool:
    foreign = Foreign(name, "What.", parameters, lambda args, io: None, None, Any)
    return govern(foreign, {"effect": "pure", "idempotent": True, "resources": resources})


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"x": schema}}


BROKEN: list[tuple[Any, dict[str, str], str]] = [
    ({"type": "object", "properties": ["url"]}, {"url": "url"}, ""),
    (
        {"type": "object", "properties": {"url": {"$ref": "#/$defs/U"}}},
        {"/url/x": "url"},
        "the reference '#/$defs/U' cannot be followed; let it stand alone",
    ),
    (
        {
            **OPEN,
            "properties": {"a": {"$ref": "#/$defs/U", "minimum": 3}},
            "$defs": {"U": {"type": "integer"}},
        },
        {},
        "cannot be followed; let it stand alone",
    ),
    ({**OPEN, "properties": {"a": {"$ref": "#"}}}, {}, "'#' refers to itself"),
    ({**OPEN, "properties": {"a": {"$ref": "other.json#/$defs/U"}}}, {}, "cannot be followed"),
    (
        {**OPEN, "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
        {"/a/x": "url"},
        "more than one way",
    ),
    ({**OPEN, "properties": {"a": {"$ref": "#/$defs/U"}}, "$defs": ["U"]}, {"/a/x": "url"}, ""),
    ({"type": "object", "properties": {"x": 3}}, {"/x/y": "url"}, ""),
    ({"type": "object", "properties": {"x": {"anyOf": 3}}}, {"/x/y": "url"}, ""),
    (_deep(5000), {}, ""),
    ({"type": "object"}, {}, "must be an object schema with additionalProperties: false"),
    ({**OPEN, "additionalProperties": True}, {}, "must be an object schema with additionalProperties: false"),
    ({**OPEN, "$schema": "http://json-schema.org/draft-07/schema#"}, {}, "is not Draft 2020-12"),
    ({**OPEN, "properties": {"x": {"default": object()}}}, {}, "not JSON"),
]


@pytest.mark.parametrize(("parameters", "resources", "what"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_schema_for_us_is_refused(parameters: Any, resources: dict[str, str], what: str) -> None:
    assert what in refused(lambda: made(parameters, resources))


@pytest.mark.parametrize("kind", ["terminal", "unseen", "lines"])
def test_a_hostile_name_of_an_argument_stays_one_plain_line(kind: str) -> None:
    for text in list(TEXTS[kind]())[::9]:
        hostile = f"{text}_url"
        for make in (
            lambda name=hostile: made({"type": "object", "properties": {name: {"type": "string"}}}),
            lambda name=hostile: made(OPEN, {name: "url"}),
            lambda name=hostile: made(OPEN, name=name),
        ):
            line = refused(make)
            assert HIDDEN.search(line) is None, ascii(line)


def test_an_object_that_says_what_others_hold_is_left_alone() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}},
            "c": {"enum": [{"type": "object", "properties": {}}]},
        },
    }
    assert adopt(schema, {}, "t") == {**schema, "additionalProperties": False}


def test_references_are_followed() -> None:
    item = {
        "type": "object",
        "properties": {"url": {"type": "string"}, "next": {"$ref": "#/definitions/a~1b"}},
    }
    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Item", "description": "One."}}},
        "$defs": {"Item": item, "Stray": {"type": "string"}},
        "definitions": {"a/b": {"type": "integer"}},
    }
    tool = made(schema, {"/items/*/url": "url"})
    one = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"url": {"type": "string", "x-resource": "url"}, "next": {"type": "integer"}},
        "description": "One.",
    }
    assert tool.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"items": {"type": "array", "items": one}},
    }
    assert "$ref" in schema["properties"]["items"]["items"], "the schema itself is left as it was"  # type: ignore[index]


def test_references_that_multiply_are_refused() -> None:
    """Each definition uses the one before it twice: thirty of them would be a thousand million parts."""
    definitions: dict[str, Any] = {"D0": {"type": "integer"}}
    for level in range(1, 30):
        pair = {"$ref": f"#/$defs/D{level - 1}"}
        definitions[f"D{level}"] = {"type": "object", "properties": {"a": pair, "b": pair}}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/D29"}}, "$defs": definitions}
    assert "too large once references are followed" in refused(lambda: made(schema))


def test_a_definition_is_declared_only_where_it_was_said() -> None:
    item = {"type": "object", "properties": {"url": {"type": "string"}}, "additionalProperties": False}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    schema = {"type": "object", "properties": {"one": listed, "two": listed}, "$defs": {"Item": item}}
    assert "/two/*/url looks like a resource" in refused(lambda: made(schema, {"/one/*/url": "url"}))
    assert len(made(schema, {"/one/*/url": "url", "/two/*/url": "url"}).resources) == 2


def test_a_name_with_a_slash_is_escaped() -> None:
    schema = {"type": "object", "properties": {"a/b~url": {"type": "string"}}}
    assert made(schema, {"/a~1b~0url": "url"}).resources[0].path == ("a/b~url",)
    with pytest.raises(ToolError):
        made(schema, {"/a/b~url": "url"})


VALUES = st.recursive(
    st.text(max_size=2) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab01"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(VALUES, st.lists(st.sampled_from(["a", "b", "0", "1", "*"]), max_size=3))
def test_exactly_the_texts_that_the_gate_judges_are_changed(value: Any, path: list[str]) -> None:
    found = dict(Resource(tuple(path), "url").find(value))
    texts = dict(_texts(value, ""))
    after = dict(_texts(changed(value, path, lambda text: f"<{text}>"), ""))
    assert after == {at: f"<{text}>" if at in found else text for at, text in texts.items()}


def _texts(value: Any, pointer: str) -> Any:
    if isinstance(value, str):
        yield pointer, value
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from _texts(item, f"{pointer}/{key}")
