"""Where the arguments of a tool hold URLs and paths: places that its input schema marks with `x-resource`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..formats.json_pointer import escape_pointer

MARK: Final = "x-resource"
KINDS: Final = ("url", "path:read", "path:write", "none")
_CHOICES: Final = ("anyOf", "oneOf", "allOf")


class Place(NamedTuple):
    """A place in the arguments that holds a resource.

    Attributes:
        path: Property names from the top; `*` for any key or item.
        kind: `url`, `path:read` or `path:write`.
    """

    path: tuple[str, ...]
    kind: str

    def find(self, arguments: Any) -> Iterator[tuple[str, str]]:
        """Yield (JSON Pointer, text) of every text that stands at the place in some arguments."""
        return _find(arguments, self.path, "")


def _find(value: Any, path: tuple[str, ...], pointer: str) -> Iterator[tuple[str, str]]:
    if not path:
        if isinstance(value, str):
            yield pointer, value
        return
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        for key in value if head == "*" else [head] if head in value else []:
            yield from _find(value[key], rest, f"{pointer}/{escape_pointer(key)}")
    elif isinstance(value, list) and head == "*":
        for i, item in enumerate(value):
            yield from _find(item, rest, f"{pointer}/{i}")


def places_of(schema: dict[str, Any]) -> tuple[Place, ...]:
    """Return the marked places of an input schema.

    Raises:
        ValueError: A mark is none of KINDS, or stands where arguments cannot be followed to it.
    """
    marked = set(_marked(schema))
    found: dict[Place, None] = {}
    seen: set[int] = set()
    _walk(schema, schema, (), found, seen)
    if marked - seen:
        raise ValueError(f"{MARK} stands where the gate cannot follow it; mark a property or an item")
    return tuple(place for place in found if place.kind != "none")


def _marked(schema: Any) -> Iterator[int]:
    """Yield the identity of each schema with a mark, wherever it stands."""
    if isinstance(schema, dict):
        if MARK in schema:
            if schema[MARK] not in KINDS:
                raise ValueError(f"{MARK} must be one of {', '.join(KINDS)}")
            yield id(schema)
        for value in schema.values():
            yield from _marked(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _marked(value)


def _walk(
    root: Any, schema: Any, path: tuple[str, ...], found: dict[Place, None], seen: set[int], depth: int = 0
) -> None:
    if not isinstance(schema, dict):
        return
    if depth > 32:
        raise ValueError(
            "nested or referring to itself deeper than 32 levels; write out as many as are needed"
        )
    if MARK in schema:
        seen.add(id(schema))
        found[Place(path, schema[MARK])] = None
    below: list[tuple[Any, tuple[str, ...]]] = [
        (sub, path) for key in _CHOICES for sub in schema.get(key, ())
    ]
    below.append((target_of(root, schema.get("$ref")), path))
    below += [(sub, (*path, name)) for name, sub in schema.get("properties", {}).items()]
    below += [(schema[key], (*path, "*")) for key in ("items", "additionalProperties") if key in schema]
    for sub, place in below:
        _walk(root, sub, place, found, seen, depth + 1)


def target_of(root: Any, reference: Any) -> Any:
    """Return the schema that a `$ref` names within another, None where there is none."""
    if not isinstance(reference, str):
        return None
    value = root
    for key in reference.removeprefix("#").split("/")[1:]:
        value = value.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value
