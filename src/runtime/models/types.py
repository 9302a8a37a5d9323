"""The model: any `Callable[[LLMInput], LLMOutput]`. Types, and the strict reading of a reply.

Messages are plain dicts: `{"role": "user", "content"}`, `{"role": "assistant", "content", "tool_calls":
[{"id", "name", "arguments"}]}` (arguments as JSON text), `{"role": "tool", "tool_call_id", "name",
"content"}` (content is JSON text). Ids are ours, `tc_<step>_<i>`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NotRequired, TypedDict, overload

from ...light_dataclasses import dataclass, field
from ..core.branches import MAX_CALLS
from ..core.effects import Call, Reply
from ..core.redaction import Redactor
from ..formats import canonical_json
from ..formats.canonical_json import NotJson

FINISH_REASONS: Final = ("stop", "tool_calls", "length", "refusal", "pause", "other")
# how often a cut-off answer is asked for the rest before it counts as no usable reply
MAX_CONTINUATIONS: Final = 3
# what the loop says to the model of its own accord; a step's `notice` names it
NOTICES: Final = {
    "go_on": "Your answer was cut off. Go on exactly where it stopped, without repeating anything.",
    "two_left": "Two steps are left, this one included. Finish: call only what you must and then answer.",
    "last": "This is the last step, and no tools are left to call. Answer now with what you have.",
}
# of one reply, each way; the sum over the most steps that a policy can allow stays an exact JSON number (2^53)
MOST_TOKENS: Final = 9_000_000_000
# of a tool's name as a model says it; no tool has one of more than 64 characters
MAX_NAME: Final = 200
# in one call's arguments; a long text costs a validator little, a long list much
MAX_VALUES: Final = 50_000


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is offered it.

    Attributes:
        name: Its name.
        description: What it does.
        input_schema: Canonical JSON text of a JSON Schema.
    """

    name: str
    description: str
    input_schema: str


class MessageCall(TypedDict):
    """A call in a message of the model; `arguments` is JSON text, or what the model wrote in its place."""

    id: str
    name: str
    arguments: str


class Message(TypedDict):
    """A message of the history; `role` is `user`, `assistant`, `tool` or `system`.

    `tool_calls` and `raw`, what the provider's adapter kept of its reply, are those of the model's messages,
    `tool_call_id` and `name` those of a tool's.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[MessageCall]]
    raw: NotRequired[Any]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


class Messages(Sequence[Message]):
    """The history up to one step: a window on shared canonical texts, each decoded afresh on access.

    A model may change what it gets without changing the run, and a step costs no copy of the history.
    """

    __slots__ = ("_count", "_texts")

    def __init__(self, texts: list[str], count: int) -> None:
        self._texts = texts
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [json.loads(self._texts[i]) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return json.loads(self._texts[index % self._count])  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Message]:
        for i in range(self._count):
            yield json.loads(self._texts[i])


class History:
    """Messages as canonical texts with a rolling digest: `digest = sha256(digest + text)`."""

    __slots__ = ("bytes", "digest", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.digest = ""
        self.bytes = 0

    def add(self, message: Message) -> None:
        """Append a message."""
        text = canonical_json.encode_trusted(message)
        data = text.encode("utf-8")
        self.texts.append(text)
        self.bytes += len(data)
        self.digest = canonical_json.digest(self.digest.encode("ascii") + data)

    def window(self) -> Messages:
        """Return the messages so far."""
        return Messages(self.texts, len(self.texts))


@dataclass(frozen=True, slots=True)
class LLMInput:
    """What a model callable gets.

    Attributes:
        run_id: The name of the run.
        step_index: The step's number, from 1.
        messages: The history so far.
        tools: The tools that may be called; empty where none are offered.
        max_output_tokens: How many tokens the budget leaves.
        instructions: The system message; None without one.
        output_schema: Canonical JSON text of the schema that the final answer must fit, None where any text is one.
        on_text: Takes the next piece of the reply's text, from any thread, until the model returns; None where nobody
            listens. The pieces are shown and never recorded: what counts is the text that is returned.
    """

    run_id: str
    step_index: int
    messages: Messages
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int
    instructions: str | None = None
    output_schema: str | None = None
    on_text: Callable[[str], None] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a model proposes it.

    Attributes:
        name: The tool.
        arguments: JSON text; a dict is encoded first.
    """

    name: str
    arguments: str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class LLMOutput:
    """What a model callable returns: exactly one of `tool_calls` and `final_answer`.

    Attributes:
        text: What the model says beside its calls.
        tool_calls: The calls that it proposes.
        final_answer: The answer, which ends the run.
        usage: `{"input_tokens": int, "output_tokens": int}`, or None.
        finish_reason: stop, tool_calls, length, refusal, pause (the turn is sent back as it is, and goes on),
            other, or None.
        model: The name of the model that replied, or None.
        raw: JSON data that an adapter needs back, or None.
    """

    text: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    final_answer: str | None = None
    usage: dict[str, int] | None = None
    finish_reason: str | None = None
    model: str | None = None
    raw: Any = None


Model = Callable[[LLMInput], LLMOutput]


def read_reply(output: object, step: int, redact: Redactor) -> Reply:
    """Read a model's output once and strictly; whatever was returned, this does not raise.

    A reply that cannot be used is returned with `problem` set; its calls are kept for the record but never run.
    """
    if not isinstance(output, LLMOutput):
        return _unusable("no LLMOutput")
    text = _text(output.text, redact)
    answer = _text(output.final_answer, redact)
    if not isinstance(output.tool_calls, list | tuple):
        return _unusable("tool_calls is no list")
    calls = []
    if len(output.tool_calls) > MAX_CALLS:
        return _unusable(f"more than {MAX_CALLS} tool calls")
    for i, call in enumerate(output.tool_calls):
        if not isinstance(call, ToolCall) or not isinstance(call.name, str):
            return _unusable("a tool call that is no ToolCall with a name")
        calls.append(
            read_call(f"tc_{step}_{i}", redact(_clean(call.name))[:MAX_NAME], call.arguments, redact)
        )
    problem = None
    if text is _BAD or answer is _BAD:
        return _unusable("text that is no string")
    if (answer is None) == (not calls) and output.finish_reason != "refusal":
        problem = "both an answer and tool calls" if calls else "neither an answer nor tool calls"
    elif calls and output.finish_reason == "length":
        problem = "tool calls of a reply that was cut off by length"
    raw = None
    if output.raw is not None:
        try:
            raw = redact.data(canonical_json.freeze(output.raw))
        except NotJson as error:
            problem = problem or f"raw is no JSON: {error.reason}"
    finish = next((reason for reason in FINISH_REASONS if reason == output.finish_reason), None)
    return Reply(
        text=text if isinstance(text, str) else None,
        calls=tuple(calls),
        final_answer=answer if isinstance(answer, str) else None,
        finish_reason=finish,
        model=redact(_clean(output.model))[:200] if isinstance(output.model, str) else None,
        usage=_usage(output.usage),
        raw=raw,
        problem=problem,
    )


def read_call(call_id: str, name: str, arguments: object, redact: Redactor) -> Call:
    """Return a proposed call with its arguments as canonical JSON, or with the reason why they are not JSON."""
    try:
        if isinstance(arguments, str):
            frozen = canonical_json.parse(arguments, most=MAX_VALUES)
        elif isinstance(arguments, dict):
            frozen = canonical_json.freeze(arguments, most=MAX_VALUES)
        else:
            return Call(call_id, name, None, None, "not text")
        if not frozen.text.startswith("{"):
            return Call(call_id, name, None, redact(_clean(str(arguments))), "not an object")
        return Call(call_id, name, redact.data(frozen))
    except NotJson as error:
        raw = redact(_clean(arguments)) if isinstance(arguments, str) else None
        return Call(call_id, name, None, raw, error.reason)


_BAD: Final = object()


def _clean(text: str) -> str:
    """Return a plain `str` without lone surrogates, which no record can hold."""
    text = str.__str__(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _text(value: object, redact: Redactor) -> object:
    if value is None:
        return None
    return redact(_clean(value)) if isinstance(value, str) else _BAD


def _unusable(problem: str) -> Reply:
    return Reply(None, (), None, None, None, None, problem=problem)


def _usage(usage: object) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    counts = []
    for name in ("input_tokens", "output_tokens"):
        count = usage.get(name)
        if type(count) is not int or count < 0:
            return None
        counts.append(min(count, MOST_TOKENS))
    return counts[0], counts[1]
