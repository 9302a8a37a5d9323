"""OpenAI's chat completions, and every service that speaks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from ...formats import strict_json
from ...log.values import ToolOffer
from ..types import LLMInput, LLMOutput, Message, ToolCall
from . import fields
from .fields import JsonObject, read, read_list

PROVIDER: Final = "openai"


def _function(**function: object) -> JsonObject:
    return {"type": "function", "function": function}


def offered(tool: ToolOffer) -> JsonObject:
    """Return a tool as chat completions are offered it."""
    parameters = {"properties": {}, **tool.input_schema}  # OpenAI refuses an object that names none
    return _function(name=tool.name, description=tool.description, parameters=parameters)


def messages_of(messages: Iterable[Message]) -> list[JsonObject]:
    """Return the history as messages of chat completions; the user's messages in a row become one."""
    out: list[JsonObject] = []
    for message in messages:
        if not message["content"] and not message.get("tool_calls"):
            continue  # services refuse empty ones
        if out and message["role"] == out[-1]["role"] == "user":  # some refuse two in a row
            out[-1]["content"] += f"\n\n{message['content']}"
        else:
            out.append(_message(message))
    return out


def _message(message: Message) -> JsonObject:
    role, content = message["role"], message["content"]
    if role == "tool":
        return {"role": role, "tool_call_id": message["tool_call_id"], "content": content}
    if not message.get("tool_calls"):
        return {"role": role, "content": content}
    kept = fields.kept_in(message, PROVIDER) or {"extra_content": []}
    out: JsonObject = {"role": role, "content": content or None, "tool_calls": []}
    if kept.get("reasoning_content"):
        out["reasoning_content"] = kept["reasoning_content"]
    for i, call in enumerate(message["tool_calls"]):
        arguments = strict_json.canonical(fields.arguments_object(call["arguments"])).decode()
        item = {"id": call["id"], **_function(name=fields.wire_name(call["name"]), arguments=arguments)}
        if any(kept["extra_content"][i : i + 1]):
            item["extra_content"] = kept["extra_content"][i]
        out["tool_calls"].append(item)
    return out


class Chunks(fields.Reply):
    """A reply as it arrives, in chunks.

    It is whole with a finish reason and `[DONE]`, which the SDK keeps to itself: `over` is set from outside.
    """

    finishes: ClassVar = {word: word for word in ("stop", "tool_calls", "length")} | {
        "content_filter": "refusal"
    }

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        self._calls: list[JsonObject] = []
        self._open: dict[str, JsonObject] = {}

    def take(self, event: object) -> str:
        """Take the next chunk and return the visible text in it."""
        chunk = read(event, dict)
        self.model = chunk.get("model") or self.model
        self.usage = read(chunk.get("usage"), dict) or self.usage
        visible = ""
        for choice in read_list(chunk.get("choices"))[:1]:
            self.stop = choice.get("finish_reason") or self.stop
            visible += self._add(read(choice.get("delta"), dict))
        return visible

    def _add(self, delta: JsonObject) -> str:
        texts = {name: _visible(delta.get(name)) for name in self._texts}
        for name, text in texts.items():
            self._texts[name].append(text)
        calls = read_list(delta.get("tool_calls"))
        for part in calls:
            self._add_call(part)
        self.begun = self.begun or bool(calls or any(texts.values()) or delta.get("reasoning"))
        return texts["content"] + texts["refusal"]

    def _add_call(self, part: JsonObject) -> None:
        function = read(part.get("function"), dict)
        index, call_id, name = str(part.get("index", 0)), part.get("id"), read(function.get("name"), str)
        call = self._open.get(index)
        # some services number every call 0, and tell them apart by the id alone
        if call is None or (name and call_id and call_id != call["id"]):
            call = self._open[index] = {"id": call_id, "name": "", "pieces": [], "extra": None}
            self._calls.append(call)
        call["name"] = call["name"] or name
        call["pieces"].append(read(function.get("arguments"), str))
        call["extra"] = part.get("extra_content") or call["extra"]

    def output(self) -> LLMOutput:
        """Return the whole reply. Raises Cut or InvalidModelOutput."""
        if not self.over or self.stop is None:
            raise fields.Cut
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        # some services want back with the calls what was thought, and a signature for each
        extra, thought = [call["extra"] for call in self._calls], texts["reasoning_content"]
        kept = {"reasoning_content": thought, "extra_content": extra}
        raw = fields.kept_for(PROVIDER, kept) if thought or any(extra) else None
        self.stop = "content_filter" if texts["refusal"] else self.stop
        usage = {
            "input_tokens": self.usage.get("prompt_tokens"),
            "output_tokens": self.usage.get("completion_tokens"),
            **_counts(self.usage.get("prompt_tokens_details"), "cached_tokens", "cache_write_tokens"),
            **_counts(self.usage.get("completion_tokens_details"), "reasoning_tokens"),
        }
        # some services send no arguments at all where a tool has none
        calls = [ToolCall(call["name"], "".join(call["pieces"]) or "{}") for call in self._calls]
        return self.whole(texts["content"] or texts["refusal"], calls, usage, raw)


def _counts(details: object, *names: str) -> JsonObject:
    """Return what a service says of a part of the tokens, which many services say nothing of."""
    return {name: details.get(name) for name in names} if isinstance(details, dict) else {}


def _visible(content: object) -> str:
    """Return a text that some services send in a list of parts."""
    if not isinstance(content, list):
        return read(content, str)
    return "".join(read(part.get("text"), str) for part in read_list(content) if part.get("type") == "text")


class OpenAIService(fields.Service):
    """How chat completions are spoken to."""

    package, least = "openai", 3
    client, client_options = "AsyncOpenAI", dict[str, Any]()
    path, create = "/chat/completions", "resources.chat.AsyncCompletions.create"
    reply = Chunks

    def body(self, model: str, asked: LLMInput, options: JsonObject, limit: int) -> JsonObject:
        """Return the body of a request for at most `limit` tokens.

        Schemas go out as they are, without `strict`: the gate judges arguments.
        """
        system = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
        body: JsonObject = {"model": model, "messages": [*system, *messages_of(asked.messages)]}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if asked.tools:
            body["tools"] = [offered(tool) for tool in asked.tools]
        return body | fields.settings(options, self.limit_name, limit, has_tools=bool(asked.tools))
