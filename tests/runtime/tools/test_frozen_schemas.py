"""The schemas of a tool are those that it was made with, whatever happens to the objects they came from."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph import Tool, tool


def nested() -> dict[str, Any]:
    inner = {"type": "object", "additionalProperties": False, "properties": {"n": {"enum": [1]}}}
    return {"type": "object", "additionalProperties": False, "properties": {"a": inner}}


def _widen(schema: Any) -> None:
    schema["properties"]["a"]["properties"]["n"]["enum"].append(2)
    schema["properties"]["a"]["additionalProperties"] = True


def test_a_change_of_a_schema_within_a_tool_changes_nothing() -> None:
    given, result = nested(), nested()
    made = Tool("t", "", given, result, "pure", True, lambda arguments, io: {})
    digest, offered = made.schema_digest, made.offered_schema
    for schema in (given, result):
        _widen(schema)
    assert made.input_schema == made.output_schema == nested()
    for schema in (made.input_schema, made.output_schema):
        _widen(schema)
    for judge in (made.input_validator, made.shape_validator, made.output_validator):
        assert judge.accepts({"a": {"n": 1}})
        assert not judge.accepts({"a": {"n": 2}}) and not judge.accepts({"a": {"m": 1}})
    assert (made.schema_digest, made.offered_schema) == (digest, offered)


def test_a_change_of_a_pydantic_model_after_the_tool_was_made_changes_nothing() -> None:
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", n=(int, pydantic.Field(le=1)), __config__={"extra": "forbid"})

    def t(a: Any) -> str:
        """Take a value."""
        return str(a)

    t.__annotations__ = {"a": inner, "return": str}
    made = tool(effect="pure")(t)
    before = made.offered_schema
    inner.model_fields["n"].metadata.clear()
    inner.model_rebuild(force=True)
    assert not made.input_validator.accepts({"a": {"n": 2}}) and made.offered_schema == before
    assert made.input_validator.accepts({"a": {"n": 1}})
