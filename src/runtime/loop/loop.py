"""The loop of a run. It touches nothing: what it wants done it asks of the driver, what it decides it writes as a line.

    run_loop            one question, or one conversation, to its last line
    _live               takes steps until one has an ending; each step is as follows
      _receive            reads messages; waits for a turn, or for agents that are at work when the answer is given
      _take_step
        authority.ask       is there budget for another step? if not, the run ends; asked again after a summary
        _compact            shows the model less of what went before, where that has grown too large
        hooks.before_model  may end the run
        _ask_model          with retries
        make_calls          if the reply has calls: decides and makes them, and asks people and hooks (calls.py)
        _take_answer        if it has an answer: one of the type asked for ends the run, unless a hook sends it back
      StepEnded           the end of each step is a line
      TurnEnded           so is the end of a turn of a conversation, which then waits for the next turn
    RunEnded            and so is the end of the run

A call may start an agent (calls.py), which lives as this one does (`_live`), one level down in the same log.

What happened is a value, a happening: `fail/catalog.py` maps it to a failure mode and an ending, and nothing else does.
`found` is such a classification, of what happened last: without an ending, the run goes on. `run.classify` also notes
the mode for the line of the step.

`run` (state.py) is the agent at work. Of its parts, `run.authority` holds its gates and what is used up of the budgets,
`run.window` the messages that the model is shown, and `run.mailbox` those that are not read yet. `run.driver` performs
effects, and knows what somebody outside asks for. `run.note` writes a line, and `run.at` gives its address in this
step: `2.m1` asks the model, `2.d` denies the step, `2.r` reads messages, `2.s` shows less, `2.u1` does what is asked
from outside, `2.t` ends the turn, and `2.e` the step (log/addresses.py).
"""

from __future__ import annotations

from ...fail.catalog import CONTINUE, Answered, Classification, Denied, FailureMode, GaveUp, Refused, Rule
from ..driver import Driver
from ..effects import AskModel
from ..formats.strict_json import digest
from ..log import events as log
from ..log.values import USER
from ..models.failure_messages import ask_for_summary, heard, refused_answer, summed_up
from ..models.types import LLMInput, Messages, choice_of
from ..policy.leaf import Step
from ..policy.prices import key_of
from ..schema.answer_type import AnswerMismatch
from . import hooks
from .attempts import with_retries
from .calls import make_calls
from .state import RunSpec, RunState, ended_as


async def run_loop(spec: RunSpec, driver: Driver) -> tuple[log.RunEnded, Messages]:
    """Take one question from start to ending, and return the last line and the messages."""
    run = RunState(spec, driver, _live)
    found, answer = await _live(run)
    ended = log.RunEnded(at="end", sha256=digest(driver.journal.data), **ended_as(found, answer))
    run.note(ended)
    return ended, run.window.messages()


async def _live(run: RunState) -> tuple[Classification, str | None]:
    """Take steps until one has an ending, and return it with the answer."""
    spec = run.spec
    question = [{"role": "user", "content": spec.question}] if spec.question or not spec.is_session else []
    for message in (*spec.history, *question):
        run.window.add(message)
    while True:
        run.step += 1
        run.driver.begin_step(run.place, run.step)
        run.mode, run.cost = None, 0  # of this step: set where something is classified, and by each reply
        if not await _receive(run):  # the conversation was closed, or the team mate stopped
            await run.stop_children(resting=True)
            return run.classify(Answered()), run.answer
        found, answer = await _take_step(run)
        if spec.is_session and (why := run.driver.stop_of(run.at("e"))) is not None:
            found, answer = run.stopped_by(why), None  # each call has a result by now
        if found is not None and found.ending is not None:
            await run.stop_children(resting=not spec.is_session or run.stopped is not None)
        added, cut = run.window.take_digest()
        run.note(log.StepEnded(at=run.at("e"), added=added, mode=run.mode or "", cost=run.cost, cut=cut))
        if found is None or found.ending is None:
            continue
        if not spec.is_session or run.stopped is not None:
            return found, answer
        run.answer, run.waits = answer, True
        run.end_turn(log.TurnEnded(at=run.at("t"), **ended_as(found, answer)))


async def _take_step(run: RunState) -> tuple[Classification | None, str | None]:
    """Take one step. Returns what follows, and the answer that ends the run."""
    used, found = run.authority.used["tokens"], None
    ruling = run.authority.ask(Step())
    if ruling.verdict.decision == "allow":
        found = await _compact(run)
        if found is None and run.authority.used["tokens"] != used:
            ruling = run.authority.ask(Step())  # a summary may have used up what there was
    if ruling.verdict.decision != "allow":
        run.note_ruling(run.at("d"), ruling)
        return run.classify(Denied(Rule(ruling.verdict.rule)), above=ruling.above), None
    run.authority.add("iterations")
    found = found or await hooks.before_model(run)
    if found is not None:
        return found, None
    reply = await _ask_model(run, "m", run.window.messages())
    if not isinstance(reply, log.ModelReplied):
        return reply, None
    run.window.add_reply(reply)
    if reply.calls:
        return await make_calls(run, [*reply.calls]), None
    if reply.answer is None:  # a service paused its turn: it goes on when it gets the turn back as it is
        return CONTINUE, None
    return await _take_answer(run, reply.answer)


async def _take_answer(run: RunState, answer: str) -> tuple[Classification, str | None]:
    """Hold an answer to the type asked for, and ask the hooks; the model is told of one that does not fit."""
    try:
        if run.spec.output is not None:
            run.spec.output.data(answer)
    except AnswerMismatch as wrong:
        run.changes["misfits"] += 1
        goes_on = run.changes["misfits"] <= run.spec.output_retries
        if goes_on:
            run.window.add(refused_answer(str(wrong)))
        return run.classify(GaveUp(FailureMode.OUTPUT_MISMATCH), "inform" if goes_on else "terminate"), None
    sent_back = await hooks.on_stop(run, answer)
    if sent_back is None and (run.has_others_at_work or run.mailbox):
        run.waits = run.has_others_at_work  # the answer stands once nobody is at work for it any more
        return CONTINUE, None
    return (run.classify(Answered()), answer) if sent_back is None else (sent_back, None)


async def _receive(run: RunState) -> bool:
    """Read what came, or wait for it; an agent that is stopped waits for nothing. False if nothing comes any more.

    A conversation is idle where it waits for a turn; a team mate rests where it waits for what it is told next.
    """
    # between two turns; what agents of the one before said is read with the next
    is_idle = run.spec.is_session and not run.place and not run.has_others_at_work
    _do_as_asked(run)
    if is_resting := run.is_resting:
        run.rest()
    while run.waits and run.stopped is None and not run.has_mail(is_idle):
        if is_idle and run.driver.is_closed:
            return False
        run.driver.is_idle = is_idle
        await run.mailbox
        run.driver.is_idle = False
        if not _do_as_asked(run) and not run.driver.is_closed:
            break  # a message, or a stop of what the agent waits for
    if is_resting:
        run.wake()
        if run.stopped is not None and not run.mailbox:
            return False
    if is_idle and run.waits:
        run.window.begin_turn()
    run.waits = False
    if run.mailbox:
        run.note(log.Received(at=run.at("r"), messages=[*run.mailbox]))
        for message in run.mailbox:
            text = message.text if message.sender == USER else run.window.shown(message.text)
            run.window.add(heard(message.sender, text))
        run.mailbox.clear()
    return True


def _do_as_asked(run: RunState) -> bool:
    """Plan again, or take the last turn back, if somebody outside asks the agent of the run. Returns whether so."""
    if run.place or not run.driver.asked:
        return False
    asked, run.driver.asked = run.driver.asked, []
    for event in asked:
        at = run.at(f"u{run.next_number(run.at('u'))}")
        if isinstance(event, log.PlanAsked):
            run.plan_again()
            run.note(log.CallEnded(at=at, told={"planning": run.is_planning}))
        else:
            run.note(log.Compacted(at=at, undone=run.window.take_back(), size=run.window.size))
    return True


async def _compact(run: RunState) -> Classification | None:
    """Leave out old results, and sum up the older half, where that is asked for. Returns what ends the run, or None."""
    limits, focus = run.spec.window, None
    if not run.place:
        focus, run.driver.focus = run.driver.focus, None  # somebody asks for a summary now, whatever the size
    results, keep = 0, 1
    if focus is None:
        if limits is None or run.window.size <= limits.max_bytes:
            return None
        keep = limits.keep_messages
        results = run.window.leave_out_results(keep)
    is_full = focus is not None or (limits is not None and run.window.size > limits.max_bytes)
    messages = run.window.older_half(keep) if is_full else 0
    if messages:
        reply = await _ask_model(run, "s", run.window.first(messages, ask_for_summary(focus or "")))
        if not isinstance(reply, log.ModelReplied):
            return reply
        if reply.calls or not reply.answer:
            found = run.give_up(FailureMode.LLM_INVALID_OUTPUT)
            return found if found.ending is not None else None
        run.window.sum_up(messages, summed_up(reply.answer))
    if results or messages:
        run.note(log.Compacted(at=run.at("s"), results=results, messages=messages, size=run.window.size))
    return None


async def _ask_model(run: RunState, key: str, messages: Messages) -> log.ModelReplied | Classification:
    """Ask the model, with retries, and then its fallbacks. Returns a usable reply, or what follows."""
    spec = run.spec
    schema = spec.output.schema if spec.output and key == "m" else None  # a summary is text
    attempts = 0
    for number, ask in enumerate(spec.models):
        model = key_of(choice_of(ask).name)
        reserved = run.authority.reserve(model)
        request = LLMInput(
            spec.run_id, run.step, messages, spec.gates.offers, reserved.tokens, spec.instructions, schema
        )
        effect = AskModel(request, spec.redactor, ask, number)
        outcome, attempts = await with_retries(run, key, effect, idempotent=True, before=attempts)
        usage = outcome.usage if isinstance(outcome, log.ModelReplied) else None
        run.cost += run.authority.settle(reserved, model, usage)
        if type(outcome) is not log.Failed or not run.authority.has_time():
            break
    if isinstance(outcome, log.ModelReplied):
        problem = outcome.problem
        if not problem and outcome.answer is not None and not outcome.answer.strip():
            problem = "an empty answer"
        if problem:
            return _unusable(run, problem, outcome)
        return run.classify(Refused()) if outcome.finish == "refusal" else outcome
    if isinstance(outcome, log.Stopped):
        return run.stopped_by(outcome.why)
    assert isinstance(outcome, log.Failed)
    if outcome.kind == "invalid":
        return _unusable(run, "no reply of a usable shape")
    return run.give_up(FailureMode.LLM_FAILURE)


def _unusable(run: RunState, problem: str, reply: log.ModelReplied | None = None) -> Classification:
    """Tell the model that its reply cannot be used, unless that ends the run; each call of it still gets a message."""
    found = run.give_up(FailureMode.LLM_INVALID_OUTPUT)
    if found.ending is None:
        run.window.add_unusable(problem, reply)
    return found
