"""The model: any `Callable[[LLMInput], LLMOutput]`. Its types, and the strict reading of a reply.

Messages are plain dicts: `{"role": "user", "content"}`, `{"role": "assistant", "content", "tool_calls":
[{"id", "name", "arguments"}]}` (arguments as JSON text), `{"role": "tool", "tool_call_id", "name",
"content"}` (content is JSON text). Ids are ours, `tc_<step>_<i>`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, overload, runtime_checkable

import msgspec

from ...fail.errors import InputError, class_of
from ..formats import strict_json
from ..log.events import ModelReplied
from ..log.values import Call, ModelChoice, ModelName, ToolOffer, Usage

FINISH_REASONS: Final = ("stop", "tool_calls", "length", "refusal", "pause", "other")
# of one reply, each way; the sum over the most steps that a policy can allow stays an exact JSON number (2^53)
MOST_TOKENS: Final = 9_000_000_000
# of one reply
MAX_CALLS: Final = 64
# of a tool's name as a model says it; no tool has one of more than 64 characters
MAX_NAME: Final = 200
# in one call's arguments; a long text costs a validator little, a long list much
MAX_VALUES: Final = 50_000

Message = dict[str, Any]


class _User(msgspec.Struct, tag_field="role", tag="user", forbid_unknown_fields=True):
    content: str


class _CallMade(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    name: str
    arguments: str


class _Assistant(msgspec.Struct, tag_field="role", tag="assistant", forbid_unknown_fields=True):
    content: str
    tool_calls: list[_CallMade] = []
    raw: Any = None


class _Result(msgspec.Struct, tag_field="role", tag="tool", forbid_unknown_fields=True):
    tool_call_id: str
    name: str
    content: str


class Messages(Sequence[Message]):
    """The history up to one step, each message decoded afresh when it is read.

    A model may change what it gets without changing the run, and a step costs no copy of the history.

    Attributes:
        size: Bytes of all messages as JSON.
    """

    __slots__ = ("_places", "_texts", "size")

    def __init__(self, texts: Sequence[bytes], size: int | None = None) -> None:
        self._texts, self._places = texts, range(len(texts))  # no text that is added later
        self.size = sum(map(len, texts)) if size is None else size

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [msgspec.json.decode(self._texts[place]) for place in self._places[index]]
        return msgspec.json.decode(self._texts[self._places[index]])  # type: ignore[no-any-return]


class LLMInput(msgspec.Struct, frozen=True):
    """What a model callable gets.

    Attributes:
        run_id: The name of the run.
        step_index: The number of the step, from 1.
        messages: The history so far.
        tools: The tools that may be called.
        max_output_tokens: How many tokens the budget leaves.
        instructions: The system message; empty without one.
        output_schema: The JSON Schema that the final answer must fit; None where any text is an answer.
    """

    run_id: str
    step_index: int
    messages: Messages
    tools: tuple[ToolOffer, ...]
    max_output_tokens: int
    instructions: str = ""
    output_schema: dict[str, Any] | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call as a model proposes it.

    Attributes:
        name: The tool.
        arguments: JSON text, or a dict.
    """

    name: str
    arguments: str | dict[str, Any]


class LLMOutput(msgspec.Struct, frozen=True):
    """What a model callable returns: exactly one of `tool_calls` and `final_answer`.

    Attributes:
        text: What the model says beside its calls.
        tool_calls: The calls that it proposes.
        final_answer: The answer, which ends the run.
        usage: `{"input_tokens": int, "output_tokens": int}`, or None. Of the first, `cached_tokens` and
            `cache_write_tokens` say how many came from a cache and went into one, of the second `reasoning_tokens` how
            many were thought.
        finish_reason: `stop`, `tool_calls`, `length`, `refusal`, `pause` (the turn is sent back as it is, and goes on),
            `other`, or None.
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


class Piece(msgspec.Struct, frozen=True):
    """A piece of a model's text, told while it comes; it is not a line of the log.

    Attributes:
        at: The address of the effect.
        text: The text.
    """

    at: str
    text: str


@runtime_checkable
class StreamingModel(Protocol):
    """A model that tells its text while it comes."""

    def __call__(self, asked: LLMInput, /) -> LLMOutput | Awaitable[LLMOutput]:
        """Reply."""

    async def ask(self, asked: LLMInput, told: Callable[[str], None]) -> LLMOutput:
        """Reply as the model does when it is called; `told` is given each piece of text."""


Model = Callable[[LLMInput], LLMOutput] | Callable[[LLMInput], Awaitable[LLMOutput]] | StreamingModel


def choice_of(model: Any) -> ModelChoice:
    """Return what a run is told of a model: its attributes `name` and `options`, or how the callable is called."""
    name, options = getattr(model, "name", None), getattr(model, "options", None)
    if not isinstance(name, ModelName):
        name = ModelName("callable", getattr(model, "__name__", "model"))
    return ModelChoice(name, options if isinstance(options, dict) else {})


class _Unusable(Exception):
    """A reply of which nothing can be kept."""


def read_reply(output: object, at: str, step: int, asked_bytes: int) -> ModelReplied:
    """Read a model's output once and strictly; whatever was returned, this does not raise.

    A reply that cannot be used has a `problem`. Its calls are kept for the record and never run.

    Args:
        output: What the model returned.
        at: The address of the effect.
        step: The number of the step, for the ids of the calls.
        asked_bytes: Bytes of the request, which stand in for its tokens where the service reports none.
    """
    try:
        return _read(output, at, step, asked_bytes)
    except _Unusable as error:
        return ModelReplied(at=at, usage=Usage(asked_bytes, 0, True), problem=str(error))


def _read(output: object, at: str, step: int, asked_bytes: int) -> ModelReplied:
    if not isinstance(output, LLMOutput):
        raise _Unusable("no LLMOutput")
    text, answer = _text(output.text), _text(output.final_answer)
    if not isinstance(output.tool_calls, list | tuple):
        raise _Unusable("tool_calls is not a list")
    if len(output.tool_calls) > MAX_CALLS:
        raise _Unusable(f"more than {MAX_CALLS} tool calls")
    calls = []
    for i, call in enumerate(output.tool_calls):
        if not isinstance(call, ToolCall) or not isinstance(call.name, str):
            raise _Unusable("a tool call that is not a ToolCall with a name")
        calls.append(read_call(f"tc_{step}_{i}", clean_text(call.name)[:MAX_NAME], call.arguments))
    problem, raw, said = "", None, output.finish_reason
    if (answer is None) == (not calls) and said != "refusal" and (calls or said != "pause"):
        problem = "both an answer and tool calls" if calls else "neither an answer nor tool calls"
    elif calls and said == "length":
        problem = "tool calls of a reply that was cut off by length"
    try:
        raw = None if output.raw is None else strict_json.as_json(output.raw)
    except strict_json.NotJson as error:
        problem = problem or f"raw is not JSON: {error.reason}"
    return ModelReplied(
        at=at,
        text=text or "",
        calls=calls,
        answer=answer,
        finish=FINISH_REASONS[FINISH_REASONS.index(said)] if said in FINISH_REASONS else "",
        model=clean_text(output.model)[:MAX_NAME] if isinstance(output.model, str) else "",
        usage=_usage(output.usage, asked_bytes, (text or "", answer or ""), calls),
        raw=raw,
        problem=problem,
    )


def read_history(history: object) -> list[Message]:
    """Return messages, those of LangChain too, as plain data of their own.

    Raises:
        InputError: They are not a list of messages, or a call and its result do not stand together.
    """
    from .langchain_messages import plain_messages  # few runs have a history

    try:
        messages = strict_json.as_json(plain_messages(history))  # type: ignore[arg-type]
        convert = msgspec.convert(messages, list[_User | _Assistant | _Result])
    except (strict_json.NotJson, TypeError, msgspec.ValidationError) as error:
        what = f"the history is not a list of messages ({error})"
        raise InputError(what, remedy="pass `result.messages`") from None
    waiting: list[str] = []
    for message in (*convert, None):  # nor may a call wait at the end
        if isinstance(message, _Result) and message.tool_call_id in waiting:
            waiting.remove(message.tool_call_id)
        elif waiting or isinstance(message, _Result):
            raise InputError("the history holds a call without its result", remedy="pass `result.messages`")
        elif isinstance(message, _Assistant):
            waiting = [call.id for call in message.tool_calls]
    return messages  # type: ignore[no-any-return]


def read_call(call_id: str, name: str, arguments: object) -> Call:
    """Return a proposed call with its arguments as plain data, or with the reason why they are not a JSON object.

    Their keys are sorted, as a log holds them: a run that is made again has them from there, and of two arguments a
    denial has to name the same one, and a tool to meet the same one first.
    """
    try:
        if isinstance(arguments, str):
            value = strict_json.parse(arguments, most=MAX_VALUES)
        else:
            value = strict_json.as_json(arguments, most=MAX_VALUES)
        if isinstance(value, dict):
            return Call(call_id, name, msgspec.json.decode(strict_json.canonical(value)))
        problem = "not an object"
    except strict_json.NotJson as error:
        problem = error.reason
    text = clean_text(arguments) if isinstance(arguments, str) else _written(arguments)
    return Call(call_id, name, text=text, problem=problem)


def _written(arguments: object) -> str:
    """Return data that are no JSON object as text, so that other such arguments are another call."""
    import json  # few models propose such

    try:
        return json.dumps(arguments, default=class_of, skipkeys=True)
    except Exception:  # noqa: BLE001 - too deep, circular, or code of a foreign type
        return ""


def call_text(call: Call) -> str:
    """Return the arguments of a call as JSON text, or what the model wrote in place of JSON."""
    return call.text if call.arguments is None else strict_json.canonical(call.arguments).decode()


def clean_text(text: object) -> str:
    """Return a plain `str` without lone surrogates, which no record can hold; "" for what is no text."""
    text = str.__str__(text) if isinstance(text, str) else ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def whole_text(text: object, what: str) -> str:
    """Return a text that a person gave as a plain `str`. Raises InputError for what is none."""
    if not isinstance(text, str) or clean_text(text) != text:
        wrong = "contains a lone surrogate" if isinstance(text, str) else f"is of the type {class_of(text)}"
        raise InputError(f"{what} {wrong}", remedy="give Unicode text")
    return clean_text(text)


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _Unusable("text that is not a string")
    return None if value is None else clean_text(value)


def _usage(usage: object, asked_bytes: int, texts: tuple[str, str], calls: list[Call]) -> Usage:
    """Return the tokens of a reply. A service that counts nothing reports zeros: bytes stand in, so budgets hold."""
    told = usage if isinstance(usage, dict) else {}
    asked = _count(told, "input_tokens", MOST_TOKENS)
    replied = _count(told, "output_tokens", MOST_TOKENS)
    cached = _count(told, "cached_tokens", asked)
    written = _count(told, "cache_write_tokens", asked - cached)
    parts = cached, written, _count(told, "reasoning_tokens", replied)
    if asked and replied:
        return Usage(asked, replied, False, *parts)
    said = 0 if replied else sum(len(text.encode()) for text in (*texts, *map(call_text, calls)))
    instead = 0 if asked else asked_bytes, said
    return Usage(asked + instead[0], replied + instead[1], any(instead), *parts)


def _count(usage: dict[str, Any], name: str, most: int) -> int:
    count = usage.get(name)
    return min(count, most) if type(count) is int and count > 0 else 0
