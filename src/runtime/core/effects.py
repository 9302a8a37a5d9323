"""What the loop may ask of the world, and what it is told.

The loop is a generator: it yields an effect and is sent the outcome. A position (`m.1`, `i0.2`, `w0.1`,
`h0`, `k0.1`, `d0`) names an effect within its step and is the only key that record, replay and jitter use.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from ...fail.catalog import Ending, FailureMode, Rule
from ...light_dataclasses import dataclass, field
from ..formats.canonical_json import Fragment, digest, encode
from .lines import CallEntry, FaultEntry, InputEntry, StepLine


class DecisionKind(StrEnum):
    """What the gate says of a call."""

    ALLOW = "allow"
    DENY = "deny"
    ESCALATE = "escalate"


class FaultKind(StrEnum):
    """How far a failure may be repeated."""

    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    OTHER = "other"


class ApprovalAnswer(StrEnum):
    """What a person says to an escalated call; SILENCE is no answer in time."""

    ALLOW = "allow"
    DENY = "deny"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call that the model proposed, read once.

    `arguments` is the canonical text of the JSON object, or None where the model's text is no such thing;
    then `raw` holds that text and `problem` says in a few words why.
    """

    id: str
    name: str
    arguments: Fragment | None
    raw: str | None = None
    problem: str | None = None

    def to_dict(self) -> CallEntry:
        """Return this as a ledger entry."""
        out: CallEntry = {"id": self.id, "name": self.name, "arguments": self.arguments}
        if self.arguments is None:
            out["arguments_text"] = self.raw
            out["problem"] = self.problem
        return out


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply after it was read strictly. `problem` is set where it is no usable reply."""

    text: str | None
    calls: tuple[Call, ...]
    final_answer: str | None
    finish_reason: str | None
    model: str | None
    usage: tuple[int, int] | None
    raw: Fragment | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception as the loop sees it: its class, and what our classification of it rests on.

    `nothing_happened` is true where the failure proves that the effect did not take place. `undeclared` is the
    method of `io` that the tool called although its effect kind does not cover it. `status` and `text` are what a
    model's service answered: its HTTP status and its message, after redaction.
    """

    exception: str
    kind: FaultKind
    nothing_happened: bool = False
    retry_after_ms: int | None = None
    undeclared: str | None = None
    status: int | None = None
    text: str | None = None

    def to_dict(self) -> FaultEntry:
        """Return this as a ledger entry."""
        out: FaultEntry = {"exception": self.exception, "kind": str(self.kind)}
        if self.nothing_happened:
            out["nothing_happened"] = True
        if self.retry_after_ms is not None:
            out["retry_after_ms"] = self.retry_after_ms
        if self.undeclared is not None:
            out["undeclared"] = self.undeclared
        if self.status is not None:
            out["status"] = self.status
        if self.text is not None:
            out["text"] = self.text
        return out


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said to an escalated call.

    `digest` is that of the question that the answer was given to, `AskHuman.digest`. An answer to another
    question counts as a refusal. `signature` is that of `signed_text` with an ed25519 key, in hexadecimal digits.
    """

    answer: ApprovalAnswer | Literal["allow", "deny", "silence"]
    by: str | None = None
    why: str | None = None
    digest: str | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an effect. At most one of `reply`, `result`, `answer`, `fault`, `invalid` is set.

    `returned_bytes` is the size of a result that a record did not keep; `result_lost` says that the effect took
    place but its result was lost; `cancelled` that the call was cancelled on its own. `now` is the time that was asked
    for, `local_times` are those in some zones. `checks` are the facts that the I/O met and asked the rules about,
    `reads` and `writes` are (mount path, SHA-256) in order.
    """

    reply: Reply | None = None
    result: Fragment | None = None
    answer: Answer | None = None
    fault: Fault | None = None
    invalid: str | None = None
    returned_bytes: int | None = None
    result_lost: bool = False
    cancelled: bool = False
    now: int = 0
    local_times: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[dict[str, Any], ...] = ()
    reads: tuple[tuple[str, str], ...] = ()
    writes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model once.

    `input` is the LLMInput that the callable gets, `digest` that of its messages. `parts` holds the digests of the
    other parts of the request by kind: `tools`, and `options` and `instructions` where there are some.
    """

    step: int
    attempt: int
    input: Any
    digest: str
    parts: Mapping[str, str]

    def to_dict(self) -> InputEntry:
        """Return what the ledger says of the input."""
        return {
            "messages": len(self.input.messages),
            "digest": self.digest,
            "max_output_tokens": self.input.max_output_tokens,
            **self.parts,  # type: ignore[typeddict-item]
        }

    @property
    def position(self) -> str:
        """The position within the step."""
        return f"m.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Invoke:
    """Execute an allowed call once. `key` is the idempotency key, the same for every attempt of the call."""

    step: int
    index: int
    attempt: int
    call: Call
    key: str

    @property
    def position(self) -> str:
        """The position within the step."""
        return f"i{self.index}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Let `ms` milliseconds pass after a failed attempt; `index` is None for the model."""

    step: int
    index: int | None
    attempt: int
    ms: int

    @property
    def position(self) -> str:
        """The position within the step."""
        return f"w{'m' if self.index is None else self.index}.{self.attempt}"


ANOTHER_QUESTION: Final = "the answer was given to another call or policy"


def question_digest(call: Call, policy: str, nonce: str | None = None) -> str:
    """SHA-256 of what a person is asked: tool and canonical arguments, under a version of the policy.

    The `nonce` of a run, where it has one, makes its questions other ones than those of any other run, and of each call
    one of its own, also where two calls are the same.
    """
    asked = {"tool": call.name, "arguments": call.arguments, "policy": policy}
    return digest(encode(asked if nonce is None else {**asked, "nonce": nonce, "call": call.id}))


@dataclass(frozen=True, slots=True)
class AskHuman:
    """Ask a person about an escalated call, for at most `timeout_s` seconds.

    `reason` and `at` are the gate's: why the call needs a person, and by which line of the policy. `policy`
    is the policy's version, `run_id` the run that waits, `nonce` the number of that run, None for scripted answers.
    """

    step: int
    index: int
    call: Call
    reason: str
    at: str
    timeout_s: int
    policy: str
    run_id: str
    nonce: str | None = None

    @property
    def position(self) -> str:
        """The position within the step."""
        return f"h{self.index}"

    @property
    def digest(self) -> str:
        """What is asked, as `question_digest` has it."""
        return question_digest(self.call, self.policy, self.nonce)


@dataclass(frozen=True, slots=True)
class AskHook:
    """Ask one hook at one of its events, with plain data; its answer is the outcome's `result`.

    `index` is the call's place in the reply, None for an event of the step. `number` counts from 1 what hooks were
    asked about that call, or at that event.
    """

    step: int
    index: int | None
    number: int
    event: str
    hook: str
    data: Mapping[str, Any] = field(repr=False)

    @property
    def position(self) -> str:
        """The position within the step."""
        where = {"before_model": "m", "on_stop": "s"}.get(self.event, self.index)
        return f"k{where}.{self.number}"


Effect = AskModel | Invoke | Wait | AskHuman | AskHook


@dataclass(frozen=True, slots=True)
class Group:
    """Perform several calls of one reply, at the same time or one after another: it makes no difference.

    `branches` holds, by a call's place in the reply, what is to be performed for it, one effect after another. The loop
    goes on at once: it yields the same effects again, in the order of the calls, and is sent what came of each when
    that is there. Whatever else it asks for is performed when all branches are over.
    """

    step: int
    branches: Mapping[int, Generator[Invoke | Wait, Outcome, None]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate said.

    `rule_id` is the rule that objected or, for an allow, the rule whose entry grants the call. `reason` is
    one line of ours, `at` names the rule (document and JSON Pointer), `facts` is plain data (pointer, limits, counts).
    """

    decision: DecisionKind
    rule_id: Rule
    reason: str
    at: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return this as a ledger entry."""
        return {
            "decision": str(self.decision),
            "rule_id": str(self.rule_id),
            "reason": self.reason,
            "at": self.at,
            "facts": self.facts,
        }


@dataclass(frozen=True, slots=True)
class Decided:
    """Event: the gate spoke, or a hook after it. `index` is the call's place in the reply, None for a step.

    `late` says that it spoke about the result of a call, after an attempt; `number` counts the decisions on a proposed
    call, of which there are several only where hooks speak too.
    """

    step: int
    index: int | None
    call: Call | None
    decision: Decision
    late: bool = False
    number: int = 1

    @property
    def position(self) -> str:
        """The position within the step."""
        if self.index is None:
            return "d"
        if self.late:
            return f"d{self.index}.r"
        return f"d{self.index}" if self.number == 1 else f"d{self.index}.{self.number}"


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Event: the time at which a call is decided is wanted; it is sent back as an outcome's `now`.

    `number` is that of the decision on the proposed call. The time stands in the record as a stamp; the local times in
    `zones`, sent back as `local_times`, stand in the step's line.
    """

    step: int
    index: int
    number: int = 1
    zones: tuple[str, ...] = ()

    @property
    def position(self) -> str:
        """The position within the step."""
        return f"t{self.index}" if self.number == 1 else f"t{self.index}.{self.number}"


@dataclass(frozen=True, slots=True)
class StepEnded:
    """Event: the step is whole. `line` is its ledger line without stamps."""

    step: int
    line: StepLine = field(repr=False)


@dataclass(slots=True)
class StepProgress:
    """Event: something was added to the line of the step under way.

    `line` is the line so far, which nobody but the loop may change; `results` says how many of its results are final.
    A step has one such event, which it yields again and again.
    """

    step: int
    line: StepLine = field(repr=False)
    results: int


@dataclass(frozen=True, slots=True)
class Attempted:
    """What a driver tells: an attempt of the model or of a call begins, or is over."""

    effect: AskModel | Invoke
    is_over: bool


Event = Decided | ReadClock | StepEnded | StepProgress


@dataclass(frozen=True, slots=True)
class RunEnded:
    """How a run ended: why, the answer if there is one, and what failed in its last step."""

    reason: Ending
    answer: str | None = None
    mode: FailureMode | None = None
