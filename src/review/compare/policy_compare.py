"""Compare two policies by what they allow: exactly, over the tools given, without running anything.

What a policy allows is a product of a few small sets (tools, approval, URLs, mounts, networks, limits, the form of
arguments), so one policy allows more than another exactly where one of these sets does and a call can reach it. Where
policies list principals, that is found for each kind of principal that they tell apart.
`docs/policy.md` says what the gate asks. Each difference comes with an event that shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...evidence.queries.flips import NEEDS_APPROVAL as NEEDS_APPROVAL
from ...evidence.queries.flips import TIGHTENING as TIGHTENING
from ...evidence.queries.flips import WIDENING as WIDENING
from ...runtime.core.lines import Line
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool
from ..queries.witness import Witness as Witness
from .by_principal import Principal, for_whom, kinds_of_principals, sides_for
from .conditions import AllWidenings
from .inert_settings import Setting as Setting
from .inert_settings import changed_settings
from .widenings import Widening


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of a policy that brings a change, with an event that shows it.

    `kind` is WIDENING, TIGHTENING or NEEDS_APPROVAL, `rule` the rule whose entry it is, `description` one line. `at` is
    `file:line`: in NEW for a widening and for an approval, in OLD for what NEW takes away.
    """

    kind: str
    rule: str
    description: str
    at: str
    witness: Witness

    def to_dict(self) -> Line:
        """Return the change as JSON data."""
        return {
            "kind": self.kind,
            "rule": self.rule,
            "what": self.description,
            "at": self.at,
            "witness": self.witness.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two policies differ. `changes` has widenings first; `undecided` says what could not be decided, and why."""

    changes: tuple[Change, ...]
    settings: tuple[Setting, ...]
    undecided: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the two policies decide every event alike, with equal settings."""
        return not (self.changes or self.settings or self.undecided)

    @property
    def widens(self) -> bool:
        """Whether NEW allows anything that OLD does not."""
        return any(change.kind == WIDENING for change in self.changes)

    def to_dict(self) -> Line:
        """Return the comparison as JSON data."""
        return {
            "equal": self.equal,
            "changes": [change.to_dict() for change in self.changes],
            "settings": [setting.to_dict() for setting in self.settings],
            "untold": list(self.undecided),
        }


def compare_policies(old: Policy, new: Policy, tools: Mapping[str, Tool]) -> Comparison:
    """Return what NEW allows that OLD does not, and the other way round, over `tools` by name.

    A tool that a policy names and `tools` lacks can be called under neither.
    """
    kinds = kinds_of_principals(old, new)
    found: dict[tuple[str, str, str, str], tuple[Widening, list[Principal]]] = {}
    undecided: dict[str, None] = {}
    asks = False
    for kind in kinds:
        sides = sides_for(kind[0], old, new, tools)
        wider, narrower = (AllWidenings(sides, widening=widening) for widening in (True, False))
        for widening in wider.all():
            _note(found, WIDENING, widening, kind)
        for widening in narrower.all():
            decided = widening.witness.before["decision"], widening.witness.after["decision"]
            approval = decided == ("allow", "escalate")
            _note(found, NEEDS_APPROVAL if approval else TIGHTENING, widening, kind)
        asks = wider.asks_under_both() or asks
        undecided.update(dict.fromkeys([*wider.undecided, *narrower.undecided]))
    changes = [
        _change(widening, kind, for_whom(principals, kinds))
        for (kind, *_), (widening, principals) in found.items()
    ]
    changes.sort(key=lambda change: change.kind != WIDENING)
    return Comparison(tuple(changes), changed_settings(old, new, asks=asks), tuple(undecided))


def _note(
    found: dict[tuple[str, str, str, str], tuple[Widening, list[Principal]]],
    kind: str,
    widening: Widening,
    principals: Sequence[Principal],
) -> None:
    """Add a difference that some principals meet, as one line for all who meet it."""
    key = (kind, widening.rule, widening.description, widening.at)
    found.setdefault(key, (widening, []))[1].extend(principals)


def _change(widening: Widening, kind: str, whom: str) -> Change:
    return Change(kind, widening.rule, widening.description + whom, widening.at, widening.witness)
