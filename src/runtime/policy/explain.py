"""Why a call was decided as it was: every rule's verdict, the policy line behind it, how far the budgets are used.

The same rules in the same order as `Gate.decide`; what comes after the first objection is not request.
"""

from __future__ import annotations

from typing import Any, Final

from ...fail.catalog import Rule
from ...light_dataclasses import dataclass, field
from ..core.effects import Call
from ..formats.escape import quote_untrusted
from .gate import ALLOW, ESCALATE, Counters, Decision, Gate, GateRequest
from .per_tool.time_windows import shown_times
from .per_tool.tool_limits import call_limit, rate_limit

PASSED: Final = "pass"
FAILED: Final = "fail"
ASKS: Final = "asks a person"
NOT_ASKED: Final = "not asked"


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What one rule says of a call.

    Attributes:
        rule_id: The rule.
        verdict: `pass`, `fail`, `asks a person` or `not asked`.
        reason: Why, in one line.
        at: The line of the policy that it rests on, or the rule of a tool's schema.
        facts: Limits, counts and pointers that it rests on.
    """

    rule_id: str
    verdict: str
    reason: str
    at: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON data."""
        return {
            "rule_id": str(self.rule_id),
            "verdict": self.verdict,
            "reason": self.reason,
            "at": self.at,
            "facts": self.facts,
        }


@dataclass(frozen=True, slots=True)
class Budget:
    """How far a limit of the policy is used, before the call.

    Attributes:
        name: The limit's key in the policy.
        used: What the run has used of it.
        limit: Its value; what is beyond it is denied.
        at: File and line of the policy.
    """

    name: str
    used: int
    limit: int
    at: str

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON data."""
        return {"name": self.name, "used": self.used, "limit": self.limit, "at": self.at}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with everything that led to it.

    Attributes:
        decision: The decision of the gate.
        line: `file:line` of its rule, or the rule's name without one.
        rules: What each rule says, in the order in which they are asked.
        budgets: How far each limit is used.
    """

    decision: Decision
    line: str
    rules: tuple[RuleVerdict, ...]
    budgets: tuple[Budget, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON data."""
        return {
            **self.decision.to_dict(),
            "line": self.line,
            "rules": [rule.to_dict() for rule in self.rules],
            "budgets": [budget.to_dict() for budget in self.budgets],
        }


# rule: the place in the policy that it rests on where its verdict names none
_PLACES: Final = {
    "tool_registry": "/tool_registry/allowed",
    "principal": "/principals",
    "time_window": "/tools",
    "url_allowlist": "/url_allowlist",
    "sandbox_path": "/sandbox/mounts",
    "arg_schema": "/arg_schema_enforcement",
    "arguments": "/tools",
    "redact": "/redact",
    "tool_limits": "/tools",
    "cycle_detection": "/cycle_detection/max_repeats",
    "loop_budget": "/loop_budget",
    "approval": "/approval/required_for",
}


def explain(gate: Gate, call: Call, counters: Counters, *, every: bool = False) -> Explanation:
    """Decide a call as `gate.decide` does, and say what the rules made of it. Never raises.

    Args:
        gate: The gate.
        call: The call.
        counters: What the run has used so far.
        every: Ask the rules behind the first objection too. The gate does not, and they decide nothing.

    Returns:
        The decision, and a verdict for each rule.
    """
    decision = gate.decide(call, counters)
    rules: list[RuleVerdict] = []
    over = None
    request = gate.request_for(call, counters)
    for name, rule in gate.rules:
        if request.is_costly:
            every = False  # what is too costly to decide is too costly to explain
        place = gate.policy.at(_PLACES.get(name, ""))
        if over is not None and not every:
            rules.append(RuleVerdict(name, NOT_ASKED, f"{over} decided first", place))
            continue
        if over is not None and (request.tool is None or not isinstance(request.arguments, dict)):
            lacks = "there is no such tool" if request.tool is None else "the arguments are not a JSON object"
            rules.append(RuleVerdict(name, NOT_ASKED, lacks, place))
            continue
        try:
            answer = rule(request)
        except Exception as error:  # noqa: BLE001 - a rule that breaks denies
            over = name
            rules.append(RuleVerdict(name, FAILED, f"the rule broke with {type(error).__name__}", place))
            continue
        if answer is None:
            rules.append(RuleVerdict(name, PASSED, _silent(name, request, gate), place))
            continue
        verdict = PASSED if answer.decision == ALLOW else ASKS if answer.decision == ESCALATE else FAILED
        place = gate.policy.shown(answer.at)
        rules.append(RuleVerdict(name, verdict, answer.reason, place, answer.facts))
        over = None if answer.decision == ALLOW else name
        if name == Rule.TOOL_REGISTRY and over is None and gate.ceiling.decide(request) is not None:
            over = Rule.GATE_ERROR
    return Explanation(
        decision, gate.policy.shown(decision.at), tuple(rules), budgets_of(gate, counters, call)
    )


def budgets_of(gate: Gate, counters: Counters, call: Call | None = None) -> tuple[Budget, ...]:
    """Every limit with what is used of it; with a call, how often it gave the same result."""
    policy = gate.policy
    used = {
        "max_iterations": counters.iterations,
        "max_tokens": counters.tokens,
        "max_tool_calls": counters.tool_calls,
        "max_result_bytes": counters.result_bytes,
        "max_attempts": counters.attempts,
    }
    budgets = [
        Budget(name, used[name], limit, policy.at(f"/loop_budget/{name}"))
        for name, limit in policy.limits.items()
    ]
    if call is not None:
        repeats = counters.repeats.get(gate.key_of(call), 0)
        budgets.append(
            Budget("max_repeats", repeats, policy.max_repeats, policy.at("/cycle_detection/max_repeats"))
        )
    return tuple(budgets)


def _silent(rule: str, request: GateRequest, gate: Gate) -> str:
    """Return why a rule had no objection."""
    policy = gate.policy
    if rule == "time_window":
        times = shown_times(policy, request.call.name, request.counters.local_times)
        return f"it is {times}" if times else "the tool may be called at any time"
    if rule in ("url_allowlist", "sandbox_path"):
        kind = "url" if rule == "url_allowlist" else "path"
        declared = request.tool is not None and any(r.kind.startswith(kind) for r in request.tool.resources)
        resource = "URL" if kind == "url" else "path"
        return f"no {resource} among the arguments" if declared else f"the tool takes no {resource}"
    if rule == "principal":
        return f"principal {quote_untrusted(str(request.counters.principal))} may call the tool"
    if rule == "arg_schema":
        return f"the arguments fit the tool's schema ({'strict' if policy.strict_arguments else 'shape'})"
    if rule == "arguments":
        has_rules = {"arguments", "ask_if"} & policy.tool_rules.get(request.call.name, {}).keys()
        return "the arguments meet the tool's conditions" if has_rules else "the tool has no conditions"
    if rule == "cycle_detection":
        used = request.counters.repeats.get(request.key, 0)
        return f"gave the same result {used} times; max_repeats is {policy.max_repeats}"
    if rule == "tool_limits":
        limit = call_limit(policy, request.call.name)
        used = request.counters.calls_of.get(request.call.name, 0)
        rate, lately = rate_limit(policy, request.call.name), len(request.counters.lately(request.call.name))
        said = [] if limit is None else [f"{used} of {limit} calls of the tool are used"]
        said += [] if rate is None else [f"{lately} of {rate} calls within a minute are used"]
        return "; ".join(said) or "the tool has no limits"
    if rule == "loop_budget":
        return f"{request.counters.tool_calls} of {policy.limits['max_tool_calls']} calls are used"
    if rule == "approval":
        asks = "ask_if" in policy.tool_rules.get(request.call.name, {})
        return "no condition of ask_if is met" if asks else "the tool needs no approval"
    return "no objection"
