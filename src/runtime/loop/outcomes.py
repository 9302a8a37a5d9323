"""What comes of a call: counted, decided once more, told to the model; and agents that calls start.

Such an agent lives in the place of an attempt, beside the agent that calls, or as a team mate of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct, structs

from ...fail.catalog import CallStopped, Classification, Denied, Ending, Rule, Succeeded
from ..formats.strict_json import canonical, digest
from ..log import events as log
from ..log.values import Call, Message
from ..models.failure_messages import denied_call, stopped_call
from ..policy.leaf import Result
from . import hooks
from .authority import Authority
from .state import RunSpec, RunState, ended_as

# rules about the run and not the call: a call that they denied may be proposed again
_ABOUT_THE_RUN = ("cycle_detection", "loop_budget", "agents", "gate_error")
# what stays as it is where an agent hands over to another one
_OF_ALL = ("run_id", "seed", "redactor", "question", "history", "deadline_s", "is_session", "forked")


class Told(Struct, frozen=True):
    """What came of a call: what follows for the run, and what the model reads."""

    found: Classification
    content: Any


def stopped(run: RunState, outcome: log.Stopped) -> Told:
    """Return what came of a call that was stopped, by itself or with the agent."""
    is_all = run.stopped is not None
    return Told(run.stopped_by(outcome.why) if is_all else run.classify(CallStopped()), stopped_call())


def refused(run: RunState, call: Call, decided: log.Decided, *, executed: bool) -> Told:
    """Return what came of a call that is denied, also late; it is refused when it is proposed again."""
    call_key = run.authority.key_of(call)
    repeated = call_key in run.refused
    after = None
    if decided.rule == Rule.TOOL_LIMITS:
        after = run.authority.retry_after_ms(call, decided.above)
    # a function may start the agent that the model may not
    if after is None and decided.rule not in _ABOUT_THE_RUN and call.name not in run.spec.gates.hidden:
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


async def start_agent(run: RunState, key: str, call: Call) -> Told:
    """Let the agent live that a call starts; what it came to is the result of the call, unless it is handed over to."""
    tool, place = run.gate.tools[call.name], f"{run.at(key)}/"
    assert tool.agent is not None
    assert call.arguments is not None
    if (why := run.driver.stop_of(place)) is not None:  # while it waited for its turn
        return stopped(run, log.Stopped(at=place, why=why))
    spec: RunSpec = run.spec.each(tool.agent.start(run.place if tool.hands_over else place, call.arguments))
    text = run.spec.redactor.text(spec.instructions)
    kept = _OF_ALL if tool.hands_over else ("run_id", "seed", "redactor")
    spec = structs.replace(spec, **{name: getattr(run.spec, name) for name in kept}, instructions=text)
    # hooks guard what a call answers, and so have to see it before the model does
    in_background = not hooks.asked(run, "after_call") and (tool.stays or call.arguments.get("background"))
    if tool.hands_over:
        told = {"state": "handed over"}
        run.note(log.CallEnded(at=run.at(f"{key}.e"), told=told))
        run.hand_over(key, spec)
        if hooks.asked(run, "after_call"):  # they would not see what those in the background answer
            await run.stop_children(resting=True)
        return Told(run.classify(Succeeded(recovered=False)), told)
    child = run.mate(tool.name) if tool.stays else None
    if child is not None:
        run.driver.post(child.place, Message(run.name, call.arguments["task"]))
    else:
        stays = tool.stays and in_background
        for other in run.mates(tool.name):  # of the same name, but under less than the policies of now
            run.driver.stop(other.place, "cancelled")
        spec = structs.replace(spec, is_session=stays)
        child = RunState(spec, run.driver, run.live, place, run, tool.name if stays else "")
        run.note(log.AgentStarted(at=f"{place}0", **child.spec.head()))
        if in_background:
            run.authority.add_askers(1)
            run.authority.background += 1
            child.on_turn = partial(_tell, run, child, tool.name, run.authority)
            run.children[place] = child
            child.branch = run.driver.spawn(_in_background(run, child, run.authority))
    if child.branch is not None:
        return await ended_at_once(run, key, call, {"agent": child.name, "state": "at work"})
    run.wait_for([key])
    ended = await _ended(child)
    run.wait_no_more([key])
    if (why := run.stopped) is not None:
        return Told(run.stopped_by(why), stopped_call())
    return await counted(run, key, call, ended.told)


async def _ended(child: RunState) -> log.AgentEnded:
    """Let an agent live to its end, and return its last line."""
    found, answer = await child.live(child)
    child.driver.end_agent(child.place)
    child.board.release(child.place)
    ended = log.AgentEnded(at=f"{child.place}end", **ended_as(found, answer))
    child.note(ended)
    return ended


async def _in_background(run: RunState, child: RunState, authority: Authority) -> None:
    """Let an agent live beside the one that started it."""
    ended = await _ended(child)
    authority.add_askers(-1)  # as the agent was that started it, which may have handed over
    run.authority.background -= 1
    del run.children[child.place]
    if not child.is_mate or ended.ending != Ending.FINAL_ANSWER:  # a team mate has told its answers
        child.on_turn(ended)


def _tell(run: RunState, child: RunState, name: str, authority: Authority, ended: log.Ended) -> None:
    """Tell an agent what one in the background has come to."""
    who = "This" if isinstance(ended, log.TurnEnded) else "I"
    how = ", ".join(filter(None, (ended.ending, ended.told.get("mode"))))
    text = ended.answer if ended.answer is not None else f"{who} ended without an answer: {how}"
    ruling = authority.ask(Result(size := len(text.encode())), name)
    number = child.next_number("answers")
    if ruling.verdict.decision != "allow":
        run.note_ruling(f"{child.place[:-1]}.e.d{number + 2}", ruling)
        text, size = f"My answer was left out: {ruling.verdict.reason}", 0
    run.authority.add("result_bytes", size)
    run.driver.post(run.place, Message(child.name, text, is_answer=True))
