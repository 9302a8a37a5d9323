"""The policy decision point: pure, total, default deny.

Rules judge resources (what a string *is*, by the tool's schema), not argument names. The first rule that
objects gives the answer, in the order of `Gate.rules`. A failure inside the gate is a denial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..core.effects import Call
from ..formats.escape import printable
from ..resources.mount_path import MountPath, parse_path
from ..resources.url import Malformed, Target, parse_url
from ..tools.contract import Tool
from .policy import Policy
from .usage import Counters as Counters
from .usage import call_key as call_key
from .usage import key_with_urls

ALLOW: Final = "allow"
DENY: Final = "deny"
ESCALATE: Final = "escalate"
UNBOUND: Final = "unbound mount"  # a late finding: the policy's mount has no folder in this run


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate said.

    `rule_id` is the rule that objected or, for an allow, the rule whose entry grants the call. `reason` is
    one line of ours, `at` is `file:line` of the policy, `facts` is plain data (pointer, limits, counts).
    """

    decision: str
    rule_id: str
    reason: str
    at: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "decision": self.decision,
            "rule_id": self.rule_id,
            "reason": self.reason,
            "at": self.at,
            "facts": self.facts,
        }


def decide(call: Call, policy: Policy, counters: Counters, tools: Mapping[str, Tool]) -> Decision:
    """One decision without a kept gate; a run builds its `Gate` once and asks that."""
    return Gate(policy, tools).decide(call, counters)


@dataclass(frozen=True, slots=True)
class GateRequest:
    """What a rule is asked about. `tool` is None for a call of a tool that is not part of the run."""

    call: Call
    counters: Counters
    tool: Tool | None
    arguments: Any


Rule = Callable[[GateRequest], Decision | None]


class Gate:
    """The rules of one policy over one set of tools, indexed once.

    `rules` are the rules by name in the order asked. A rule answers with a denial or an escalation, which
    ends the matter, with an allow that names what it grants, or with None where it has nothing to say
    against the call.
    """

    def __init__(self, policy: Policy, tools: Mapping[str, Tool]) -> None:
        self.policy = policy
        self.tools = dict(tools)
        # a call's identity is asked for several times in a row
        self._keyed: tuple[Call | None, bytes] = (None, b"")
        self.rules: tuple[tuple[str, Rule], ...] = (
            ("tool_registry", self._tool_registry),
            ("url_allowlist", self._url_allowlist),
            ("sandbox_path", self._sandbox_path),
            ("arg_schema", self._arg_schema),
            ("cycle_detection", self._cycle),
            ("loop_budget", self._call_budget),
            ("approval", self._approval),
        )

    def decide(self, call: Call, counters: Counters) -> Decision:
        """Allow, deny or escalate one proposed call. Never raises, changes nothing."""
        try:
            return self._decide(call, counters)
        except Exception as error:  # noqa: BLE001 - whatever breaks in here denies
            return self._broken(error)

    def decide_step(self, counters: Counters) -> Decision | None:
        """A denial if the budgets leave no room for another step, else None."""
        try:
            for name, used in (("max_iterations", counters.iterations), ("max_tokens", counters.tokens)):
                limit = self.policy.limits[name]
                if used >= limit:
                    return self._over_budget(name, used, limit)
            return None
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    def decide_late(self, check: Mapping[str, Any]) -> Decision:
        """Decide again on facts that were met while a tool ran.

        `check` is one of `{rule: url_allowlist, target, hop}`, `{rule: url_allowlist, target, address}`,
        `{rule: sandbox_path, path, access}` or `{rule: sandbox_path, path, access, found}`.
        """
        try:
            if check["rule"] == "url_allowlist":
                return self._late_url(check)
            if check["rule"] == "sandbox_path":
                return self._late_path(check)
            raise ValueError("unknown check")
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    def decide_result(self, size: int, counters: Counters) -> Decision | None:
        """A denial if a result of `size` bytes does not fit the byte budget, else None."""
        try:
            limit = self.policy.limits["max_result_bytes"]
            if counters.result_bytes + size > limit:
                return self._over_budget("max_result_bytes", counters.result_bytes + size, limit)
            return None
        except Exception as error:  # noqa: BLE001 - denies
            return self._broken(error)

    # ---- the rules, in order ---------------------------------------------------------------------------

    def key_of(self, call: Call) -> bytes:
        """Identity of a call: its tool and canonical arguments, in which each URL is as it was read."""
        tool = self.tools.get(call.name) if type(call.name) is str else None
        if tool is None or call.arguments is None:
            return call_key(call)
        known, key = self._keyed
        if known is not call:
            key = key_with_urls(call, tuple(place for place in tool.resources if place.kind == "url"))
            self._keyed = (call, key)
        return key

    def request_for(self, call: Call, counters: Counters) -> GateRequest:
        """A call as the rules see it."""
        arguments = call.arguments.value() if call.arguments is not None else None
        tool = self.tools.get(call.name) if type(call.name) is str else None
        return GateRequest(call, counters, tool, arguments)

    def _decide(self, call: Call, counters: Counters) -> Decision:
        asked = self.request_for(call, counters)
        grant = None
        for _, rule in self.rules:
            found = rule(asked)
            if found is not None:
                if found.decision != ALLOW:
                    return found
                grant = found
        if grant is None:
            raise RuntimeError("no rule granted the call")
        return grant

    def _tool_registry(self, asked: GateRequest) -> Decision:
        policy, name = self.policy, asked.call.name
        if type(name) is not str or not name.isascii():
            # no policy holds such a name; it may be of a kind that no record can hold either
            return Decision(DENY, "tool_registry", "no name of a tool", policy.at("/tool_registry/allowed"))
        if name in policy.denied:
            place = policy.at(f"/tool_registry/denied/{policy.denied[name]}")
            return Decision(DENY, "tool_registry", f"tool {printable(name)} is denied", place, {"tool": name})
        if name not in policy.allowed:
            place = policy.at("/tool_registry/allowed")
            reason = f"tool {printable(name)} is not in tool_registry.allowed"
            return Decision(DENY, "tool_registry", reason, place, {"tool": name})
        if name not in self.tools:
            place = policy.at(f"/tool_registry/allowed/{policy.allowed[name]}")
            reason = f"tool {printable(name)} is allowed but not part of this run"
            return Decision(DENY, "tool_registry", reason, place, {"tool": name})
        place = policy.at(f"/tool_registry/allowed/{policy.allowed[name]}")
        return Decision(ALLOW, "tool_registry", f"tool {printable(name)} is allowed", place)

    def _url_allowlist(self, asked: GateRequest) -> Decision | None:
        return self._resources(asked, "url")

    def _sandbox_path(self, asked: GateRequest) -> Decision | None:
        return self._resources(asked, "path")

    def _resources(self, asked: GateRequest, kind: str) -> Decision | None:
        """The first denial among the resources of a kind, else the last grant, else None."""
        assert asked.tool is not None
        grant = None
        for resource in asked.tool.resources:
            if not resource.kind.startswith(kind):
                continue
            for pointer, value in resource.find(asked.arguments):
                if not isinstance(value, str):
                    continue  # of the wrong type: arg_schema's
                if kind == "url":
                    found = self._url(value, {"pointer": pointer})
                else:
                    found = self._path(value, resource.kind.partition(":")[2], {"pointer": pointer})
                if found.decision == DENY:
                    return found
                grant = found
        return grant

    def _url(self, text: str, facts: dict[str, Any]) -> Decision:
        try:
            return self._target(parse_url(text), facts)
        except Malformed as error:
            return Decision(
                DENY,
                "url_allowlist",
                f"no acceptable URL: {error.reason}",
                self.policy.at("/url_allowlist"),
                {**facts, "malformed": error.reason},
            )

    def _target(self, target: Target, facts: dict[str, Any]) -> Decision:
        facts = {**facts, "scheme": target.scheme, "host": target.host, "port": target.port}
        entry = self.policy.allowlist.match(target)
        if entry is None:
            which = " with this path" if self.policy.allowlist.knows(target) else ""
            reason = f"{printable(target.origin)}{which} is not in url_allowlist"
            return Decision(DENY, "url_allowlist", reason, self.policy.at("/url_allowlist"), facts)
        reason = f"{printable(target.origin)} is allowed by url_allowlist"
        return Decision(ALLOW, "url_allowlist", reason, self.policy.at(f"/url_allowlist/{entry}"), facts)

    def _path(self, text: str, access: str, facts: dict[str, Any]) -> Decision:
        try:
            return self._mount(parse_path(text), access, facts)
        except Malformed as error:
            return Decision(
                DENY,
                "sandbox_path",
                f"no acceptable path: {error.reason}",
                self.policy.at("/sandbox/mounts"),
                {**facts, "access": access, "malformed": error.reason},
            )

    def _mount(self, path: MountPath, access: str, facts: dict[str, Any]) -> Decision:
        facts = {**facts, "access": access, "mount": path.mount}
        mode = self.policy.mounts.get(path.mount)
        if mode is None:
            reason = f"{printable(path.mount)} is no mount of sandbox.mounts"
            return Decision(DENY, "sandbox_path", reason, self.policy.at("/sandbox/mounts"), facts)
        place = self.policy.at(f"/sandbox/mounts/{path.mount}")
        if access == "write" and mode != "write":
            return Decision(
                DENY, "sandbox_path", f"mount {printable(path.mount)} is for reading only", place, facts
            )
        return Decision(ALLOW, "sandbox_path", f"mount {printable(path.mount)} allows {access}", place, facts)

    def _arg_schema(self, asked: GateRequest) -> Decision | None:
        tool, arguments = asked.tool, asked.arguments
        assert tool is not None
        if not isinstance(arguments, dict):
            problem = asked.call.problem or "not an object"
            place = self.policy.at("/arg_schema_enforcement")
            facts = {"pointer": "", "keyword": "json", "limit": problem}
            return Decision(DENY, "arg_schema", f"the arguments are no JSON object: {problem}", place, facts)
        strict = self.policy.strict_arguments
        wrong = (tool.input_validator if strict else tool.shape_validator).first_mismatch(arguments)
        if wrong is None:
            return None
        reason = f"argument {printable(wrong.pointer or '/')} breaks {wrong.keyword}"
        if wrong.limit:
            reason += f" ({printable(wrong.limit)})"
        facts = {"pointer": wrong.pointer, "keyword": wrong.keyword, "limit": wrong.limit}
        place = self.policy.at("/arg_schema_enforcement")
        return Decision(DENY, "arg_schema", reason, place, facts)

    def _cycle(self, asked: GateRequest) -> Decision | None:
        limit = self.policy.max_repeats
        used = asked.counters.repeats.get(self.key_of(asked.call), 0)
        if used < limit:
            return None
        reason = f"the same call brought the same result {used} times, max_repeats is {limit}"
        facts = {"used": used, "limit": limit}
        return Decision(
            DENY, "cycle_detection", reason, self.policy.at("/cycle_detection/max_repeats"), facts
        )

    def _call_budget(self, asked: GateRequest) -> Decision | None:
        limits, counters = self.policy.limits, asked.counters
        if counters.tool_calls >= limits["max_tool_calls"]:
            return self._over_budget("max_tool_calls", counters.tool_calls, limits["max_tool_calls"])
        if counters.result_bytes >= limits["max_result_bytes"]:
            return self._over_budget("max_result_bytes", counters.result_bytes, limits["max_result_bytes"])
        return None

    def _approval(self, asked: GateRequest) -> Decision | None:
        policy, name = self.policy, asked.call.name
        if name not in policy.approval_for:
            return None
        place = policy.at(f"/approval/required_for/{policy.approval_for[name]}")
        reason = f"tool {printable(name)} needs a person's approval"
        return Decision(ESCALATE, "approval", reason, place, {"timeout_s": policy.approval_timeout_s})

    # ---- late facts, budgets, breakage -----------------------------------------------------------------

    def _late_url(self, check: Mapping[str, Any]) -> Decision:
        facts = {key: check[key] for key in ("hop", "address") if key in check}
        found = self._url(check["target"], {**facts, "target": check["target"]})
        if found.decision == DENY or "address" not in check or self.policy.networks.allows(check["address"]):
            return found
        # the address itself is for the record, not for the model
        reason = f"{printable(found.facts['host'])} resolves to an address that is not public"
        place = self.policy.at("/private_networks")
        return Decision(DENY, "url_allowlist", reason, place, found.facts)

    def _late_path(self, check: Mapping[str, Any]) -> Decision:
        access = check["access"]
        if access not in ("read", "write"):
            raise ValueError("unknown access")
        found = self._path(check["path"], access, {"path": check["path"]})
        if found.decision == DENY or "found" not in check:
            return found
        kind = check["found"]
        if kind == UNBOUND:
            reason = f"mount {printable(found.facts['mount'])} is not part of this run"
        else:
            reason = f"on the way stands a {kind}, which the sandbox does not follow"
        return Decision(DENY, "sandbox_path", reason, found.at, {**found.facts, "found": kind})

    def _over_budget(self, name: str, used: int, limit: int) -> Decision:
        reason = f"{name} is used up: {used} of {limit}"
        place = self.policy.at(f"/loop_budget/{name}")
        return Decision(DENY, "loop_budget", reason, place, {"budget": name, "used": used, "limit": limit})

    def _broken(self, error: Exception) -> Decision:
        return Decision(
            DENY,
            "gate_error",
            f"the gate failed with {type(error).__name__} and denies",
            self.policy.at(""),
            {"exception": type(error).__name__},
        )
