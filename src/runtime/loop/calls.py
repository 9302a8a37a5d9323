"""What lies between a proposed call and its result.

    make_calls          the calls of a reply: those that only read side by side, else one after another
      _decide             the gate allows, denies, or wants a person; a call that was refused before is refused again
      hooks.before_call   may deny the call, want a person, or change its arguments; then the gate decides anew
      _ask_person         if the gate or a hook wants one; after a yes the gate decides once more
      _invoke             only after an allow
        with_retries        attempts, until one succeeds, is denied late, or may not be repeated
          judge               facts that the tool met are decided again here, then the size of the result
        _run_function       in place of attempts, where the function of the tool starts agents
        _start_agent        likewise, where the tool is an agent, which may go on in the place of this one
        tool.answer         likewise, where the loop itself answers
        _returned           counts the result
          hooks.after_call    may deny or change it
      window.add_result   the model reads the result, or why there is none

Objections are lines of their own, so that a replay and another policy see them. What follows for the run is looked up
in `fail/catalog.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct, structs, to_builtins

from ...fail.catalog import (
    CONTINUE,
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
from ...fail.errors import asks_to_end
from ..effects import AskPerson, Invoke
from ..formats.strict_json import as_json, canonical, digest
from ..log import events as log
from ..log.values import Call, Fact, Message
from ..models.failure_messages import denied_call, failed_call, lost_result, not_reached, stopped_call
from ..models.types import read_call
from ..policy.leaf import Result, Verdict
from ..tools.agents import EXIT_PLAN
from ..tools.contract import Tool
from . import hooks
from .attempts import with_retries
from .authority import Authority, Ruling
from .state import RunSpec, RunState

# what stays as it is where an agent hands over to another one
_OF_ALL = ("run_id", "seed", "redactor", "question", "history", "deadline_s", "is_session", "forked")
# rules about the run and not the call: a call that they denied may be proposed again
_ABOUT_THE_RUN = ("cycle_detection", "loop_budget", "agents", "gate_error")


class _Told(Struct, frozen=True):
    """What came of a call: what follows for the run, and what the model reads."""

    found: Classification
    content: Any


async def make_calls(run: RunState, calls: list[Call]) -> Classification | None:
    """Make the calls of a reply, of which hooks may change some. Returns what ends the run, or None."""
    side_by_side = len(calls) > 1 and _may_share(run, calls)
    told: dict[int, _Told] = {}
    waiting: list[int] = []
    authority = run.authority
    for n, call in enumerate(calls):
        calls[n], decided = await _decided(run, f"c{n}", call)
        if side_by_side and isinstance(decided, log.Decided) and decided.decision == "allow":
            waiting.append(n)
            continue
        told[n] = await _carry_out(run, f"c{n}", calls[n], decided)
        if told[n].found.ending is not None or run.authority is not authority:
            break  # what follows was proposed by an agent that does not go on, or that may do something else now
    if waiting:
        agents = [f"c{n}" for n in waiting if run.gate.tools[calls[n].name].agent is not None]
        at_once = run.authority.at_once() if agents else len(waiting)
        run.wait_for(agents[:at_once])  # before the first of them asks its model
        results = await run.driver.together(
            [partial(_invoke, run, f"c{n}", calls[n]) for n in waiting], at_once
        )
        run.wait_no_more(agents)
        told.update(zip(waiting, results, strict=True))
    ended: Classification | None = None
    if run.spec.is_session or run.authority is not authority:  # each call has to have a result
        told.update({n: _Told(CONTINUE, not_reached()) for n in range(len(calls)) if n not in told})
    for n in sorted(told):
        found, content = told[n].found, told[n].content
        run.window.add_result(calls[n], content)
        if ended is None and found.ending is not None:
            ended = found
    return ended


async def _decided(run: RunState, key: str, call: Call) -> tuple[Call, log.Decided | log.Stopped]:
    """Let the gate decide a call, and the hooks. Returns the call as it is to be made, and what they said."""
    decide = partial(_decide, run, key)
    return await hooks.before_call(run, key, call, decide(call), decide)


async def _carry_out(run: RunState, key: str, call: Call, decided: log.Decided | log.Stopped) -> _Told:
    """Do with a call as was decided."""
    if isinstance(decided, log.Stopped):
        return _stopped(run, decided)
    if decided.decision == "escalate":
        return await _ask_person(run, key, call, decided)
    if decided.decision == "allow":
        return await _invoke(run, key, call)
    return _refused(run, call, decided, executed=False)


def _may_share(run: RunState, calls: list[Call]) -> bool:
    """Return whether calls may go side by side: they only read, and none is decided by what another one brings."""
    known = run.gate.tools
    tools = [run.authority.strictest(call.name) if call.name in known else None for call in calls]
    only_read = all(it is not None and it.effect in ("pure", "read") and not it.inner for it in tools)
    limits = [one.gate.policy.limits.limits for one in run.authority.chain]
    is_counted = any("max_attempts" in it for it in limits) or hooks.has(run, "before_call")
    is_counted |= any((call.arguments or {}).get("background") is True for call in calls)
    return only_read and not is_counted and len({run.authority.key_of(call) for call in calls}) == len(calls)


def _decide(run: RunState, key: str, call: Call) -> log.Decided:
    """Let the gate decide a call; one that was refused before is refused again, whatever the rules say now."""
    ruling = run.ask_about(key, call)
    rule = run.refused.get(run.authority.key_of(call))
    if rule is not None and ruling.verdict.decision != "deny":
        place = run.gate.policy.place("")
        ruling = Ruling(Verdict("deny", rule, place, "this call was refused before"))
    if "." not in key and _is_hidden(run, call):
        place = run.gate.policy.place("/tool_registry")
        ruling = Ruling(
            Verdict("deny", Rule.TOOL_REGISTRY, place, "only the function of a tool may start this agent")
        )
    if ruling.verdict.decision == "allow" and run.is_planning and call.name == EXIT_PLAN:
        reason = "a person has to allow the plan"
        ruling = Ruling(Verdict("escalate", Rule.APPROVAL, run.gate.policy.place(""), reason))
    if ruling.verdict.decision == "allow":
        run.count_call(key, call)
    return run.note_decision(key, ruling)


def _is_hidden(run: RunState, call: Call) -> bool:
    return call.name in run.gate.tools and call.name not in run.offered


async def _ask_person(run: RunState, key: str, call: Call, decided: log.Decided) -> _Told:
    """Ask a person about a call, and make it if the answer is yes."""
    at, policy = run.at(f"{key}.p"), run.authority.chain[decided.above].gate.policy
    parts = [call.name, call.arguments, policy.version, run.spec.run_id, at]
    asked, timeout_s = digest(canonical(parts)), policy.approval_timeout_s
    question = AskPerson(call, decided.rule, decided.place, decided.reason, asked, timeout_s)
    answer = await run.driver.perform(at, question)
    if isinstance(answer, log.Stopped):
        return _stopped(run, answer)
    if answer.answer != "allow":
        run.refused[run.authority.key_of(call)] = Rule.APPROVAL  # a person is asked once about a call
        said = "a person refused the call" if answer.answer == "deny" else "nobody answered"
        said = f"{said}: {answer.why}" if answer.why else said
        return _Told(
            run.classify(ApprovalRefused(), above=decided.above),
            denied_call("approval", said, executed=False),
        )
    ruling = run.ask_about(key, call)  # what holds may have changed while a person was asked
    if ruling.verdict.decision == "deny":
        return _refused(run, call, run.note_decision(key, ruling), executed=False)
    run.count_call(key, call)
    return await _invoke(run, key, call)


def _stopped(run: RunState, outcome: log.Stopped) -> _Told:
    is_all = run.stopped is not None
    happening: Happening = WasStopped(StopReason(outcome.why)) if is_all else CallStopped()
    return _Told(run.classify(happening), stopped_call())


def _refused(run: RunState, call: Call, decided: log.Decided, *, executed: bool) -> _Told:
    call_key = run.authority.key_of(call)
    repeated = call_key in run.refused
    after = None
    if decided.rule == Rule.TOOL_LIMITS:
        after = run.authority.retry_after_ms(call, decided.above)
    # a function may start the agent that the model may not
    if after is None and decided.rule not in _ABOUT_THE_RUN and not _is_hidden(run, call):
        run.refused[call_key] = decided.rule
    found = run.classify(Denied(Rule(decided.rule), repeated=repeated), above=decided.above)
    return _Told(found, denied_call(decided.rule, decided.reason, executed=executed, retry_after_ms=after))


async def _invoke(run: RunState, key: str, call: Call) -> _Told:
    """Execute an allowed call, unless the time of the run is up: a hook or a person may have taken it."""
    authority = run.authority
    if not authority.has_time():
        ruling = run.ask_about(key, call)
        if ruling.verdict.decision == "deny":
            return _refused(run, call, run.note_decision(key, ruling), executed=False)
    tool = authority.strictest(call.name)
    if tool.agent is not None:
        return await _start_agent(run, key, call)
    if tool.inner:
        return await _run_function(run, key, call, tool)
    if tool.answer is not None:
        return await _ended_at_once(run, key, call, tool.answer(run, dict(call.arguments or {})))
    idempotency_key = f"{run.spec.run_id}/{run.place}{run.step}/{key.removeprefix('c')}"
    redactor, reveals = run.spec.redactor, authority.reveals(tool.name)

    def decide(fact: Fact) -> Verdict:  # as the record will hold it, so that a replay decides the same
        return authority.ask(redactor.struct(fact), tool.name).verdict

    effect = Invoke(call, tool, decide, idempotency_key, authority.result_bytes_left(), redactor, reveals)

    def judge(at: str, outcome: log.Outcome) -> log.Decided | None:
        questions: list[Any] = list(getattr(outcome, "met", ()))
        if isinstance(outcome, log.ToolReturned):
            questions.append(Result(outcome.size))
        for number, about in enumerate(questions, 1):
            ruling = authority.ask(about, tool.name)
            if ruling.verdict.decision != "allow":
                return run.note_ruling(f"{at}.d{number}", ruling)
        return None

    authority.add("attempts")  # as it begins, since agents in the background make others meanwhile
    outcome, attempt = await with_retries(
        run, f"{key}.i", effect, idempotent=tool.idempotent, judge=judge, may_go_on=authority.take_attempt
    )
    if isinstance(outcome, log.ToolReturned):
        if outcome.result is None:
            return _Told(run.classify(ResultLost(attempt > 1)), lost_result())
        at = run.at(f"{key}.i{attempt}.d{len(outcome.met) + 2}")
        return await _returned(run, key, call, outcome.result, outcome.size, at, recovered=attempt > 1)
    if isinstance(outcome, log.Decided):
        return _refused(run, call, outcome, executed=True)
    if isinstance(outcome, log.Stopped):
        return _stopped(run, outcome)
    assert isinstance(outcome, log.Failed)
    mode = _mode_of(outcome, attempt)
    retryable = tool.idempotent and mode == FailureMode.RETRY_EXHAUSTION
    return _Told(run.give_up(mode, tool.name), failed_call(mode, outcome, retryable=retryable))


async def _start_agent(run: RunState, key: str, call: Call) -> _Told:
    """Let the agent live that a call starts; what it came to is the result of the call, unless it is handed over to."""
    tool, place = run.gate.tools[call.name], f"{run.at(key)}/"
    assert tool.agent is not None
    assert call.arguments is not None
    if (why := run.driver.stop_of(place)) is not None:  # while it waited for its turn
        return _stopped(run, log.Stopped(at=place, why=why))
    spec: RunSpec = run.spec.each(tool.agent.start(run.place if tool.hands_over else place, call.arguments))
    redactor = run.spec.redactor
    text = redactor.text(spec.instructions)
    kept = _OF_ALL if tool.hands_over else ("run_id", "seed", "redactor")
    spec = structs.replace(spec, **{name: getattr(run.spec, name) for name in kept}, instructions=text)
    if tool.hands_over:
        told = {"state": "handed over"}
        run.note(log.CallEnded(at=run.at(f"{key}.e"), told=told))
        run.hand_over(key, spec)
        return _Told(run.classify(Succeeded(recovered=False)), told)
    child = RunState(spec, run.driver, run.live, place, run)
    run.note(log.AgentStarted(at=f"{place}0", **child.spec.head()))
    if call.arguments.get("background") and not hooks.has(run, "after_call"):  # they guard what it answers
        run.authority.may_ask(1)
        run.authority.background += 1
        run.children[place] = run.driver.spawn(_in_background(run, child, tool.name, run.authority))
        return await _ended_at_once(run, key, call, {"agent": place[:-1], "state": "at work"})
    run.wait_for([key])
    ended = await _ended(child)
    run.wait_no_more([key])
    if (why := run.stopped) is not None:
        return _Told(run.classify(WasStopped(StopReason(why))), stopped_call())
    return await _counted(run, key, call, {"ending": ended.ending, "answer": ended.answer})


async def _run_function(run: RunState, key: str, call: Call, tool: Tool) -> _Told:
    """Carry out a generator function that starts agents. It is a part of the run: a replay carries it out again."""
    work, answer, number, denied = tool.run(to_builtins(call.arguments or {}), None), None, 0, 0
    while True:
        if (why := run.driver.stop_of(run.at(key))) is not None:
            return _stopped(run, log.Stopped(at=run.at(key), why=why))
        result = None
        try:
            try:
                name, task = work.send(answer)
                if name not in tool.inner:
                    raise LookupError
                if denied > 100:  # nothing can stop it, since it waits for nothing
                    raise RecursionError
            except StopIteration as end:
                result = as_json(end.value)
                if tool.output_validator.first_mismatch(result) is not None:
                    raise TypeError from None
        except BaseException as error:  # foreign code may raise anything
            if asks_to_end(error):
                raise
            mode = FailureMode.CATALOGUED_UNHANDLED
            failed = log.Failed(at="", error=type(error).__name__[:100])
            told = run.spec.redactor.data(failed_call(mode, failed, retryable=False))
            run.note(log.CallEnded(at=run.at(f"{key}.e"), told=told))
            return _Told(run.give_up(mode, tool.name), told)
        if result is not None:
            return await _ended_at_once(run, key, call, run.spec.redactor.data(result))
        number += 1
        proposed = read_call(f"{call.id}_{number}", tool.inner[name].name, {"task": task})
        proposed, own = run.spec.redactor.struct(proposed), f"{key}.g{number}"
        run.note(log.Proposed(at=run.at(f"{own}.n"), call=proposed))
        inner = await _carry_out(run, own, *await _decided(run, own, proposed))
        if inner.found.ending is not None:
            return _Told(inner.found, stopped_call())
        denied = 0 if run.at(own) in run.counted else denied + 1
        run.authority.add("tool_calls", int(denied > 0))  # what is denied counts, too
        answer = to_builtins(inner.content)


async def _ended(child: RunState) -> log.AgentEnded:
    """Let an agent live to its end, and return its last line."""
    found, answer = await child.live(child)
    child.driver.end_agent(child.place)
    ended = log.AgentEnded(
        at=f"{child.place}end", ending=str(found.ending), answer=answer, mode=found.mode or ""
    )
    child.note(ended)
    return ended


async def _in_background(run: RunState, child: RunState, name: str, authority: Authority) -> None:
    """Let an agent live beside the one that started it, which gets its answer as a message."""
    ended = await _ended(child)
    authority.may_ask(-1)  # as the agent was that started it, which may have handed over
    run.authority.background -= 1
    del run.children[child.place]
    text = ended.answer if ended.answer is not None else f"I ended without an answer: {ended.ending}"
    ruling = authority.ask(Result(size := len(text.encode())), name)
    if ruling.verdict.decision != "allow":
        run.note_ruling(f"{child.place[:-1]}.e.d3", ruling)
        text, size = f"My answer was left out: {ruling.verdict.reason}", 0
    run.authority.add("result_bytes", size)
    run.driver.post(run.place, Message(child.place[:-1], text, is_answer=True))


async def _ended_at_once(run: RunState, key: str, call: Call, told: dict[str, Any]) -> _Told:
    fits = len(canonical(told)) <= run.authority.result_bytes_left()
    run.note(log.CallEnded(at=run.at(f"{key}.e"), told=told if fits else {}))
    return await _counted(run, key, call, told)


async def _counted(run: RunState, key: str, call: Call, result: dict[str, Any]) -> _Told:
    """Return what the model reads of a call that no attempt was made of; the gate decides its result."""
    size, at = len(canonical(result)), run.at(f"{key}.e.d")
    ruling = run.authority.ask(Result(size), call.name)
    if ruling.verdict.decision != "allow":
        return _refused(run, call, run.note_ruling(at, ruling), executed=True)
    return await _returned(run, key, call, result, size, f"{at}2", recovered=False)


async def _returned(
    run: RunState, key: str, call: Call, result: dict[str, Any], size: int, at: str, *, recovered: bool
) -> _Told:
    """Count a result, and ask the hooks about it, whose objection is a line at an address."""
    run.authority.add("result_bytes", size)
    run.authority.count_result(call, digest(canonical(result)))
    told = await hooks.after_call(run, key, call, result)
    if isinstance(told, dict):
        return _Told(run.classify(Succeeded(recovered)), told)
    if isinstance(told, log.Stopped):
        return _stopped(run, told)
    return _refused(run, call, run.note_ruling(at, told), executed=True)


def _mode_of(failed: log.Failed, attempt: int) -> FailureMode:
    """Return the failure mode of a call that is not tried again."""
    if failed.kind == "invalid":
        return FailureMode.TOOL_OUTPUT_INVALID
    if failed.kind == "other":
        return FailureMode.CATALOGUED_UNHANDLED
    if failed.kind == "timeout" and attempt == 1:
        return FailureMode.TIMEOUT  # one that may not be repeated, by the tool or by the policy
    return FailureMode.RETRY_EXHAUSTION
