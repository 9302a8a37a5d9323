"""What lies between a proposed call and its result.

    make_calls          the calls of a reply, each by its place in the step: `c0`, `c1`
    _make_some          all side by side if they only read, else one after another, until one ends the run
      _decide             the gate allows, denies, or wants a person; a call that was refused before is refused again
      hooks.before_call   may deny the call, want a person, or change its arguments; then the gate decides anew
      _ask_person         if the gate or a hook wants one; after a yes the gate decides once more
      _invoke             only after an allow; one of these four carries the call out:
        start_agent         where the tool is an agent, which may go on in the place of this one (outcomes.py)
        _run_function       where the function of the tool starts agents; their calls go to _make_some in turn
        tool.answer         where the loop itself answers
        _attempt            everywhere else
          with_retries        attempts, until one succeeds, is denied late, or may not be repeated
          judge               facts that the tool met are decided again here, then the size of the result
      returned            counts the result, and asks the hooks about it (outcomes.py)
    window.add_result   the model reads the result, or why there is none

Objections are lines of their own, so that a replay and another policy see them. What follows for the run is looked up
in `fail/catalog.py`; a `Told` is that, and what the model reads of the call.

The address of a line begins with the step and the place of the call (log/addresses.py): `2.c0.d` decides it, `2.c0.p`
is a person's answer, `2.c0.i1` the first attempt, `2.c0.i1.d1` an objection to what that met, `2.c0.e` what a call came
to that no attempt was made of, and `2.c0.g1` the first call that the function of a tool proposes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import to_builtins

from ...fail.catalog import CONTINUE, ApprovalRefused, Classification, FailureMode, Rule, Succeeded
from ...fail.errors import asks_to_end, class_of, warn_of
from ..effects import AskPerson, Invoke
from ..formats.strict_json import as_json, canonical, digest
from ..log import events as log
from ..log.values import Call, Fact
from ..models.failure_messages import denied_call, failed_call, lost_result, not_reached, stopped_call
from ..models.types import MAX_CALLS, read_call
from ..policy.leaf import Result, Verdict
from ..tools.agents import EXIT_PLAN
from ..tools.contract import Tool
from . import hooks
from .attempts import with_retries
from .authority import Ruling
from .outcomes import Told, ended_at_once, refused, returned, start_agent, stopped
from .state import RunState


async def make_calls(run: RunState, calls: list[Call]) -> Classification | None:
    """Make the calls of a reply, of which hooks may change some. Returns what ends the run, or None."""
    authority, proposed = run.authority, {f"c{n}": call for n, call in enumerate(calls)}
    told = await _make_some(run, proposed)
    # another authority: the agent handed over, or may do something else now, and the run goes on
    if run.spec.is_session or run.authority is not authority:  # each call has to have a result
        told = {key: told.get(key, Told(CONTINUE, not_reached())) for key in proposed}
    made = {key: told[key] for key in proposed if key in told}  # in the order of the reply
    for key, one in made.items():
        run.window.add_result(proposed[key], one.content)
    return next((one.found for one in made.values() if one.found.ending is not None), None)


async def _make_some(run: RunState, calls: dict[str, Call]) -> dict[str, Told]:
    """Make some calls, by their places in the step, and return what came of them until one ended the run."""
    side_by_side = len(calls) > 1 and _may_be_side_by_side(run, [*calls.values()])
    told: dict[str, Told] = {}
    waiting: list[str] = []
    authority = run.authority
    for key, call in calls.items():
        decide = partial(_decide, run, key)
        calls[key], decided = await hooks.before_call(run, key, call, decide(call), decide)
        if isinstance(decided, log.Stopped):
            told[key] = stopped(run, decided)
        elif decided.decision == "escalate":
            told[key] = await _ask_person(run, key, calls[key], decided)
        elif decided.decision == "deny":
            told[key] = refused(run, calls[key], decided, executed=False)
        elif side_by_side:
            waiting.append(key)
            continue
        else:
            told[key] = await _invoke(run, key, calls[key])
        if told[key].found.ending is not None or run.authority is not authority:
            break  # what follows was proposed by an agent that does not go on, or that may do something else now
    if waiting:
        agents = [key for key in waiting if run.gate.tools[calls[key].name].agent is not None]
        at_once = run.authority.at_once() if agents else len(waiting)
        run.wait_for(agents[:at_once])  # before the first of them asks its model
        jobs = [partial(_invoke, run, key, calls[key]) for key in waiting]
        results = await run.driver.together(jobs, at_once)
        run.wait_no_more(agents)
        told.update(zip(waiting, results, strict=True))
    return told


def _may_be_side_by_side(run: RunState, calls: list[Call]) -> bool:
    """Return whether calls may be made side by side: they only read, and none is decided by what another one brings.

    All of them are decided before the first is made, so no budget may count what only shows while they are made.
    """
    tools = [run.authority.strictest(call.name) if call.name in run.gate.tools else None for call in calls]
    only_read = all(it is not None and it.effect in ("pure", "read") and not it.inner for it in tools)
    limits = [one.gate.policy.limits.limits for one in run.authority.chain]
    is_counted = any("max_attempts" in it for it in limits) or bool(hooks.asked(run, "before_call"))
    is_counted |= any((call.arguments or {}).get("background") is True for call in calls)
    return only_read and not is_counted and len({run.authority.key_of(call) for call in calls}) == len(calls)


def _decide(run: RunState, key: str, call: Call) -> log.Decided:
    """Let the gate decide a call; one that was refused before is refused again, whatever the rules say now."""
    ruling, place = run.ask_about(key, call), run.gate.policy.place("")
    rule = run.refused.get(run.authority.key_of(call)) if run.refused else None
    if rule is not None and ruling.verdict.decision != "deny":
        ruling = Ruling(Verdict("deny", rule, place, "this call was refused before"))
    if "." not in key and call.name in run.spec.gates.hidden:
        reason = "only the function of a tool may start this agent"
        ruling = Ruling(Verdict("deny", Rule.TOOL_REGISTRY, place, reason))
    if ruling.verdict.decision == "allow" and run.is_planning and call.name == EXIT_PLAN:
        ruling = Ruling(Verdict("escalate", Rule.APPROVAL, place, "a person has to allow the plan"))
    if ruling.verdict.decision == "allow":
        run.count_call(key, call)
    return run.note_decision(key, ruling)


async def _ask_person(run: RunState, key: str, call: Call, decided: log.Decided) -> Told:
    """Ask a person about a call, and make it if the answer is yes."""
    at, policy = run.at(f"{key}.p"), run.authority.chain[decided.above].gate.policy
    run_id, timeout_s = run.spec.run_id, policy.approval_timeout_s
    asked = digest(canonical([call.name, call.arguments, policy.version, run_id, at]))
    question = AskPerson(call, decided.rule, decided.place, decided.reason, asked, timeout_s, run_id)
    answer = await run.driver.perform(at, question)
    if isinstance(answer, log.Stopped):
        return stopped(run, answer)
    if answer.answer != "allow":
        run.refused[run.authority.key_of(call)] = Rule.APPROVAL  # a person is asked once about a call
        said = "a person refused the call" if answer.answer == "deny" else "nobody answered"
        said = f"{said}: {answer.why}" if answer.why else said
        found = run.classify(ApprovalRefused(), above=decided.above)
        return Told(found, denied_call("approval", said, executed=False))
    # what holds may have changed while a person was asked
    return _decide_again(run, key, call) or await _invoke(run, key, call)


def _decide_again(run: RunState, key: str, call: Call) -> Told | None:
    """Let the gate decide a call again that may be made, and count it; a person need not be asked again.

    Returns:
        What came of the call if it is denied now, else None.
    """
    ruling = run.ask_about(key, call)
    if ruling.verdict.decision == "deny":
        return refused(run, call, run.note_decision(key, ruling), executed=False)
    run.count_call(key, call)
    return None


async def _invoke(run: RunState, key: str, call: Call) -> Told:
    """Carry out an allowed call, unless the time of the run is up: a hook or a person may have taken it."""
    is_late = not run.authority.has_time() or run.has_lost_mate(key, call)
    if is_late and (told := _decide_again(run, key, call)) is not None:
        return told
    tool = run.authority.strictest(call.name)
    if tool.agent is not None:
        return await start_agent(run, key, call)
    if tool.inner:
        return await _run_function(run, key, call, tool)
    if tool.answer is not None:
        if (why := run.driver.stop_of(run.at(key))) is not None:
            return stopped(run, log.Stopped(at=run.at(key), why=why))
        return await ended_at_once(run, key, call, tool.answer(run, dict(call.arguments or {})))
    return await _attempt(run, key, call, tool)


async def _attempt(run: RunState, key: str, call: Call, tool: Tool) -> Told:
    """Let a tool work, as often as it may be tried, and decide what it met and what it returned."""
    authority = run.authority
    idempotency_key = f"{run.spec.run_id}/{run.place}{run.step}/{key.removeprefix('c')}"
    reveals = authority.reveals(tool.name)
    redactor = run.spec.redactor.knowing(call.arguments, reveals)

    # called while the tool works; it decides a fact as the record will hold it, so that a replay decides the same
    def decide(fact: Fact) -> Verdict:
        return authority.ask(redactor.struct(fact), tool.name).verdict

    left = authority.result_bytes_left()
    effect = Invoke(call, tool, decide, idempotency_key, left, redactor, reveals, tool.is_once)

    # called after an attempt, with its outcome as the record holds it; the first objection becomes a line
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
            return Told(run.classify(Succeeded(attempt > 1)), lost_result())
        at = run.at(f"{key}.i{attempt}.d{len(outcome.met) + 2}")  # behind the facts and the size, see `judge`
        return await returned(run, key, call, outcome.result, outcome.size, at, recovered=attempt > 1)
    if isinstance(outcome, log.Decided):
        return refused(run, call, outcome, executed=True)
    if isinstance(outcome, log.Stopped):
        return stopped(run, outcome)
    assert isinstance(outcome, log.Failed)
    mode = _mode_of(outcome, attempt)
    retryable = tool.idempotent and mode == FailureMode.RETRY_EXHAUSTION
    return Told(run.give_up(mode, tool.name), failed_call(mode, outcome, retryable=retryable))


async def _run_function(run: RunState, key: str, call: Call, tool: Tool) -> Told:
    """Carry out a generator function that starts agents. It is a part of the run: a replay carries it out again."""
    work, answer, number, denied = tool.run(to_builtins(call.arguments or {}), None), None, 0, 0
    while True:
        if (why := run.driver.stop_of(run.at(key))) is not None:
            return stopped(run, log.Stopped(at=run.at(key), why=why))
        result = None
        try:
            try:
                asked = work.send(answer)
                several = asked if isinstance(asked, list) else [asked]
                for name, _ in several:
                    if name not in tool.inner:
                        raise LookupError(f"no agent is called {name!r}; there is {', '.join(tool.inner)}")
                tasks = [(tool.inner[name].name, task) for name, task in several]
                if not 0 < len(tasks) <= MAX_CALLS:
                    raise LookupError(f"it yields {len(tasks)} agents; yield 1 to {MAX_CALLS}")
                if denied > 100:  # nothing can stop it, since it waits for nothing
                    raise RecursionError("all its calls are denied; let it end after a denial")
            except StopIteration as end:
                result = as_json(end.value)
                if (wrong := tool.output_validator.first_mismatch(result)) is not None:
                    what = f"its result violates {wrong.keyword} at {wrong.pointer!r}"
                    raise TypeError(f"{what}; return what its type says") from None
        except BaseException as error:  # foreign code may raise anything
            if asks_to_end(error):
                raise
            warn_of(tool.file, error, run.spec.redactor.text)
            mode = FailureMode.CATALOGUED_UNHANDLED
            failed = log.Failed(at="", error=class_of(error))
            told = run.spec.redactor.data(failed_call(mode, failed, retryable=False))
            run.note(log.CallEnded(at=run.at(f"{key}.e"), told=told))
            return Told(run.give_up(mode, tool.name), told)
        if result is not None:
            return await ended_at_once(run, key, call, run.spec.redactor.data(result))
        proposed: dict[str, Call] = {}
        for name, task in tasks:
            number += 1
            inner = run.spec.redactor.struct(read_call(f"{call.id}_{number}", name, {"task": task}))
            proposed[f"{key}.g{number}"] = inner
            run.note(log.Proposed(at=run.at(f"{key}.g{number}.n"), call=inner))
        told = await _make_some(run, proposed)
        for one in told.values():
            if one.found.ending is not None:
                return Told(one.found, stopped_call())
        for own in proposed:
            denied = 0 if run.at(own) in run.counted else denied + 1
            run.authority.add("tool_calls", int(denied > 0))  # what is denied counts, too
        answers = [to_builtins(told[own].content) for own in proposed]
        answer = answers if isinstance(asked, list) else answers[0]


def _mode_of(failed: log.Failed, attempt: int) -> FailureMode:
    """Return the failure mode of a call that is not tried again."""
    if failed.kind == "invalid":
        return FailureMode.TOOL_OUTPUT_INVALID
    if failed.kind == "other":
        return FailureMode.CATALOGUED_UNHANDLED
    if failed.kind == "timeout" and attempt == 1:
        return FailureMode.TIMEOUT  # one that may not be repeated, by the tool or by the policy
    return FailureMode.RETRY_EXHAUSTION
