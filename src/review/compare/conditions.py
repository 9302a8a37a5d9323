"""Arguments that one policy's conditions deny, or ask a person about, and another policy lets pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...fail.catalog import Rule
from ...runtime.core.effects import Call
from ...runtime.formats.canonical_json import encode, freeze
from ...runtime.policy.gate import ALLOW, ESCALATE, Counters, Gate
from ...runtime.policy.per_tool.argument_rules import asks_about, conditions_of, unasked_of
from ...runtime.policy.per_tool.time_windows import shown_time, zones_of
from ...runtime.policy.per_tool.tool_limits import call_limit, rate_limit
from ...runtime.policy.per_tool.windows_of_the_week import BETWEEN
from ...runtime.policy.policy import Policy
from ..queries.witness import Arguments, Event
from .reachability import Reachable, ToolReach, with_texts
from .schema_algebra import both, canonical, is_empty, less
from .time_windows import ALWAYS, moment_between, moment_of
from .tool_reach import ReachWidenings
from .widenings import Widening


class AllWidenings(ReachWidenings):
    """The widenings of all sections, with those of the conditions on arguments."""

    def all(self) -> Iterator[Widening]:
        """Yield every widening, by rule and in the order of the looser policy."""
        yield from super().all()
        if self.looser.decide_step(Counters()) is None:  # else no step is ever taken there
            yield from self._own_reach()
            self.note_requests()
            self.note_signers()
            yield from self._approvals()
            yield from self._conditions()
            yield from self._time_windows()
            yield from self._call_limits()
            yield from self._rates()

    def _approvals(self) -> Iterator[Widening]:
        """Yield the tools of which the stricter policy asks a person about arguments that the looser one allows."""
        loose, strict = self.looser.policy, self.stricter.policy
        for name in (tool.name for tool in self.tools):
            if name in loose.approval_for or not asks_about(strict, name) or name not in strict.allowed:
                continue
            if not self._share_a_time(name):
                continue  # at other times it is not asked about, but denied
            reach = self._approval_reach(name)
            answer, arguments = reach.unasked(asking=[self.stricter], silent=[self.looser])
            if answer == Reachable.UNKNOWN:
                self._note_undecided(name, "approval")
            if arguments is None:
                continue
            some = "" if name in strict.approval_for else " with some arguments"
            pointer = "/approval/required_for"
            if self.widening:
                description = f"{name} is called{some} without a person's approval"
            else:
                description = f"{name} needs a person's approval{some}"
                listed = name in strict.approval_for
                pointer = f"{pointer}/{strict.approval_for[name]}" if listed else f"/tools/{name}/ask_if"
            yield self._widening("approval", description, pointer, Event(name, arguments), self.new)

    def asks_under_both(self) -> bool:
        """Return whether there is, or may be, a call that both policies ask a person about."""
        gates = (self.stricter, self.looser)
        if any(gate.decide_step(Counters()) is not None for gate in gates):
            return False
        names = [
            name
            for name in self.looser.tools
            if all(asks_about(gate.policy, name) and name in gate.policy.allowed for gate in gates)
            and self._share_a_time(name)
        ]
        return any(
            self._approval_reach(name).unasked(asking=list(gates), silent=[])[0] != Reachable.NO
            for name in names
        )

    def _approval_reach(self, name: str) -> _ConditionReach:
        gates = [self.stricter, self.looser]
        return _ConditionReach(self.looser.tools[name], gates, self._grants_of(name, gates))

    def _time_windows(self) -> Iterator[Widening]:
        """Yield the tools that may be called at more times."""
        policies = self.looser.policy, self.stricter.policy
        shared = (tool for tool in self.tools if tool.name in self.stricter.policy.allowed)
        differing = [tool for tool in shared if len({_between(policy, tool.name) for policy in policies}) > 1]
        for reach in self._callable(differing, "tools"):
            name = reach.name
            times, is_sure = moment_between(*policies, name)
            if times is not None:
                what = self._sentence([name], f"be called when it is {_shown(times)}")
                place = f"/tools/{name}/between"
                gate = self.looser if zones_of(self.looser.policy, name) else self.stricter
                event = Event(name, reach.arguments, local_times=times)
                yield self._widening("time_window", what, place, event, gate)
            elif not is_sure:
                self.undecided.append(
                    f"{name}: no time was found at which only one policy lets it be called; what the difference "
                    "between windows in several zones does is not known"
                )

    def _share_a_time(self, name: str) -> bool:
        """Return whether a time is known at which both policies let a tool be called."""
        return moment_of((self.stricter.policy, self.looser.policy), name) is not None

    def _call_limits(self) -> Iterator[Widening]:
        """Yield the tools that may be called more often in a run."""
        for reach in self._callable(
            (tool for tool in self.tools if call_limit(self.stricter.policy, tool.name)), "tools"
        ):
            name = reach.name
            strict, loose = (call_limit(gate.policy, name) for gate in (self.stricter, self.looser))
            budgets = [gate.policy.limits["max_tool_calls"] for gate in (self.stricter, self.looser)]
            if strict is None or name not in self.stricter.policy.allowed or strict >= min(budgets):
                continue  # the budget of all calls is used up before
            if loose is not None and loose <= strict:
                continue
            used = {"tool_calls": strict, "calls_of_tool": strict}
            event = Event(name, reach.arguments, used=used)
            higher = "any number" if loose is None else loose
            what = self._value_change(f"the number of calls of {name}", higher, strict)
            place, gate = f"/tools/{name}/limits/calls", self.stricter if loose is None else self.looser
            yield self._widening("tool_limits", what, place, event, gate)

    def _rates(self) -> Iterator[Widening]:
        """Yield the tools that may be called more often within a minute."""
        limited = (tool for tool in self.tools if rate_limit(self.stricter.policy, tool.name))
        for reach in self._callable(limited, "tools"):
            name, policies = reach.name, (self.stricter.policy, self.looser.policy)
            strict, loose = (rate_limit(policy, name) for policy in policies)
            most = [policy.limits["max_tool_calls"] for policy in policies]
            most += [limit for policy in policies if (limit := call_limit(policy, name)) is not None]
            if strict is None or name not in policies[0].allowed or strict >= min(most):
                continue  # never so many calls
            if loose is not None and loose <= strict:
                continue
            used = dict.fromkeys(("tool_calls", "calls_of_tool", "calls_in_minute"), strict)
            higher = "any number" if loose is None else loose
            what = self._value_change(f"the number of calls of {name} within a minute", higher, strict)
            place, gate = f"/tools/{name}/limits/per_minute", self.stricter if loose is None else self.looser
            yield self._widening("tool_limits", what, place, Event(name, reach.arguments, used=used), gate)

    def _conditions(self) -> Iterator[Widening]:
        for reach in self.tools:
            name, gates = reach.name, [self.looser, self.stricter]
            strict, loose = (conditions_of(gate.policy, reach.tool) for gate in (self.stricter, self.looser))
            if not strict or strict == loose or name not in self.stricter.policy.allowed:
                continue
            if not self._share_a_time(name):
                continue  # at other times the window speaks first
            answer, arguments = _ConditionReach(
                reach.tool, [self.looser], self._grants_of(name, gates)
            ).refused_by(self.stricter)
            if arguments is not None:
                what = self._sentence([name], "be called with arguments that a condition denied")
                place, gate = f"/tools/{name}/arguments", self.looser if loose else self.stricter
                yield self._widening("arguments", what, place, Event(name, arguments), gate)
            elif answer == Reachable.UNKNOWN or name in self.stricter.policy.reveal_to:
                self.undecided.append(
                    f"{name}: no arguments were found that only a condition of one policy denies; "
                    "what the difference between the conditions does is not known"
                )


def _between(policy: Policy, name: str) -> str:
    return encode(policy.tool_rules.get(name, {}).get(BETWEEN))


def _shown(times: Mapping[str, str]) -> str:
    return " and ".join(shown_time(zone, time) for zone, time in sorted(times.items()))


class _ConditionReach(ToolReach):
    """A tool under some policies, against the conditions of another policy."""

    def unasked(self, *, asking: list[Gate], silent: list[Gate]) -> tuple[Reachable, Arguments | None]:
        """Return whether no gate denies some arguments that some ask a person about and others do not; and such."""
        if self.callable == Reachable.NO:
            return Reachable.NO, None
        name = self.tool.name
        if not any(unasked_of(gate.policy, self.tool) for gate in (*asking, *silent)):
            return self.callable, self.arguments
        schema, texts = self._schemas[-1]
        wanted = schema
        for gate in asking:
            if name not in gate.policy.approval_for:
                wanted = less(wanted, canonical(unasked_of(gate.policy, self.tool)))
        for gate in silent:
            wanted = both(wanted, canonical(unasked_of(gate.policy, self.tool)))

        def is_wanted(arguments: Arguments) -> bool:
            call = Call("tc_1_0", name, freeze(arguments))
            counters = Counters(local_times=self.local_times)
            return all(
                gate.decide(call, counters).decision == decision
                for gates, decision in ((asking, ESCALATE), (silent, ALLOW))
                for gate in gates
            )

        for part in (wanted, with_texts(wanted, texts)):
            arguments = self._search(part, texts, is_wanted)
            if arguments is not None:
                return Reachable.YES, arguments
        return Reachable.NO if is_empty(self._limited(wanted)) else Reachable.UNKNOWN, None

    def refused_by(self, other: Gate) -> tuple[Reachable, Arguments | None]:
        """Return whether there are arguments that no gate denies and a rule of `other` on arguments does; and such."""
        schema, texts = self._schemas[-1]
        shared = moment_of((*(gate.policy for gate in self.gates), other.policy), self.name) or ALWAYS
        refused = less(schema, canonical(conditions_of(other.policy, self.tool)))

        def is_refused(arguments: Arguments) -> bool:
            call = Call("tc_1_0", self.tool.name, freeze(arguments))
            return other.decide(call, Counters(local_times=shared)).rule_id == Rule.ARGUMENTS

        for wanted in (refused, with_texts(refused, texts)):
            arguments = self._search(wanted, texts, is_refused)
            if arguments is not None:
                return Reachable.YES, arguments
        return Reachable.NO if is_empty(self._limited(refused)) else Reachable.UNKNOWN, None
