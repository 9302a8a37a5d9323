"""What an agent may do, and what it has used up of its budgets.

An agent acts under its own policy and under that of every agent above it. All of them have to allow what it does, and
the nearest that objects is the one that is named. What it uses up counts for all of them, with what other agents below
them use. Only repeated calls are counted for each agent by itself: that two agents read the same file is not a loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Any

from msgspec import Struct

from ..driver import Driver
from ..log.values import Call, Usage
from ..policy.gate import Gate
from ..policy.leaf import Question, Verdict
from ..policy.rules.loop_budget import Need
from ..tools.contract import Tool, call_key

_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
_PER_TURN = {name: f"turn_{name}" for name in ("iterations", "tool_calls", "tokens")}


class Ruling(Struct, frozen=True):
    """What the gates say: a verdict, and how far above the agent the policy stands that says so."""

    verdict: Verdict
    above: int = 0


class Reserved(Struct, frozen=True):
    """What is set aside while a model is asked: tokens, and for each policy of the chain what they may cost."""

    tokens: int
    costs: list[int]


class Authority:
    """What one agent may do and has used up, with the agents below it.

    Args:
        gate: Its gate.
        gate_below: The gate of its policy over its tools and those of all agents that it may start.
        driver: The driver of the run.
        above: The authority of the agent that started it.
        is_plan: Whether it is of the same agent, and narrows what that may do until a plan is allowed.

    Attributes:
        chain: Itself, and those above it.
        used: What is used up of the budgets, by the name of the budget without `max_`.
        background: How many agents live in the background for this one.
    """

    def __init__(
        self,
        gate: Gate,
        gate_below: Gate,
        driver: Driver,
        above: Authority | None = None,
        *,
        is_plan: bool = False,
    ) -> None:
        self.gate, self._gate_below, self._driver = gate, gate_below, driver
        self.chain: list[Authority] = [self, *(above.chain if above is not None else ())]
        self.used: defaultdict[str, int] = defaultdict(int)
        self.background = 0
        self._depth: int = 0 if above is None else above._depth + (not is_plan)
        self._begun = driver.now
        self._askers = 1  # how many agents may ask a model, of itself and those below it
        self._asking = 0  # how many of them do now
        self._key: tuple[Call, str] | None = None  # the last one that was asked for
        self._times: defaultdict[str, list[int]] = defaultdict(list)
        same = above if is_plan else None  # of the same agent
        self._repeats: defaultdict[str, int] = defaultdict(int) if same is None else same._repeats
        self._results: defaultdict[tuple[str, str], int] = defaultdict(int) if same is None else same._results

    # ---- questions -----------------------------------------------------------------------------------------------

    def ask_about(self, call: Call, *, at_work: bool) -> Ruling:
        """Ask about a proposed call, given whether it is to a team mate at work."""
        return self.ask(call, call.name, self._repeats[self.key_of(call)], at_work=at_work)

    def ask(self, about: Any, tool: str = "", repeats: int = 0, *, at_work: bool | None = None) -> Ruling:
        """Ask the gates. Called from any thread for what a tool meets.

        Args:
            about: What is asked about.
            tool: As of Question.
            repeats: Likewise.
            at_work: Of a proposed call, whether it is to a team mate at work; None for anything else, which is no line
                of the log where it is allowed.
        """
        found: Ruling | None = None
        for level, one in enumerate(self.chain):
            used: dict[str, int] = one.used
            used["wall_clock_s"] = (self._driver.now - one._begun) // _SECOND
            if at_work is not None:
                times = one._times[tool]
                lately = len(times) - bisect_right(times, self._driver.now - _MINUTE)
                here = {"depth": self._depth - one._depth, "at_once": self.background}
                used = {**used, "calls": len(times), "per_minute": lately, "at_work": at_work, **here}
            gate = one._gate_below if level else one.gate
            explains = at_work is not None and not level
            verdict = gate.ask(Question(about, tool, used, repeats), explains=explains)
            if verdict.decision == "deny":
                return Ruling(verdict, level)
            if found is None or (verdict.decision == "escalate" != found.verdict.decision):
                found = Ruling(verdict, level)
        assert found is not None
        return found

    def reveals(self, tool: str) -> frozenset[str]:
        """Return the kinds of secrets that a tool is given: those that all policies reveal to it."""
        kinds = frozenset(self.gate.policy.reveals(tool).kinds)
        for one in self.chain[1:] if kinds else ():
            kinds &= frozenset(one.gate.policy.reveals(tool).kinds)
        return kinds

    def strictest(self, name: str) -> Tool:
        """Return a tool as the policy has it under which it must not happen twice, if one of them says so."""
        own = self.gate.tools[name]
        if own.is_once or len(self.chain) == 1:
            return own
        others = (one._gate_below.tools[name] for one in self.chain[1:])
        return next((tool for tool in others if tool.is_once), own)

    def on_deny(self, above: int) -> str:
        """Return what follows a denial by one of the policies: `terminate` if it or the agent's own says so."""
        own = self.gate.policy.on_deny
        return self.chain[above].gate.policy.on_deny if above and own == "inform" else own

    def take_attempt(self) -> bool:
        """Note that another attempt is made, if all budgets have room for it. Returns whether they have."""
        for one in self.chain:
            if not one.gate.policy.limits.allows(Need("max_attempts", one.used["attempts"], 1)):
                return False
        self.add("attempts")
        return True

    def at_once(self) -> int:
        """Return how many more agents may be at work for this one at the same time, at least one."""
        most = min(one.gate.policy.agents.limits["max_parallel"] for one in self.chain)
        return max(1, most - self.background)

    def has_time(self, wait: int = 0) -> bool:
        """Return whether the time of no policy is up, also after a wait of some nanoseconds."""
        for one in self.chain:
            most = one.gate.policy.limits.limits.get("max_wall_clock_s")
            if most is not None and (self._driver.now + wait - one._begun) // _SECOND >= most:
                return False
        return True

    def result_bytes_left(self) -> int:
        """Return how many bytes results may still have."""
        budget = "max_result_bytes"
        return min([it.gate.policy.limits.limits[budget] - it.used["result_bytes"] for it in self.chain])

    # ---- what is used up -------------------------------------------------------------------------------------------

    def add(self, name: str, amount: int = 1) -> None:
        """Note that something of a budget is used up."""
        in_turn = _PER_TURN.get(name)
        for one in self.chain:
            one.used[name] += amount
            if in_turn is not None:
                one.used[in_turn] += amount

    def begin_turn(self, levels: int) -> None:
        """Note that a turn of a conversation is over: what is used up of the budgets of one counts anew.

        Args:
            levels: How many policies of the chain are of the conversation: its own, and those that handed it over.
        """
        for one in self.chain[:levels]:
            one.used.update(dict.fromkeys(_PER_TURN.values(), 0))

    def add_askers(self, more: int) -> None:
        """Note that so many more agents are at work that may ask a model."""
        for one in self.chain:
            one._askers += more

    def reserve(self, model: str) -> Reserved:
        """Set aside what a model may reply with, a fair share where other agents are at work.

        So neither tokens nor money are overdrawn by agents that ask at the same time.
        """
        tokens = max(0, min([one._share(model) for one in self.chain]))
        return Reserved(tokens, [one._book(model, Usage(0, tokens), tokens, 0, 1) for one in self.chain])

    def _book(self, model: str, usage: Usage, tokens: int, set_aside: int, asks: int) -> int:
        """Note what is used up beyond what was set aside, and return what the usage costs."""
        price = self.gate.policy.prices.get(model)
        cost = 0 if price is None else price.cost(usage)
        self._asking += asks
        self.used["tokens"] += tokens
        self.used["turn_tokens"] += tokens
        self.used["cost"] += cost - set_aside
        return cost

    def _share(self, model: str) -> int:
        limits, price = self.gate.policy.limits.limits, self.gate.policy.prices.get(model)
        left = limits["max_tokens"] - self.used["tokens"]
        if "max_turn_tokens" in limits:
            left = min(left, limits["max_turn_tokens"] - self.used["turn_tokens"])
        if "max_cost" in limits and price is not None:
            left = min(left, price.most_output(limits["max_cost"] - self.used["cost"]))
        return -(-left // (self._askers - self._asking))

    def settle(self, reserved: Reserved, model: str, usage: Usage | None) -> int:
        """Note what a model took of what was set aside, and return what that cost by the agent's own policy."""
        usage = usage or Usage()
        more = usage.input_tokens + usage.output_tokens - reserved.tokens
        set_aside = zip(self.chain, reserved.costs, strict=True)
        own, *_ = [one._book(model, usage, more, cost, -1) for one, cost in set_aside]
        return own

    def count_call(self, call: Call, starts: int) -> int:
        """Note that a call is made which starts so many agents, and return when."""
        self._count(starts, 1)
        for one in self.chain:
            one._times[call.name].append(self._driver.now)
        return self._driver.now

    def uncount_call(self, call: Call, starts: int, time: int) -> None:
        """Note that a call which was counted at a time is decided anew."""
        self._count(starts, -1)
        for one in self.chain:
            one._times[call.name].remove(time)

    def _count(self, starts: int, number: int) -> None:
        self.add("tool_calls", number)
        if starts:
            self.add("children", starts * number)

    def count_result(self, call: Call, result: str) -> None:
        """Note that a call gave a result, of which the digest is given."""
        key = self.key_of(call)
        self._results[key, result] += 1
        self._repeats[key] = max(self._repeats[key], self._results[key, result])

    def retry_after_ms(self, call: Call, above: int) -> int | None:
        """Return after what time the limits of its tool let a denied call through; None where no time does.

        Args:
            call: The call.
            above: Whose limits denied it.
        """
        one = self.chain[above]
        leaf, times = one.gate.policy.tool_rules(call.name).limits, one._times[call.name]
        most = leaf.limits.get("per_minute", 0)
        if not 0 < most <= len(times) or not leaf.allows(Need("calls", len(times), 1)):
            return None
        return -(-(times[-most] + _MINUTE - self._driver.now) // 1_000_000)

    def key_of(self, call: Call) -> str:
        """Return the identity of a call."""
        if self._key is None or self._key[0] is not call:
            self._key = call, call_key(call, self.gate.tools.get(call.name))
        return self._key[1]
