"""The lines of `state.jsonl`: what happened in a run, in the order in which it happened.

Each class below is a kind of line. As JSON, a line is `event` (the class in snake case), `at` (its address, see
`addresses.py`), the attributes that differ from their defaults, and `#` (a check, see `lines.py`):

    {"event":"step_ended","at":"1.e","added":"8e60cca10f06","#":"abc235f18376"}

The log is the run: the messages of the model, the trace, the report and the manifest all follow from these lines. Each
kind has one of three bases, which says how a replay comes by it; those of Made stand first, then Entered, then Outcome:

    Outcome   what the world answered to an effect: a replay takes it from here, and goes on in the order of these
    Entered   what came from outside without being asked for: a replay lets it in at the same place
    Made      what the loop made of these: a replay makes it again, and it must be the same, byte for byte
"""

import re
from functools import cache
from typing import Any, Literal

import msgspec

from ...fail.catalog import Ending
from ..formats.strict_json import canonical
from . import values


class Event(
    msgspec.Struct,
    tag_field="event",
    tag=lambda name: re.sub(r"\B[A-Z]", r"_\g<0>", name).lower(),
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """A line of the log; `at` is its address."""

    at: str


class Outcome(Event, frozen=True, kw_only=True):
    """What the world answered to an effect; `at` is the address of the effect.

    `t` is nanoseconds from the beginning of the step to the outcome, and `took` nanoseconds from the beginning
    of the effect to the outcome.
    """

    t: int = 0
    took: int = 0


class Entered(Event, frozen=True, kw_only=True):
    """What came from outside; `t` is nanoseconds from the beginning of the step to its arrival."""

    t: int = 0


class Made(Event, frozen=True, kw_only=True):
    """What the loop made of the lines before."""


class RunStarted(Made, frozen=True, kw_only=True):
    """The head of a run: all that the model is asked with beside the messages, and how the run is made.

    Attributes:
        run_id: Its name.
        question: What is asked.
        model: The model.
        options: What it is sent with every request.
        instructions: The system message.
        tools: What the model is offered, in order.
        policy: The policy.
        task: The path of the task file.
        seed: Of the jitter of waits.
        clock: `virtual` or `system`.
        began: Nanoseconds since 1970.
        history: The messages before the question.
        output_schema: The JSON Schema that the final answer must fit.
        output_retries: How often the model is asked again for an answer that does not fit.
        deadline_s: Seconds after which the run is stopped; 0 for never.
        fallbacks: The models that are asked in turn where the one before fails for good.
        window: How much of what went before the model is shown; None for all of it.
        session: Whether it is a conversation: the question is empty, and turns come from outside.
        forked: The conversation whose beginning it has, and the number of the last turn of that.
        plan: The policy that holds as well until a person has allowed a plan; None where none is asked for.
    """

    run_id: str
    question: str
    model: values.ModelName
    options: dict[str, Any] = {}
    instructions: str = ""
    tools: list[values.ToolOffer] = []
    policy: values.PolicyHead
    task: str = ""
    seed: int = 0
    clock: Literal["virtual", "system"] = "virtual"
    began: int = 0
    history: list[dict[str, Any]] = []
    output_schema: dict[str, Any] | None = None
    output_retries: int = 0
    deadline_s: int = 0
    fallbacks: list[values.ModelChoice] = []
    window: values.WindowLimits | None = None
    session: bool = False
    forked: values.Forked | None = None
    plan: values.PolicyHead | None = None


class AgentStarted(Made, frozen=True, kw_only=True):
    """The head of an agent that a call started; `question` is its task, and all else is as in RunStarted."""

    question: str
    model: values.ModelName
    options: dict[str, Any] = {}
    instructions: str = ""
    tools: list[values.ToolOffer] = []
    policy: values.PolicyHead
    output_schema: dict[str, Any] | None = None
    output_retries: int = 0
    fallbacks: list[values.ModelChoice] = []
    window: values.WindowLimits | None = None
    plan: values.PolicyHead | None = None


class HandedOver(AgentStarted, frozen=True, kw_only=True):
    """The head of an agent that goes on with what was asked of another one, and with all that was said."""


class Received(Made, frozen=True, kw_only=True):
    """Messages that an agent reads at the beginning of a step."""

    messages: list[values.Message]


class Proposed(Made, frozen=True, kw_only=True):
    """A call that the function of a tool proposes: it starts an agent."""

    call: values.Call


class CallEnded(Made, frozen=True, kw_only=True):
    """What the loop itself answered to a call, or to somebody who asks for a plan."""

    told: dict[str, Any]


class Decided(Made, frozen=True, kw_only=True):
    """What the gate said of a call, or its objection to a step, a fact or a result.

    Attributes:
        decision: `allow`, `deny` or `escalate`.
        rule: The id of the rule that gave the answer.
        place: The entry it rests on, as document and JSON Pointer.
        reason: One line.
        above: Whose policy says so: 0 for that of the agent itself, 1 for that of the agent which started it.
    """

    decision: Literal["allow", "deny", "escalate"]
    rule: str
    place: str
    reason: str
    above: int = 0


class ToolStarted(Made, frozen=True, kw_only=True):
    """Written and synced before an effect that must not happen twice."""


class StepEnded(Made, frozen=True, kw_only=True):
    """The end of a step.

    Attributes:
        added: Digest of the messages that the step added. With the head, all of them say what the model was asked.
        mode: The failure mode.
        cost: What the reply of the step cost, in millionths of a US dollar; 0 where the policy knows no price.
        cut: Of how many results and messages of agents the model is shown the beginning alone.
    """

    added: str
    mode: str = ""
    cost: int = 0
    cut: int = 0


class Compacted(Made, frozen=True, kw_only=True):
    """What the model is shown of what went before became less.

    Attributes:
        results: How many results became labels with their size and digest.
        messages: How many messages stand in a summary, which the model was asked for.
        undone: How many messages were taken back with their turn.
        size: Bytes of all messages then.
    """

    results: int = 0
    messages: int = 0
    undone: int = 0
    size: int


class Ended(Made, frozen=True, kw_only=True):
    """The end of a turn, of an agent or of the run.

    Attributes:
        ending: Why it ended.
        answer: The final answer.
        mode: The failure mode.
    """

    ending: str
    answer: str | None = None
    mode: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """What an agent above reads of it: ending and answer, and the mode of a failure."""
        told = {"ending": self.ending, "answer": self.answer}
        return {**told, "mode": self.mode} if self.ending == Ending.FAILURE else told


class TurnEnded(Ended, frozen=True, kw_only=True):
    """The end of a turn of a conversation."""


class AgentEnded(Ended, frozen=True, kw_only=True):
    """The end of an agent that a call started."""


class RunEnded(Ended, frozen=True, kw_only=True):
    """The end of the run; `sha256` is the digest of all bytes of the log before this line."""

    sha256: str


class Arrived(Entered, frozen=True, kw_only=True):
    """Somebody says something to the agent of the run: a turn of a conversation."""

    text: str


class CompactAsked(Entered, frozen=True, kw_only=True):
    """Somebody asks for a summary of what went before, with a focus unless that is empty."""

    focus: str = ""


class PlanAsked(Entered, frozen=True, kw_only=True):
    """Somebody asks for a plan again, before anything else is done."""


class UndoAsked(Entered, frozen=True, kw_only=True):
    """Somebody takes the last turn back: the model is not shown it any more. What was done is done."""


class Closed(Entered, frozen=True, kw_only=True):
    """Nobody says anything more in a conversation."""


class StopAsked(Entered, frozen=True, kw_only=True):
    """Somebody stopped a part of the run.

    Attributes:
        scope: "" the run, `3` a step, `3.c1` a call, `3.c1/` the agent that it started.
        why: `cancelled`, `interrupted` or `deadline`.
    """

    scope: str
    why: values.Why


class Answered(Entered, frozen=True, kw_only=True):
    """A person's answer about a call; `at` is the address of the question.

    Attributes:
        answer: `allow`, `deny`, or `silence` where nobody answered in time.
        by: Who answered.
        why: Why.
    """

    answer: Literal["allow", "deny", "silence"]
    by: str = ""
    why: str = ""


class Settled(Entered, frozen=True, kw_only=True):
    """A person's word on an effect whose outcome was lost when the process ended."""

    happened: bool


class ModelReplied(Outcome, frozen=True, kw_only=True):
    """A reply of the model.

    Attributes:
        text: What it says beside its calls.
        calls: The calls that it proposes.
        answer: Its final answer.
        usage: The tokens it took.
        finish: Why the model stopped: `stop`, `tool_calls`, `length`, `refusal`, `pause` or `other`.
        model: The name of the model that replied.
        raw: What the adapter of the model needs back.
        problem: Why the reply cannot be used.
        fallback: Which of the fallbacks replied, from 1; 0 for the model itself.
    """

    text: str = ""
    calls: list[values.Call] = []
    answer: str | None = None
    usage: values.Usage
    finish: str = ""
    model: str = ""
    raw: Any = None
    problem: str = ""
    fallback: int = 0


class ToolReturned(Outcome, frozen=True, kw_only=True):
    """A result of a tool.

    Attributes:
        result: The result. None where it was lost, or is over the budget of bytes and so was not kept.
        size: Bytes of the result in canonical JSON; 0 where it was lost.
        met: Facts that the run decides again: redirects and whatever was denied.
        wrote: Mounts into which a `network` or `external` tool wrote at a path that its arguments do not name.
    """

    result: dict[str, Any] | None = None
    size: int = 0
    met: list[values.Fact] = []
    wrote: list[str] = []


class HookAnswered(Outcome, frozen=True, kw_only=True):
    """What a hook said; None for nothing."""

    answer: dict[str, Any] | None = None


class Failed(Outcome, frozen=True, kw_only=True):
    """An effect that failed. Of an exception only the class is kept: its text may say anything.

    Attributes:
        error: The class of the exception, or what is wrong with the result.
        kind: `transient` and `timeout` may be repeated; `invalid` is of no usable shape; all else is `other`.
        harmless: Whether nothing can have happened, so that it may be repeated whatever it is.
        retry_after_ms: The wait that the service asked for.
        status: The HTTP status that a model's service answered with.
        said: What that service said itself, or a ToolFailure, without secrets.
        place: JSON Pointer into an invalid result, and the keyword of the schema that it violates.
        met, wrote: As in ToolReturned.
        fallback: As in ModelReplied.
    """

    error: str
    kind: Literal["transient", "timeout", "invalid", "other"] = "other"
    harmless: bool = False
    retry_after_ms: int | None = None
    status: int = 0
    said: str = ""
    place: str = ""
    met: list[values.Fact] = []
    wrote: list[str] = []
    fallback: int = 0


class Waited(Outcome, frozen=True, kw_only=True):
    """A wait is over."""


class Stopped(Outcome, frozen=True, kw_only=True):
    """An effect that was ended before its outcome: nobody knows what it did.

    `why` is as in StopAsked; `left` says that it may still be at work in a thread that cannot be ended.
    """

    why: values.Why
    left: bool = False


AnyEvent = (
    RunStarted | AgentStarted | HandedOver | Received | Proposed | CallEnded | Decided | ToolStarted | Compacted
    | StepEnded | TurnEnded | AgentEnded | RunEnded
    | Arrived | CompactAsked | PlanAsked | UndoAsked | Closed | StopAsked | Answered | Settled
    | ModelReplied | ToolReturned | HookAnswered | Failed | Waited | Stopped
)  # fmt: skip


@cache
def _decoder() -> Any:  # slow to make, and many runs read no line
    return msgspec.json.Decoder(AnyEvent)


def decode(text: bytes) -> Event:
    """Read a line that was written by `canonical`. Raises msgspec.DecodeError for anything else."""
    event: Event = _decoder().decode(text)
    if canonical(event) != text:
        raise msgspec.DecodeError("it is not written as a log writes it")
    return event
