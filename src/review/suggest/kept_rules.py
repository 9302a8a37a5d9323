"""Rules on single tools that a draft takes over from the recorded policy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...runtime.policy.policy import Policy
from ...runtime.schema.subschemas import located


def rules_of(policy: Policy, tools: Collection[str]) -> dict[str, Any]:
    """Return the rules of a policy on some tools, with lists and principals that they name, as sections of a policy."""
    rules = {name: rule for name, rule in policy.tool_rules.items() if name in tools}
    named = {
        part["in"]
        for rule in rules.values()
        for section in ("arguments", "ask_if")
        for condition in rule.get(section, {}).values()
        for _, part in located(condition)
        if "in" in part
    }
    lists = {name: values for name, values in policy.lists.items() if name in named}
    principals = {
        principal: {"tools": {tool: word for tool, word in denied.items() if tool in tools}}
        for principal, denied in policy.principals.items()
    }
    sections = (("tools", rules), ("lists", lists), ("principals", principals))
    return {key: value for key, value in sections if value}
