"""Calls of one reply that are performed together.

    process_tool_calls    cuts a reply into groups; a call that must run alone is a group of one
      _process_group
        decide_call         each call, in order, before any of them is performed
        Group               what the allowed calls do, one branch a call, with no regard to each other
        execute_call        each call, in order, sent what its branch brought once that is there (tool_calls.py); hooks
                            that are asked about results are asked when all branches are over

A branch repeats the attempts of its call as `execute_call` would, and records nothing. What is recorded, counted and
told the model comes of `execute_call` alone, in the order of the calls: of a call when it and those before it are over.
So nothing depends on which call was ready first.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator

from ...fail.catalog import CONTINUE, Happening
from ...fail.errors import Cancelled
from ...light_dataclasses import dataclass
from ..core.effects import (
    Call,
    Decision,
    Effect,
    Event,
    Group,
    Invoke,
    Outcome,
    Wait,
)
from ..policy.gate import GateRequest
from ..policy.per_tool.argument_rules import asks_about
from .attempts import fault_of, wait_after
from .state import RunState, StepGenerator
from .step_builder import StepBuilder
from .tool_calls import (
    conclude_call,
    count_call,
    decide_call,
    execute_call,
    idempotency_key,
    process_tool_call,
)

Branching = Generator[Invoke | Wait, Outcome, None]


def process_tool_calls(step: StepBuilder, calls: tuple[Call, ...]) -> StepGenerator:
    """Process the calls of a reply in the order proposed; those that may be are performed together.

    Returns what follows from them; the first call with an ending leaves later groups, and what the gate has not
    decided yet of its own, unreached.
    """
    classification = CONTINUE
    index = 0
    while index < len(calls) and classification.ending is None:
        size = group_size(step.state, calls[index:])
        if size > 1:
            classification = yield from _process_group(step, index, calls[index : index + size])
        else:
            classification = yield from process_tool_call(step, index, calls[index])
            step.note_mode(classification.mode)
        index += size
    return classification


def group_size(state: RunState, calls: tuple[Call, ...]) -> int:
    """Return how many of the first calls form a group: 1 where the first has to run alone.

    Two identical calls never share a group, since the second is decided by what the first brought. Where a hook is
    asked before a call every call runs alone, since it may make one like another or want a person; so does every call
    where attempts are limited, since calls that run together would share what is left in no certain order.
    """
    changes_calls = any("before_call" in spec.events for spec in state.run.hooks)
    counts_attempts = "max_attempts" in state.run.gate.policy.limits
    most = 1 if changes_calls or counts_attempts else state.run.max_parallel
    if most < 2 or len(calls) < 2 or not _may_share(state, calls[0]):
        return 1
    keys: set[bytes] = set()
    for call in calls[:most]:
        key = _key_of(state, call) if _may_share(state, call) else None
        if key is None or key in keys:
            break
        keys.add(key)
    return max(len(keys), 1)


def _key_of(state: RunState, call: Call) -> bytes | None:
    """Return a call's identity, None where it cannot be worked out; the gate then denies the call."""
    try:
        return state.run.gate.key_of(call)
    except Exception:  # noqa: BLE001 - what breaks in here breaks again in the decision, which denies
        return None


def _may_share(state: RunState, call: Call) -> bool:
    """Return whether a call may be performed beside others: its tool says so, and no person is asked about it."""
    gate = state.run.gate
    tool = gate.tools.get(call.name)
    return (
        tool is not None
        and tool.is_parallel
        and call.arguments is not None
        and not asks_about(gate.policy, call.name)
    )


@dataclass(frozen=True, slots=True)
class _Member:
    """A call of a group that the gate has decided; `refusal` is None where it is allowed."""

    index: int
    request: GateRequest
    decision: Decision | None
    refusal: Happening | None


def _process_group(step: StepBuilder, first: int, calls: tuple[Call, ...]) -> StepGenerator:
    """Decide the calls of a group, perform those that are allowed, and conclude all of them in order.

    Returns what follows from the first call with an ending. Every call that was performed is recorded, whatever
    became of the others. Raises Cancelled after that where the run was stopped during one of them.
    """
    members = yield from _decide(step, first, calls)
    allowed = [member for member in members if member.refusal is None]
    if len(allowed) > 1:
        branches = {member.index: branch_of(step, member.index, member.request.call) for member in allowed}
        yield Group(step.index, branches)
        step.add_group([member.request.call for member in allowed])
    result = CONTINUE
    stopped: Cancelled | None = None
    for member in members:
        try:
            classification = yield from _conclude(step, member)
        except Cancelled as cancelled:
            stopped = stopped or cancelled
            continue
        step.note_mode(classification.mode)
        if result.ending is None:
            result = classification
    if stopped is not None:
        raise stopped
    return result


def _decide(
    step: StepBuilder, first: int, calls: tuple[Call, ...]
) -> Generator[Effect | Event, Outcome, list[_Member]]:
    """Decide calls in order, up to a denial that ends the run; each counts as executed for those after it."""
    state = step.state
    members = []
    for index, call in enumerate(calls, start=first):
        request = state.run.gate.request_for(call, state.counters)
        refusal, request = yield from decide_call(step, index, request)
        yield step.progress()
        members.append(_Member(index, request, step.last_decision, refusal))
        if refusal is None:
            count_call(state, request.call.name)
        elif state.classify(refusal).ending is not None:
            break
    return members


def _conclude(step: StepBuilder, member: _Member) -> StepGenerator:
    """Record what came of a call, and let the model read it."""
    step.begin_call(member.request.call)
    if member.refusal is not None:
        classification = conclude_call(step, member.request, member.refusal, member.decision)
    else:
        happening = yield from execute_call(step, member.index, member.request)
        classification = conclude_call(step, member.request, happening, step.last_decision, executed=True)
    yield step.conclude()
    return classification


def branch_of(step: StepBuilder, index: int, call: Call) -> Branching:
    """Perform a call until it succeeds or may not be tried again, and record nothing.

    Yields each attempt, and the waits between them; asks for what `execute_call` would ask for.
    """
    run = step.state.run
    for attempt in itertools.count(1):
        outcome = yield Invoke(step.index, index, attempt, call, idempotency_key(step, index))
        if outcome.cancelled:
            return
        fault = fault_of(run.gate, call.name, outcome)
        idempotent = run.gate.tools[call.name].idempotent
        wait = None if fault is None else wait_after(step, index, attempt, fault, idempotent)
        if wait is None:
            return
        waited = yield Wait(step.index, index, attempt, wait)
        if waited.cancelled:
            return
