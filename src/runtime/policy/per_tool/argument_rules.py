"""Rules of a policy on the arguments of a tool: `tools: {NAME: {arguments: {POINTER: CONDITION}, ask_if: {...}}}`.

`arguments` denies what does not meet its conditions. `ask_if` has a person asked about what meets any of its
conditions, and denies values of a type that a condition there does not name.

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
from typing import Any, Final, Protocol

from ....fail.catalog import Rule
from ...core.effects import Call, Decision, DecisionKind
from ...core.redaction import MARK
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer, parse
from ...schema.validator import Mismatch, SchemaValidator
from ...tools.contract import Tool
from ..policy import Policy
from .argument_schema import EVERY, IN, arguments_schema, condition_schema, type_schema


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


ARGUMENTS: Final = "arguments"
ASK_IF: Final = "ask_if"


def conditions_of(policy: Policy, tool: Tool) -> dict[str, Any]:
    """Return what a policy demands of a tool's arguments beside its schema, as a JSON Schema; empty for nothing."""
    placed = [
        (pointer, (condition_schema if section == ARGUMENTS else type_schema)(condition, policy.lists))
        for section, pointer, condition in _conditions(policy, tool)
    ]
    return arguments_schema(placed, json.loads(tool.schema_texts[0])) if placed else {}


def unasked_of(policy: Policy, tool: Tool) -> dict[str, Any]:
    """Return a JSON Schema of the arguments that no condition of `ask_if` is met by; empty for all of them."""
    asked = policy.tool_rules.get(tool.name, {}).get(ASK_IF, {})
    placed = [
        (pointer, {"not": condition_schema(condition, policy.lists)}) for pointer, condition in asked.items()
    ]
    return arguments_schema(placed, json.loads(tool.schema_texts[0])) if placed else {}


def asks_about(policy: Policy, name: str) -> bool:
    """Return whether a person is asked about calls of a tool, all of them or some."""
    return name in policy.approval_for or ASK_IF in policy.tool_rules.get(name, {})


def _conditions(policy: Policy, tool: Tool) -> list[tuple[str, str, Any]]:
    """Return the conditions on a tool's arguments, each with its section and pointer, in order."""
    rules = policy.tool_rules.get(tool.name, {})
    return [
        (section, pointer, condition)
        for section in (ARGUMENTS, ASK_IF)
        for pointer, condition in rules.get(section, {}).items()
    ]


class ArgumentRules:
    """The conditions of a policy on arguments, compiled for each tool when it is first called."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._compiled: dict[str, tuple[SchemaValidator | None, SchemaValidator | None]] = {}

    def count_of(self, tool: Tool) -> int:
        """Return how many conditions there are on a tool's arguments."""
        return len(_conditions(self.policy, tool))

    def validators_of(self, tool: Tool) -> tuple[SchemaValidator | None, SchemaValidator | None]:
        """Return what holds arguments against what is demanded, and what tells those that nobody is asked about."""
        known = self._compiled.get(tool.name)
        if known is None:
            if tool.name not in self.policy.tool_rules:
                return None, None
            schemas = conditions_of(self.policy, tool), unasked_of(self.policy, tool)
            demanded, unasked = (SchemaValidator(schema) if schema else None for schema in schemas)
            known = self._compiled[tool.name] = demanded, unasked
        return known

    def ask(self, request: Proposed) -> Decision | None:
        """Return the escalation of arguments that meet a condition of `ask_if`, else None."""
        assert request.tool is not None
        unasked = self.validators_of(request.tool)[1]
        met = None if unasked is None else unasked.first_mismatch(request.arguments)
        if met is None:
            return None
        asked = [item for item in _conditions(self.policy, request.tool) if item[0] == ASK_IF]
        pointer = asked[_number(met)][1]
        place = f"/tools/{escape_pointer(request.tool.name)}/{ASK_IF}/{escape_pointer(pointer)}"
        reason = f"argument {quote_untrusted(met.pointer or '/')} is one that a person is asked about"
        facts = {"timeout_s": self.policy.approval_timeout_s, "pointer": met.pointer}
        return Decision(DecisionKind.ESCALATE, Rule.APPROVAL, reason, self.policy.rule(place), facts)

    def decide(self, request: Proposed) -> Decision | None:
        """Return the denial of arguments that break a condition, else None."""
        tool, call, arguments = request.tool, request.call, request.arguments
        assert tool is not None
        validator = self.validators_of(tool)[0]
        if validator is None:
            return None
        conditions = _conditions(self.policy, tool)
        if tool.name in self.policy.reveal_to and call.arguments is not None and MARK in call.arguments.text:
            hidden = next((item for item in conditions if _holds_mark(arguments, parse(item[1]))), None)
            if hidden is not None:
                what = "is a placeholder, and what the tool gets in its place cannot be judged"
                return self._denial(tool, hidden, hidden[1], what, {"keyword": "redact", "limit": ""})
        wrong = validator.first_mismatch(arguments)
        if wrong is None:
            return None
        section, _, condition = broken = conditions[_number(wrong)]
        named = condition.get(IN) if isinstance(condition, dict) and wrong.keyword == "enum" else None
        limit = f" ({quote_untrusted(wrong.limit)})" if wrong.limit else ""
        facts = {"keyword": wrong.keyword, "limit": wrong.limit}
        if section == ASK_IF:
            what = f"violates {wrong.keyword}{limit}, without which ask_if cannot judge it"
        elif named is not None:
            what = f"is not in the list {quote_untrusted(named)}"
            facts = {"keyword": IN, "limit": named}
        else:
            what = f"violates {wrong.keyword}{limit} of the policy"
        return self._denial(tool, broken, wrong.pointer, what, facts)

    def _denial(
        self, tool: Tool, rule: tuple[str, str, Any], pointer: str, what: str, facts: dict[str, Any]
    ) -> Decision:
        place = f"/tools/{escape_pointer(tool.name)}/{rule[0]}/{escape_pointer(rule[1])}"
        reason = f"argument {quote_untrusted(pointer or '/')} {what}"
        return Decision(
            DecisionKind.DENY,
            Rule.ARGUMENTS,
            reason,
            self.policy.rule(place),
            {"pointer": pointer, **facts},
        )


def _number(wrong: Mismatch) -> int:
    """Return the place of the condition that a mismatch is about, the first for one that is about no condition."""
    at = wrong.schema.split("/")
    return int(at[2]) if at[1:2] == ["allOf"] else 0


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
