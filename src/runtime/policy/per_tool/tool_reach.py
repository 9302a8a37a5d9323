"""What one tool may reach of what the policy allows: `tools: {NAME: {urls: [...], methods: [...], mounts: [...]}}`.

These entries only narrow: the URL allowlist and the mounts of the sandbox are asked first. `urls` are the only URLs
that the tool may reach, with GET and HEAD or with `methods`; `methods` alone are the only ones that it may send;
`mounts` are the only mounts that its paths may lie in. An empty list leaves it none. They hold for its arguments and
for whatever it does while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ....fail.catalog import Rule
from ....light_dataclasses import dataclass
from ...core.effects import Decision, DecisionKind
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...resources.http_methods import METHODS, SAFE_METHODS
from ...resources.url import Allowlist, Target

if TYPE_CHECKING:
    from ..policy import Policy

KEYS: Final = ("urls", "methods", "mounts")


@dataclass(frozen=True, slots=True)
class ReachLimits:
    """What one tool may reach; None where the other sections alone decide.

    Attributes:
        urls: The URLs, each with its methods.
        methods: The methods of any request.
        mounts: The names of the mounts.
    """

    urls: Allowlist | None = None
    methods: tuple[str, ...] | None = None
    mounts: frozenset[str] | None = None

    def allows_url(self, target: Target, method: str | None) -> bool:
        """Return whether a URL may be reached with a method; None where the method is not known yet."""
        if self.urls is not None:
            return self.urls.match(target, method) is not None
        return self.methods is None or method is None or method in self.methods

    def allows_mount(self, mount: str) -> bool:
        """Return whether paths may lie in a mount."""
        return self.mounts is None or mount in self.mounts


EVERYTHING: Final = ReachLimits()


def reach_of(rules: Mapping[str, Any]) -> ReachLimits:
    """Return what the rules of a tool let it reach. Raises Malformed for a URL that cannot be read."""
    urls, methods, mounts = (rules.get(key) for key in KEYS)
    return ReachLimits(
        None
        if urls is None
        else Allowlist([{"url": url, "methods": tuple(methods or SAFE_METHODS)} for url in urls]),
        None if methods is None else tuple(methods),
        None if mounts is None else frozenset(mounts),
    )


class ReachRules:
    """What the tools of a policy may reach, for those that have rules on it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._reach = {
            name: reach_of(rules)
            for name, rules in policy.tool_rules.items()
            if any(key in rules for key in KEYS)
        }

    def of(self, tool: str) -> ReachLimits:
        """Return what a tool may reach."""
        return self._reach.get(tool, EVERYTHING)

    def _named(self, tool: str | None) -> str:
        """Return the name of a tool. Raises ValueError if there is none and some tool has rules."""
        if tool is None and self._reach:
            raise ValueError("a fact without the tool that met it")
        return tool or ""

    def decide_url(
        self, tool: str | None, target: Target, method: str | None, facts: Mapping[str, Any]
    ) -> Decision | None:
        """Return the denial of a URL that the allowlist allows, and the rules of the tool do not; else None."""
        tool = self._named(tool)
        reach = self._reach.get(tool)
        if reach is None or self._may_send(reach, target, method):
            return None
        named, section = quote_untrusted(tool), f"/tools/{escape_pointer(tool)}"
        if reach.allows_url(target, None):
            place = f"{section}/{'urls' if reach.methods is None else 'methods'}"
            what = "any method that url_allowlist allows" if method is None else quote_untrusted(method)
            reason = f"tool {named} may not send {what} to {quote_untrusted(target.origin)}"
        else:
            place = f"{section}/urls"
            which = " with this path" if reach.urls is not None and reach.urls.knows(target) else ""
            reason = f"{quote_untrusted(target.origin)}{which} is not in the urls of tool {named}"
        return Decision(
            DecisionKind.DENY, Rule.URL_ALLOWLIST, reason, self._policy.rule(place), {**facts, "tool": tool}
        )

    def _may_send(self, reach: ReachLimits, target: Target, method: str | None) -> bool:
        """Return whether a tool may send a method; without one, whether it may send any that the allowlist allows."""
        if method is not None:
            return reach.allows_url(target, method)
        allowed = self._policy.allowlist
        return any(
            reach.allows_url(target, each) and allowed.match(target, each) is not None for each in METHODS
        )

    def decide_mount(self, tool: str | None, mount: str, facts: Mapping[str, Any]) -> Decision | None:
        """Return the denial of a mount that the sandbox allows, and the rules of the tool do not; else None."""
        tool = self._named(tool)
        reach = self._reach.get(tool)
        if reach is None or reach.allows_mount(mount):
            return None
        reason = f"mount {quote_untrusted(mount)} is not in the mounts of tool {quote_untrusted(tool)}"
        place = self._policy.rule(f"/tools/{escape_pointer(tool)}/mounts")
        return Decision(DecisionKind.DENY, Rule.SANDBOX_PATH, reason, place, {**facts, "tool": tool})
