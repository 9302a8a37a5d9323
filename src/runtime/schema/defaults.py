"""The defaults that a schema gives to what is absent."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from .places import target_of


def fill_in(value: Any, schema: Any, root: Any = None, *, keeps_null: bool = True) -> None:
    """Put the defaults of properties into a value where they are absent, at every depth.

    A default in one of several alternatives (`anyOf`, `oneOf`, `if`) is not put in.

    Args:
        value: The value, which is changed.
        schema: Its schema; one that `places_of` accepts, so that its references end.
        root: The schema that references are relative to, where it is another one.
        keeps_null: Whether a null that is the default stays, and does not go as what is absent does.
    """
    root = schema if root is None else root
    found: dict[str, Any] = {}  # of several defaults the first counts
    for part in _conjuncts(schema, root):
        properties, others = part.get("properties", {}), part.get("additionalProperties")
        if isinstance(value, list):
            first = part.get("prefixItems", ())
            for number, item in enumerate(value):
                below = first[number] if number < len(first) else part.get("items")
                fill_in(item, below, root, keeps_null=keeps_null)
        elif isinstance(value, dict):
            for name, below in properties.items():
                own = next((it for it in _conjuncts(below, root) if "default" in it), None)
                if own is not None:
                    found.setdefault(name, own["default"])
                    value.setdefault(name, copy.deepcopy(own["default"]))
            for name, below in value.items():
                fill_in(below, properties.get(name, others), root, keeps_null=keeps_null)
    for name, default in found.items():
        if not keeps_null and value[name] is None is default:
            del value[name]


def _conjuncts(schema: Any, root: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and those that hold together with it by `$ref` and `allOf`."""
    if not isinstance(schema, dict):
        return
    yield schema
    for part in [target_of(root, schema.get("$ref")), *schema.get("allOf", ())]:
        yield from _conjuncts(part, root)
