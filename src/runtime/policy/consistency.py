"""Hold a policy against the tools of a run: what it says of tools and arguments has to be able to decide a call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ...fail.errors import did_you_mean
from ..formats.json_pointer import join, parse
from ..tools.contract import Tool
from .policy import Policy

_TYPES = {
    "string": ("maxLength", "pattern", "in"),
    "integer": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "in"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "in"),
    "boolean": ("in",),
    "null": ("in",),
}


def check_names(policy: Policy, known: Collection[str]) -> None:
    """Refuse a policy that speaks of a tool which nobody knows. Denied names may be of any tool.

    Raises:
        PolicyError: There is no such tool.
    """
    for pointer, name in policy.tools_named():
        if name not in known:
            remedy = did_you_mean(name, known, "add the tool, or remove the name")
            raise policy.error(pointer, f"there is no tool {name!r}", remedy)


def check_mounts(policy: Policy, names: Iterable[str]) -> None:
    """Refuse folders for mounts that a policy does not declare.

    Raises:
        PolicyError: A mount is not declared.
    """
    for name in names:
        if name not in policy.mounts.modes:
            raise policy.error("/sandbox/mounts", f"mount {name!r} is not declared", "declare it")


def check_conditions(policy: Policy, tools: Iterable[Tool]) -> None:
    """Refuse a condition on an argument that a tool does not have, or that no value of the argument can meet.

    Raises:
        PolicyError: Such a condition would deny every call, or none.
    """
    for tool in tools:
        rules = policy.tool_rules(tool.name)
        for section, leaf in (("arguments", rules.arguments), ("ask_if", rules.ask_if)):
            for pointer, condition in leaf.conditions.items():
                types = _types_at(tool.input_schema, parse(pointer))
                place = join(["tools", tool.name, section, pointer])
                if types is None:
                    remedy = "name one that INPUT_SCHEMA declares"
                    raise policy.error(place, f"tool {tool.name!r} has no argument {pointer!r}", remedy)
                fitting = {keyword for kind in types for keyword in _TYPES.get(kind, ())}
                odd = sorted(condition.keys() - fitting)
                if types and odd:
                    what = f"{odd[0]} cannot judge an argument of type {', '.join(types)}"
                    raise policy.error(f"{place}/{odd[0]}", what, "use a keyword for its type")


def _types_at(schema: Any, path: list[str]) -> tuple[str, ...] | None:
    """Return the types that a schema declares at a path: none where it does not say, None where there is no place."""
    for key in path:
        if not isinstance(schema, dict) or any(
            word in schema for word in ("$ref", "anyOf", "oneOf", "allOf")
        ):
            return ()
        below = schema.get("items") if key == "*" else schema.get("properties", {}).get(key)
        if below is None:
            return None if schema.get("additionalProperties") is False or key == "*" else ()
        schema = below
    declared = schema.get("type", ()) if isinstance(schema, dict) else ()
    return (declared,) if isinstance(declared, str) else tuple(declared)
