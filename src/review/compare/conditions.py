"""Arguments that one policy's conditions deny and another policy lets pass."""

from __future__ import annotations

from collections.abc import Iterator

from ...fail.catalog import Rule
from ...runtime.core.effects import Call
from ...runtime.formats.canonical_json import freeze
from ...runtime.policy.gate import Counters, Gate
from ...runtime.policy.per_tool.argument_rules import conditions_of
from ..queries.witness import Arguments, Event
from .reachability import Grants, Reachable, ToolReach, with_texts
from .schema_algebra import canonical, is_empty, less
from .widenings import Widening, Widenings


class AllWidenings(Widenings):
    """The widenings of all sections, with those of the conditions on arguments."""

    def all(self) -> Iterator[Widening]:
        """Yield every widening, by rule and in the order of the looser policy."""
        yield from super().all()
        if self.looser.decide_step(Counters()) is None:  # else no step is ever taken there
            yield from self._conditions()

    def _conditions(self) -> Iterator[Widening]:
        grants = Grants([self.looser.policy, self.stricter.policy])
        for reach in self.tools:
            name = reach.name
            strict, loose = (conditions_of(gate.policy, reach.tool) for gate in (self.stricter, self.looser))
            if not strict or strict == loose or name not in self.stricter.policy.allowed:
                continue
            answer, arguments = _ConditionReach(reach.tool, [self.looser], grants).refused_by(self.stricter)
            if arguments is not None:
                what = self._sentence([name], "be called with arguments that a condition denied")
                place, gate = f"/tools/{name}/arguments", self.looser if loose else self.stricter
                yield self._widening("arguments", what, place, Event(name, arguments), gate)
            elif answer == Reachable.UNKNOWN or name in self.stricter.policy.reveal_to:
                self.undecided.append(
                    f"{name}: no arguments were found that only a condition of one policy denies; "
                    "what the difference between the conditions does is not known"
                )


class _ConditionReach(ToolReach):
    """A tool under some policies, against the conditions of another policy."""

    def refused_by(self, other: Gate) -> tuple[Reachable, Arguments | None]:
        """Return whether there are arguments that no gate denies and a rule of `other` on arguments does; and such."""
        schema, texts = self._schemas[-1]
        refused = less(schema, canonical(conditions_of(other.policy, self.tool)))

        def is_refused(arguments: Arguments) -> bool:
            call = Call("tc_1_0", self.tool.name, freeze(arguments))
            return other.decide(call, Counters()).rule_id == Rule.ARGUMENTS

        for wanted in (refused, with_texts(refused, texts)):
            arguments = self._search(wanted, texts, is_refused)
            if arguments is not None:
                return Reachable.YES, arguments
        return Reachable.NO if is_empty(self._limited(refused)) else Reachable.UNKNOWN, None
