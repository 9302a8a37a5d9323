"""OpenAI's chat completions, and every service that speaks them.

The address is `base_url`, else OPENAI_BASE_URL, else Azure's (AZURE_OPENAI_ENDPOINT with AZURE_OPENAI_API_KEY,
its v1 API, the model being a deployment) where OPENAI_API_KEY is unset, else api.openai.com, which alone with
Azure needs a key. OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS work as the SDK says. Nothing is
asked for that has a default: no temperature, no seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....fail.errors import InputError, InvalidModelOutput
from ...formats import canonical_json
from ..types import LLMInput, LLMOutput, Message, ToolCall, ToolSpec
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

NEEDED: Final = "3.0"
HOME: Final = "https://api.openai.com/v1"
NO_KEY: Final = "unused"  # a server without keys gets one all the same: the SDK insists
_STRICT_KEYWORDS: Final = frozenset(
    "type title description properties required additionalProperties items anyOf enum const".split()
)
FINISH: Final = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "refusal"}


def open_adapter(model: str, base_url: str | None, options: Options) -> Adapter:
    """Return an adapter for `model`. Raises InputError."""
    need_package("openai", NEEDED)
    given, named = (
        (base_url, "the base URL") if base_url else (environment("OPENAI_BASE_URL"), "OPENAI_BASE_URL")
    )
    credential = key("OPENAI_API_KEY")
    azure = environment("AZURE_OPENAI_ENDPOINT")
    if given is None and credential is None and azure is not None:
        target = endpoint(azure, "AZURE_OPENAI_ENDPOINT")
        target = endpoint(f"{target.url.removesuffix('/openai/v1')}/openai/v1", "AZURE_OPENAI_ENDPOINT")
        credential = key("AZURE_OPENAI_API_KEY")
        if credential is None:
            raise InputError("AZURE_OPENAI_API_KEY is not set", remedy="set it to the resource's key")
        return OpenAIAdapter(model, target, credential, options, modern=True)
    target = endpoint(given or HOME, named)
    own = target.host == "api.openai.com"
    if own and credential is None:
        raise InputError(
            "OPENAI_API_KEY is not set", remedy="set it, or name a server of your own with --base-url"
        )
    return OpenAIAdapter(model, target, credential, options, modern=own)


class OpenAIAdapter(Adapter):
    """A model behind chat completions. `modern`: the service is OpenAI's own, which renamed `max_tokens`."""

    provider = "openai"
    package = "openai"
    client_class = "OpenAI"

    def __init__(
        self, model: str, target: Endpoint, credential: str | None, options: Options, *, modern: bool
    ) -> None:
        secrets = header_secrets("OPENAI_CUSTOM_HEADERS")
        if credential is not None:
            secrets = (secret("openai_key", credential), *secrets)
        super().__init__(model, target, secrets, options)
        self._credential = credential
        self._limit = "max_completion_tokens" if modern else "max_tokens"

    def request(self, model_input: LLMInput) -> JsonObject:
        """Return the request's body."""
        body: JsonObject = {
            "model": self._model,
            "messages": [*system_of(model_input.instructions), *messages_of(model_input.messages)],
            self._limit: self._max_tokens(model_input),
        }
        if model_input.tools:
            body["tools"] = tools_of(model_input.tools)
        schema = self._output_schema(model_input)
        if schema is not None:
            named = {"name": "answer", "schema": schema, "strict": is_strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        if self._streams(model_input):
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if extra := self._extra(model_input):
            body["extra_body"] = extra  # the SDK merges it into the body
        return body

    def client(self, kind: Any, http: Any, timeout: Any) -> Any:
        """Return a client of the SDK."""
        return kind(
            api_key=self._credential or NO_KEY,
            base_url=self._endpoint.url,
            max_retries=0,
            timeout=timeout,
            default_headers=IDENTITY,
            http_client=http,
        )

    def send(self, client: Any, body: JsonObject, timeout: Any) -> Any:
        """Return the context manager of a request."""
        return client.chat.completions.with_streaming_response.create(**body, timeout=timeout)

    def gather(self) -> Chunks:
        """Return what puts a streamed reply together."""
        return Chunks()

    def reply_of(self, whole: JsonObject) -> LLMOutput:
        """Read a whole reply."""
        return reply_of(whole)


# ---- out -----------------------------------------------------------------------------------------------


def system_of(instructions: str | None) -> list[JsonObject]:
    """Return instructions as the messages that stand before all others."""
    return [] if instructions is None else [{"role": "system", "content": instructions}]


def messages_of(messages: Iterable[Message]) -> list[JsonObject]:
    """Return the history as messages of chat completions; the user's messages in a row become one."""
    out: list[JsonObject] = []
    for message in messages:
        if out and message["role"] == out[-1]["role"] == "user":
            # some services refuse two of the user's turns in a row
            out[-1]["content"] += f"\n\n{message['content']}"
        else:
            out.append(_message(message))
    return out


def is_strict(schema: Any) -> bool:
    """Return whether a schema is of the kind that the service holds a reply to: closed, and all of it required."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    fields = schema.get("properties", {}) if schema.get("type") == "object" else {}
    closed = schema.get("type") != "object" or schema.get("additionalProperties") is False
    return (
        closed
        and sorted(schema.get("required", ())) == sorted(fields)
        and schema.keys() <= _STRICT_KEYWORDS
        and all(map(is_strict, fields.values()))
        and all(is_strict(schema[key]) for key in ("items", "anyOf") if key in schema)
    )


def _message(message: Message) -> JsonObject:
    role, content = message["role"], message["content"]
    if role == "tool":
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": content}
    calls = message.get("tool_calls", ())
    if role != "assistant" or not calls:
        return {"role": role, "content": content}
    raw = own_raw(message, "openai")
    extra = raw.get("extra_content") or [None] * len(calls)
    out: JsonObject = {"role": role, "content": content or None, "tool_calls": []}
    if "reasoning_content" in raw:
        out["reasoning_content"] = raw["reasoning_content"]
    for call, signed in zip(calls, extra, strict=False):
        function = {"name": wire_name(call["name"]), "arguments": _arguments(call["arguments"])}
        item = {"id": call["id"], "type": "function", "function": function}
        out["tool_calls"].append(item if signed is None else item | {"extra_content": signed})
    return out


def _arguments(text: str) -> str:
    return canonical_json.encode(arguments_object(text))


def tools_of(tools: Iterable[ToolSpec]) -> list[JsonObject]:
    """Return the tools as functions, with their schemas unchanged."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool_schema(tool),
            },
        }
        for tool in tools
    ]


# ---- in ------------------------------------------------------------------------------------------------


def reply_of(completion: JsonObject) -> LLMOutput:
    """Read a whole completion. Raises InvalidModelOutput, or Reported for an error in its place."""
    if completion.get("error"):
        raise Reported(completion)
    choices = list_of(completion.get("choices"))
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise InvalidModelOutput("the reply has no message")
    message = choices[0]["message"]
    text, refusal = _text(message.get("content")), text_of(message.get("refusal"))
    proposed = list_of(message.get("tool_calls"))
    finish = "refusal" if refusal else finish_of(choices[0].get("finish_reason"), FINISH, bool(proposed))
    usage = completion.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    calls = [] if finish == "refusal" else [_call(call) for call in proposed]
    answered = finish in ("refusal", "length") or text
    return LLMOutput(
        text=(text or None) if calls else None,
        tool_calls=calls,
        final_answer=None if calls or not answered else text or refusal,
        usage=usage_of(usage.get("prompt_tokens"), usage.get("completion_tokens")),
        finish_reason=finish,
        model=completion.get("model"),
        raw=_raw(message, proposed) if calls else None,
    )


def _text(content: object) -> str:
    """Return the visible text; some services send it in parts."""
    if not isinstance(content, list):
        return text_of(content)
    return "".join(text_of(part.get("text")) for part in list_of(content) if part.get("type") == "text")


def _call(call: JsonObject) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidModelOutput("the reply has a tool call without a function's name")
    arguments = function.get("arguments")
    return ToolCall(function["name"], arguments if isinstance(arguments, dict) else text_of(arguments))


def _raw(message: JsonObject, proposed: list[JsonObject]) -> JsonObject | None:
    """Return what some services want back with the calls: reasoning, and a signature for each."""
    raw: JsonObject = {}
    if reasoning := text_of(message.get("reasoning_content")):
        raw["reasoning_content"] = reasoning
    if any(call.get("extra_content") is not None for call in proposed):
        raw["extra_content"] = [call.get("extra_content") for call in proposed]
    return {"provider": "openai", **raw} if raw else None


class Chunks:
    """A streamed completion. It is complete with a finish reason and `[DONE]`, not with one alone."""

    def __init__(self) -> None:
        self.begun = self.done = False
        self._finish: object = None
        self._model: object = None
        self._usage: object = None
        self._texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        self._calls: list[JsonObject] = []
        self._open: dict[object, JsonObject] = {}

    def feed(self, event: str, data: str) -> str:
        """Take the next chunk and return the visible text in it."""
        if data.strip() == "[DONE]":
            self.done = True
            return ""
        chunk = parsed(data)
        if chunk.get("error") or event == "error":
            raise Reported(chunk)
        self._model = chunk.get("model") or self._model
        self._usage = chunk.get("usage") or self._usage
        visible = ""
        for choice in list_of(chunk.get("choices"))[:1]:
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta")
            if isinstance(delta, dict):
                visible += self._take(delta)
        return visible

    def _take(self, delta: JsonObject) -> str:
        texts = {name: _text(delta.get(name)) for name in self._texts}
        for name, text in texts.items():
            self._texts[name].append(text)
        calls = list_of(delta.get("tool_calls"))
        for part in calls:
            self._take_call(part)
        self.begun = self.begun or bool(calls or any(texts.values()) or delta.get("reasoning"))
        return texts["content"] + texts["refusal"]

    def _take_call(self, part: JsonObject) -> None:
        function = part.get("function")
        function = function if isinstance(function, dict) else {}
        index, name, arguments = part.get("index", 0), function.get("name"), function.get("arguments")
        call = self._open.get(index)
        # some services number every call 0, and tell them apart by the id alone
        if call is None or (name and part.get("id") and part["id"] != call["id"]):
            call = {"id": part.get("id"), "function": {"name": name, "arguments": ""}}
            self._open[index] = call
            self._calls.append(call)
        elif name and not call["function"]["name"]:
            call["function"]["name"] = name
        if isinstance(arguments, dict):
            call["function"]["arguments"] = arguments
        elif isinstance(call["function"]["arguments"], str):
            call["function"]["arguments"] += text_of(arguments)
        if part.get("extra_content") is not None:
            call["extra_content"] = part["extra_content"]

    def message(self) -> JsonObject:
        """Return the completion as it would have come in one piece. Raises Cut."""
        if not self.done or self._finish is None:
            raise Cut
        message: JsonObject = {name: "".join(parts) for name, parts in self._texts.items()}
        message["tool_calls"] = self._calls
        choice = {"message": message, "finish_reason": self._finish}
        return {"choices": [choice], "model": self._model, "usage": self._usage}
