"""What the gate says of placeholders: the rule `redact`, and verdicts on values that a record does not show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...fail.catalog import Rule
from ..core.effects import Call, Decision, DecisionKind
from ..core.redaction import MARK, placeholders
from ..formats.escape import quote_untrusted
from ..tools.contract import Tool
from .policy import Policy

# effect kinds of tools that may leave something behind, or tell somebody
WRITING: Final = ("write", "network", "external")
_SECTIONS: Final = {Rule.URL_ALLOWLIST: "/url_allowlist", Rule.SANDBOX_PATH: "/sandbox/mounts"}


def decide_placeholders(policy: Policy, tool: Tool, call: Call) -> Decision | None:
    """Deny a write that holds a placeholder, unless the tool gets it resolved; None where there is none."""
    if tool.effect not in WRITING or call.arguments is None or MARK not in call.arguments.text:
        return None
    granted = policy.reveal_to.get(tool.name, ())
    grant = None
    for kind, is_ours in placeholders(call.arguments.value()):
        facts = {"kind": kind, "known": is_ours}
        if not is_ours:
            reason = (
                f"the call holds a placeholder of kind {quote_untrusted(kind)} that this run did not create"
            )
            return Decision(DecisionKind.DENY, Rule.REDACT, reason, policy.rule("/redact"), facts)
        if kind not in granted:
            reason = (
                f"the call holds a placeholder of kind {quote_untrusted(kind)}, "
                f"which redact.reveal_to does not let tool {quote_untrusted(tool.name)} resolve"
            )
            return Decision(DecisionKind.DENY, Rule.REDACT, reason, policy.rule("/redact/reveal_to"), facts)
        place = policy.rule(f"/redact/reveal_to/{tool.name}/{granted.index(kind)}")
        reason = f"redact.reveal_to lets tool {quote_untrusted(tool.name)} resolve {quote_untrusted(kind)}"
        grant = Decision(DecisionKind.ALLOW, Rule.REDACT, reason, place, facts)
    return grant


def unknown_placeholder(policy: Policy, check: Mapping[str, Any]) -> Decision:
    """Return the denial of a call whose placeholder cannot be resolved any more."""
    facts = {"kind": check["kind"], "number": check["number"]}
    name = f"{check['kind']}:{check['number']}"
    reason = f"the value of placeholder {quote_untrusted(name)} is not known in this process"
    return Decision(DecisionKind.DENY, Rule.REDACT, reason, policy.rule("/redact"), facts)


def hidden_verdict(policy: Policy, check: Mapping[str, Any]) -> Decision:
    """Return the recorded verdict on a value that the record does not show, and that decides otherwise."""
    rule = Rule(check["rule"])
    kind = {"allow": DecisionKind.ALLOW, "deny": DecisionKind.DENY}[check["hidden"]]
    reason = "decided on a value that the record hides; the verdict cannot be recomputed"
    return Decision(kind, rule, reason, policy.rule(_SECTIONS[rule]), {"hidden": True})
