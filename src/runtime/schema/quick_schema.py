"""A quick yes to data that plainly fits a plain schema; everything else is the library's to judge.

Most tool schemas are flat objects of bounded strings and numbers. For schemas made of such keywords alone,
`compile_fits` gives a predicate that is true only of data that `jsonschema` accepts. It never says no: data it
does not accept, and schemas it does not know, go to the library, which gives verdict and error. See
docs/adr/0006; a property test holds it against the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Fits = Callable[[Any], bool]

# keywords that judge nothing
_NOTES: Final = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly"}
)
_COMMON: Final = frozenset({"type", "enum"})
_KEYWORDS: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}


# gives what judges a part of a schema, exactly
Judging = Callable[[Mapping[str, Any]], Fits]
# whatever may lead out of a part, or make its verdict hang on its neighbours
_ELSEWHERE: Final = (
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$id",
)


def quick(schema: Any, library: Judging | None = None) -> Fits:
    """The predicate of `compile_fits`, or one that accepts nothing where there is none.

    `library` judges the properties of an object that are not known here, each on its own: what stands around
    them need not be judged by it again.
    """
    return compile_fits(schema, library) or (lambda _data: False)


def compile_fits(schema: Any, library: Judging | None = None) -> Fits | None:
    """A predicate for `schema`, or None where the schema uses anything that is not known here."""
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    if isinstance(kind, list):
        return _kinds(schema, kind)
    if kind is None and "anyOf" in schema:
        return _any_of(schema)
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        return None
    known = _KEYWORDS[kind] | _COMMON | _NOTES
    if any(key not in known and not key.startswith("x-") for key in schema):
        return None
    if "enum" in schema:
        return _enum(schema, kind)
    if kind == "object":
        return _object(schema, library)
    if kind == "array":
        return _array(schema)
    if kind == "string":
        return _string(schema)
    if kind in ("integer", "number"):
        return _number(schema, kind)
    return (lambda data: data is True or data is False) if kind == "boolean" else (lambda data: data is None)


def _kinds(schema: Mapping[str, Any], kinds: list[Any]) -> Fits | None:
    """Several types: each judges by its own keywords, and all keywords must be some type's."""
    if not all(isinstance(kind, str) and kind in _KEYWORDS for kind in kinds):
        return None
    own = frozenset().union(*(_KEYWORDS[kind] for kind in kinds))
    if any(key not in own | _NOTES | {"type"} and not key.startswith("x-") for key in schema):
        return None
    parts = [
        compile_fits({"type": kind, **{key: schema[key] for key in _KEYWORDS[kind] if key in schema}})
        for kind in kinds
    ]
    found = [part for part in parts if part is not None]
    return (lambda data: any(part(data) for part in found)) if len(found) == len(kinds) else None


def _any_of(schema: Mapping[str, Any]) -> Fits | None:
    branches = schema["anyOf"]
    if any(key != "anyOf" and key not in _NOTES and not key.startswith("x-") for key in schema):
        return None
    found = [part for part in map(compile_fits, branches) if part is not None]
    return (lambda data: any(part(data) for part in found)) if len(found) == len(branches) else None


def _enum(schema: Mapping[str, Any], kind: str) -> Fits | None:
    choices = schema["enum"]
    # equality of numbers and booleans differs between JSON Schema and Python; texts are plain
    if kind != "string" or len(schema.keys() & _KEYWORDS["string"]) or not isinstance(choices, list):
        return None
    if not all(type(choice) is str for choice in choices):
        return None
    allowed = frozenset(choices)
    return lambda data: type(data) is str and data in allowed


def _bounds(schema: Mapping[str, Any], low: str, high: str) -> tuple[int, int | None] | None:
    """Two whole bounds, the upper one perhaps absent; None where either is of another kind."""
    least, most = schema.get(low, 0), schema.get(high)
    if type(least) is not int or (most is not None and type(most) is not int):
        return None
    return least, most


def _string(schema: Mapping[str, Any]) -> Fits | None:
    bounds = _bounds(schema, "minLength", "maxLength")
    if bounds is None:
        return None
    least, most = bounds
    if most is None:
        return lambda data: type(data) is str and len(data) >= least
    return lambda data: type(data) is str and least <= len(data) <= most


def _number(schema: Mapping[str, Any], kind: str) -> Fits | None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if any(bound is not None and type(bound) is not int for bound in (least, most)):
        return None
    types = (int,) if kind == "integer" else (int, float)

    def fits(data: Any) -> bool:
        return type(data) in types and (least is None or data >= least) and (most is None or data <= most)

    return fits


def _array(schema: Mapping[str, Any]) -> Fits | None:
    bounds = _bounds(schema, "minItems", "maxItems")
    item = compile_fits(schema["items"]) if "items" in schema else (lambda _data: True)
    if bounds is None or item is None:
        return None
    least, most = bounds

    def fits(data: Any) -> bool:
        return (
            type(data) is list
            and len(data) >= least
            and (most is None or len(data) <= most)
            and all(map(item, data))
        )

    return fits


def _object(schema: Mapping[str, Any], library: Judging | None) -> Fits | None:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    # only closed objects: whatever is not declared is the library's
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        return None
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return None
    parts: dict[str, Fits] = {}
    for name, sub in properties.items():
        part = compile_fits(sub, library)
        if part is None and library is not None and isinstance(sub, Mapping) and not _leads_away(sub):
            part = library(sub)
        if part is None:
            return None
        parts[name] = part
    needed = frozenset(required)

    def fits(data: Any) -> bool:
        if type(data) is not dict or not needed <= data.keys():
            return False
        for name, value in data.items():
            part = parts.get(name)
            if part is None or not part(value):
                return False
        return True

    return fits


def _leads_away(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return any(key in _ELSEWHERE or _leads_away(value) for key, value in schema.items())
    return isinstance(schema, list) and any(map(_leads_away, schema))
