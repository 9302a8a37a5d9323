"""The rules on what a call may reach, `url_allowlist` and `sandbox_path`: by its arguments and while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...fail.catalog import Rule
from ..core.effects import Decision, DecisionKind
from ..formats.escape import quote_untrusted
from ..resources.mount_path import MountPath, parse_path
from ..resources.url import Malformed, Target, parse_url
from .credentials import with_credential
from .per_tool.request_rules import with_request
from .per_tool.tool_reach import ReachRules
from .policy import Policy
from .requests import GateRequest

ALLOW: Final = DecisionKind.ALLOW
DENY: Final = DecisionKind.DENY
UNBOUND: Final = "unbound mount"  # reported while a tool runs: the policy's mount has no folder in this run


class ResourceRules:
    """What a policy says of URLs and paths, for every tool and for single ones."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._reach_rules = ReachRules(policy)

    def url_allowlist(self, request: GateRequest) -> Decision | None:
        """Decide the URLs among the arguments of a call."""
        return self._resources(request, "url")

    def sandbox_path(self, request: GateRequest) -> Decision | None:
        """Decide the paths among the arguments of a call."""
        return self._resources(request, "path")

    def _resources(self, request: GateRequest, kind: str) -> Decision | None:
        """Return the first denial among the resources of a kind, else the last grant, else None."""
        assert request.tool is not None
        grant = None
        for resource in request.tool.resources:
            if not resource.kind.startswith(kind):
                continue
            for pointer, value in resource.find(request.arguments):
                if not isinstance(value, str):
                    continue  # of the wrong type: arg_schema's
                if kind == "url":
                    decision = self._url(value, {"pointer": pointer}, request.tool.name)
                else:
                    access = resource.kind.partition(":")[2]
                    decision = self._path(value, access, {"pointer": pointer}, request.tool.name)
                if decision.decision == DENY:
                    return decision
                grant = decision
        return grant

    def _url(self, text: str, facts: dict[str, Any], tool: str | None, method: str | None = None) -> Decision:
        """Decide a URL. While a call is decided, its method is not known: then an entry for any method is enough."""
        try:
            return self._target(parse_url(text), facts, tool, method)
        except Malformed as error:
            return Decision(
                DENY,
                Rule.URL_ALLOWLIST,
                f"malformed URL: {error.reason}",
                self.policy.rule("/url_allowlist"),
                {**facts, "malformed": error.reason},
            )

    def _target(
        self, target: Target, facts: dict[str, Any], tool: str | None, method: str | None
    ) -> Decision:
        facts = {**facts, "scheme": target.scheme, "host": target.host, "port": target.port}
        allowlist = self.policy.allowlist
        entry = allowlist.match(target, method)
        if entry is None and method is not None and allowlist.match(target) is not None:
            place = self.policy.rule(f"/url_allowlist/{allowlist.match(target)}")
            reason = f"{quote_untrusted(target.origin)} is not in url_allowlist for {quote_untrusted(method)}"
            return Decision(DENY, Rule.URL_ALLOWLIST, reason, place, facts)
        if entry is None:
            which = " with this path" if self.policy.allowlist.knows(target) else ""
            reason = f"{quote_untrusted(target.origin)}{which} is not in url_allowlist"
            return Decision(DENY, Rule.URL_ALLOWLIST, reason, self.policy.rule("/url_allowlist"), facts)
        refused = self._reach_rules.decide_url(tool, target, method, facts)
        if refused is not None:
            return refused
        reason = f"{quote_untrusted(target.origin)} is allowed by url_allowlist"
        return Decision(ALLOW, Rule.URL_ALLOWLIST, reason, self.policy.rule(f"/url_allowlist/{entry}"), facts)

    def _path(self, text: str, access: str, facts: dict[str, Any], tool: str | None) -> Decision:
        try:
            return self._mount(parse_path(text), access, facts, tool)
        except Malformed as error:
            return Decision(
                DENY,
                Rule.SANDBOX_PATH,
                f"malformed path: {error.reason}",
                self.policy.rule("/sandbox/mounts"),
                {**facts, "access": access, "malformed": error.reason},
            )

    def _mount(self, path: MountPath, access: str, facts: dict[str, Any], tool: str | None) -> Decision:
        facts = {**facts, "access": access, "mount": path.mount}
        mode = self.policy.mounts.get(path.mount)
        if mode is None:
            reason = f"mount {quote_untrusted(path.mount)} is not in sandbox.mounts"
            return Decision(DENY, Rule.SANDBOX_PATH, reason, self.policy.rule("/sandbox/mounts"), facts)
        place = self.policy.rule(f"/sandbox/mounts/{path.mount}")
        if access == "write" and mode != "write":
            return Decision(
                DENY, Rule.SANDBOX_PATH, f"mount {quote_untrusted(path.mount)} is read-only", place, facts
            )
        refused = self._reach_rules.decide_mount(tool, path.mount, facts)
        if refused is not None:
            return refused
        return Decision(
            ALLOW, Rule.SANDBOX_PATH, f"mount {quote_untrusted(path.mount)} allows {access}", place, facts
        )

    def decide_late_url(self, check: Mapping[str, Any], tool: str | None) -> Decision:
        """Decide a URL that was met while a tool ran, or the address behind it."""
        facts = {key: check[key] for key in ("hop", "address", "method") if key in check}
        method = check.get("method", "GET")
        if not isinstance(method, str):
            raise ValueError("unknown method")
        match = self._url(check["target"], {**facts, "target": check["target"]}, tool, method)
        if match.decision == DENY or "address" not in check or self.policy.networks.allows(check["address"]):
            return with_request(self.policy, check, tool, with_credential(self.policy, check, match))
        # the address itself is for the record, not for the model
        reason = f"{quote_untrusted(match.facts['host'])} resolves to an address that is not public"
        place = self.policy.rule("/private_networks")
        return Decision(DENY, Rule.URL_ALLOWLIST, reason, place, match.facts)

    def decide_late_path(self, check: Mapping[str, Any], tool: str | None) -> Decision:
        """Decide a path that was met while a tool ran, or what was found there."""
        access = check["access"]
        if access not in ("read", "write"):
            raise ValueError("unknown access")
        decision = self._path(check["path"], access, {"path": check["path"]}, tool)
        if decision.decision == DENY or "found" not in check:
            return decision
        kind = check["found"]
        if kind == UNBOUND:
            reason = f"mount {quote_untrusted(decision.facts['mount'])} is not part of this run"
        else:
            reason = f"the path contains a {kind}, which the sandbox does not follow"
        return Decision(DENY, Rule.SANDBOX_PATH, reason, decision.at, {**decision.facts, "found": kind})
