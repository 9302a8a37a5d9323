"""One tool call, from the model's proposal to its result.

    process_tool_call
      decide_call
        _by_rules         the gate allows, denies or escalates the call (policy/gate.py); a call that was refused
                          before is denied again, whatever the rules say now
        before_call       not denied: hooks may deny it, escalate it or change its arguments, which are then
                          decided from the first rule (hooks.py)
        ask_human         escalated: yield AskHuman; only a yes to this very question allows the call
      execute_call        only if allowed:
        _OutcomeJudge     made for the call, and asked about the outcome of each attempt; the first that objects counts:
          _decide_checks    late decisions on what the I/O met: a redirect, an address, a link
          fault             the tool failed
          result_lost       the process ended before the result was kept (after a resume)
          _decide_size      the byte budget
          _check_output     the tool's output schema
        with_retries      yield Invoke; while a fault may be repeated (retry.py: only faults that the tool calls
                          transient and time-outs, and only if the tool is idempotent or nothing happened), yield
                          Wait for the back-off and Invoke again (attempts.py)
        after_call        succeeded: hooks may deny the result, or change it (hooks.py)
        tell_model        the model reads the result
      conclude_call       what follows for the run:
        classify          maps what happened to nothing, or to an ending (fail/catalog.py)
        _tell_failure     no ending, since the policy says `on_failure: inform`: the model reads what failed
        _tell_refusal     no ending, since the policy says `on_deny: inform`: the model reads rule and reason

Calls of one reply that may run together are decided, executed and concluded by the same functions, from groups.py.
Where the policy limits a tool's calls per minute, or to some times of the week, `decide_call` reads the clock first.

Every decision, attempt and result is recorded in the step's line (step_builder.py). What happens between Invoke and its
outcome is in driver/live_executor.py: placeholders are resolved, the tool runs with its `io` under a deadline, in this
process or one of its own, and what it returned is redacted.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ...fail.catalog import (
    ApprovalRefused,
    CallStopped,
    Classification,
    Denied,
    FailureMode,
    GaveUp,
    Happening,
    ResultLost,
    Rule,
    Succeeded,
)
from ...fail.errors import Cancelled, EffectNotRecorded
from ...light_dataclasses import replace
from ..core.effects import (
    Call,
    Decided,
    Decision,
    DecisionKind,
    Effect,
    Event,
    Fault,
    Invoke,
    Outcome,
)
from ..core.lines import Phase
from ..formats import canonical_json
from ..formats.escape import escape_terminal
from ..models.failure_messages import Told, cancelled_call, denied_call, tool_failure
from ..policy.gate import GateRequest
from ..policy.per_tool.tool_limits import passes_with_time, rate_limit
from .approvals import ask_human
from .attempts import with_retries
from .call_time import read_clock
from .hooks import after_call, before_call, size_of
from .retry import may_repeat
from .state import RunState, StepGenerator
from .step_builder import StepBuilder

_LOST = {"done": True, "result": None, "reason": "the result was lost when the process ended"}
REPEATED: Final = "this call was refused before"  # the reason of a denial for an earlier one
# rules about the run and not the call: a call that they denied may be proposed again
_RUN_LEVEL_RULES = (Rule.CYCLE_DETECTION, Rule.LOOP_BUDGET, Rule.GATE_ERROR)


def process_tool_call(step: StepBuilder, index: int, call: Call) -> StepGenerator:
    """Decide a call, then execute it or tell the model why not.

    Yields what `decide_call` and `execute_call` yield, and records the call's result. Returns what follows for the
    run: nothing for a call that succeeded; a refusal or a failure ends the run or is told to the model, as the policy
    says.
    """
    state = step.state
    request = state.run.gate.request_for(call, state.counters)
    refusal, request = yield from decide_call(step, index, request)
    step.begin_call(call)
    yield step.progress()
    if refusal is not None:
        classification = conclude_call(step, request, refusal, step.last_decision)
    else:
        count_call(state, request.call.name)
        happening = yield from execute_call(step, index, request)
        classification = conclude_call(step, request, happening, step.last_decision, executed=True)
    yield step.conclude()
    return classification


def count_call(state: RunState, name: str) -> None:
    """Count a call that is executed, with the time of its decision where the policy limits how often a minute."""
    timed = rate_limit(state.run.gate.policy, name) is not None
    state.counters.count_call(name, timed=timed)


def conclude_call(
    step: StepBuilder,
    request: GateRequest,
    happening: Happening,
    decision: Decision | None,
    *,
    executed: bool = False,
) -> Classification:
    """Return what follows from a call for the run; the model reads of a refusal or a failure if the run goes on.

    A call that was refused is refused again from then on.

    Args:
        step: The step under way.
        request: The call.
        happening: What became of it.
        decision: What the gate, or a person in its place, said of it last.
        executed: Whether it was executed.
    """
    state, call = step.state, request.call
    classification = state.classify(happening, call.name)
    step.note_modes(happening, classification.mode)
    if isinstance(happening, GaveUp) and classification.ending is None:
        _tell_failure(step, call, happening)
    if isinstance(happening, Denied | ApprovalRefused) and decision is not None:
        # without arguments or text, two calls of a tool cannot be distinguished
        has_identity = call.arguments is not None or call.raw is not None
        if has_identity and not passes_with_time(decision):
            state.refused[request.key] = decision
        if classification.ending is None:
            _tell_refusal(step, call, decision, executed)
    return classification


def _tell_refusal(step: StepBuilder, call: Call, decision: Decision, executed: bool) -> None:
    retryable = passes_with_time(decision)
    _tell(
        step,
        call,
        denied_call(str(decision.rule_id), decision.reason, executed=executed, retryable=retryable),
    )


def _tell_failure(step: StepBuilder, call: Call, failure: GaveUp) -> None:
    """Let the model read what failed, in the place of the call's result."""
    fault = step.last_fault
    retryable = fault is not None and may_repeat(fault, step.state.run.gate.tools[call.name].idempotent)
    _tell(step, call, tool_failure(failure.mode, fault, retryable=retryable))


def _tell(step: StepBuilder, call: Call, told: Told) -> None:
    """Let the model read `told` in the place of a call's result, and record it."""
    step.add_told(told)
    step.state.tell_model(call, canonical_json.encode(told))


# ---- the decision ------------------------------------------------------------------------------------------


def decide_call(
    step: StepBuilder, index: int, request: GateRequest
) -> Generator[Effect | Event, Outcome, tuple[Happening | None, GateRequest]]:
    """Ask the gate, then the hooks and, where one of them escalates, a person.

    Yields Decided, AskHook for each hook, and AskHuman after an escalation. Records each decision; arguments that a
    hook gives are decided from the first rule. Returns None where the call is allowed, and the call as it was decided
    last.
    """
    while True:
        yield from read_clock(step, index, request.call.name)
        decision, repeated = _by_rules(step, request)
        yield from _record_decision(step, index, request.call, decision)
        if decision.decision == DecisionKind.DENY:
            return Denied(decision.rule_id, repeated), request
        # what came of an escalation is the next decision where a hook decides before a person
        escalates = decision.decision == DecisionKind.ESCALATE
        try:
            said = (yield from before_call(step, index, request.call)) if step.state.run.hooks else None
        except Cancelled:
            if escalates:
                step.deny_escalation()
            raise
        if not isinstance(said, Call):
            break
        request = step.state.run.gate.request_for(said, step.state.counters)
    if said is not None and not (escalates and said.decision == DecisionKind.ESCALATE):
        decision = said
        yield from _record_decision(step, index, request.call, decision)
    if decision.decision == DecisionKind.DENY:
        return Denied(decision.rule_id), request
    if decision.decision == DecisionKind.ESCALATE:
        return (yield from ask_human(step, index, request.call, decision)), request
    return None, request


def _by_rules(step: StepBuilder, request: GateRequest) -> tuple[Decision, bool]:
    """Return what the gate says of a call, and whether it was refused before and is denied for that."""
    state = step.state
    decision = state.run.gate.decide_request(request)
    earlier = state.refused.get(request.key) if state.refused else None
    if earlier is not None and decision.decision != DecisionKind.DENY:
        # refused by a person, a hook or while it ran: the rules alone would let it through once more
        decision = replace(earlier, decision=DecisionKind.DENY, reason=REPEATED)
    return decision, earlier is not None and decision.rule_id not in _RUN_LEVEL_RULES


def _record_decision(
    step: StepBuilder, index: int, call: Call, decision: Decision
) -> Generator[Effect | Event, Outcome, None]:
    """Record a decision on a proposed call. Yields Decided."""
    number = step.next_decision(index) if step.state.run.hooks else 1
    event = Decided(step.index, index, call, decision, number=number)
    step.add_decision(event.position, Phase.PROPOSAL, call, decision)
    yield event


# ---- the execution -----------------------------------------------------------------------------------------


def execute_call(
    step: StepBuilder, index: int, request: GateRequest
) -> Generator[Effect | Event, Outcome, Happening]:
    """Execute an allowed call until it succeeds, is denied late, or may not be tried again.

    Yields Invoke and waits, and Decided for a result that does not fit the byte budget. Records the attempts and the
    result, counts the result, and lets the model read it. Returns what the execution amounts to.
    """
    state, call = step.state, request.call
    step.begin_execution()
    key = idempotency_key(step, index)
    judge = _OutcomeJudge(step, index, call)
    outcome, happening = yield from with_retries(
        step,
        lambda attempt: Invoke(step.index, index, attempt, call, key),
        judge,
        index=index,
        idempotent=state.run.gate.tools[call.name].idempotent,
    )
    result, late = outcome.result, judge.oversized
    if isinstance(happening, Succeeded) and result is not None and state.run.hooks:
        try:
            result, late = yield from after_call(step, index, call, result)
        except Cancelled:
            step.keep_returned(outcome)
            raise
        if late is not None:
            happening = Denied(late.rule_id)
        if late is not None or result is not outcome.result:
            step.keep_returned(outcome)
    if isinstance(happening, Succeeded) and result is not None:
        state.counters.result_bytes += size_of(result)
        state.counters.count_result(call, result.text, request.key)
        state.tell_model(call, result.text)
    elif isinstance(happening, ResultLost):
        state.tell_model(call, canonical_json.encode(_LOST))
    elif isinstance(happening, CallStopped):
        _tell(step, call, cancelled_call())
    step.end_execution(happening, outcome, result=result, told=dict(_LOST), refused_bytes=judge.refused_bytes)
    if late is not None:
        event = Decided(step.index, index, call, late, late=True)
        step.add_decision(event.position, Phase.EXECUTION, call, late)
        yield event
    return happening


def idempotency_key(step: StepBuilder, index: int) -> str:
    """Return the idempotency key of a call, the same for each of its attempts."""
    return f"{step.state.run.run_id}/{step.index}/{index}"


class _OutcomeJudge:
    """Judges the outcome of each attempt of one call; facts that its I/O met are decided here again, in order.

    `oversized` is the denial of a result that does not fit the byte budget, `refused_bytes` its size.
    """

    def __init__(self, step: StepBuilder, index: int, call: Call) -> None:
        self.oversized: Decision | None = None
        self.refused_bytes: int | None = None
        self._step = step
        self._index = index
        self._call = call
        self._attempt = 0

    def __call__(self, outcome: Outcome) -> Happening | Fault:
        self._attempt += 1
        denied = self._decide_checks(outcome)
        if denied is not None:
            return denied
        if outcome.fault is not None:
            return outcome.fault
        if outcome.result_lost:
            return ResultLost()
        # the size comes first: a result over the budget is neither validated nor kept
        return self._decide_size(outcome) or self._check_output(outcome)

    def _decide_checks(self, outcome: Outcome) -> Denied | None:
        gate = self._step.state.run.gate
        for number, check in enumerate(outcome.checks):
            decision = gate.decide_late(check, self._call.name)
            position = f"i{self._index}.{self._attempt}.c{number}"
            self._step.add_decision(position, Phase.EXECUTION, self._call, decision)
            if decision.decision != DecisionKind.ALLOW:
                return Denied(decision.rule_id)
        return None

    def _decide_size(self, outcome: Outcome) -> Denied | None:
        size = outcome.returned_bytes if outcome.result is None else size_of(outcome.result)
        if size is None:
            return None
        state = self._step.state
        self.oversized = state.run.gate.decide_result(size, state.counters)
        if self.oversized is None:
            return None
        self.refused_bytes = size
        return Denied(self.oversized.rule_id)

    def _not_kept(self, size: int) -> EffectNotRecorded:
        """Return the error for a recorded result that was over the budget, and so was not kept, and now is not."""
        call = (
            f"{self._call.name} {'' if self._call.arguments is None else self._call.arguments.text}".rstrip()
        )
        return EffectNotRecorded(
            f"step {self._step.index}, call {self._index}: {escape_terminal(call, 200)} returned {size} bytes, over "
            "the budget of then and within that of now, so the record has no result for it",
            remedy="perform the effects again: `tachograph run TASK --perform-effects`",
        )

    def _check_output(self, outcome: Outcome) -> Happening:
        position = f"i{self._index}.{self._attempt}"
        invalid = GaveUp(FailureMode.TOOL_OUTPUT_INVALID)
        if outcome.result is None:
            if outcome.returned_bytes is not None:
                raise self._not_kept(outcome.returned_bytes)
            self._step.add_error(position, problem=outcome.invalid or "no result")
            return invalid
        try:
            tool = self._step.state.run.gate.tools[self._call.name]
            wrong = tool.output_validator.mismatch_of_result(outcome.result)
        except Exception as error:  # noqa: BLE001 - a schema that cannot be applied accepts nothing
            self._step.add_error(position, problem="no usable output schema", exception=type(error).__name__)
            return invalid
        if wrong is not None:
            self._step.add_error(position, pointer=wrong.pointer, keyword=wrong.keyword, limit=wrong.limit)
            return invalid
        return Succeeded()
