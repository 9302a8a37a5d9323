"""The policy decision point: pure, total, default deny.

A call passes the rules in this order; the first that objects gives the answer:

    tool_registry    the tool is allowed by name, not denied, and part of this run
    principal        whoever the run acts for may call the tool, where the policy asks for whom (per_tool/principals.py)
    time_window      this tool may be called at this time of the week (per_tool/time_windows.py)
    url_allowlist    every URL among the arguments matches an entry, and one of this tool where it has its own
    sandbox_path     every path lies in a mount whose mode allows the access, and that is open to this tool
    arg_schema       the arguments fit the tool's input schema
    arguments        they meet the conditions on this tool's arguments, where it has any (per_tool/argument_rules.py)
    redact           a placeholder among the arguments may be resolved for this tool (placeholder_rule.py)
    cycle_detection  the same call has not given the same result `max_repeats` times
    tool_limits      this tool has calls left, in the run and in this minute (per_tool/tool_limits.py)
    loop_budget      calls, result bytes and tokens are left
    approval         a tool or arguments (`ask_if`) that need a person escalate

A call that no rule objects to is allowed by the last entry that grants something it uses: the one that reveals a secret
to its tool, else the entry for its last path, else its last URL, else its tool. What comes after the rules only
tightens their answer (`decide_call` in loop/tool_calls.py): a call that was refused earlier in the run is refused
again, then hooks are asked, then a person about what was escalated.
Rules judge resources (what a string *is*, by the tool's schema), not argument names. A failure inside the gate is a
denial, `gate_error`, and so is a call that would cost too much to judge, which is found out right after tool_registry
(call_cost.py). Step budgets, result sizes and facts met while a tool runs are decided by the same policy.

A `Decision` names the rule, a one-line reason, the place in the policy and the facts it rests on. Each is recorded in
the step's line (`policy_decisions`); `tachograph explain RUN` prints every rule's verdict, the report the denials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...fail.catalog import Rule
from ..core.effects import Answer, Call, DecisionKind
from ..core.effects import Decision as Decision
from ..formats.escape import quote_untrusted
from ..tools.contract import Tool
from .call_cost import Ceiling
from .per_tool.argument_rules import ArgumentRules, rule_of_schema
from .per_tool.principals import Principals
from .per_tool.request_rules import RequestRules
from .per_tool.time_windows import TimeWindows
from .per_tool.tool_limits import ToolLimits
from .placeholder_rule import decide_placeholders, hidden_verdict, unknown_placeholder
from .policy import Policy
from .requests import GateRequest as GateRequest
from .resource_rules import UNBOUND as UNBOUND
from .resource_rules import ResourceRules
from .signers import signer_of
from .usage import Counters as Counters
from .usage import call_key as call_key

ALLOW: Final = DecisionKind.ALLOW
DENY: Final = DecisionKind.DENY
ESCALATE: Final = DecisionKind.ESCALATE


def decide(call: Call, policy: Policy, counters: Counters, tools: Mapping[str, Tool]) -> Decision:
    """One decision without a kept gate; a run builds its `Gate` once and asks that."""
    return Gate(policy, tools).decide(call, counters)


RuleCheck = Callable[[GateRequest], Decision | None]


class Gate:
    """The rules of one policy over one set of tools, indexed once.

    `rules` are the rules by name in evaluation order. A rule answers with a denial or an escalation, which
    ends the matter, with an allow that names what it grants, or with None where it has nothing to say
    against the call.
    """

    def __init__(self, policy: Policy, tools: Mapping[str, Tool]) -> None:
        self.policy = policy
        self.tools = dict(tools)
        self._argument_rules = argument_rules = ArgumentRules(policy)
        self.ceiling = Ceiling(policy, argument_rules)
        self._resources = ResourceRules(policy)
        self.request_rules = RequestRules(policy)
        self.rules: tuple[tuple[Rule, RuleCheck], ...] = (
            (Rule.TOOL_REGISTRY, self._tool_registry),
            *(((Rule.PRINCIPAL, Principals(policy).decide),) if policy.principals else ()),
            *(((Rule.TIME_WINDOW, TimeWindows(policy).decide),) if policy.has_rules("between") else ()),
            (Rule.URL_ALLOWLIST, self._resources.url_allowlist),
            (Rule.SANDBOX_PATH, self._resources.sandbox_path),
            (Rule.ARG_SCHEMA, self._arg_schema),
            *(((Rule.ARGUMENTS, argument_rules.decide),) if policy.tool_rules else ()),
            (Rule.REDACT, self._redact),
            (Rule.CYCLE_DETECTION, self._cycle),
            *(((Rule.TOOL_LIMITS, ToolLimits(policy).decide),) if policy.has_rules("limits") else ()),
            (Rule.LOOP_BUDGET, self._call_budget),
            (Rule.APPROVAL, self._approval),
        )

    def decide(self, call: Call, counters: Counters) -> Decision:
        """Allow, deny or escalate one proposed call. Never raises, changes nothing."""
        try:
            return self._decide(self.request_for(call, counters))
        except Exception as error:  # noqa: BLE001 - whatever breaks in here denies
            return self._broken(error)

    def prepared(self) -> Gate:
        """Return this gate with everything compiled that calls of its tools are judged by, before the first of them."""
        self.ceiling.prepare(self.tools.values())
        return self

    def request_for(self, call: Call, counters: Counters) -> GateRequest:
        """Return a call as the rules see it."""
        tool = self.tools.get(call.name) if type(call.name) is str else None
        return GateRequest(call, counters, tool)

    def key_of(self, call: Call) -> bytes:
        """Return the identity of a call, as cycle detection counts it."""
        return self.request_for(call, Counters()).key

    def decide_request(self, request: GateRequest) -> Decision:
        """Decide a call that was read before, as `decide` does."""
        try:
            return self._decide(request)
        except Exception as error:  # noqa: BLE001 - whatever breaks in here denies
            return self._broken(error)

    def decide_step(self, counters: Counters) -> Decision | None:
        """Return a denial if the budgets leave no room for another step, else None."""
        try:
            for name, used in (("max_iterations", counters.iterations), ("max_tokens", counters.tokens)):
                limit = self.policy.limits[name]
                if used >= limit:
                    return self._over_budget(name, used, limit)
            return None
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    def signer_of(self, answer: Answer, digest: str) -> str | None:
        """Return whose signature an answer to a question has: None for nobody's, "" where the policy wants none.

        Raises InputError where signatures cannot be verified.
        """
        signers = self.policy.signers
        return signer_of(answer, digest, signers) if signers else ""

    def decide_retry(self, counters: Counters) -> Decision | None:
        """Return a denial if the budget leaves no room for another attempt of a call, else None."""
        try:
            return self._attempt_budget(counters)
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    def decide_late(self, check: Mapping[str, Any], tool: str | None = None) -> Decision:
        """Decide again on facts that were met while a tool ran, given its name: policies with rules on it need that.

        `check` is one of `{rule: url_allowlist, target, hop}`, `{rule: url_allowlist, target, address}`, both also
        with `method`, which is GET if absent, `{rule: sandbox_path, path, access}` or
        `{rule: sandbox_path, path, access, found}`.
        """
        try:
            if "hidden" in check:
                return hidden_verdict(self.policy, check)
            if check["rule"] == "url_allowlist":
                return self._resources.decide_late_url(check, tool)
            if check["rule"] == "sandbox_path":
                return self._resources.decide_late_path(check, tool)
            if check["rule"] == "redact":
                return unknown_placeholder(self.policy, check)
            raise ValueError("unknown check")
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    def decide_result(self, size: int, counters: Counters) -> Decision | None:
        """Return a denial if a result of `size` bytes does not fit the byte budget, else None."""
        try:
            limit = self.policy.limits["max_result_bytes"]
            if counters.result_bytes + size > limit:
                return self._over_budget("max_result_bytes", counters.result_bytes + size, limit)
            return None
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    # ---- the rules, in order ---------------------------------------------------------------------------

    def _decide(self, request: GateRequest) -> Decision:
        grant = None
        for name, rule in self.rules:
            decision = rule(request)
            if name == Rule.TOOL_REGISTRY and decision is not None and decision.decision == ALLOW:
                decision = self.ceiling.decide(request) or decision
            if decision is not None:
                if decision.decision != ALLOW:
                    return decision
                grant = decision
        if grant is None:
            raise RuntimeError("no rule granted the call")
        return grant

    def _tool_registry(self, request: GateRequest) -> Decision:
        policy, name = self.policy, request.call.name
        if type(name) is not str or not name.isascii():
            # no policy holds such a name; it may be of a kind that no record can hold either
            return Decision(
                DENY,
                Rule.TOOL_REGISTRY,
                "the tool name is not ASCII text",
                policy.rule("/tool_registry/allowed"),
            )
        if name in policy.denied:
            place = policy.rule(f"/tool_registry/denied/{policy.denied[name]}")
            return Decision(
                DENY, Rule.TOOL_REGISTRY, f"tool {quote_untrusted(name)} is denied", place, {"tool": name}
            )
        if name not in policy.allowed:
            place = policy.rule("/tool_registry/allowed")
            reason = f"tool {quote_untrusted(name)} is not in tool_registry.allowed"
            return Decision(DENY, Rule.TOOL_REGISTRY, reason, place, {"tool": name})
        if name not in self.tools:
            place = policy.rule(f"/tool_registry/allowed/{policy.allowed[name]}")
            reason = f"tool {quote_untrusted(name)} is allowed but not part of this run"
            return Decision(DENY, Rule.TOOL_REGISTRY, reason, place, {"tool": name})
        place = policy.rule(f"/tool_registry/allowed/{policy.allowed[name]}")
        return Decision(ALLOW, Rule.TOOL_REGISTRY, f"tool {quote_untrusted(name)} is allowed", place)

    def _arg_schema(self, request: GateRequest) -> Decision | None:
        tool, arguments = request.tool, request.arguments
        assert tool is not None
        if not isinstance(arguments, dict):
            problem = request.call.problem or "not an object"
            place = rule_of_schema(tool, "/type")
            facts = {"pointer": "", "keyword": "json", "limit": problem}
            return Decision(
                DENY, Rule.ARG_SCHEMA, f"the arguments are not a JSON object: {problem}", place, facts
            )
        strict = self.policy.strict_arguments
        wrong = (tool.input_validator if strict else tool.shape_validator).first_mismatch(arguments)
        if wrong is None:
            return None
        reason = f"argument {quote_untrusted(wrong.pointer or '/')} violates {wrong.keyword}"
        if wrong.limit:
            reason += f" ({quote_untrusted(wrong.limit)})"
        facts = {"pointer": wrong.pointer, "keyword": wrong.keyword, "limit": wrong.limit}
        return Decision(DENY, Rule.ARG_SCHEMA, reason, rule_of_schema(tool, wrong.schema), facts)

    def _redact(self, request: GateRequest) -> Decision | None:
        assert request.tool is not None
        return decide_placeholders(self.policy, request.tool, request.call)

    def _cycle(self, request: GateRequest) -> Decision | None:
        limit = self.policy.max_repeats
        used = request.counters.repeats.get(request.key, 0)
        if used < limit:
            return None
        reason = f"the same call gave the same result {used} times; max_repeats is {limit}"
        facts = {"used": used, "limit": limit}
        return Decision(
            DENY, Rule.CYCLE_DETECTION, reason, self.policy.rule("/cycle_detection/max_repeats"), facts
        )

    def _call_budget(self, request: GateRequest) -> Decision | None:
        limits, counters = self.policy.limits, request.counters
        if self.policy.denies_overdraft and counters.tokens > limits["max_tokens"]:
            return self._over_budget("max_tokens", counters.tokens, limits["max_tokens"])
        if counters.tool_calls >= limits["max_tool_calls"]:
            return self._over_budget("max_tool_calls", counters.tool_calls, limits["max_tool_calls"])
        if counters.result_bytes >= limits["max_result_bytes"]:
            return self._over_budget("max_result_bytes", counters.result_bytes, limits["max_result_bytes"])
        return self._attempt_budget(counters)

    def _attempt_budget(self, counters: Counters) -> Decision | None:
        limit = self.policy.limits.get("max_attempts")
        if limit is None or counters.attempts < limit:
            return None
        return self._over_budget("max_attempts", counters.attempts, limit)

    def _approval(self, request: GateRequest) -> Decision | None:
        policy, name = self.policy, request.call.name
        if name not in policy.approval_for:
            return self._argument_rules.ask(request) if policy.tool_rules else None
        place = policy.rule(f"/approval/required_for/{policy.approval_for[name]}")
        reason = f"tool {quote_untrusted(name)} needs a person's approval"
        return Decision(ESCALATE, Rule.APPROVAL, reason, place, {"timeout_s": policy.approval_timeout_s})

    # ---- budgets, breakage -----------------------------------------------------------------

    def _over_budget(self, name: str, used: int, limit: int) -> Decision:
        reason = f"{name} is used up: {used} of {limit}"
        place = self.policy.rule(f"/loop_budget/{name}")
        return Decision(DENY, Rule.LOOP_BUDGET, reason, place, {"budget": name, "used": used, "limit": limit})

    def _broken(self, error: Exception) -> Decision:
        return Decision(
            DENY,
            Rule.GATE_ERROR,
            f"the gate failed with {type(error).__name__} and denies",
            self.policy.rule(""),
            {"exception": type(error).__name__},
        )
