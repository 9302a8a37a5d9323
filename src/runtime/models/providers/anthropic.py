"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from ....fail.errors import InvalidModelOutput
from ..types import LLMInput, LLMOutput, Message, ToolCall
from . import fields
from .fields import JsonObject, read

PROVIDER: Final = "anthropic"
_INPUT_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# parts of a block to which deltas add
_PARTS: Final = ("text", "thinking", "signature", "partial_json")


def messages_of(messages: Iterable[Message]) -> list[JsonObject]:
    """Return the history as turns that alternate. All results of a turn stand first in the next one."""
    out: list[JsonObject] = []
    for message in messages:
        role, blocks = _turn(message)
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    for turn in out:
        turn["content"].sort(key=lambda block: turn["role"] == "user" and block["type"] != "tool_result")
    return out


def _turn(message: Message) -> tuple[str, list[JsonObject]]:
    content = message["content"]
    if message["role"] == "tool":
        return "user", [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
    text = [{"type": "text", "text": content}] if content else []  # the service refuses empty ones
    if message["role"] != "assistant":
        return "user", text
    calls = [
        {"type": "tool_use", "id": call["id"], "name": fields.wire_name(call["name"])}
        | {"input": fields.arguments_object(call["arguments"])}
        for call in message.get("tool_calls", ())
    ]
    kept = fields.kept_in(message, PROVIDER)
    if kept is None:
        return "assistant", [*text, *calls]
    places = iter(calls)
    return "assistant", [next(places) if block["type"] == "tool_use" else block for block in kept]


class Blocks(fields.Reply):
    """A reply as it arrives, in blocks. It is whole with `message_stop`."""

    finishes: ClassVar = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "refusal",
        "pause_turn": "pause",
    }

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[str, JsonObject] = {}
        self._parts: dict[tuple[str, str], list[str]] = {}

    def take(self, event: object) -> str:
        """Take the next event and return the visible text in it."""
        value = read(event, dict)
        kind, index = value.get("type"), str(value.get("index"))
        if kind == "message_start":
            message = read(value.get("message"), dict)
            self.model = message.get("model")
            self._count(message.get("usage"))
        elif kind == "content_block_start":
            self.begun = True
            self._blocks[index] = block = dict(read(value.get("content_block"), dict))
            return read(block.get("text"), str)
        elif kind == "content_block_delta":
            return self._add(index, read(value.get("delta"), dict))
        elif kind == "message_delta":
            self._count(value.get("usage"))
            self.stop = read(value.get("delta"), dict).get("stop_reason") or self.stop
        elif kind == "message_stop":
            self.over = True
        return ""

    def _add(self, index: str, delta: JsonObject) -> str:
        block = self._blocks.get(index)
        if block is None:
            raise InvalidModelOutput("the reply goes on with a block that it did not begin")
        if "citation" in delta:
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        for part in _PARTS:
            self._parts.setdefault((index, part), []).append(read(delta.get(part), str))
        return read(delta.get("text"), str)

    def _count(self, usage: object) -> None:
        """Note the counts of an event, which are cumulative; an event has some of them."""
        self.usage |= {name: count for name, count in read(usage, dict).items() if count is not None}

    def output(self) -> LLMOutput:
        """Return the whole reply. Raises Cut or InvalidModelOutput."""
        if not self.over:
            raise fields.Cut
        blocks = [self._block(index) for index in self._blocks]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        raw = None
        if len(calls) + len(texts) < len(blocks):
            # of a call its place alone is kept, since the history has the call; empty texts are refused
            kept = [block if block["type"] != "tool_use" else {"type": "tool_use"} for block in blocks]
            raw = fields.kept_for(PROVIDER, [block for block in kept if block.get("text") != ""])
        counts = [count for name in _INPUT_COUNTS if type(count := self.usage.get(name)) is int]
        usage = {
            "input_tokens": sum(counts),
            "output_tokens": self.usage.get("output_tokens"),
            "cached_tokens": self.usage.get("cache_read_input_tokens"),
            "cache_write_tokens": self.usage.get("cache_creation_input_tokens"),
        }
        proposed = [ToolCall(read(block.get("name"), str), block.get("input", "")) for block in calls]
        return self.whole("".join(texts), proposed, usage, raw)

    def _block(self, index: str) -> JsonObject:
        """Return a block with all that was added to it. The arguments of a call stay as the model wrote them."""
        block = {**self._blocks[index], "type": read(self._blocks[index].get("type"), str)}
        *added, written = ("".join(self._parts.get((index, part), ())) for part in _PARTS)
        for part, text in zip(_PARTS, added, strict=False):
            if text or part == block["type"]:
                block[part] = read(block.get(part), str) + text
        if written:
            block["input"] = written if block["type"] == "tool_use" else fields.arguments_object(written)
        return block


class AnthropicService(fields.Service):
    """How the Messages API is spoken to."""

    package, least = "anthropic", 2
    client, client_options = "AsyncAnthropic", {"open_telemetry": False}
    path, create = "/v1/messages", "resources.AsyncMessages.create"
    reply = Blocks

    def body(self, model: str, asked: LLMInput, options: JsonObject, limit: int) -> JsonObject:
        """Return the body of a request for at most `limit` tokens."""
        body: JsonObject = {"model": model, "messages": messages_of(asked.messages), "stream": True}
        if asked.instructions:
            body["system"] = asked.instructions
        if asked.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
                for tool in asked.tools
            ]
        return body | fields.settings(options, self.limit_name, limit, has_tools=bool(asked.tools))
