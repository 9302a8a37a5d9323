"""Rules on what a tool sends: `tools: {NAME: {headers: {POINTER: CONDITION}, body: {POINTER: CONDITION}}}`.

They judge each request of `io.request` before it is made, as the conditions on arguments judge a call: with the same
pointers and keywords. Headers are an object of texts, their names in lower case; a name that is given twice is refused.
A body is JSON; one that is none is refused, and so is a POST, PUT or PATCH without one. What is sent is not in the
record: what a rule says of it is a fact, `refused`, on which the gate decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ....fail.catalog import Rule
from ....light_dataclasses import replace
from ...core.effects import Decision, DecisionKind
from ...formats.canonical_json import Fragment, NotJson, freeze, parse
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...schema.validator import SchemaValidator
from .argument_schema import arguments_schema, condition_schema

if TYPE_CHECKING:
    from ..policy import Policy

PARTS: Final = ("headers", "body")
_WITH_BODY: Final = ("POST", "PUT", "PATCH")


def request_schema(policy: Policy, tool: str, part: str) -> dict[str, Any]:
    """Return what a policy demands of headers or bodies of a tool's requests as a JSON Schema; empty for nothing."""
    conditions = policy.tool_rules.get(tool, {}).get(part, {})
    placed = [(pointer, condition_schema(item, policy.lists)) for pointer, item in conditions.items()]
    return arguments_schema(placed, {}) if placed else {}


class RequestRules:
    """The rules of a policy on requests, compiled for each tool when it first sends one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._compiled: dict[tuple[str, str], SchemaValidator] = {}

    def refusal(
        self, tool: str, method: str, headers: Sequence[tuple[str, str]], body: bytes | None
    ) -> str | None:
        """Return which part of a request breaks a rule, and why; None for a request that keeps to all of them."""
        rules = self._policy.tool_rules.get(tool, {})
        if "headers" in rules:
            names = [name.lower() for name, _ in headers]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                return f"headers /{twice} is given twice"
            given = freeze({name.lower(): value for name, value in headers})
            if (wrong := self._mismatch(tool, "headers", given)) is not None:
                return wrong
        if "body" not in rules or (body is None and method not in _WITH_BODY):
            return None
        if body is None:
            return "body / is missing"
        try:
            return self._mismatch(tool, "body", parse(body.decode("utf-8")))
        except NotJson as error:
            return f"body / is no JSON: {error.reason}"

    def _mismatch(self, tool: str, part: str, given: Fragment) -> str | None:
        key = tool, part
        if key not in self._compiled:
            self._compiled[key] = SchemaValidator(request_schema(self._policy, tool, part))
        wrong = self._compiled[key].mismatch_of_result(given)
        if wrong is None:
            return None
        limit = f" ({wrong.limit})" if wrong.limit else ""
        return f"{part} {wrong.pointer or '/'} violates {wrong.keyword}{limit}"


def with_request(policy: Policy, check: Mapping[str, Any], tool: str | None, match: Decision) -> Decision:
    """Return the decision on a request whose URL is allowed, given what the rules on the tool's requests say of it."""
    refused = check.get("refused")
    if refused is None or match.decision != DecisionKind.ALLOW:
        return match
    part = str(refused).partition(" ")[0]
    if part not in PARTS:
        raise ValueError("unknown part of a request")
    if part not in policy.tool_rules.get(tool or "", {}):
        return match  # of a run under another policy
    return replace(
        match,
        decision=DecisionKind.DENY,
        rule_id=Rule.URL_ALLOWLIST,
        reason=f"the request of tool {quote_untrusted(tool or '')}: {quote_untrusted(str(refused))}",
        at=policy.rule(f"/tools/{escape_pointer(tool or '')}/{part}"),
        facts={**match.facts, "tool": tool, "refused": str(refused)},
    )
