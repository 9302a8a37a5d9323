"""One tool call: decided, perhaps by a person, then performed or refused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ...fail.errors import Cancelled
from ..core.effects import Answer, AskHuman, Call, Decided, Effect, Event, Invoke, Outcome
from ..formats import canonical_json
from ..policy.gate import ALLOW, DENY, ESCALATE, Decision
from .attempts import with_retries
from .state import CONTINUE, StepBuilder, StepGenerator


def process_tool_calls(step: StepBuilder, calls: tuple[Call, ...]) -> StepGenerator:
    """Calls in the order proposed: each is decided and performed before the next is decided."""
    found = CONTINUE
    for index, call in enumerate(calls):
        found = yield from _take(step, index, call)
        if found.mode is not None:
            step.mode = found.mode
        if found.ending is not None:
            break
    return found


def _take(step: StepBuilder, index: int, call: Call) -> StepGenerator:
    """One call: decided, and then performed or refused."""
    state, gate = step.state, step.state.run.gate
    decision, what = yield from _decide(step, index, call)
    step.pending.pop(0)
    result: dict[str, Any] = {
        "id": call.id,
        "name": call.name,
        "status": "denied",
        "result": None,
        "attempts": [],
    }
    step.record["tool_results"].append(result)
    if decision.decision == ALLOW:
        what = yield from _perform(step, index, call, result)
    if what in ("ok", "recovered"):
        return state.verdict("recovered") if what == "recovered" else CONTINUE
    told_apart = call.arguments is not None or call.raw is not None
    if told_apart and what.startswith(("deny:", "approval:")):
        state.refused[gate.key_of(call)] = step.record["policy_decisions"][-1]
    found = state.verdict(what)
    if found.ending is None:
        last = step.record["policy_decisions"][-1]
        told = {
            "error": "policy_denied",
            "rule": last["rule_id"],
            "reason": last["reason"],
            "executed": last["phase"] == "execution",
            "retryable": False,
        }
        result["told"] = told
        state.tell(call, canonical_json.encode(told))
    return found


def _decide(
    step: StepBuilder, index: int, call: Call
) -> Generator[Effect | Event, Outcome, tuple[Decision, str]]:
    """Ask the gate and, where it escalates, a person. Returns the final decision and what happened."""
    state = step.state
    gate = state.run.gate
    decision = gate.decide(call, state.counters)
    before = state.refused.get(gate.key_of(call)) if state.refused else None
    if before is not None and decision.decision != DENY:
        # refused by a person or while it ran: the rules alone would let it through once more
        reason = "this call was refused before"
        decision = Decision(DENY, before["rule_id"], reason, before["at"], before["facts"])
    event = Decided(step.index, index, call, decision)
    entry = {"position": event.position, "phase": "proposal", "id": call.id, **decision.to_dict()}
    step.record["policy_decisions"].append(entry)
    yield event
    again = before is not None and decision.rule_id not in ("cycle_detection", "loop_budget", "gate_error")
    what = "deny:again" if again else f"deny:{decision.rule_id}"
    if decision.decision != ESCALATE:
        return decision, what
    asked = AskHuman(
        step.index,
        index,
        call,
        decision.reason,
        decision.at,
        decision.facts["timeout_s"],
        gate.policy.version,
        state.run.run_id,
    )
    try:
        outcome = yield asked
    except Cancelled:
        # nobody allowed it
        entry["decision"] = DENY
        raise
    answer = outcome.answer or Answer("silence")
    subject = answer.digest if answer.digest is not None else asked.digest
    other = subject != asked.digest and answer.answer != "silence"
    granted = answer.answer == "allow" and not other
    words = {"allow": "given", "deny": "refused"}.get(answer.answer, "no answer in time")
    reason = f"{decision.reason}: {words}" + (" to another call or policy" if other else "")
    final = Decision(ALLOW if granted else DENY, "approval", reason, decision.at, decision.facts)
    entry.update(final.to_dict())
    entry["approval"] = {"answer": answer.answer, "by": answer.by, "why": answer.why, "digest": subject}
    return final, "approval:refused"


def _perform(
    step: StepBuilder, index: int, call: Call, result: dict[str, Any]
) -> Generator[Effect | Event, Outcome, str]:
    """Execute an allowed call until it succeeds, is denied late, or may not be tried again."""
    state = step.state
    tool = state.run.gate.tools[call.name]
    state.counters.tool_calls += 1
    key = f"{state.run.run_id}/{step.index}/{index}"
    result["status"] = "cancelled"  # unless something else comes of it
    outcome, what = yield from with_retries(
        step,
        lambda attempt: Invoke(step.index, index, attempt, call, key),
        result["attempts"],
        index=index,
        idempotent=tool.idempotent,
        judge=lambda found: _judge_result(step, index, call, found),
    )
    if what == "ok" and outcome.result is not None:
        state.counters.result_bytes += _size(outcome.result)
        state.counters.count_result(call, outcome.result.text, state.run.gate.key_of(call))
        result["result"] = outcome.result
        state.tell(call, outcome.result.text)
        if len(result["attempts"]) > 1:
            what = "recovered"
    elif what == "unseen":
        told = {"done": True, "result": None, "reason": "the result was lost when the process ended"}
        result["attempts"][-1]["unseen"] = True
        result["told"] = told
        state.tell(call, canonical_json.encode(told))
        what = "ok" if len(result["attempts"]) == 1 else "recovered"
    elif what == "tool_output_invalid" and outcome.result is not None:
        result["attempts"][-1]["returned"] = outcome.result
    elif step.oversized is not None:
        denial, result["attempts"][-1]["returned_bytes"] = step.oversized
        event = Decided(step.index, index, call, denial, late=True)
        step.record["policy_decisions"].append(
            {"position": event.position, "phase": "execution", "id": call.id, **denial.to_dict()}
        )
        yield event
    result["status"] = (
        "ok" if what in ("ok", "recovered") else "denied" if what.startswith("deny:") else "failed"
    )
    return what


def _size(result: canonical_json.Fragment) -> int:
    return len(result.text) if result.text.isascii() else len(result.text.encode("utf-8"))


def _judge_result(step: StepBuilder, index: int, call: Call, outcome: Outcome) -> str:
    """What an attempt without an exception amounts to. Late facts are decided here, again and in order."""
    state = step.state
    attempt = len(step.record["tool_results"][-1]["attempts"]) + 1
    for number, check in enumerate(outcome.checks):
        decision = state.run.gate.decide_late(check)
        step.record["policy_decisions"].append(
            {
                "position": f"i{index}.{attempt}.c{number}",
                "phase": "execution",
                "id": call.id,
                **decision.to_dict(),
            }
        )
        if decision.decision != ALLOW:
            return f"deny:{decision.rule_id}"
    if outcome.fault is not None:
        return "fault"
    if outcome.result_lost:
        return "unseen"
    size = outcome.returned_bytes if outcome.result is None else _size(outcome.result)
    if size is not None:
        # before it is looked at: what does not fit the budget is not held against a schema, nor kept
        denial = state.run.gate.decide_result(size, state.counters)
        if denial is not None:
            step.oversized = (denial, size)
            return f"deny:{denial.rule_id}"
    if outcome.result is None:
        step.note_error(f"i{index}.{attempt}", {"problem": outcome.invalid or "no result"})
        return "tool_output_invalid"
    try:
        tool, data = state.run.gate.tools[call.name], outcome.result.value()
        wrong = tool.output_validator.first_mismatch(data)
    except Exception as error:  # noqa: BLE001 - a schema that cannot be applied accepts nothing
        step.note_error(
            f"i{index}.{attempt}", {"problem": "no usable output schema", "exception": type(error).__name__}
        )
        return "tool_output_invalid"
    if wrong is not None:
        step.note_error(
            f"i{index}.{attempt}", {"pointer": wrong.pointer, "keyword": wrong.keyword, "limit": wrong.limit}
        )
        return "tool_output_invalid"
    return "ok"
