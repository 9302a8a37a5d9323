"""Rules on single tools that a draft takes over from the recorded policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...runtime.policy.per_tool.tool_reach_checks import AllowedUrls
from ...runtime.policy.policy import Policy
from ...runtime.resources.http_methods import SAFE_METHODS
from ...runtime.resources.url import parse_entry
from ...runtime.schema.subschemas import located


def rules_of(policy: Policy, tools: Collection[str]) -> dict[str, Any]:
    """Return the rules of a policy on some tools, with lists and principals that they name, as sections of a policy."""
    rules = {name: rule for name, rule in policy.tool_rules.items() if name in tools}
    named = {
        part["in"]
        for rule in rules.values()
        for section in ("arguments", "ask_if", "headers", "body")
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


def rules_that_apply(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules on single tools of a draft without URLs, methods and mounts that it allows to no tool.

    A draft allows less than the recorded policy, and a policy may hold no entry that never applies. A tool of which no
    entry is left reaches nothing of the kind.
    """
    allowed = AllowedUrls(data.get("url_allowlist", ()))
    mounts = data.get("sandbox", {}).get("mounts", {})
    return {name: _narrowed(rules, allowed, mounts) for name, rules in data.get("tools", {}).items()}


def _narrowed(rules: Mapping[str, Any], allowed: AllowedUrls, mounts: Collection[str]) -> dict[str, Any]:
    out = dict(rules)
    if "mounts" in rules:
        out["mounts"] = [mount for mount in rules["mounts"] if mount in mounts]
    if "urls" in rules:
        sent = set(rules.get("methods", SAFE_METHODS))
        out["urls"] = [url for url in rules["urls"] if allowed.methods_within(parse_entry(url)) & sent]
    if "methods" in rules:
        within = [allowed.methods_within(parse_entry(url)) for url in out.get("urls", ())]
        known = set().union(*within) if "urls" in out else allowed.methods
        out["methods"] = [method for method in rules["methods"] if method in known]
        if not out["methods"]:
            del out["methods"]
            out["urls"] = []
    return out
