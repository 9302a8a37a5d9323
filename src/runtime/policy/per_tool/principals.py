"""Who asks: `principals: {NAME: {tools: {TOOL: deny}}}`.

The caller of a run says on whose behalf it acts, and its record says so; nothing that a model writes does. A policy
with principals denies every call of a run whose principal it does not list, and of a run without one. A listed
principal may use what the other sections allow, except the tools that stand at its name: an entry only narrows. Where
the policy has no principals, the name is recorded and decides nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ....fail.catalog import Rule
from ....fail.errors import InputError
from ...core.effects import Decision, DecisionKind
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...schema.schema_errors import did_you_mean
from ..consistency import Checked
from ..requests import GateRequest

if TYPE_CHECKING:
    from ..policy import Policy

# as in policy/v1.schema.json
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,99}")


def is_name(principal: object) -> bool:
    """Return whether this can be the name of a principal."""
    return isinstance(principal, str) and NAME.fullmatch(principal) is not None


def check_name(principal: object) -> None:
    """Refuse what is neither None nor the name of a principal. Raises InputError."""
    if principal is not None and not is_name(principal):
        raise InputError(
            "principal is no name of a principal",
            remedy="give up to 100 letters, digits and '.', '_', '@', ':', '+', '-', a letter or digit first",
        )


def check_principals(policy: Checked) -> None:
    """Refuse denials that decide nothing, since nobody may call the tool. Raises PolicyError."""
    for principal, entry in policy.data.get("principals", {}).items():
        for tool in entry["tools"]:
            if tool not in policy.allowed:
                raise policy.error(
                    f"/principals/{escape_pointer(principal)}/tools/{escape_pointer(tool)}",
                    f"this denial never decides, since {tool!r} is not allowed",
                    did_you_mean(tool, policy.allowed) or "remove it",
                )


class Principals:
    """The principals of a policy, and the tools that each is denied."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def decide(self, request: GateRequest) -> Decision | None:
        """Return the denial of a call that the principal of its run may not make, else None."""
        principal, name = request.counters.principal, request.call.name
        facts = {"tool": name} if principal is None else {"principal": principal, "tool": name}
        if principal not in self.policy.principals:
            reason = "the run has no principal, and the policy lists who may call tools"
            if principal is not None:
                reason = f"principal {quote_untrusted(principal)} is not in principals"
            return Decision(DecisionKind.DENY, Rule.PRINCIPAL, reason, self.policy.rule("/principals"), facts)
        if name not in self.policy.principals[principal]:
            return None
        place = f"/principals/{escape_pointer(principal)}/tools/{escape_pointer(name)}"
        reason = f"principal {quote_untrusted(principal)} may not call tool {quote_untrusted(name)}"
        return Decision(DecisionKind.DENY, Rule.PRINCIPAL, reason, self.policy.rule(place), facts)
