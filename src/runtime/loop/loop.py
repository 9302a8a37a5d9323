"""The agent loop. It touches nothing: it yields effects and is sent outcomes.

Everything that touches the world stands in `driver.py`, everything that decides in `gate.py`, `retry.py` and
`fail/catalog.py`. A run is a chain of steps, a step one model reply and what came of it; the life of one call
is in `calls.py`, of one attempt after another in `attempts.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from ...fail.catalog import Classification
from ...fail.errors import Cancelled
from ..core.effects import AskModel, Decided, Effect, Ending, Event, Outcome, Reply, StepEnded
from ..core.outcome_codec import reply_to_dict, stop_reason
from ..models.types import MAX_CONTINUATIONS, NOTICES, LLMInput
from .attempts import with_retries
from .state import CONTINUE, RunGenerator, RunSpec, RunState, StepBuilder, StepGenerator
from .tool_calls import process_tool_calls


def run_loop(run: RunSpec) -> RunGenerator:
    """One question from start to ending."""
    state = RunState(run)
    ending = None
    while ending is None:
        ending = yield from _step(state)
    return ending


def _step(state: RunState) -> Generator[Effect | Event, Outcome, Ending | None]:
    state.index += 1
    step = StepBuilder(state)
    try:
        found = yield from _refused(step)
        if found is None:
            found = yield from _ask(step)
        reply = step.reply
        if found.ending is None and reply is not None:
            found = yield from process_tool_calls(step, reply.calls)
    except Cancelled as cancelled:
        step.record["stopped"] = stop_reason(cancelled)
        found = state.verdict(step.record["stopped"])
    step.close(found)
    yield StepEnded(state.index, step.record)
    if found.ending is None:
        return None
    answer = "".join(state.pieces) if found.ending == "final_answer" else None
    return Ending(found.ending, answer, found.mode)


def _refused(step: StepBuilder) -> Generator[Effect | Event, Outcome, Classification | None]:
    """The budgets are asked before the model is; a refused step is a step with one decision."""
    state = step.state
    decision = state.run.gate.decide_step(state.counters)
    if decision is None:
        return None
    event = Decided(step.index, None, None, decision)
    step.record["policy_decisions"].append(
        {"position": event.position, "phase": "step", "id": None, **decision.to_dict()}
    )
    yield event
    return state.verdict(f"deny:{decision.rule_id}")


def _ask(step: StepBuilder) -> StepGenerator:
    """Ask the model, with_retries, and read what it said."""
    state = step.state
    left = max(state.run.gate.policy.limits["max_tokens"] - state.counters.tokens, 0)
    notice, specs = state.notice()
    if notice is not None:
        state.history.add({"role": "user", "content": NOTICES[notice]})
        step.record["notice"] = notice
    messages = state.history.window()
    asked = LLMInput(state.run.run_id, step.index, messages, specs, left)
    first = AskModel(step.index, 1, asked, state.history.digest)
    step.record["llm_input"] = first.to_dict()
    state.counters.iterations += 1
    outcome, what = yield from with_retries(
        step,
        lambda attempt: first if attempt == 1 else replace(first, attempt=attempt),
        step.record["llm_attempts"],
        index=None,
        idempotent=True,
        judge=_judge_reply,
    )
    reply = outcome.reply
    if reply is None:
        return state.verdict("llm_failure")
    step.reply = reply
    _note_reply(step, reply)
    if what != "ok":
        step.note_error("m", {"problem": reply.problem})
        return state.verdict(what)
    return _answered(step, reply)


def _answered(step: StepBuilder, reply: Reply) -> Classification:
    """What a usable reply amounts to: an answer, a piece of one, or calls to go on with."""
    state = step.state
    if reply.final_answer is None:
        state.pieces = []
        return CONTINUE
    cut_off = reply.finish_reason == "length"
    if cut_off and len(state.pieces) == MAX_CONTINUATIONS:
        step.note_error("m", {"problem": "an answer that was cut off again and again"})
        return state.verdict("llm_invalid_output")
    state.pieces.append(reply.final_answer)
    return CONTINUE if cut_off else state.verdict("answered")


def _judge_reply(outcome: Outcome) -> str:
    return "ok" if outcome.reply is not None and outcome.reply.problem is None else "llm_invalid_output"


def _note_reply(step: StepBuilder, reply: Reply) -> None:
    state = step.state
    said = [call.arguments.text if call.arguments else call.raw or "" for call in reply.calls]
    spoken = sum(len(t.encode("utf-8")) for t in (reply.text or "", reply.final_answer or "", *said))
    told = reply.usage or (0, 0)
    # nobody reads nothing, and what was said has a length: zeros are no counts
    used = (told[0] or state.history.bytes, told[1] or spoken)
    estimated = used != told
    state.counters.tokens += sum(used)
    step.record["usage"] = {"input_tokens": used[0], "output_tokens": used[1], "estimated": estimated}
    step.record["llm_output"] = reply_to_dict(reply)
    step.record["intended_tool_calls"] = [call.to_dict() for call in reply.calls]
    step.pending = list(reply.calls)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or reply.final_answer or ""}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": text}
            for call, text in zip(reply.calls, said, strict=True)
        ]
    if reply.raw is not None:
        message["raw"] = reply.raw
    state.history.add(message)
