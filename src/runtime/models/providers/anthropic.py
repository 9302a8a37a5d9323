"""Anthropic's Messages API.

The address is `base_url`, else ANTHROPIC_BASE_URL, else api.anthropic.com, which alone needs a key:
ANTHROPIC_API_KEY, else ANTHROPIC_AUTH_TOKEN. ANTHROPIC_CUSTOM_HEADERS works as the SDK says; its profiles on
disk and its tracing are not used. No temperature is sent: the API's current version refuses one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....fail.errors import InputError, InvalidModelOutput
from ...formats import canonical_json
from ...formats.canonical_json import NotJson
from ..types import LLMInput, LLMOutput, Message, ToolCall
from .common import (
    IDENTITY,
    Adapter,
    Endpoint,
    arguments_object,
    endpoint,
    environment,
    finish_of,
    header_secrets,
    key,
    list_of,
    need_package,
    own_raw,
    secret,
    text_of,
    tool_schema,
    usage_of,
    wire_name,
)
from .failures import Cut, Reported
from .wire import JsonObject, Options, parsed

NEEDED: Final = "2.0"
HOME: Final = "https://api.anthropic.com"
NO_KEY: Final = "unused"
FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_THINKING: Final = ("thinking", "redacted_thinking")
# what the parts of a block that a delta adds to are called
_DELTAS: Final = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("partial_json", "partial_json"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}


def open_adapter(model: str, base_url: str | None, options: Options) -> Adapter:
    """Return an adapter for `model`. Raises InputError."""
    need_package("anthropic", NEEDED)
    given, named = (
        (base_url, "the base URL") if base_url else (environment("ANTHROPIC_BASE_URL"), "ANTHROPIC_BASE_URL")
    )
    credential, bearer = key("ANTHROPIC_API_KEY"), key("ANTHROPIC_AUTH_TOKEN")
    target = endpoint((given or HOME).rstrip("/").removesuffix("/v1"), named)
    if target.host == "api.anthropic.com" and credential is None and bearer is None:
        raise InputError(
            "ANTHROPIC_API_KEY is not set", remedy="set it, or name a server of your own with --base-url"
        )
    return AnthropicAdapter(model, target, credential, None if credential else bearer, options)


class AnthropicAdapter(Adapter):
    """A model behind the Messages API, with an API key or with a bearer token."""

    provider = "anthropic"
    package = "anthropic"
    client_class = "Anthropic"

    def __init__(
        self, model: str, target: Endpoint, credential: str | None, bearer: str | None, options: Options
    ) -> None:
        held = credential or bearer
        secrets = header_secrets("ANTHROPIC_CUSTOM_HEADERS")
        super().__init__(
            model, target, (secret("anthropic_key", held), *secrets) if held else secrets, options
        )
        self._credential = {"auth_token": bearer} if bearer else {"api_key": credential or NO_KEY}

    def request(self, model_input: LLMInput) -> JsonObject:
        """Return the request's body."""
        said, messages = messages_of(model_input.messages)
        system = "\n\n".join(filter(None, (model_input.instructions, said)))
        body: JsonObject = {
            "model": self._model,
            "max_tokens": self._max_tokens(model_input),
            "messages": messages,
        }
        if system:
            body["system"] = system
        if model_input.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool_schema(tool)}
                for tool in model_input.tools
            ]
        schema = self._output_schema(model_input)
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if self._streams(model_input):
            body["stream"] = True
        if extra := self._extra(model_input):
            if "output_config" in body and isinstance(extra.get("output_config"), dict):
                extra["output_config"] = body["output_config"] | extra["output_config"]
            body["extra_body"] = extra  # the SDK merges it into the body, key by key
        return body

    def client(self, kind: Any, http: Any, timeout: Any) -> Any:
        """Return a client of the SDK."""
        return kind(
            **self._credential,
            base_url=self._endpoint.url,
            max_retries=0,
            timeout=timeout,
            default_headers=IDENTITY,
            open_telemetry=False,
            http_client=http,
        )

    def send(self, client: Any, body: JsonObject, timeout: Any) -> Any:
        """Return the context manager of a request."""
        return client.messages.with_streaming_response.create(**body, timeout=timeout)

    def gather(self) -> Blocks:
        """Return what puts a streamed reply together."""
        return Blocks()

    def reply_of(self, whole: JsonObject) -> LLMOutput:
        """Read a whole reply."""
        return reply_of(whole)


# ---- out -----------------------------------------------------------------------------------------------


def messages_of(messages: Iterable[Message]) -> tuple[str, list[JsonObject]]:
    """Return (system text, messages). Turns alternate, and all results of a turn stand first in the next one.

    A system message in the middle becomes text of the user's turn: not every model takes one there.
    """
    system: list[str] = []
    out: list[JsonObject] = []
    for message in messages:
        if message["role"] == "system" and not out:
            system.append(message["content"])
            continue
        role, blocks = _turn(message)
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    for turn in out:
        turn["content"].sort(key=lambda block: turn["role"] == "user" and block["type"] != "tool_result")
    return "\n\n".join(system), out


def _turn(message: Message) -> tuple[str, list[JsonObject]]:
    content = message["content"]
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
        return "user", [result]
    text = [{"type": "text", "text": content}] if content else []  # the API refuses empty ones
    if message["role"] != "assistant":
        return "user", text
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": wire_name(call["name"]),
            "input": arguments_object(call["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    kept = own_raw(message, "anthropic")
    if kept and _seal(kept["blocks"]) == kept["seal"]:
        places = iter(calls)
        return "assistant", [
            next(places) if block["type"] == "tool_use" else block for block in kept["blocks"]
        ]
    return "assistant", [*text, *calls]


def _seal(blocks: list[JsonObject]) -> str:
    """Return a digest of the signed blocks: the service refuses ones in which a secret was replaced."""
    return canonical_json.digest(
        canonical_json.encode([block for block in blocks if block["type"] in _THINKING])
    )


# ---- in ------------------------------------------------------------------------------------------------


def reply_of(message: JsonObject) -> LLMOutput:
    """Read a whole message. Raises InvalidModelOutput, or Reported for an error in its place."""
    if message.get("type") == "error" or message.get("error"):
        raise Reported(message)
    if not isinstance(message.get("content"), list):
        raise InvalidModelOutput("the reply has no content")
    blocks = list_of(message["content"])
    text = "".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")
    proposed = [block for block in blocks if block.get("type") == "tool_use"]
    finish = finish_of(message.get("stop_reason"), FINISH, bool(proposed))
    calls = [] if finish == "refusal" else [_call(block) for block in proposed]
    answered = finish in ("refusal", "length", "pause") or text
    return LLMOutput(
        text=(text or None) if calls else None,
        tool_calls=calls,
        final_answer=None if calls or not answered else text,
        usage=_usage(message.get("usage")),
        finish_reason=finish,
        model=message.get("model"),
        raw=_paused(blocks) if finish == "pause" else _raw(blocks) if calls else None,
    )


def _paused(blocks: list[JsonObject]) -> JsonObject:
    """Return all blocks of a paused turn: the service goes on with it only if it gets them back unchanged."""
    try:
        return {"provider": "anthropic", "blocks": blocks, "seal": _seal(blocks)}
    except NotJson:
        raise InvalidModelOutput("the reply has a block that is no JSON") from None


def _call(block: JsonObject) -> ToolCall:
    """Read a call; the arguments of a streamed one are the text as the model wrote it."""
    name, arguments = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(arguments, str | dict):
        raise InvalidModelOutput("the reply has a tool call without name or input")
    return ToolCall(name, arguments)


def _usage(usage: object) -> dict[str, int] | None:
    """Return the number of all input tokens: how many came from a cache does not belong to the reply."""
    if not isinstance(usage, dict):
        return None
    read = usage.get("input_tokens")
    for name in ("cache_creation_input_tokens", "cache_read_input_tokens"):
        cached = usage.get(name) or 0
        read = read + cached if type(read) is int and type(cached) is int else None
    return usage_of(read, usage.get("output_tokens"))


def _raw(blocks: list[JsonObject]) -> JsonObject | None:
    """Return the turn's blocks in order if some are signed, and so have to be sent back unchanged."""
    if not any(block.get("type") in _THINKING for block in blocks):
        return None
    kept = []
    for block in blocks:
        if block.get("type") == "tool_use":
            kept.append({"type": "tool_use"})
        elif block.get("type") == "text" and block.get("text"):
            kept.append({"type": "text", "text": block["text"]})
        elif block.get("type") in _THINKING:
            kept.append(block)
    try:
        return {"provider": "anthropic", "blocks": kept, "seal": _seal(kept)}
    except NotJson:
        raise InvalidModelOutput("the reply has a thinking block that is no JSON") from None


class Blocks:
    """A streamed message. It is complete with `message_stop`."""

    def __init__(self) -> None:
        self.begun = self.done = False
        self._message: JsonObject | None = None
        self._usage: JsonObject = {}
        self._stop: object = None
        self._blocks: dict[int, JsonObject] = {}
        self._parts: dict[tuple[int, str], list[str]] = {}

    def feed(self, event: str, data: str) -> str:
        """Take the next event; the visible text in it."""
        value = parsed(data)
        kind = value.get("type")
        if kind == "error" or event == "error":
            raise Reported(value)
        if kind == "message_start" and isinstance(value.get("message"), dict):
            self._message = value["message"]
            self._count(self._message.get("usage"))
        elif kind == "content_block_start" and isinstance(value.get("content_block"), dict):
            self.begun = True
            self._blocks[_index(value)] = block = value["content_block"]
            return text_of(block.get("text"))
        elif kind == "content_block_delta" and isinstance(value.get("delta"), dict):
            self.begun = True
            return self._add(_index(value), value["delta"])
        elif kind == "message_delta":
            self._count(value.get("usage"))
            if isinstance(value.get("delta"), dict):
                self._stop = value["delta"].get("stop_reason") or self._stop
        elif kind == "message_stop":
            self.done = True
        return ""

    def _add(self, index: int, delta: JsonObject) -> str:
        if index not in self._blocks:
            raise InvalidModelOutput("the reply goes on with a block that it did not begin")
        if delta.get("type") not in _DELTAS:
            return ""
        source, target = _DELTAS[delta["type"]]
        text = text_of(delta.get(source))
        self._parts.setdefault((index, target), []).append(text)
        return text if target == "text" else ""

    def _count(self, usage: object) -> None:
        """Note the counts of an event, which are cumulative; an event has some of them."""
        if isinstance(usage, dict):
            self._usage |= {name: count for name, count in usage.items() if count is not None}

    def message(self) -> JsonObject:
        """Return the message as it would have come in one piece, calls' inputs as text. Raises Cut."""
        if not self.done or self._message is None:
            raise Cut
        content = []
        for index, begun in sorted(self._blocks.items()):
            block = dict(begun)
            for target in ("text", "thinking", "signature"):
                if (index, target) in self._parts:
                    block[target] = text_of(begun.get(target)) + "".join(self._parts[index, target])
            if written := "".join(self._parts.get((index, "partial_json"), ())):
                block["input"] = written
            content.append(block)
        return self._message | {"content": content, "stop_reason": self._stop, "usage": self._usage}


def _index(value: JsonObject) -> int:
    index = value.get("index")
    if type(index) is not int:
        raise InvalidModelOutput("the reply has a block without a place")
    return index
