"""Policies as one principal meets them, and which principals two policies tell apart.

For one principal, a policy decides like one without `principals` that allows fewer tools: none for a principal that it
does not list. So two policies are compared for each kind of principal as policies without that section are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...runtime.formats.json_pointer import escape_pointer
from ...runtime.policy.gate import Gate
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool

_NAMED: Final = 4  # principals that a line names
_OTHERS: Final = "anyone not listed"

Principal = str | None
"""The name of a principal; None stands for all whom neither policy lists, and for a run without a principal."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Two policies as one principal meets them: `old` and `new`, and whole as `gates` that decide on a witness."""

    old: Gate
    new: Gate
    gates: tuple[Gate, Gate]
    principal: Principal

    def place_of(self, denied_at: str, *, widening: bool) -> str:
        """Return the line of the principal in the policy that allows a call, else that of the denial in the other."""
        stricter, looser = self.gates if widening else reversed(self.gates)
        if self.principal in looser.policy.principals:
            return looser.policy.at(f"/principals/{escape_pointer(str(self.principal))}")
        return stricter.policy.shown(denied_at)


def kinds_of_principals(old: Policy, new: Policy) -> list[tuple[Principal, ...]]:
    """Return the principals that either policy lists, and None for all others, those together who are denied alike."""
    kinds: dict[tuple[object, ...], list[Principal]] = {}
    for principal in (*sorted({*old.principals, *new.principals}), None):
        key = tuple(_denied(policy, principal) for policy in (old, new))
        kinds.setdefault(key, []).append(principal)
    return [tuple(kind) for kind in kinds.values()]


def sides_for(principal: Principal, old: Policy, new: Policy, tools: Mapping[str, Tool]) -> Sides:
    """Return two policies as a principal meets them."""
    gates = Gate(old, tools), Gate(new, tools)
    return Sides(Gate(_as_met(old, principal), tools), Gate(_as_met(new, principal), tools), gates, principal)


def for_whom(principals: Sequence[Principal], kinds: Iterable[Sequence[Principal]]) -> str:
    """Return ` for a and b`, where it is not for everyone."""
    if len(principals) == sum(len(kind) for kind in kinds):
        return ""
    words = [name for name in principals if name is not None]
    if len(words) > _NAMED:
        words = [*words[:_NAMED], f"{len(words) - _NAMED} more"]
    words += [_OTHERS] if None in principals else []
    return f" for {', '.join(words[:-1])}{' and ' if words[1:] else ''}{words[-1]}"


def _denied(policy: Policy, principal: Principal) -> frozenset[str] | None:
    """Return the tools that a policy denies a principal, None for all."""
    if policy.principals and principal not in policy.principals:
        return None
    return frozenset(policy.principals.get(principal or "", ()))


def _as_met(policy: Policy, principal: Principal) -> Policy:
    """Return a policy that decides for everyone as this one does for a principal; its lines are those of this one."""
    if not policy.principals:
        return policy
    denied = _denied(policy, principal)
    met = copy.copy(policy)
    # what a policy works out of its data once; the data stay, so that each place is found where it was
    met.__dict__["principals"] = {}
    met.__dict__["allowed"] = {
        name: i for name, i in policy.allowed.items() if denied is not None and name not in denied
    }
    return met
