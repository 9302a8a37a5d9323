"""The conditions of a policy on the arguments of a tool as a JSON Schema; `argument_rules` says what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...formats.json_pointer import parse
from ...schema.subschemas import mapped, target
from ...schema.validator import SchemaValidator

EVERY: Final = "*"  # the token of a pointer that stands for every item
IN: Final = "in"
# the type that a keyword speaks of; JSON Schema itself lets values of other types pass
_TYPE_OF: Final = {
    **dict.fromkeys("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split(), "number"),
    **dict.fromkeys("minLength maxLength pattern".split(), "string"),
    **dict.fromkeys("items minItems maxItems uniqueItems".split(), "array"),
    **dict.fromkeys("properties required additionalProperties minProperties maxProperties".split(), "object"),
}
_INNER: Final = ("items", "properties", "additionalProperties")
KEYWORDS: Final = frozenset({*_TYPE_OF, "type", "enum", "const", "anyOf", "oneOf", IN})


def condition_schema(condition: Any, lists: Mapping[str, Sequence[Any]]) -> Any:
    """Return a condition as a JSON Schema: lists by their values, and each keyword with the type that it speaks of."""
    if not isinstance(condition, dict):
        return condition
    schema = mapped(condition, lambda part: condition_schema(part, lists))
    demands: list[dict[str, Any]] = [
        {"type": kind} for kind in sorted({_TYPE_OF[key] for key in condition if key in _TYPE_OF})
    ]
    if IN in schema:
        demands.append({"enum": list(lists[schema.pop(IN)])})
    return {**schema, "allOf": demands} if demands else schema


def type_schema(condition: Any, lists: Mapping[str, Sequence[Any]]) -> Any:
    """Return a schema of the values that have a type which a condition names, whether or not they meet it."""
    if not isinstance(condition, dict):
        return True
    demands: list[dict[str, Any]] = [{"type": _TYPE_OF[key]} for key in condition if key in _TYPE_OF]
    if "type" in condition:
        demands.append({"type": condition["type"]})
    for values in (
        [condition["const"]] if "const" in condition else [],
        condition.get("enum", []),
        lists[condition[IN]] if IN in condition else [],
    ):
        if values:
            demands.append({"type": sorted({_type_name(value) for value in values})})
    demands += [
        {"anyOf": [type_schema(part, lists) for part in condition[key]]}
        for key in ("anyOf", "oneOf")
        if key in condition
    ]
    inner = {key: condition[key] for key in _INNER if key in condition}
    return {**mapped(inner, lambda part: type_schema(part, lists)), "allOf": demands} if demands else inner


def _type_name(value: Any) -> str:
    """Return the type of a JSON value as schemas name it."""
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", list: "array", dict: "object", int: "number", float: "number"}
    return names.get(type(value), "null")


def arguments_schema(placed: Iterable[tuple[str, Any]], input_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return one JSON Schema of arguments with values of some schemas at some pointers, each in `allOf`."""
    root = dict(input_schema)
    return {"allOf": [_along(parse(pointer), schema, [root], root) for pointer, schema in placed]}


def _along(path: list[str], schema: Any, declared: list[Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of values that have `schema` at a path; `declared` are the tool's own schemas of them."""
    if not path:
        return schema if isinstance(schema, dict) else {"allOf": [schema]}
    head, rest = path[0], path[1:]
    below = [part for node in declared for part in _below(node, head, root)]
    inner = _along(rest, schema, below, root)
    if head == EVERY:
        return {"type": "array", "items": inner}
    out: dict[str, Any] = {"type": "object", "properties": {head: inner}}
    defaults = [part["default"] for part in below if isinstance(part, dict) and "default" in part]
    if defaults:
        validator = SchemaValidator(inner)
        if not all(validator.accepts(default) for default in defaults):
            out["required"] = [head]
    return out


def _below(node: Any, key: str, root: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema gives to the values below it, every choice and reference followed."""
    for part in alternatives(node, root):
        if key == EVERY:
            inner = part.get("items")
        else:
            inner = part.get("properties", {}).get(key, part.get("additionalProperties"))
        if inner is not None:
            yield from alternatives(inner, root)


def alternatives(node: Any, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema, what it refers to and its choices."""
    pending, seen = [node], set()
    for part in pending:  # grows on the way
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if "$ref" in part:
            pending.append(target(root, part["$ref"]))
        pending += [*part.get("anyOf", ()), *part.get("oneOf", ())]


def leads_nowhere(pointer: str, input_schema: Mapping[str, Any]) -> bool:
    """Return whether an input schema admits no value at a pointer."""
    root = dict(input_schema)
    nodes: list[Any] = [root]
    for key in parse(pointer):
        nodes = [part for node in nodes for part in _below(node, key, root)]
        if not nodes:
            return True
    return False
