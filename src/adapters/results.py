"""What a foreign tool returns: the schema that its annotation gives, and the value as JSON data."""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any, Final

from ..fail.errors import ToolError
from ..runtime.formats.canonical_json import MAX_DEPTH
from ..runtime.schema.schema_parts import mapped
from .hints import Reader, closed

# a framework's tool that says nothing of its result
UNSAID: Final = object()


def output_schema(returns: Any) -> dict[str, Any]:
    """`{"result": ...}` with the schema of the annotation `returns`; any JSON where that says nothing."""
    schema = _schema(returns)
    defs = schema.pop("$defs", None)
    whole = closed({"result": schema}, ["result"])
    return whole if defs is None else {**whole, "$defs": defs}


def _schema(returns: Any) -> dict[str, Any]:
    if returns is list or returns is dict:
        return {"type": "array" if returns is list else "object"}
    if _is_model(returns):
        try:
            made = returns.model_json_schema(mode="serialization")
        except Exception:  # noqa: BLE001 - of pydantic, for a field that has no JSON Schema
            return {}
        return dict(without_words(made))
    origin, args = typing.get_origin(returns), typing.get_args(returns)
    if origin is list and _is_model(args[0]):
        inner = _schema(args[0])
        defs = inner.pop("$defs", None)
        listed = {"type": "array", "items": inner}
        return listed if defs is None else {**listed, "$defs": defs}
    try:
        return dict(without_resources(Reader("").read(returns, "the result").schema))
    except ToolError:
        return {}  # not said, or nothing that we read: any JSON within the byte budget


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_dump")


def without_words(schema: Any) -> Any:
    """A schema without titles and descriptions: nobody reads those of a result."""
    if not isinstance(schema, dict):
        return schema
    kept = mapped(schema, without_words)
    return {key: value for key, value in kept.items() if key not in ("title", "description", "default")}


def without_resources(schema: Any) -> Any:
    """A schema without declarations of resources, which are for arguments alone."""
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in mapped(schema, without_resources).items() if key != "x-resource"}


def plain(value: Any, depth: int = 0) -> Any:
    """A result as JSON data, as far as it is some: pydantic models, dataclasses and enums by what they hold.

    Anything else stays what it is, and the runtime refuses it: the text of an object may hold its address.
    """
    if depth > MAX_DEPTH or value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, dict):
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), depth + 1) for f in dataclasses.fields(value)}
    return value
