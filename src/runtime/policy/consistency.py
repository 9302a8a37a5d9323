"""Hold a policy against the tools of a run: what it says of tools and arguments has to be able to decide a call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from ...fail.errors import did_you_mean
from ..formats.json_pointer import join, parse
from ..log.values import ModelName
from ..schema.places import parts_of, target_of
from ..schema.validator import SchemaValidator
from ..tools.contract import Tool
from .policy import Policy
from .prices import key_of
from .rules.arguments import KEYWORDS

# a value of each type that a keyword of a condition may speak of
_SAMPLES: Final = {"string": "", "integer": 0, "number": 0, "boolean": True, "null": None}
# beside these a schema does not say by itself what stands below it
_UNTOLD = ("allOf", "patternProperties", "prefixItems")


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


def check_prices(policy: Policy, models: Iterable[ModelName]) -> None:
    """Refuse a model without a price where the policy says what a run may cost.

    Raises:
        PolicyError: The cost of a run could not be known.
    """
    for key in map(key_of, models):
        if "max_cost" in policy.limits.limits and key not in policy.prices:
            remedy = f'add "{key}": {{input: "...", output: "..."}}, dollars for a million tokens'
            raise policy.error("/loop_budget/max_cost", f"prices has no model {key!r}", remedy)


def check_redaction(policy: Policy, below: Policy) -> None:
    """Refuse a policy of an agent that hides what the policy of the run does not: what enters is the same for all.

    Raises:
        PolicyError: The agent would see what is to be hidden.
    """
    for hidden in below.hides:
        if hidden not in policy.hides:
            what = f"{hidden} is not redacted by the policy of the run"
            raise below.error("/redact", what, f"add it to redact in {policy.file}")


def check_tool_rules(policy: Policy, tools: Iterable[Tool]) -> None:
    """Refuse a condition on an argument that a tool does not have, or that no value can meet, and such resources.

    Raises:
        PolicyError: Such an entry would deny every call, or none; or the policy says the effect of a tool that says it.
    """
    for tool in tools:
        _check_resources(policy, tool)
        rules = policy.tool_rules(tool.name)
        if rules.effect and not tool.is_foreign:
            what = f"tool {tool.name!r} is of no MCP server, and has an effect of its own"
            raise policy.error(join(["tools", tool.name, "effect"]), what, "remove it, or change the tool")
        for section, leaf in (("arguments", rules.arguments), ("ask_if", rules.ask_if)):
            for pointer, condition in leaf.conditions.items():
                types = _types_at(tool.input_schema, parse(pointer))
                place = join(["tools", tool.name, section, pointer])
                if types is None:
                    remedy = "name one that INPUT_SCHEMA declares"
                    raise policy.error(place, f"tool {tool.name!r} has no argument {pointer!r}", remedy)
                samples = [_SAMPLES[kind] for kind in types if kind in _SAMPLES]
                odd = sorted(word for word in condition if not any(map(KEYWORDS[word].fits, samples)))
                if types and odd:
                    what = f"{odd[0]} cannot judge an argument of type {', '.join(types)}"
                    raise policy.error(f"{place}/{odd[0]}", what, "use a keyword for its type")
                values = types and condition.get("in")
                if values and all(SchemaValidator({"type": [*types]}).first_mismatch(it) for it in values):
                    what = f"none of these values is of type {', '.join(types)}"
                    raise policy.error(f"{place}/in", what, "use values of its type")


def _check_resources(policy: Policy, tool: Tool) -> None:
    """Refuse resources of a tool that is not external, and places that its schema marks or does not have."""
    pointers = [*policy.tool_rules(tool.name).resources.kinds]
    paths = [tuple(parse(pointer)) for pointer in pointers]
    known = [*parts_of(tool.input_schema)] if paths else []
    for number, (pointer, path) in enumerate(zip(pointers, paths, strict=True)):
        place = join(["tools", tool.name, "resources", pointer])
        if not tool.acts_beside_io:
            what = f"tool {tool.name!r} is {tool.effect} and not external"
            raise policy.error(place, what, "remove it: what the tool does through io is judged")
        parts = [part for part in known if len(part[0]) <= len(path) and _meet(part[0], path)]
        if not any(_takes_text(part, path[len(at) :]) for at, part in parts):
            remedy = "name one that INPUT_SCHEMA declares"
            raise policy.error(place, f"tool {tool.name!r} has no text at {pointer!r}", remedy)
        others = [*(marked.path for marked in tool.marked), *paths[:number]]
        if any(len(other) == len(path) and _meet(other, path) for other in others):
            raise policy.error(place, f"{pointer!r} is marked already", "say it once of each place")


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two paths may lead to the same value, as far as the shorter one goes."""
    return all(a == b or "*" in (a, b) for a, b in zip(one, other, strict=False))


def _takes_text(part: dict[str, Any], rest: tuple[str, ...]) -> bool:
    """Return whether a part of a schema lets a text stand at the rest of a path, of which it says no more."""
    told = ("properties", "items", "additionalProperties")
    if rest and any(part.get(word, True) is not True for word in told):
        return False
    types = part.get("type", [])
    fitting = {"object", "array"} if rest else {"string"}
    if types:
        return not fitting.isdisjoint([types] if isinstance(types, str) else types)
    return not any(word in part for word in ("$ref", "anyOf", "oneOf", "allOf"))


def _types_at(schema: Any, path: list[str], root: Any = None) -> tuple[str, ...] | None:
    """Return the types that a schema declares at a path: none where it does not say, None where there is no place."""
    root = schema if root is None else root
    while isinstance(schema, dict) and "$ref" in schema:  # no tool has one that refers to itself
        schema = target_of(root, schema["$ref"])
    if not isinstance(schema, dict) or (path and any(word in schema for word in _UNTOLD)):
        return ()
    declared = schema.get("type", ())
    types = (declared,) if isinstance(declared, str) else tuple(declared)
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices and not types:
        found = [it for choice in choices if (it := _types_at(choice, path, root)) is not None]
        return (() if () in found else tuple(dict.fromkeys(sum(found, ())))) if found else None
    if not path:
        return types
    key, *rest = path
    if types and ("array" if key == "*" else "object") not in types:
        return None
    below = schema.get("items") if key == "*" else schema.get("properties", {}).get(key)
    if below is None:
        return None if key != "*" and schema.get("additionalProperties") is False else ()
    return _types_at(below, rest, root)
