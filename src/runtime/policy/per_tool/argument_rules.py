"""Rules of a policy on the arguments of a tool: `tools: {NAME: {arguments: {POINTER: CONDITION}}}`.

A pointer names values among the arguments, `*` standing for every item of an array. A condition is written in keywords
of input schemas, and `in` names a list of the policy. The conditions of a tool become one JSON Schema. Where a reading
is not obvious, the stricter one holds:

- A keyword also demands the type that it speaks of: `maximum` denies a text. So does each step of a pointer.
- A member that is absent has nothing to judge, unless the tool's schema gives it a default that breaks the condition:
  then it has to be given.
- A placeholder for a secret that the tool gets resolved denies: the condition would judge another text than the tool
  gets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ....fail.catalog import Rule
from ...core.effects import Call, Decision, DecisionKind
from ...core.redaction import MARK
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer, parse
from ...schema.validator import SchemaValidator
from ...tools.contract import Tool
from ..policy import Policy
from .argument_schema import EVERY, IN, arguments_schema


class Proposed(Protocol):
    """What is judged of a call; the gate's `GateRequest` has it."""

    @property
    def tool(self) -> Tool | None:
        """The tool, None for one that is not part of the run."""

    @property
    def call(self) -> Call:
        """The call as the model proposed it."""

    @property
    def arguments(self) -> Any:
        """The decoded arguments."""


def conditions_of(policy: Policy, tool: Tool) -> dict[str, Any]:
    """Return what a policy demands of a tool's arguments beside its schema, as a JSON Schema; empty for nothing."""
    conditions = policy.tool_rules.get(tool.name, {}).get("arguments")
    return arguments_schema(conditions, policy.lists, json.loads(tool.schema_texts[0])) if conditions else {}


class ArgumentRules:
    """The conditions of a policy on arguments, compiled for each tool when it is first called."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._compiled: dict[str, SchemaValidator] = {}

    def conditions_of(self, tool: Tool) -> Mapping[str, Any]:
        """Return the conditions on a tool's arguments by pointer, empty for none."""
        return self.policy.tool_rules.get(tool.name, {}).get("arguments") or {}

    def validator_of(self, tool: Tool) -> SchemaValidator | None:
        """Return what holds arguments against the conditions, None for a tool without."""
        if not self.conditions_of(tool):
            return None
        validator = self._compiled.get(tool.name)
        if validator is None:
            validator = self._compiled[tool.name] = SchemaValidator(conditions_of(self.policy, tool))
        return validator

    def decide(self, request: Proposed) -> Decision | None:
        """Return the denial of arguments that break a condition, else None."""
        tool, call, arguments = request.tool, request.call, request.arguments
        assert tool is not None
        conditions, validator = self.conditions_of(tool), self.validator_of(tool)
        if validator is None:
            return None
        if tool.name in self.policy.reveal_to and call.arguments is not None and MARK in call.arguments.text:
            hidden = next((pointer for pointer in conditions if _holds_mark(arguments, parse(pointer))), None)
            if hidden is not None:
                what = "is a placeholder, and what the tool gets in its place cannot be judged"
                return self._denial(tool, hidden, hidden, what, {"keyword": "redact", "limit": ""})
        wrong = validator.first_mismatch(arguments)
        if wrong is None:
            return None
        at = wrong.schema.split("/")
        pointer = list(conditions)[int(at[2])] if at[1:2] == ["allOf"] else ""
        condition = conditions.get(pointer)
        named = condition.get(IN) if isinstance(condition, dict) and wrong.keyword == "enum" else None
        if named is not None:
            what = f"is not in the list {quote_untrusted(named)}"
            facts = {"keyword": IN, "limit": named}
        else:
            limit = f" ({quote_untrusted(wrong.limit)})" if wrong.limit else ""
            what = f"violates {wrong.keyword}{limit} of the policy"
            facts = {"keyword": wrong.keyword, "limit": wrong.limit}
        return self._denial(tool, pointer, wrong.pointer, what, facts)

    def _denial(self, tool: Tool, rule: str, pointer: str, what: str, facts: dict[str, Any]) -> Decision:
        place = f"/tools/{escape_pointer(tool.name)}/arguments/{escape_pointer(rule)}"
        reason = f"argument {quote_untrusted(pointer or '/')} {what}"
        return Decision(
            DecisionKind.DENY,
            Rule.ARGUMENTS,
            reason,
            self.policy.rule(place),
            {"pointer": pointer, **facts},
        )


def _holds_mark(value: Any, path: list[str]) -> bool:
    """Return whether a value at a path contains a placeholder."""
    if path:
        if path[0] == EVERY:
            return isinstance(value, list) and any(_holds_mark(item, path[1:]) for item in value)
        return isinstance(value, dict) and path[0] in value and _holds_mark(value[path[0]], path[1:])
    if isinstance(value, dict):
        return any(MARK in key or _holds_mark(item, []) for key, item in value.items())
    if isinstance(value, list):
        return any(_holds_mark(item, []) for item in value)
    return isinstance(value, str) and MARK in value


def rule_of_schema(tool: Tool, pointer: str) -> str:
    """Return how a record names a rule of a tool's input schema: the tool's file and a JSON Pointer into the schema."""
    return f"{tool.file or f'<tool {tool.name}>'}#{pointer}"
