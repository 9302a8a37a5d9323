"""How often a run may call one tool: `tools: {NAME: {limits: {calls: N, per_minute: M}}}`.

A call counts once it is allowed, whatever comes of it and however often it is tried; a call that is refused does not
count. The minute slides: the calls count that were decided less than 60 seconds ago. A denial for it passes with time,
so the same call may be proposed again, unlike one for `calls`. What has been used is read from `Counters`, which the
loop keeps and a reader of a ledger finds again; the time of a call is a stamp of the run.
"""

from __future__ import annotations

from typing import Final

from ....fail.catalog import Rule
from ...core.effects import Decision, DecisionKind
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ..policy import Policy
from ..requests import GateRequest
from ..usage import MINUTE

RETRY_AFTER: Final = "retry_after_ms"


def call_limit(policy: Policy, name: str) -> int | None:
    """Return how often a run may call a tool, None for a tool without such a limit."""
    limit = policy.tool_rules.get(name, {}).get("limits", {}).get("calls")
    return None if limit is None else int(limit)


def rate_limit(policy: Policy, name: str) -> int | None:
    """Return how often a tool may be called within any minute, None for a tool without such a limit."""
    limit = policy.tool_rules.get(name, {}).get("limits", {}).get("per_minute")
    return None if limit is None else int(limit)


def passes_with_time(decision: Decision) -> bool:
    """Return whether a denial is one that time takes away."""
    return decision.rule_id == Rule.TOOL_LIMITS and RETRY_AFTER in decision.facts


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
            return self._rate(name, request)
        return Decision(
            DecisionKind.DENY,
            Rule.TOOL_LIMITS,
            f"tool {quote_untrusted(name)} was called {used} times; its limit is {limit}",
            self.policy.rule(f"/tools/{escape_pointer(name)}/limits/calls"),
            {"used": used, "limit": limit},
        )

    def _rate(self, name: str, request: GateRequest) -> Decision | None:
        """Return the denial of a call of a tool that was called as often as it may be within the last minute."""
        limit, lately = rate_limit(self.policy, name), request.counters.lately(name)
        if limit is None or len(lately) < limit:
            return None
        wait = lately[-limit] + MINUTE - request.counters.now
        return Decision(
            DecisionKind.DENY,
            Rule.TOOL_LIMITS,
            f"tool {quote_untrusted(name)} was called {len(lately)} times within a minute; its limit is {limit}",
            self.policy.rule(f"/tools/{escape_pointer(name)}/limits/per_minute"),
            {"used": len(lately), "limit": limit, RETRY_AFTER: -(-wait // 1_000_000)},
        )
