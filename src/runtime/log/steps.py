"""A log as steps, calls and attempts: what trace and report are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from .addresses import step_of
from .events import Answered, Decided, Event, Failed, HookAnswered, ModelReplied, Outcome, StepEnded, Stopped
from .values import Call

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
    outcome: Outcome
    begun: int
    ended: int
    late: Decided | None = None
    wait: Outcome | None = None
    result: AttemptResult = "success"

    @property
    def over(self) -> int:
        """When it ended, with the wait after it."""
        return self.ended + (0 if self.wait is None else self.wait.took)


def _result_of(attempt: AttemptView) -> AttemptResult:
    outcome = attempt.outcome
    if type(outcome) is Stopped:
        return "cancelled"
    if attempt.late is not None:
        return "denied"
    if type(outcome) is Failed:
        if attempt.wait is not None:
            return "transient_failure"
        gave_up = outcome.kind == "transient" or (outcome.kind == "timeout" and attempt.number > 1)
        return "exhausted" if gave_up else "failed"
    return "failed" if type(outcome) is ModelReplied and outcome.problem else "success"


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
    """

    at: str
    call: Call
    decided: Decided | None = None
    decided_at: int = 0
    answered: Answered | None = None
    answered_at: int = 0
    again: Decided | None = None
    earlier: list[tuple[Decided, int]] = []
    attempts: list[AttemptView] = []
    stopped: Stopped | None = None

    @property
    def status(self) -> CallStatus:
        """What became of it after an allow."""
        last = self.attempts[-1]
        if last.wait is not None:
            return "cancelled"  # a wait that no attempt follows was stopped
        if (result := last.result) == "success":
            return "ok"
        return result if result in ("denied", "cancelled") else "failed"

    @property
    def is_allowed(self) -> bool:
        """Whether it was allowed, by the gate or by a person."""
        if self.decided is None or self.again is not None:
            return False
        by_person = self.answered is not None and self.answered.answer == "allow"
        return self.decided.decision == "allow" or by_person

    @property
    def verdict(self) -> Decided | None:
        """What the gate said last."""
        return self.late or self.again or self.decided

    @property
    def late(self) -> Decided | None:
        """The objection to what an attempt met, or to its result."""
        return self.attempts[-1].late if self.attempts else None


class StepView(msgspec.Struct, gc=False):
    """A step.

    Attributes:
        number: Its number, from 1.
        begun: When it began, in nanoseconds since the beginning of the run.
        ended: When it ended.
        mode: Its failure mode.
        refused: The objection of a budget to the step.
        asked: The attempts to ask the model.
        calls: The calls that the reply proposed.
        reply: The reply of the model.
        cost: What the reply cost, in millionths of a US dollar.
    """

    number: int
    begun: int
    ended: int = 0
    mode: str = ""
    refused: Decided | None = None
    asked: list[AttemptView] = []
    calls: list[CallView] = []
    reply: ModelReplied | None = None
    cost: int = 0


def model_words(outcome: Outcome) -> str:
    """Return which model an outcome is of, in words."""
    number = outcome.fallback if isinstance(outcome, ModelReplied | Failed) else 0
    return f"fallback {number}" if number else "the model"


def steps_of(events: Iterable[Event]) -> list[StepView]:
    """Return the steps of a log, which need not be whole."""
    steps: list[StepView] = []
    calls: dict[str, CallView] = {}
    attempts: dict[str, AttemptView] = {}
    number, now = "", 0
    for event in events:
        before, number = number, step_of(event.at)
        if number != before:
            if number == "0" or not number.isdecimal():
                number = before
                continue
            step = StepView(int(number), now)
            steps.append(step)
        if (t := getattr(event, "t", None)) is not None:  # what the loop made has no time of its own
            now = step.begun + t
        step.ended = now
        above, _, last = event.at.rpartition(".")
        if type(event) is StepEnded:
            step.mode, step.cost = event.mode, event.cost
        elif type(event) is Decided:
            view = calls.get(above)
            if above in attempts:
                attempts[above].late = event
            elif view is None:
                step.refused = event
            elif view.answered is not None:
                view.again = event
            else:
                if view.decided is not None:
                    view.earlier.append((view.decided, view.decided_at))
                view.decided, view.decided_at = event, now
        elif last == "w" and isinstance(event, Outcome):
            attempts[above].wait = event
        elif type(event) is Stopped and (event.at in calls or last == "p"):
            calls[above if last == "p" else event.at].stopped = event
        elif last.startswith("k"):  # a hook
            if type(event) is HookAnswered and event.answer and "arguments" in event.answer:
                view = calls[above]
                view.call = msgspec.structs.replace(view.call, arguments=event.answer["arguments"])
        elif type(event) is Answered:
            calls[above].answered, calls[above].answered_at = event, now
        elif last[0] in "im" and isinstance(event, Outcome):
            attempt = AttemptView(event.at, int(last[1:]), event, now - event.took, now)
            attempts[event.at] = attempt
            if above in calls:
                calls[above].attempts.append(attempt)
                continue
            step.asked.append(attempt)
            step.reply = event if type(event) is ModelReplied else None
            for n, call in enumerate(step.reply.calls if step.reply is not None else ()):
                calls[f"{number}.c{n}"] = view = CallView(f"{number}.c{n}", call)
                step.calls.append(view)
    for attempt in attempts.values():
        attempt.result = _result_of(attempt)
    return steps
