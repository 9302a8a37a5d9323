"""How often a run may call one tool: `tools: {NAME: {limits: {calls: N}}}`.

A call counts once it is allowed, whatever comes of it and however often it is tried; a call that is refused does not
count. What has been used is read from `Counters`, which the loop keeps and a reader of a ledger finds again.
"""

from __future__ import annotations

from ....fail.catalog import Rule
from ...core.effects import Decision, DecisionKind
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ..policy import Policy
from ..requests import GateRequest


def call_limit(policy: Policy, name: str) -> int | None:
    """Return how often a run may call a tool, None for a tool without such a limit."""
    limit = policy.tool_rules.get(name, {}).get("limits", {}).get("calls")
    return None if limit is None else int(limit)


class ToolLimits:
    """The limits of a policy on calls of single tools."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def decide(self, request: GateRequest) -> Decision | None:
        """Return the denial of a call of a tool that the run has called as often as it may, else None."""
        assert request.tool is not None
        name = request.tool.name
        limit, used = call_limit(self.policy, name), request.counters.calls_of.get(name, 0)
        if limit is None or used < limit:
            return None
        return Decision(
            DecisionKind.DENY,
            Rule.TOOL_LIMITS,
            f"tool {quote_untrusted(name)} was called {used} times; its limit is {limit}",
            self.policy.rule(f"/tools/{escape_pointer(name)}/limits/calls"),
            {"used": used, "limit": limit},
        )
