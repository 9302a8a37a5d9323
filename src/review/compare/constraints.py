"""Limits of a schema on one value: whether a value keeps them, and which of them arguments can break at all."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from ...runtime.schema.ecma_patterns import matches
from ...runtime.schema.schema_parts import kind_of, may_be, parts
from ...runtime.schema.tool_schema import shape

Schema = dict[str, Any]

# what `shape` drops, by the type of value that it limits; a format judges nothing
_STRING: Final = ("minLength", "maxLength", "pattern")
_NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ARRAY: Final = ("minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "contains")
_OBJECT: Final = ("minProperties", "maxProperties")
KINDS: Final = {
    keyword: kind
    for kind, keywords in (("string", _STRING), ("number", _NUMBER), ("array", _ARRAY), ("object", _OBJECT))
    for keyword in keywords
}
# they go, or change, where what is in them has limits
NEGATED: Final = ("not", "unevaluatedItems", "unevaluatedProperties")


def fits_plainly(value: Any, world: list[Schema]) -> bool:
    """Whether a value keeps the limits that concern it alone; what is inside of it is not looked at."""
    return all(_keeps(value, schema) for schema in world)


def _keeps(value: Any, schema: Schema) -> bool:
    kind = kind_of(value)
    if not may_be({key: schema[key] for key in ("type",) if key in schema}, kind):
        return False
    kinds = schema.get("type", kind)
    whole = kind != "number" or isinstance(value, int) or value.is_integer()
    if not whole and "number" not in ([kinds] if isinstance(kinds, str) else kinds) and "type" in schema:
        return False
    if kind == "string":
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        return "pattern" not in schema or matches(schema["pattern"], value)
    return kind != "number" or _in_limits(value, schema)


def _in_limits(value: int | float, schema: Schema) -> bool:
    if value < schema.get("minimum", value) or value > schema.get("maximum", value):
        return False
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return False
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        return False
    if "multipleOf" not in schema:
        return True
    return (Fraction(repr(value)) / Fraction(repr(schema["multipleOf"]))).denominator == 1


def kinds_of(world: list[Schema]) -> set[str]:
    """The types of value that schemas let pass together."""
    kinds = ("string", "object", "array", "number", "boolean", "null")
    return {kind for kind in kinds if all(may_be(schema, kind) for schema in world)}


def listed_in(world: list[Schema]) -> list[Any] | None:
    """The values that a place has to hold one of; None where it has no such list."""
    return next((s.get("enum", [s.get("const")]) for s in world if "enum" in s or "const" in s), None)


def can_break(world: list[Schema], keyword: str, limit: Any) -> bool:
    """Whether some value of the right type breaks a limit; True where that is not known."""
    if keyword in NEGATED:
        return any(KINDS.keys() & part.keys() for part in parts(limit))
    if KINDS[keyword] not in kinds_of(world) or limit is False or limit == "":
        return False
    if keyword in ("minContains", "maxContains") and not any("contains" in schema for schema in world):
        return False
    if keyword == "contains":
        return any("contains" in schema and schema.get("minContains", 1) > 0 for schema in world)
    listed = listed_in(world)
    if listed is not None and KINDS[keyword] in ("string", "number"):
        return any(
            kind_of(value) == KINDS[keyword] and not _keeps(value, {keyword: limit}) for value in listed
        )
    if keyword in ("minLength", "minItems", "minContains"):
        return bool(limit > 0)
    if keyword == "minProperties":
        return bool(limit > len({name for schema in world for name in schema.get("required", ())}))
    if keyword == "maxProperties":
        closed = any(s.get("additionalProperties") is False and "patternProperties" not in s for s in world)
        return not closed or bool(limit < len({name for s in world for name in s.get("properties", ())}))
    whole = any(schema.get("type") == "integer" for schema in world)
    return not (keyword == "multipleOf" and whole and (1 / Fraction(repr(limit))).denominator == 1)


def loosened(root: Schema) -> bool:
    """Whether a schema's shape turns a choice or a condition round besides leaving limits out."""
    return any(
        any(keyword in part and keyword not in shape(part) for keyword in ("oneOf", "if", "not"))
        for part in parts(root)
    )
