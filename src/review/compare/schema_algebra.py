"""Input schemas as sets of arguments: their canonical forms, and what they admit at one place in the arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from jsonschema_rs import (
    CanonicalSchema,
    Draft202012,
    Draft202012Validator,
    ReferencingError,
    RegexOptions,
    ValidationError,
    canonicalize,
    dereference,
)
from jsonschema_rs import canonical as forms

from ...runtime.formats.canonical_json import encode
from ...runtime.schema.ecma_patterns import MAX_COMPILED, BadPattern
from ...runtime.schema.validator import with_linear_patterns

Path = tuple[str, ...]
Schema = dict[str, Any]
_LINEAR: Final = RegexOptions(size_limit=MAX_COMPILED)
_MAX_PROPERTIES: Final = 64  # the time to subtract grows with the fourth power; 64 take a second


def canonical(schema: Any) -> CanonicalSchema | None:
    """Return the canonical form of a schema, or None if the library cannot tell what the schema admits."""
    try:
        return _canonical(encode(schema))
    except (BadPattern, forms.CanonicalizationError, ReferencingError, ValidationError):
        return None


@lru_cache(maxsize=256)  # two policies are compared over the same tools again and again
def _canonical(text: str) -> CanonicalSchema:
    plain = dereference(with_linear_patterns(json.loads(text)), draft=Draft202012, offline=True)
    return canonicalize(
        plain, draft=Draft202012, validate_formats=False, pattern_options=_LINEAR, offline=True
    )


@lru_cache(maxsize=1024)
def judge(node: CanonicalSchema) -> Callable[[Any], bool]:
    """Return the function that says whether a value fits a canonical schema."""
    schema: Any = node.to_json_schema()
    return Draft202012Validator(
        schema, validate_formats=False, pattern_options=_LINEAR, offline=True
    ).is_valid


def both(one: CanonicalSchema | None, other: CanonicalSchema | None) -> CanonicalSchema | None:
    """Return what two schemas admit both, None where that is not known."""
    try:
        return None if one is None or other is None else one.intersect(other)
    except forms.CanonicalizationError:
        return None


def less(one: CanonicalSchema | None, other: CanonicalSchema | None) -> CanonicalSchema | None:
    """Return what the first schema admits and the second refuses, None where that is not known."""
    try:
        return None if one is None or other is None or _is_wide(other) else one.subtract(other)
    except forms.CanonicalizationError:
        return None


@lru_cache(maxsize=256)
def _is_wide(schema: CanonicalSchema) -> bool:
    """Return whether an object has so many properties that subtracting the schema takes seconds."""
    pending: list[Any] = [schema.to_json_schema()]
    for part in pending:  # grows on the way
        if isinstance(part, dict):
            if len(part.get("properties", ())) > _MAX_PROPERTIES:
                return True
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return False


def is_empty(schema: CanonicalSchema | None) -> bool:
    """Return whether it is certain that a schema admits nothing."""
    return schema is not None and schema.satisfiability() == forms.Satisfiability.NO


def at_path(path: Path, schema: Schema, *, present: bool = False) -> Schema:
    """Return a schema of arguments whose values at `path` fit `schema`; `present`: with at least one such value.

    A path has property names, and `*` for any item or the value of any key.
    """
    if not path:
        return schema
    inner = at_path(path[1:], schema, present=present)
    if path[0] == "*":
        some = {"type": ["array", "object"], "minItems": 1, "minProperties": 1} if present else {}
        return {"items": inner, "additionalProperties": inner, **some}
    return {"properties": {path[0]: inner}, **({"type": "object", "required": [path[0]]} if present else {})}


def nodes_at(node: CanonicalSchema, path: Path) -> Iterator[CanonicalSchema | None]:
    """Yield schemas that together admit every value that `node` admits at `path`; None stands for any value."""
    match node.view():
        case forms.AnyOfView(branches) | forms.OneOfView(branches):
            for branch in branches:
                yield from nodes_at(branch, path)
        case forms.TypedGroupView(_, body):
            yield from nodes_at(body, path)
        case _ if not path:
            yield node
        case forms.AllOfView(branches):
            yield from nodes_at(branches[0], path)
        case forms.ObjectView(properties=properties, property_names=names, additional_properties=additional):
            inner = properties.get(path[0], additional)
            if inner is not None:
                yield from nodes_at(inner, path[1:])
            elif path[0] == "*" or names is None or not is_empty(both(names, canonical({"const": path[0]}))):
                yield None
        case forms.ArrayView(items=items) if path[0] == "*" and items is not None:
            yield from nodes_at(items, path[1:])
        case forms.FalseView() | forms.StringView() | forms.IntegerView() | forms.NumberView():
            return
        case forms.MultiTypeView(types) if not {"array", "object"} & {*types}:
            return
        case forms.ConstView(value) if not isinstance(value, list | dict):
            return
        case forms.EnumView(values) if not any(isinstance(value, list | dict) for value in values):
            return
        case _:
            yield None
