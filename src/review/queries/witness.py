"""One event that two policies decide differently: both real gates are asked, nothing is computed.

An event is what the gate is asked during one call: the step, the proposal, a fact met while the tool ran, the size
of the result. Its decision is the strictest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from ...fail.catalog import Rule
from ...runtime.core.effects import Call
from ...runtime.core.lines import Line
from ...runtime.formats.canonical_json import freeze
from ...runtime.policy.gate import ALLOW, DENY, ESCALATE, Counters, Decision, Gate

Arguments = dict[str, Any]
RANK: Final = {ALLOW: 0, ESCALATE: 1, DENY: 2}
_COUNTS: Final = ("iterations", "tokens", "tool_calls", "result_bytes", "attempts")


@dataclass(frozen=True, slots=True)
class Event:
    """What a gate is asked. `tool` None is a step; `used` has more than the counters: see `decide`."""

    tool: str | None = None
    arguments: Arguments | None = None
    used: Mapping[str, int] = field(default_factory=dict)
    late: Line | None = None
    result_bytes: int | None = None
    principal: str | None = None
    local_times: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Witness:
    """One event that the two policies decide differently, which a reader can try.

    `tool` None is a step. `used` names what is not zero. `late` is a fact as `Gate.decide_late` takes it,
    `result_bytes` a size for `Gate.decide_result`. `before` and `after` are decisions as recorded. `principal` is on
    whose behalf the call is made.
    """

    tool: str | None
    arguments: Arguments | None
    used: dict[str, int]
    late: Line | None
    result_bytes: int | None
    before: Line
    after: Line
    principal: str | None = None
    local_times: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> Line:
        """Return the witness as JSON data; principal and local times are in it where there are any."""
        data = asdict(self)
        if self.principal is None:
            del data["principal"]
        if not self.local_times:
            del data["local_times"]
        return data


def call_of(event: Event) -> Call:
    """Return the call of an event."""
    assert event.tool is not None
    return Call("tc_1_0", event.tool, freeze(event.arguments or {}))


def decide_event(gate: Gate, event: Event, call: Call | None = None) -> Decision:
    """Return the strictest decision of a gate about an event; if all allow, the last one."""
    iterations, tokens, calls, size, attempts = (event.used.get(name, 0) for name in _COUNTS)
    counters = Counters(iterations, tokens, calls, size, attempts=attempts, principal=event.principal)
    # the tokens of a call's event include those of the reply that proposes it, which a step does not know yet
    step = gate.decide_step(counters if event.tool is None else replace(counters, tokens=0))
    if step is not None:
        return step
    if event.tool is None:
        place = gate.policy.at("/loop_budget")
        return Decision(ALLOW, Rule.LOOP_BUDGET, "the budgets leave room for a step", place)
    call = call or call_of(event)
    counters.local_times = event.local_times
    counters.calls_of[event.tool] = event.used.get("calls_of_tool", 0)
    counters.times_of[event.tool] = (0,) * event.used.get("calls_in_minute", 0)
    if event.used.get("repeats"):
        counters.repeats[gate.key_of(call)] = event.used["repeats"]
    decision = gate.decide(call, counters)
    if decision.decision == DENY:
        return decision
    if event.late is not None:
        late = gate.decide_late(event.late, event.tool)
        decision = late if RANK[late.decision] >= RANK[decision.decision] else decision
    if decision.decision != DENY and event.result_bytes is not None:
        decision = gate.decide_result(event.result_bytes, counters) or decision
    return decision


def witnessed(old: Gate, new: Gate, event: Event) -> Witness:
    """Return an event with the decisions of both gates."""
    call = call_of(event) if event.tool is not None else None
    return Witness(
        tool=event.tool,
        arguments=event.arguments,
        used={name: count for name, count in event.used.items() if count},
        late=event.late,
        result_bytes=event.result_bytes,
        before=decide_event(old, event, call).to_dict(),
        after=decide_event(new, event, call).to_dict(),
        principal=event.principal,
        local_times=event.local_times,
    )
