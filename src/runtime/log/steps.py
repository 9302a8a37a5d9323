"""A log as agents, steps, calls and attempts: what trace and report are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from . import events as log
from .addresses import is_in, number_of, place_of, step_of
from .values import Call, Message, ModelName

AttemptResult = Literal["success", "transient_failure", "exhausted", "failed", "denied", "cancelled"]
CallStatus = Literal["ok", "denied", "cancelled", "failed"]


class AttemptView(msgspec.Struct, gc=False):
    """One attempt of a call, or to ask the model. Times are nanoseconds since the beginning of the run.

    Attributes:
        at: Its address.
        number: Its number, from 1.
        outcome: What came of it.
        begun: When it began.
        ended: When it ended.
        late: The objection to what it met, or to its result.
        wait: The outcome of the wait after it, where it was to be repeated.
        result: What it came to.
    """

    at: str
    number: int
    outcome: log.Outcome
    begun: int
    ended: int
    late: log.Decided | None = None
    wait: log.Outcome | None = None
    result: AttemptResult = "success"

    @property
    def over(self) -> int:
        """When it ended, with the wait after it."""
        return self.ended + (0 if self.wait is None else self.wait.took)


def _result_of(attempt: AttemptView) -> AttemptResult:
    outcome = attempt.outcome
    if type(outcome) is log.Stopped:
        return "cancelled"
    if attempt.late is not None:
        return "denied"
    if type(outcome) is log.Failed:
        if attempt.wait is not None:
            return "transient_failure"
        gave_up = outcome.kind == "transient" or (outcome.kind == "timeout" and attempt.number > 1)
        return "exhausted" if gave_up else "failed"
    return "failed" if type(outcome) is log.ModelReplied and outcome.problem else "success"


class CallView(msgspec.Struct, gc=False):
    """A call that the model proposed.

    Attributes:
        at: Its address.
        call: The call.
        decided: What the gate or a hook said of it last; None if an earlier call ended the run.
        decided_at: When, in nanoseconds since the beginning of the run.
        attempts: Its attempts.
        answered: What a person said of it.
        answered_at: When, likewise.
        earlier: What was said before, each with its time.
        again: The objection of the gate after a person allowed it.
        stopped: What stopped it before its first attempt.
        agent: The agent that it started.
        told: What the loop answered at once.
        handed: The head of the agent that goes on after it.
        objection: The objection to what came of it without an attempt.
    """

    at: str
    call: Call
    decided: log.Decided | None = None
    decided_at: int = 0
    answered: log.Answered | None = None
    answered_at: int = 0
    again: log.Decided | None = None
    earlier: list[tuple[log.Decided, int]] = []
    attempts: list[AttemptView] = []
    stopped: log.Stopped | None = None
    agent: AgentView | None = None
    told: dict[str, Any] | None = None
    handed: log.HandedOver | None = None
    objection: log.Decided | None = None

    @property
    def status(self) -> CallStatus:
        """What became of it after an allow."""
        if self.told is not None and self.told.get("error") == "tool_failed":
            return "failed"
        if not self.attempts:
            return "denied" if self.objection is not None else "ok"
        last = self.attempts[-1]
        if last.wait is not None:
            return "cancelled"  # a wait that no attempt follows was stopped
        if (result := last.result) == "success":
            return "ok"
        return result if result in ("denied", "cancelled") else "failed"

    @property
    def is_made(self) -> bool:
        """Whether it was begun: attempted, an agent started, or answered at once."""
        return bool(self.attempts) or self.agent is not None or self.told is not None

    @property
    def result(self) -> dict[str, Any] | None:
        """What it came to without an attempt; None where that is not known, or is refused."""
        agent = self.agent
        if self.objection is not None or self.told is not None or agent is None or agent.ended is None:
            return None if self.objection is not None or self.status == "failed" else self.told
        return agent.ended.told

    @property
    def is_allowed(self) -> bool:
        """Whether it was allowed, by the gate or by a person."""
        if self.decided is None or self.again is not None:
            return False
        by_person = self.answered is not None and self.answered.answer == "allow"
        return self.decided.decision == "allow" or by_person

    @property
    def verdict(self) -> log.Decided | None:
        """What the gate said last."""
        return self.late or self.again or self.decided

    @property
    def late(self) -> log.Decided | None:
        """The objection to what an attempt met, or to its result."""
        return self.attempts[-1].late if self.attempts else self.objection


class AgentView(msgspec.Struct, gc=False):
    """An agent that a call started.

    Attributes:
        head: Its first line.
        begun: When it began, in nanoseconds since the beginning of the run.
        steps: Its steps.
        ended: Its last line; None where it has not ended.
        ended_at: When it ended.
    """

    head: log.AgentStarted
    begun: int
    steps: list[StepView] = []
    ended: log.AgentEnded | None = None
    ended_at: int = 0


class StepView(msgspec.Struct, gc=False):
    """A step.

    Attributes:
        at: Its address: `2`, or `4.c0/1` of an agent that a call started.
        number: Its number, from 1.
        begun: When it began, in nanoseconds since the beginning of the run.
        ended: When it ended.
        mode: Its failure mode.
        refused: The objection of a budget to the step.
        asked: The attempts to ask the model.
        received: The messages that were read.
        summaries: The attempts to ask the model for a summary.
        calls: The calls that the reply proposed.
        reply: The reply of the model.
        plans: Whether the policy for a plan holds again from here on, since somebody asked for a plan.
        cost: What the reply cost, in millionths of a US dollar.
    """

    at: str
    number: int
    begun: int
    ended: int = 0
    mode: str = ""
    refused: log.Decided | None = None
    asked: list[AttemptView] = []
    received: list[Message] = []
    summaries: list[AttemptView] = []
    calls: list[CallView] = []
    reply: log.ModelReplied | None = None
    plans: bool = False
    cost: int = 0


def model_at(head: log.RunStarted | log.AgentStarted, fallback: int) -> ModelName:
    """Return the model that an outcome names by its `fallback`. Raises LookupError where there is none."""
    return head.model if not fallback else dict(enumerate(head.fallbacks, 1))[fallback].name


def model_words(outcome: log.Outcome) -> str:
    """Return which model an outcome is of, in words."""
    number = outcome.fallback if isinstance(outcome, log.ModelReplied | log.Failed) else 0
    return f"fallback {number}" if number else "the model"


def finding(event: log.Event) -> str:
    """Return as a sentence what was decided or answered, or how an effect failed; "" for any other event."""
    match event:
        case log.ModelReplied(problem=problem) if problem:
            return f"the reply of {model_words(event)} cannot be used: {problem}"
        case log.Decided():
            whose = f", of the policy {event.above} above" if event.above else ""
            return f"{event.decision} by {event.rule}: {event.reason} ({event.place}{whose})"
        case log.Failed():
            status = f"HTTP {event.status}" if event.status else ""
            which = f"by {model_words(event)}" if event.fallback else ""
            more = " ".join(part for part in (status, event.said, event.place, which) if part)
            return f"failed: {event.error} ({event.kind}) {more}".rstrip()
        case log.Answered():
            said = f"a person said {event.answer}" if event.answer != "silence" else "nobody answered"
            by = ": ".join(part for part in (event.by, event.why) if part)
            return f"{said} ({by})" if by else said
    return ""


def all_steps(steps: Iterable[StepView]) -> Iterator[StepView]:
    """Yield some steps, each before those of the agents that its calls started."""
    for step in steps:
        yield step
        for call in step.calls:
            if call.agent is not None:
                yield from all_steps(call.agent.steps)


def steps_of(events: Iterable[log.Event]) -> list[StepView]:
    """Return the steps of a log, which need not be whole.

    Args:
        events: Its lines.

    Raises:
        LookupError: A line stands at an address that no run has.
        ValueError: Likewise.
    """
    agents: dict[str, list[StepView]] = {"": []}
    steps: dict[str, StepView] = {}
    calls: dict[str, CallView] = {}
    attempts: dict[str, AttemptView] = {}
    begins: dict[str, int] = {}  # of the next step of each agent
    now = 0
    for event in events:
        name = step_of(event.at)
        if (step := steps.get(name)) is None:
            place = place_of(name)
            if type(event) is log.AgentStarted:
                calls[place[:-1]].agent = agent = AgentView(event, now)
                agents[place], begins[place] = agent.steps, now
            elif type(event) is log.AgentEnded:
                if (started := calls[place[:-1]].agent) is None:
                    raise LookupError(event.at)
                started.ended, started.ended_at = event, now
            if not (number := number_of(name)) or type(event) is log.Closed:
                continue
            step = steps[name] = StepView(name, number, begins.get(place, now))
            agents[place].append(step)
        if (t := getattr(event, "t", None)) is not None:  # what the loop made has no time of its own
            now = step.begun + t
        step.ended = now
        above, _, last = event.at.rpartition(".")
        if type(event) is log.StepEnded:
            step.mode, step.cost = event.mode, event.cost
            begins[place_of(name)] = now
        elif type(event) is log.Decided:
            view = calls.get(above)
            if above in attempts:
                attempts[above].late = event
            elif above.endswith(".e"):
                calls[above.removesuffix(".e")].objection = event
            elif view is None:
                step.refused = event
            elif view.answered is not None:
                view.again = event
            else:
                if view.decided is not None:
                    view.earlier.append((view.decided, view.decided_at))
                view.decided, view.decided_at = event, now
        elif last[0] in "ims" and isinstance(event, log.Outcome):
            attempts[event.at] = attempt = AttemptView(event.at, int(last[1:]), event, now - event.took, now)
            if above in calls:
                calls[above].attempts.append(attempt)
            elif last[0] == "s":
                step.summaries.append(attempt)
            else:
                step.asked.append(attempt)
                step.reply = event if type(event) is log.ModelReplied else None
                for n, call in enumerate(step.reply.calls if step.reply is not None else ()):
                    calls[f"{name}.c{n}"] = proposed = CallView(f"{name}.c{n}", call)
                    step.calls.append(proposed)
        elif type(event) is log.Received:
            step.received = event.messages
        elif type(event) is log.CallEnded:
            if above in calls:
                calls[above].told = event.told
            else:
                step.plans = event.told["planning"]
        elif type(event) is log.Proposed:
            calls[above], parent = CallView(above, event.call), above.rpartition(".g")[0]
            after = next((n for n in range(len(step.calls), 0, -1) if is_in(step.calls[n - 1].at, parent)), 0)
            step.calls.insert(after, calls[above])
        elif type(event) is log.HandedOver:
            calls[above].handed = event
        elif last == "w" and isinstance(event, log.Outcome):
            attempts[above].wait = event
        elif type(event) is log.Stopped and (event.at in calls or last == "p"):
            calls[above if last == "p" else event.at].stopped = event
        elif last.startswith("k"):  # a hook; only one that is asked before the call may change it
            view, said = calls.get(above), getattr(event, "answer", None) or {}
            if view is not None and not view.is_made and [*said] == ["arguments"]:
                view.call = msgspec.structs.replace(view.call, arguments=said["arguments"])
        elif type(event) is log.Answered:
            calls[above].answered, calls[above].answered_at = event, now
    for attempt in attempts.values():
        attempt.result = _result_of(attempt)
    return agents[""]
