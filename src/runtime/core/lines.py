"""The lines of a ledger as types: what `state.jsonl` holds, key by key.

`journal/ledger.v2.schema.json` says the same as a JSON Schema, with a sentence on each key; tests hold the two and
every recorded run together. A `result` or `arguments` is canonical text (a `Fragment`) in a line that is being
written, and decoded JSON in one that was read.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NotRequired, Required, TypedDict

Stamps = dict[str, list[int]]
"""Position -> nanoseconds since the run's start at which the effect began and ended."""


class AttemptStatus(StrEnum):
    """What came of one attempt of an effect."""

    SUCCESS = "success"
    DENIED = "denied"
    FAILED = "failed"
    TRANSIENT_FAILURE = "transient_failure"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


class ResultStatus(StrEnum):
    """What came of a tool call."""

    OK = "ok"
    DENIED = "denied"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NOT_REACHED = "not_reached"


class Phase(StrEnum):
    """When the gate spoke: before a step, on a proposed call, or on what a tool met."""

    STEP = "step"
    PROPOSAL = "proposal"
    EXECUTION = "execution"


class CostEntry(TypedDict):
    """An amount of money in millionths of a currency's unit."""

    millionths: int
    currency: str


class UsageEntry(TypedDict):
    """Tokens of one model call, `estimated` where the provider did not count them."""

    input_tokens: int
    output_tokens: int
    estimated: bool
    cached_tokens: NotRequired[int]
    cache_write_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]
    cost: NotRequired[CostEntry]


class InputEntry(TypedDict):
    """What the model was asked: how many messages, the digest of each part, and how much it may say.

    `digest` is that of the messages; what the other digests stand for is in the `request_parts` of this or an
    earlier line.
    """

    messages: int
    digest: str
    tools: str
    instructions: NotRequired[str]
    options: NotRequired[str]
    max_output_tokens: int


class OfferedToolEntry(TypedDict):
    """A tool as the model reads it."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ToolSetEntry(TypedDict):
    """The tools that are offered to the model, in order."""

    digest: str
    tools: list[OfferedToolEntry]


class InstructionsEntry(TypedDict):
    """Instructions to the model."""

    digest: str
    text: str


class OptionsEntry(TypedDict):
    """Settings of the model for each request, as the provider names them."""

    digest: str
    options: dict[str, Any]


class RequestPartsEntry(TypedDict, total=False):
    """Parts of model requests that first appear in a line; steps point to them by digest."""

    tools: list[ToolSetEntry]
    instructions: list[InstructionsEntry]
    options: list[OptionsEntry]


class OutputEntry(TypedDict):
    """What the model replied, without its calls."""

    text: str | None
    final_answer: str | None
    finish_reason: str | None
    model: str | None
    usage: list[int] | None
    usage_parts: NotRequired[dict[str, int]]
    raw: Any
    problem: str | None


class CallEntry(TypedDict):
    """A call that the model proposed; without arguments it keeps the model's text and what is wrong with it."""

    id: str
    name: str
    arguments: Any
    arguments_text: NotRequired[str | None]
    problem: NotRequired[str | None]


class ApprovalEntry(TypedDict):
    """A person's answer to an escalated call; `digest` is that of the question it was given to."""

    answer: str
    by: str | None
    why: str | None
    digest: str | None
    signature: NotRequired[str]
    signer: NotRequired[str]


class DecisionEntry(TypedDict):
    """What the gate said, in the order in which it spoke; `id` is the call's, null before a step."""

    position: str
    phase: str
    id: str | None
    decision: str
    rule_id: str
    reason: str
    at: str
    facts: dict[str, Any]
    denial: NotRequired[dict[str, Any]]
    approval: NotRequired[ApprovalEntry]


class FaultEntry(TypedDict):
    """An exception: its class, and what its classification rests on."""

    exception: str
    kind: str
    nothing_happened: NotRequired[bool]
    retry_after_ms: NotRequired[int]
    undeclared: NotRequired[str]
    status: NotRequired[int]
    text: NotRequired[str]


class AttemptEntry(TypedDict):
    """One attempt of an effect, with all that a replay needs of it."""

    attempt: int
    outcome: str
    fault: NotRequired[FaultEntry]
    invalid: NotRequired[str]
    checks: NotRequired[list[dict[str, Any]]]
    reads: NotRequired[list[str]]
    writes: NotRequired[list[list[str]]]
    backoff_ms: NotRequired[int]
    unseen: NotRequired[bool]
    returned: NotRequired[Any]
    returned_bytes: NotRequired[int]


class ToolResultEntry(TypedDict):
    """What came of a proposed call; `told` is what the model read instead of a result."""

    id: str
    name: str
    status: str
    result: Any
    attempts: list[AttemptEntry]
    modes: NotRequired[list[str]]
    told: NotRequired[dict[str, Any]]


class ErrorEntry(TypedDict, total=False):
    """What went wrong at a position: an exception, a problem in words, or a schema's mismatch."""

    position: Required[str]
    exception: str
    kind: str
    nothing_happened: bool
    retry_after_ms: int
    undeclared: str
    status: int
    text: str
    problem: str | None
    pointer: str
    keyword: str
    limit: str | None


class HookEntry(TypedDict):
    """What one hook answered: `answer` is null where it said nothing; it is absent where there is none to use."""

    position: str
    hook: str
    event: str
    answer: NotRequired[Any]
    fault: NotRequired[FaultEntry]
    invalid: NotRequired[str]


class RunHookEntry(TypedDict):
    """The hooks of one object or file: their name, the file, and the events at which they are asked."""

    name: str
    file: str | None
    events: list[str]


class StepLine(TypedDict):
    """One step: what the model was asked and said, what was decided, and what came of it."""

    type: Literal["step"]
    run_id: str
    step_index: int
    llm_input: InputEntry | None
    llm_attempts: list[AttemptEntry]
    llm_output: OutputEntry | None
    intended_tool_calls: list[CallEntry]
    policy_decisions: list[DecisionEntry]
    tool_results: list[ToolResultEntry]
    errors: list[ErrorEntry]
    failure_mode: str | None
    usage: UsageEntry
    notice: NotRequired[str]
    told: NotRequired[dict[str, Any]]
    stopped: NotRequired[str]
    request_parts: NotRequired[RequestPartsEntry]
    groups: NotRequired[list[list[str]]]
    hooks: NotRequired[list[HookEntry]]
    blobs: NotRequired[list[list[str]]]
    local_times: NotRequired[dict[str, dict[str, str]]]
    stamps: NotRequired[Stamps]
    prev: NotRequired[str | None]


class RunLine(TypedDict):
    """The first line: everything that decides how a run goes, save the outcomes."""

    type: Literal["run"]
    schema: str
    run_id: str
    task: dict[str, str] | None
    question: str
    seed: int
    clock: dict[str, str]
    model: dict[str, Any]
    policy: dict[str, Any]
    tools: list[dict[str, Any]]
    mounts: dict[str, dict[str, Any]]
    hosts: dict[str, dict[str, Any]]
    request_parts: RequestPartsEntry
    modules: NotRequired[list[dict[str, str]]]
    output: NotRequired[dict[str, Any]]
    deadline_ms: NotRequired[int]
    max_parallel: NotRequired[int]
    approvals: NotRequired[str]
    rebased: NotRequired[list[dict[str, Any]]]
    instructions: NotRequired[dict[str, Any]]
    history: NotRequired[list[dict[str, Any]]]
    hooks: NotRequired[list[RunHookEntry]]
    follows: NotRequired[dict[str, Any]]
    parent: NotRequired[dict[str, Any]]
    principal: NotRequired[str]
    nonce: NotRequired[str]
    blobs: NotRequired[list[list[str]]]
    prev: NotRequired[str | None]


class EndLine(TypedDict):
    """The last line: how the run ended, and sums over its steps."""

    type: Literal["end"]
    run_id: str
    terminal_reason: str
    final_answer: str | None
    failure_mode: str | None
    totals: dict[str, int]
    lines: int
    stamp: int
    cost: NotRequired[CostEntry]
    prev: NotRequired[str | None]


LedgerLine = RunLine | StepLine | EndLine

Line = Mapping[str, Any]
"""A line as it is read back, whose shape rests on the record being whole."""
