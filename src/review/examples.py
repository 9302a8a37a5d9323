"""Make calls that a policy allows, from the schemas of tools: what examples are made from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from ..runtime.formats.json_pointer import parse
from ..runtime.log.values import Call
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, laid_over
from ..runtime.policy.rules.arguments import examples, with_value
from ..runtime.policy.rules.sandbox_path import usable
from ..runtime.policy.rules.url_allowlist import reached
from ..runtime.schema.places import target_of
from ..runtime.tools.contract import Tool

_DEPTH: Final = 8  # of a schema
_CALLS: Final = 20  # known calls that are tried
_LONGEST: Final = 1_000  # items of a list, and characters of a text


def sample_call(gate: Gate, tool: Tool, known: Sequence[Call]) -> Call:
    """Return a call of a tool: one that a gate allows, if any is found.

    Args:
        gate: The gate.
        tool: The tool.
        known: Calls of that tool which are tried first.
    """
    made = Call("example", tool.name, _arguments(gate, tool))
    for call in (*known[:_CALLS], made):
        if gate.ask(Question(call, call.name)).decision == "allow":
            return call
    return made


def _arguments(gate: Gate, tool: Tool) -> dict[str, Any]:
    """Return arguments that fit the schema of a tool and the conditions of a policy, as far as they can be made."""
    texts = {place.path: _text(gate, tool.name, place.kind) for place in tool.places}
    arguments: dict[str, Any] = _value(tool.input_schema, (), texts, tool.input_schema, 0)
    rules = gate.policy.tool_rules(tool.name)
    validator = tool.input_validator(strict=True)
    leaves = (rules.arguments, rules.judgeable, rules.ask_if)
    for pointer in {**rules.arguments.conditions, **rules.ask_if.conditions}:
        values = examples(*(leaf.conditions.get(pointer, {}) for leaf in (rules.arguments, rules.ask_if)))
        changed = (laid_over(arguments, with_value(parse(pointer), value)) for value in values)
        fitting = (it for it in chain([arguments], changed) if validator.first_mismatch(it) is None)
        met = (it for it in fitting if all(leaf.wrong(tool.filled(it)) != pointer for leaf in leaves))
        arguments = next(met, arguments)
    return arguments


def _text(gate: Gate, tool: str, kind: str) -> str:
    """Return a text that a policy allows a tool at a place of a kind, if any."""
    if kind == "url":
        return next(iter(reached(gate.policy, tool).entries), "https://example.test/")
    for mount, mode in usable(gate.policy, tool).modes.items():
        if kind == f"path:{mode}" or kind == "path:read":
            return f"{mount}/example.txt"
    return "example"


def _value(
    schema: Any, path: tuple[str, ...], texts: dict[tuple[str, ...], str], root: Any, depth: int
) -> Any:
    """Return a value that is likely to fit a schema."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return "example"
    below = [target_of(root, schema.get("$ref"))]
    below += [options[0] for key in ("allOf", "anyOf", "oneOf") if (options := schema.get(key))]
    for part in below:
        if part is not None:
            return _value(part, path, texts, root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind if isinstance(kind, str) else kind[0]:
        case "object":
            properties = schema.get("properties", {})
            return {
                name: _value(properties.get(name), (*path, name), texts, root, depth + 1)
                for name in schema.get("required", ())
            }
        case "array":
            item = _value(schema.get("items"), (*path, "*"), texts, root, depth + 1)
            return [item] * min(schema.get("minItems", 1), _LONGEST)
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            return min(least, schema.get("maximum", least))
        case "boolean":
            return True
        case "null":
            return None
    text = texts.get(path, "example").ljust(min(schema.get("minLength", 0), _LONGEST), "x")
    return text[: schema.get("maxLength", len(text))]
