"""What lies between a proposed call and its result.

    make_calls          the calls of a reply: those that only read side by side, else one after another
      _decide             the gate allows, denies, or wants a person; a call that was refused before is refused again
      hooks.before_call   may deny the call, want a person, or change its arguments; then the gate decides anew
      _ask_person         if the gate or a hook wants one; after a yes the gate decides once more
      _invoke             only after an allow
        with_retries        attempts, until one succeeds, is denied late, or may not be repeated
          judge               facts that the tool met are decided again here, then the size of the result
        _returned           counts the result
          hooks.after_call    may deny or change it
      window.add_result   the model reads the result, or why there is none

Objections are lines of their own, so that a replay and another policy see them. What follows for the run is looked up
in `fail/catalog.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct

from ...fail.catalog import (
    ApprovalRefused,
    CallStopped,
    Classification,
    Denied,
    FailureMode,
    Happening,
    ResultLost,
    Rule,
    StopReason,
    Succeeded,
)
from ...fail.catalog import Stopped as WasStopped
from ..effects import AskPerson, Invoke
from ..formats.strict_json import canonical, digest
from ..log.events import Decided, Failed, Outcome, Stopped, ToolReturned
from ..log.values import Call, Fact
from ..models.failure_messages import denied_call, failed_call, lost_result, stopped_call
from ..policy.leaf import Result, Verdict
from ..policy.rules.loop_budget import Need
from . import hooks
from .attempts import with_retries
from .state import RunState

# rules about the run and not the call: a call that they denied may be proposed again
_ABOUT_THE_RUN = ("cycle_detection", "loop_budget", "gate_error")


class _Told(Struct, frozen=True):
    """What came of a call: what follows for the run, and what the model reads."""

    found: Classification
    content: Any


async def make_calls(run: RunState, calls: list[Call]) -> Classification | None:
    """Make the calls of a reply, of which hooks may change some. Returns what ends the run, or None."""
    side_by_side = len(calls) > 1 and _may_share(run, calls)
    told: dict[int, _Told] = {}
    waiting: list[int] = []
    for n, call in enumerate(calls):
        decide = partial(_decide, run, f"c{n}")
        call, decided = await hooks.before_call(run, f"c{n}", call, decide(call), decide)
        calls[n] = call
        if not isinstance(decided, Decided):
            told[n] = _stopped(run, decided)
        elif decided.decision == "allow" and side_by_side:
            waiting.append(n)
            continue
        elif decided.decision == "escalate":
            told[n] = await _ask_person(run, f"c{n}", call, decided)
        elif decided.decision == "allow":
            told[n] = await _invoke(run, f"c{n}", call)
        else:
            told[n] = _refused(run, call, decided, executed=False)
        if told[n].found.ending is not None:
            break
    if waiting:
        results = await run.driver.together([_invoke(run, f"c{n}", calls[n]) for n in waiting])
        told.update(zip(waiting, results, strict=True))
    ended: Classification | None = None
    for n in sorted(told):
        found, content = told[n].found, told[n].content
        run.window.add_result(calls[n], content)
        if ended is None and found.ending is not None:
            ended = found
    return ended


def _may_share(run: RunState, calls: list[Call]) -> bool:
    """Return whether calls may go side by side: they only read, and none is decided by what another one brings."""
    tools = [run.tool_of(call) for call in calls]
    only_read = all(tool is not None and tool.effect in ("pure", "read") for tool in tools)
    is_counted = "max_attempts" in run.gate.policy.limits.limits or hooks.has(run, "before_call")
    return only_read and not is_counted and len({run.key_of(call) for call in calls}) == len(calls)


def _decide(run: RunState, key: str, call: Call) -> Decided:
    """Let the gate decide a call; one that was refused before is refused again, whatever the rules say now."""
    verdict = run.ask_about(key, call)
    if verdict.decision != "deny" and (rule := run.refused.get(run.key_of(call))) is not None:
        place = run.gate.policy.place("")
        verdict = Verdict("deny", rule, place, "this call was refused before")
    if verdict.decision == "allow":
        run.count_call(key, call)
    return run.note_decision(key, verdict)


async def _ask_person(run: RunState, key: str, call: Call, decided: Decided) -> _Told:
    """Ask a person about a call, and make it if the answer is yes."""
    at, policy = run.at(f"{key}.p"), run.gate.policy
    parts = [call.name, call.arguments, policy.version, run.spec.run_id, at]
    question = AskPerson(
        call,
        decided.rule,
        decided.place,
        decided.reason,
        digest(canonical(parts)),
        policy.approval_timeout_s,
    )
    answer = await run.driver.perform(at, question)
    if isinstance(answer, Stopped):
        return _stopped(run, answer)
    if answer.answer != "allow":
        run.refused[run.key_of(call)] = Rule.APPROVAL  # a person is asked once about a call
        said = "a person refused the call" if answer.answer == "deny" else "nobody answered"
        said = f"{said}: {answer.why}" if answer.why else said
        return _Told(run.classify(ApprovalRefused()), denied_call("approval", said, executed=False))
    verdict = run.ask_about(key, call)  # what holds may have changed while a person was asked
    if verdict.decision == "deny":
        return _refused(run, call, run.note_decision(key, verdict), executed=False)
    run.count_call(key, call)
    return await _invoke(run, key, call)


def _stopped(run: RunState, outcome: Stopped) -> _Told:
    is_all = run.driver.stop_of("") is not None
    happening: Happening = WasStopped(StopReason(outcome.why)) if is_all else CallStopped()
    return _Told(run.classify(happening), stopped_call())


def _refused(run: RunState, call: Call, decided: Decided, *, executed: bool) -> _Told:
    call_key = run.key_of(call)
    repeated = call_key in run.refused
    after = run.retry_after_ms(call) if decided.rule == Rule.TOOL_LIMITS else None
    if after is None and decided.rule not in _ABOUT_THE_RUN:
        run.refused[call_key] = decided.rule
    found = run.classify(Denied(Rule(decided.rule), repeated=repeated))
    return _Told(found, denied_call(decided.rule, decided.reason, executed=executed, retry_after_ms=after))


async def _invoke(run: RunState, key: str, call: Call) -> _Told:
    """Execute an allowed call, unless the time of the run is up: a hook or a person may have taken it."""
    if not run.has_time() and (verdict := run.ask_about(key, call)).decision == "deny":
        return _refused(run, call, run.note_decision(key, verdict), executed=False)
    tool = run.gate.tools[call.name]
    limits, used = run.gate.policy.limits, run.used
    left = limits.limits["max_result_bytes"] - used["result_bytes"]
    idempotency_key = f"{run.spec.run_id}/{run.driver.step}/{key.removeprefix('c')}"
    redactor, reveals = run.spec.redactor, run.gate.policy.reveals(tool.name).kinds

    def decide(fact: Fact) -> Verdict:  # as the record will hold it, so that a replay decides the same
        return run.ask_gate(redactor.struct(fact), tool.name)

    effect = Invoke(call, tool, decide, idempotency_key, left, redactor, reveals)

    def judge(at: str, outcome: Outcome) -> Decided | None:
        used["attempts"] += 1
        questions: list[Any] = list(getattr(outcome, "met", ()))
        if isinstance(outcome, ToolReturned):
            questions.append(Result(outcome.size))
        for number, about in enumerate(questions, 1):
            verdict = run.ask_gate(about, tool.name)
            if verdict.decision != "allow":
                return run.note_verdict(f"{at}.d{number}", verdict)
        return None

    outcome, attempt = await with_retries(
        run,
        f"{key}.i",
        effect,
        idempotent=tool.idempotent,
        judge=judge,
        may_go_on=lambda: limits.allows(Need("max_attempts", used["attempts"], 1)),
    )
    if isinstance(outcome, ToolReturned):
        return await _returned(run, key, call, outcome, attempt)
    if isinstance(outcome, Decided):
        return _refused(run, call, outcome, executed=True)
    if isinstance(outcome, Stopped):
        return _stopped(run, outcome)
    assert isinstance(outcome, Failed)
    mode = _mode_of(outcome, attempt)
    retryable = tool.idempotent and mode == FailureMode.RETRY_EXHAUSTION
    return _Told(run.give_up(mode, tool.name), failed_call(mode, outcome, retryable=retryable))


async def _returned(run: RunState, key: str, call: Call, outcome: ToolReturned, attempt: int) -> _Told:
    recovered = attempt > 1
    if outcome.result is None:
        return _Told(run.classify(ResultLost(recovered)), lost_result())
    run.used["result_bytes"] += outcome.size
    run.count_result(call, digest(canonical(outcome.result)))
    told = await hooks.after_call(run, key, call, outcome.result)
    if isinstance(told, dict):
        return _Told(run.classify(Succeeded(recovered)), told)
    if isinstance(told, Stopped):
        return _stopped(run, told)
    at = run.at(f"{key}.i{attempt}.d{len(outcome.met) + 2}")
    return _refused(run, call, run.note_verdict(at, told), executed=True)


def _mode_of(failed: Failed, attempt: int) -> FailureMode:
    """Return the failure mode of a call that is not tried again."""
    if failed.kind == "invalid":
        return FailureMode.TOOL_OUTPUT_INVALID
    if failed.kind == "other":
        return FailureMode.CATALOGUED_UNHANDLED
    if failed.kind == "timeout" and attempt == 1:
        return FailureMode.TIMEOUT  # one that may not be repeated, by the tool or by the policy
    return FailureMode.RETRY_EXHAUSTION
