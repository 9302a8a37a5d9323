"""Find the schemas inside a JSON Schema (Draft 2020-12).

What stands under any other keyword (`enum`, `default`, `example`, `x-...`, unknown words) is data, never a schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..formats.json_pointer import escape_pointer, unescape_pointer

JsonSchema = dict[str, Any]
"""A JSON Schema that is an object; `true` and `false` are schemas too, and left out where this is named."""

_ONE: Final = frozenset(
    "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties".split()
)
_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_REFERENCE = re.compile(r"#(?:/(\$defs|definitions)/([^/%]*))?\Z")


def subschemas(schema: JsonSchema) -> Iterator[tuple[str, str, Any]]:
    """Yield (keyword, name or index, schema) of each schema that stands directly in `schema`."""
    for key, value in schema.items():
        if key in _ONE:
            yield key, "", value
        elif key in _LIST and isinstance(value, list):
            yield from ((key, str(i), sub) for i, sub in enumerate(value))
        elif key in _NAMED and isinstance(value, dict):
            yield from ((key, name, sub) for name, sub in value.items())


def located(schema: Any, pointer: str = "") -> Iterator[tuple[str, JsonSchema]]:
    """Yield (JSON Pointer, schema) of every schema in `schema`, itself first; `true` and `false` are left out."""
    if isinstance(schema, dict):
        yield pointer, schema
        for keyword, name, sub in subschemas(schema):
            step = f"/{keyword}/{escape_pointer(name)}" if name else f"/{keyword}"
            yield from located(sub, f"{pointer}{step}")


def parts(schema: Any) -> Iterator[JsonSchema]:
    """Yield every schema in `schema`, itself first; `true` and `false` are left out."""
    return (part for _, part in located(schema))


def mapped(schema: JsonSchema, change: Callable[[Any], Any]) -> JsonSchema:
    """Return a copy with `change` applied to each schema that stands directly in it."""
    out = dict(schema)
    for key, value in schema.items():
        if key in _ONE:
            out[key] = change(value)
        elif key in _LIST and isinstance(value, list):
            out[key] = [change(sub) for sub in value]
        elif key in _NAMED and isinstance(value, dict):
            out[key] = {name: change(sub) for name, sub in value.items()}
    return out


def target(root: JsonSchema, reference: object) -> Any:
    """Return the schema that `#`, `#/$defs/NAME` or `#/definitions/NAME` leads to.

    Raises:
        KeyError: there is no such definition.
        ValueError: a reference of another form, which is not followed.
    """
    match = _REFERENCE.match(reference) if isinstance(reference, str) else None
    if match is None:
        raise ValueError("not followed")
    if match[1] is None:
        return root
    return root[match[1]][unescape_pointer(match[2])]
