"""The agent loop. It touches nothing: it yields effects and events, and is sent the outcomes of the effects.

A run, in the order of the code:

    run_loop
      _step                   again and again, until a step has an ending
        _check_step_budget    is there budget for another step? if not, the run ends
        before_model          hooks may end the run: yield AskHook, where the run has hooks (hooks.py)
        _ask_model            yield AskModel: the reply holds a final answer, which ends the run, calls, or neither: a
                              piece of an answer, or what the model is told cannot be used; the next step goes on
        on_stop               hooks may send a final answer back: yield AskHook
        process_tool_calls    for each call, in order (tool_calls.py); calls that may run together do (groups.py):
          decide_call           the gate allows or denies it, or a person is asked: yield AskHuman
          execute_call          yield Invoke until it succeeds or may not be repeated; the model reads the result
        StepEnded             the step's line of the ledger is whole

Once a part gives an ending, the parts after it are skipped, and StepEnded follows. The endings are final_answer,
policy_denial_terminal, failure_mode_terminal, loop_budget, approval_refused, refused and cancelled. A *happening* is
what became of a reply or a call, as a value (`Succeeded`, `Denied`, `GaveUp`, ...); `fail/catalog.py` maps it to a
failure mode and an ending, and nothing else does. Every failed attempt, of the model or of a tool, is repeated by
`with_retries` (attempts.py). The gate that decides is in `policy/gate.py`. A *notice* is a sentence of ours that the
model reads, such as that two steps are left; *request parts* are what it is asked with beside the messages: tools,
options, instructions (both chosen in state.py).

Effects are performed, and the outcomes sent back, by `driver/driver.py` and `driver/live_executor.py`; a run that is to
stop has `Cancelled` thrown in by the driver. The ledger gets its `run` line before the first step,
the line of each `StepEnded`, and an `end` line made from `RunEnded` (`journal/ledger.py`).
"""

from __future__ import annotations

from collections.abc import Generator

from ...fail.catalog import (
    CONTINUE,
    Answered,
    Classification,
    Denied,
    Ending,
    FailureMode,
    GaveUp,
    Happening,
    Refused,
    Stopped,
    Succeeded,
)
from ...fail.errors import Cancelled
from ...light_dataclasses import replace
from ..core.effects import (
    AskModel,
    Call,
    Decided,
    Effect,
    Event,
    Fault,
    Group,
    Outcome,
    Reply,
    RunEnded,
    StepEnded,
)
from ..core.lines import Phase
from ..core.outcome_codec import stop_reason
from ..formats import canonical_json
from ..models.failure_messages import NO_WORDS, unusable_reply, user_message
from ..models.types import MAX_CONTINUATIONS, NOTICES, LLMInput, Message
from .attempts import with_retries
from .groups import process_tool_calls
from .hooks import before_model, on_stop
from .state import RunGenerator, RunSpec, RunState, StepGenerator
from .step_builder import StepBuilder


def run_loop(run: RunSpec) -> RunGenerator:
    """Take one question from start to ending.

    Yields the effects and events of its steps; returns how the run ended.
    """
    state = RunState(run)
    ended = None
    while ended is None:
        ended = yield from _step(state)
    return ended


def _step(state: RunState) -> Generator[Effect | Group | Event, Outcome, RunEnded | None]:
    """Take one step. Yields its effects and events, StepEnded last; returns None where the run goes on."""
    state.index += 1
    step = StepBuilder(state)
    try:
        classification = yield from _check_step_budget(step)
        if classification.ending is None and state.run.hooks:
            classification = yield from before_model(step)
        if classification.ending is None:
            classification, calls = yield from _ask_model(step)
        if classification.ending == Ending.FINAL_ANSWER and state.run.hooks:
            classification = yield from on_stop(step)
        if classification.ending is None:
            classification = yield from process_tool_calls(step, calls)
    except Cancelled as cancelled:
        reason = stop_reason(cancelled)
        step.stop(reason)
        classification = state.classify(Stopped(reason))
    yield StepEnded(state.index, step.finish(classification))
    if classification.ending is None:
        return None
    answer = "".join(state.partial_answers) if classification.ending == Ending.FINAL_ANSWER else None
    return RunEnded(classification.ending, answer, classification.mode)


def _check_step_budget(step: StepBuilder) -> StepGenerator:
    """Ask the gate whether the budgets leave room for a step.

    Yields and records its decision only if it is a denial: such a step holds one decision and nothing else.
    """
    state = step.state
    decision = state.run.gate.decide_step(state.counters)
    if decision is None:
        return CONTINUE
    event = Decided(step.index, None, None, decision)
    step.add_decision(event.position, Phase.STEP, None, decision)
    yield event
    return state.classify(Denied(decision.rule_id))


def _ask_model(
    step: StepBuilder,
) -> Generator[Effect | Event, Outcome, tuple[Classification, tuple[Call, ...]]]:
    """Ask the model, with retries.

    Yields AskModel and waits. Records what was asked, the attempts, the reply and its tokens. Returns what follows
    from the reply, and the calls that it proposes.
    """
    state = step.state
    tokens_left = max(state.run.gate.policy.limits["max_tokens"] - state.counters.tokens, 0)
    notice, offered_tools = state.notice_and_tools()
    if notice is not None:
        state.history.add({"role": "user", "content": NOTICES[notice]})
    request = LLMInput(
        state.run.run_id,
        step.index,
        state.history.window(),
        offered_tools,
        tokens_left,
        state.run.instructions,
        None if state.run.output is None else state.run.output.schema,
    )
    parts, new_parts = state.request_parts(offered_tools)
    first = AskModel(step.index, 1, request, state.history.digest, parts)
    step.add_input(first, notice, new_parts)
    state.counters.iterations += 1
    outcome, happening = yield from with_retries(
        step,
        lambda attempt: first if attempt == 1 else replace(first, attempt=attempt),
        _judge_reply,
        index=None,
        idempotent=True,
    )
    reply = outcome.reply
    if reply is None:
        return state.classify(GaveUp(FailureMode.LLM_FAILURE)), ()
    texts = _count_reply(step, reply)
    yield step.progress()
    if isinstance(happening, Succeeded):
        happening = _take_answer(step, reply)
    else:
        step.add_reply_problem(reply.problem)
    classification = state.classify(happening)
    is_told = isinstance(happening, GaveUp) and classification.ending is None
    state.history.add(_message_of(reply, texts, is_told=is_told))
    if not isinstance(happening, GaveUp) or classification.ending is not None:
        return classification, reply.calls
    step.note_mode(classification.mode)
    _tell_of_reply(step, reply, happening)
    return classification, ()


def _judge_reply(outcome: Outcome) -> Happening | Fault:
    if outcome.fault is not None:
        return outcome.fault
    usable = outcome.reply is not None and outcome.reply.problem is None
    return Succeeded() if usable else GaveUp(FailureMode.LLM_INVALID_OUTPUT)


def _take_answer(step: StepBuilder, reply: Reply) -> Happening:
    """Return what a usable reply amounts to: Answered, Refused, or Succeeded for calls or a piece of an answer."""
    state = step.state
    if reply.finish_reason == "refusal":
        return Refused()
    if reply.final_answer is None:
        state.partial_answers, state.cut_offs = [], 0
        return Succeeded()
    state.is_paused = reply.finish_reason == "pause"
    cut_off = reply.finish_reason == "length"
    state.cut_offs += cut_off
    if state.cut_offs > MAX_CONTINUATIONS:
        step.add_reply_problem("an answer that was cut off again and again")
        return GaveUp(FailureMode.LLM_INVALID_OUTPUT)
    state.partial_answers.append(reply.final_answer)
    if cut_off or state.is_paused:
        return Succeeded()
    answer = "".join(state.partial_answers)
    if not answer.strip():
        step.add_reply_problem("an empty answer")
        return GaveUp(FailureMode.LLM_INVALID_OUTPUT)
    wrong = None if state.run.output is None else state.run.output.mismatch(answer)
    if wrong is not None:
        step.add_reply_problem(**wrong)
        return GaveUp(FailureMode.OUTPUT_MISMATCH)
    return Answered()


def _count_reply(step: StepBuilder, reply: Reply) -> list[str]:
    """Record a reply and count its tokens. Returns the texts of its calls' arguments."""
    state = step.state
    texts = [call.arguments.text if call.arguments else call.raw or "" for call in reply.calls]
    output_bytes = sum(len(t.encode("utf-8")) for t in (reply.text or "", reply.final_answer or "", *texts))
    reported = reply.usage or (0, 0)
    # a provider that counts nothing reports zeros: bytes stand in for them, so that the budget still holds
    used = (reported[0] or state.request_bytes, reported[1] or output_bytes)
    state.counters.tokens += sum(used)
    step.add_reply(reply, used, estimated=used != reported)
    return texts


def _message_of(reply: Reply, texts: list[str], *, is_told: bool) -> Message:
    """Return a reply as a message of the history.

    Args:
        reply: The reply.
        texts: Its calls' arguments.
        is_told: Whether the model is told that the reply cannot be used.
    """
    message: Message = {"role": "assistant", "content": reply.text or reply.final_answer or ""}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": text}
            for call, text in zip(reply.calls, texts, strict=True)
        ]
    elif is_told and not message["content"].strip():
        message["content"] = NO_WORDS
    if reply.raw is not None:
        message["raw"] = reply.raw
    return message


def _tell_of_reply(step: StepBuilder, reply: Reply, failure: GaveUp) -> None:
    """Let the model read why its reply cannot be used; pieces of an answer before it are dropped."""
    state = step.state
    told = unusable_reply(failure.mode, step.reply_problem or "no reply", step.reply_place)
    step.tell_of_reply(told)
    if reply.calls:
        for call in reply.calls:
            state.tell_model(call, canonical_json.encode(told))
    else:
        state.history.add(user_message(told))
    state.partial_answers, state.cut_offs, state.is_paused = [], 0, False
