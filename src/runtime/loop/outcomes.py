"""What came of a call: counted, decided once more where it has a result, and told to the model."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...fail.catalog import CallStopped, Classification, Denied, Happening, Rule, StopReason, Succeeded
from ...fail.catalog import Stopped as WasStopped
from ..formats.strict_json import canonical, digest
from ..log import events as log
from ..log.values import Call
from ..models.failure_messages import denied_call, stopped_call
from ..policy.leaf import Result
from . import hooks
from .state import RunState

# rules about the run and not the call: a call that they denied may be proposed again
_ABOUT_THE_RUN = ("cycle_detection", "loop_budget", "agents", "gate_error")


class Told(Struct, frozen=True):
    """What came of a call: what follows for the run, and what the model reads."""

    found: Classification
    content: Any


def is_hidden(run: RunState, call: Call) -> bool:
    """Return whether a call is one that only the function of a tool may make."""
    return call.name in run.gate.tools and call.name not in run.offered


def stopped(run: RunState, outcome: log.Stopped) -> Told:
    """Return what came of a call that was stopped, by itself or with the agent."""
    is_all = run.stopped is not None
    happening: Happening = WasStopped(StopReason(outcome.why)) if is_all else CallStopped()
    return Told(run.classify(happening), stopped_call())


def refused(run: RunState, call: Call, decided: log.Decided, *, executed: bool) -> Told:
    """Return what came of a call that is denied, also late; it is refused when it is proposed again."""
    call_key = run.authority.key_of(call)
    repeated = call_key in run.refused
    after = None
    if decided.rule == Rule.TOOL_LIMITS:
        after = run.authority.retry_after_ms(call, decided.above)
    # a function may start the agent that the model may not
    if after is None and decided.rule not in _ABOUT_THE_RUN and not is_hidden(run, call):
        run.refused[call_key] = decided.rule
    found = run.classify(Denied(Rule(decided.rule), repeated=repeated), above=decided.above)
    return Told(found, denied_call(decided.rule, decided.reason, executed=executed, retry_after_ms=after))


async def ended_at_once(run: RunState, key: str, call: Call, told: dict[str, Any]) -> Told:
    """Write what the loop itself answered to a call, and return what came of it."""
    fits = len(canonical(told)) <= run.authority.result_bytes_left()
    run.note(log.CallEnded(at=run.at(f"{key}.e"), told=told if fits else {}))
    return await counted(run, key, call, told)


async def counted(run: RunState, key: str, call: Call, result: dict[str, Any]) -> Told:
    """Return what the model reads of a call that no attempt was made of; the gate decides its result."""
    size, at = len(canonical(result)), run.at(f"{key}.e.d")
    ruling = run.authority.ask(Result(size), call.name)
    if ruling.verdict.decision != "allow":
        return refused(run, call, run.note_ruling(at, ruling), executed=True)
    return await returned(run, key, call, result, size, f"{at}2", recovered=False)


async def returned(
    run: RunState, key: str, call: Call, result: dict[str, Any], size: int, at: str, *, recovered: bool
) -> Told:
    """Count a result, and ask the hooks about it, whose objection is a line at an address."""
    run.authority.add("result_bytes", size)
    run.authority.count_result(call, digest(canonical(result)))
    told = await hooks.after_call(run, key, call, result)
    if isinstance(told, dict):
        return Told(run.classify(Succeeded(recovered)), told)
    if isinstance(told, log.Stopped):
        return stopped(run, told)
    return refused(run, call, run.note_ruling(at, told), executed=True)
