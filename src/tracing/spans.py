"""A log as a tree of spans. Everything in it follows from the lines.

    agent_run
      agent_step
        llm_call                 (none in a refused step)
          retry_attempt          only where the model was asked more than once
        policy_check             one for each call that was decided, or for the objection to the step
        tool_call                only after an allow
          retry_attempt
            policy_check         the objection to what the attempt met, phase `execution`
          policy_check           the objection to its result
          agent_run              of a call that started an agent, with steps of its own

Ids come from position: the trace id from the run id, a span id from the trace id and an address of the log, so that an
added span moves no other. Attribute names follow the OpenTelemetry GenAI conventions where they have one (`gen_ai.*`),
OpenInference for the kind that viewers show, and `agent.*` for what is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct

from ..fail.catalog import BROKEN, Ending
from ..runtime.log import events as log
from ..runtime.log.steps import AttemptView, CallView, StepView, model_at, steps_of
from ..runtime.log.values import PolicyHead
from ..runtime.tools.agents import EXIT_PLAN

INTERNAL: Final = 1  # opentelemetry.proto.trace.v1.Span.SpanKind
CLIENT: Final = 3
_TOKEN_PARTS: Final = {
    "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
    "gen_ai.usage.reasoning.output_tokens": "reasoning_tokens",
}

Value = str | int | tuple[str, ...]
Head = log.RunStarted | log.AgentStarted


class Span(Struct, gc=False):
    """One span. Ids are lower-case hex, times nanoseconds since 1970; without `error_type` its status is unset."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    error_type: str = ""


def spans_of(events: Sequence[log.Event], steps: Sequence[StepView] | None = None) -> list[Span]:
    """Return the spans of a whole log: the steps in order, each before its parts, and the root last.

    Args:
        events: The log.
        steps: Its steps, where they are known already.
    """
    head, end = events[0], events[-1]
    assert isinstance(head, log.RunStarted)
    assert isinstance(end, log.RunEnded)
    trace = _Trace(head)
    steps = steps_of(events) if steps is None else steps
    trace.add_steps(steps, head, trace.root)
    trace.add_agent("run", "", "tachograph", head, end, (0, steps[-1].ended if steps else 0))
    _stretch(trace.spans)
    return trace.spans


def _stretch(spans: list[Span]) -> None:
    """Let each span last at least a nanosecond, and each parent as long as its children: decisions take no time."""
    by_id = {span.span_id: span for span in spans}
    *others, root = spans
    for span in (*reversed(others), root):  # children stand behind their parents
        if span.end_ns <= span.start_ns:
            span.end_ns = span.start_ns + 1
        if span.parent_id and (parent := by_id[span.parent_id]).end_ns < span.end_ns:
            parent.end_ns = span.end_ns


def _error_of(outcome: log.Outcome, invalid: str) -> str:
    """Return the class of an exception, or a word for a result or reply of no usable shape."""
    return outcome.error if isinstance(outcome, log.Failed) and outcome.kind != "invalid" else invalid


class _Trace:
    """The spans of one log under way."""

    def __init__(self, head: log.RunStarted) -> None:
        self.spans: list[Span] = []
        self._run_id, self._began = head.run_id, head.began
        self._heads: list[Head] = []  # of the agent whose steps are added, and before it of those above
        self._policies: list[PolicyHead] = []  # which hold for it, its own last
        self._id = sha256(f"tachograph/trace/{head.run_id}".encode()).hexdigest()[:32]
        self.root = sha256(f"{self._id}/run".encode()).hexdigest()[:16]

    def add(
        self,
        name: str,
        at: str,
        parent: str,
        times: tuple[int, int],
        attributes: dict[str, Value],
        *,
        kind: int = INTERNAL,
        error: str = "",
    ) -> str:
        """Add a span at an address below another one, whose id is given. Returns its own id."""
        attributes["agent.run_id"] = self._run_id
        if error:
            attributes["error.type"] = error
        own, began = sha256(f"{self._id}/{at}".encode()).hexdigest()[:16], self._began
        begun, ended = began + times[0], began + times[1]
        self.spans.append(Span(name, self._id, own, parent, kind, begun, ended, attributes, error))
        return own

    def add_agent(
        self, at: str, parent: str, name: str, head: Head, end: log.Ended | None, times: tuple[int, int]
    ) -> str:
        """Add the span of an agent, of the run itself or of one that a call started. Returns its id."""
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": head.model.provider,
            "gen_ai.agent.name": name,
            "agent.policy.version": head.policy.version,
            "openinference.span.kind": "AGENT",
        }
        error = ""
        if end is not None:
            attributes["agent.terminal_reason"] = end.ending
            if end.mode:
                attributes["agent.failure_mode"] = end.mode
            error = end.mode if end.ending == Ending.FAILURE else ""
        return self.add("agent_run", at, parent, times, attributes, error=error)

    def add_steps(self, steps: Sequence[StepView], head: Head, parent: str) -> None:
        """Add the steps of an agent below its span."""
        above, heads = [*self._policies], [*self._heads]
        self._go_on_as(head)
        for step in steps:
            plan = self._heads[-1].plan
            if step.plans and plan is not None and not self._is_planning():
                self._policies.append(plan)
            self._add_step(step, parent)
            for call in step.calls:
                if call.handed is not None:
                    self._go_on_as(call.handed)
                elif call.told is not None and call.call.name == EXIT_PLAN and self._is_planning():
                    self._policies.pop()
        self._policies, self._heads = above, heads

    def _is_planning(self) -> bool:
        return self._policies[-1] is self._heads[-1].plan

    def _go_on_as(self, head: Head) -> None:
        self._heads.append(head)
        self._policies += filter(None, (head.policy, head.plan))

    def _add_step(self, step: StepView, parent: str) -> None:
        attributes: dict[str, Value] = {"agent.step_index": step.number, "openinference.span.kind": "CHAIN"}
        if step.mode:
            attributes["agent.failure_mode"] = step.mode
        error = step.mode if step.mode in BROKEN else ""
        times = (step.begun, step.ended)
        own = self.add("agent_step", step.at, parent, times, attributes, error=error)
        if step.refused is not None:
            self._add_decision(step.refused, own, "step", step.begun)
        for key, asked in (("s", step.summaries), ("m", step.asked)):
            if asked:
                self._add_model(step, own, key, asked)
        for call in step.calls:
            for decided, time in call.earlier:
                self._add_decision(decided, own, "proposal", time, call)
            if call.decided is not None:
                self._add_decision(call.decided, own, "proposal", call.decided_at, call)
            if call.again is not None:
                self._add_decision(call.again, own, "proposal", call.answered_at, call)
        for call in step.calls:
            if call.is_made:
                self._add_call(call, own)

    def _add_model(self, step: StepView, parent: str, key: str, asked: list[AttemptView]) -> None:
        last = asked[-1].outcome
        reply = last if isinstance(last, log.ModelReplied) else None
        model = model_at(self._heads[-1], reply.fallback if reply is not None else 0)
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": model.provider,
            "gen_ai.request.model": model.name,
            "agent.llm.execution_path": model.path,
            "openinference.span.kind": "LLM",
        }
        if reply is not None:
            attributes["gen_ai.usage.input_tokens"] = reply.usage.input_tokens
            attributes["gen_ai.usage.output_tokens"] = reply.usage.output_tokens
            for name, field in _TOKEN_PARTS.items():
                if count := getattr(reply.usage, field):
                    attributes[name] = count
            if reply.finish:
                attributes["gen_ai.response.finish_reasons"] = (reply.finish,)
            if reply.model:
                attributes["gen_ai.response.model"] = reply.model
        if step.cost and key == "m":
            attributes["agent.llm.cost_micro_usd"] = step.cost
        error = step.mode if step.mode in ("llm_failure", "llm_invalid_output") else ""
        kind = CLIENT if model.path == "live" else INTERNAL
        times = (asked[0].begun, asked[-1].over)
        own = self.add("llm_call", f"{step.at}.{key}", parent, times, attributes, kind=kind, error=error)
        if len(asked) > 1:
            for attempt in asked:
                self._add_attempt(attempt, own)

    def _add_decision(
        self, decided: log.Decided, parent: str, phase: str, time: int, call: CallView | None = None
    ) -> None:
        attributes: dict[str, Value] = {
            "agent.policy.decision": decided.decision,
            "agent.policy.rule_id": decided.rule,
            "agent.policy.version": self._policies[-1 - decided.above].version,
            "agent.policy.phase": phase,
            "agent.policy.reason": decided.reason,
            "agent.policy.at": decided.place,
            "openinference.span.kind": "GUARDRAIL",
        }
        if decided.above:
            attributes["agent.policy.above"] = decided.above
        if call is not None:
            attributes["agent.tool_call_id"] = call.call.id
            attributes["agent.tool_name"] = call.call.name
        end = time
        if call is not None and call.answered is not None and decided is call.decided:
            attributes["agent.policy.approval"] = call.answered.answer
            end = call.answered_at
        self.add("policy_check", decided.at, parent, (time, end), attributes)

    def _add_call(self, call: CallView, parent: str) -> None:
        agent, status = call.agent, call.status
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.call.name,
            "gen_ai.tool.call.id": call.call.id,
            "agent.tool_name": call.call.name,
            "agent.tool.status": status,
            "openinference.span.kind": "TOOL",
        }
        error = str(call.told.get("exception", "")) if call.told is not None and status == "failed" else ""
        times = (call.decided_at, call.decided_at)
        if agent is not None:
            times = (agent.begun, agent.ended_at)
        elif call.attempts:
            last = call.attempts[-1]
            error = _error_of(last.outcome, "tool_output_invalid") if status == "failed" else ""
            if error and error != "tool_output_invalid":
                attributes["agent.tool.exception_class"] = error
            times = (call.attempts[0].begun, last.over)
        own = self.add("tool_call", call.at, parent, times, attributes, error=error)
        for attempt in call.attempts:
            attempted = self._add_attempt(attempt, own)
            if attempt.late is not None:
                # the facts are counted from 1, and the result comes after all of them
                facts = len(getattr(attempt.outcome, "met", ()))
                is_of_fact = int(attempt.late.at.rpartition(".d")[2]) <= facts
                above = attempted if is_of_fact else own
                self._add_decision(attempt.late, above, "execution", attempt.ended, call)
        if agent is not None:
            run = self.add_agent(f"{call.at}/", own, call.call.name, agent.head, agent.ended, times)
            self.add_steps(agent.steps, agent.head, run)
        if call.objection is not None:
            self._add_decision(call.objection, own, "execution", times[1], call)

    def _add_attempt(self, attempt: AttemptView, parent: str) -> str:
        attributes: dict[str, Value] = {
            "agent.retry.attempt": attempt.number,
            "agent.retry.outcome": attempt.result,
            "agent.retry.backoff_ms": 0 if attempt.wait is None else attempt.wait.took // 1_000_000,
        }
        if fallback := getattr(attempt.outcome, "fallback", 0):
            attributes["gen_ai.request.model"] = model_at(self._heads[-1], fallback).name
        is_error = attributes["agent.retry.outcome"] in ("transient_failure", "exhausted", "failed")
        error = _error_of(attempt.outcome, "invalid_output") if is_error else ""
        times = (attempt.begun, attempt.ended)
        return self.add("retry_attempt", attempt.at, parent, times, attributes, error=error)
