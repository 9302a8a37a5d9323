"""The parts of a JSON Schema (Draft 2020-12): which keywords hold schemas, and what those apply to.

What stands under any other keyword (`enum`, `default`, `example`, `x-...`, unknown words) is data, never a schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from .patterns import matches, python_pattern

ONE: Final = (
    "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties".split()
)
LIST: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
TYPES: Final = frozenset("array boolean null number object string".split())
_REFERENCE = re.compile(r"#(?:/(\$defs|definitions)/([^/%]*))?\Z")


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(keyword, name or index, schema) of each schema that stands directly in another."""
    for key, value in schema.items():
        if key in ONE:
            yield key, "", value
        elif key in LIST and isinstance(value, list):
            yield from ((key, str(i), sub) for i, sub in enumerate(value))
        elif key in NAMED and isinstance(value, dict):
            yield from ((key, name, sub) for name, sub in value.items())


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema, itself first; `true` and `false` are left out."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += [sub for _, _, sub in subschemas(part)]


def turns_back(root: dict[str, Any]) -> bool:
    """Whether a schema's references lead back to where they stand, so that data of any depth may fit."""
    document = Document(root)

    def leads(reference: str) -> set[str]:
        try:
            return {part["$ref"] for part in parts(document.target(reference)) if "$ref" in part}
        except (KeyError, ValueError):
            return set()

    ways = {part["$ref"]: leads(part["$ref"]) for part in parts(root) if "$ref" in part}
    for start in ways:
        seen, left = set[str](), [*ways[start]]
        while left:
            here = left.pop()
            if here not in seen:
                seen.add(here)
                left += ways[here]
        if start in seen:
            return True
    return False


def mapped(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy with `change` applied to each schema that stands directly in it."""
    out = dict(schema)
    for key, value in schema.items():
        if key in ONE:
            out[key] = change(value)
        elif key in LIST and isinstance(value, list):
            out[key] = [change(sub) for sub in value]
        elif key in NAMED and isinstance(value, dict):
            out[key] = {name: change(sub) for name, sub in value.items()}
    return out


class Document:
    """A whole schema: what its references lead to, and which schemas meet in one place.

    Asked are schemas whose references are sound and lead back to themselves through data only.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def target(self, reference: object) -> Any:
        """What `#`, `#/$defs/NAME` or `#/definitions/NAME` leads to. KeyError: nothing; ValueError: other forms."""
        found = _REFERENCE.match(reference) if isinstance(reference, str) else None
        if found is None:
            raise ValueError("not followed")
        if found[1] is None:
            return self.root
        return self.root[found[1]][found[2].replace("~1", "/").replace("~0", "~")]

    def always(self, schema: dict[str, Any]) -> list[Any]:
        """Schemas that a value has to fit besides."""
        target = [self.target(schema["$ref"])] if "$ref" in schema else []
        return [*target, *schema.get("allOf", ())]

    def choices(self, schema: dict[str, Any]) -> list[tuple[str, list[Any]]]:
        """Schemas of which a value has to fit one, by keyword."""
        return [(key, schema[key]) for key in ("anyOf", "oneOf") if key in schema]

    def perhaps(self, schema: dict[str, Any]) -> list[Any]:
        """All other schemas that may be held against the same value."""
        one = [schema[key] for key in ("if", "then", "else") if key in schema]
        return [*one, *schema.get("dependentSchemas", {}).values()]

    def here(self, schema: Any) -> Iterator[dict[str, Any]]:
        """Every schema that is held against the same value, `schema` first; those under `not` are left out."""
        if isinstance(schema, dict):
            yield schema
            choices = [sub for _, subs in self.choices(schema) for sub in subs]
            for sub in (*self.always(schema), *choices, *self.perhaps(schema)):
                yield from self.here(sub)

    def lets(self, schema: Any, what: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether a value may pass that `what` says of each single schema whether it lets pass."""
        if not isinstance(schema, dict):
            return schema is not False
        return (
            what(schema)
            and all(self.lets(sub, what) for sub in self.always(schema))
            and all(any(self.lets(sub, what) for sub in subs) for _, subs in self.choices(schema))
        )


def may_be(schema: dict[str, Any], kind: str) -> bool:
    """Whether a schema by itself, its references and combinations aside, takes values of a type."""
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if listed is not None and not any(kind_of(value) == kind for value in listed):
        return False
    kinds = schema.get("type", kind)
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return kind in kinds or (kind == "number" and "integer" in kinds)


def kind_of(value: Any) -> str:
    """The JSON type of a value; an integer is a number."""
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def of_key(schema: dict[str, Any], name: str | None) -> list[Any]:
    """The schemas in `schema` that the value of a property has to fit; None is a name that it does not know."""
    if name is not None:
        named = [schema["properties"][name]] if name in schema.get("properties", ()) else []
        patterns = schema.get("patternProperties", {})
        named += [sub for pattern, sub in patterns.items() if matches(python_pattern(pattern), name)]
        if named:
            return named
    elif "patternProperties" in schema:
        return []
    return [schema["additionalProperties"]] if "additionalProperties" in schema else []


def of_item(schema: dict[str, Any], index: int | None) -> list[Any]:
    """The schemas in `schema` that an item has to fit; None is one behind all that have a schema of their own."""
    own = schema.get("prefixItems", ())
    if index is not None and index < len(own):
        return [own[index]]
    return [schema["items"]] if "items" in schema else []
