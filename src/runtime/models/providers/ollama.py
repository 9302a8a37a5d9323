"""Ollama's own API.

The address is `base_url`, else OLLAMA_HOST, else the local server's; it needs no key, and OLLAMA_API_KEY is
sent where it is set. The protocol has no ids for calls: a result names its tool, and results keep their order.
Of a tool's schema the SDK passes on what Ollama knows: type, description, enum, items and required. Arguments
come as objects. The server cuts a prompt that is longer than its context window without a word: set
OLLAMA_CONTEXT_LENGTH there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....fail.errors import InvalidModelOutput
from ..types import LLMInput, LLMOutput, ToolCall
from .common import (
    IDENTITY,
    Adapter,
    Endpoint,
    arguments_object,
    endpoint,
    environment,
    finish_of,
    key,
    list_of,
    need_package,
    own_raw,
    secret,
    text_of,
    usage_of,
    wire_name,
)
from .failures import Cut, Reported
from .openai import tools_of
from .wire import Call, Options

NEEDED: Final = "0.6.2"
HOME: Final = "http://127.0.0.1:11434"
FINISH: Final = {"stop": "stop", "length": "length"}


def open_adapter(model: str, base_url: str | None, options: Options) -> Adapter:
    """An adapter for `model`. Raises InputError."""
    need_package("ollama", NEEDED)
    given, named = (base_url, "the base URL") if base_url else (environment("OLLAMA_HOST"), "OLLAMA_HOST")
    return OllamaAdapter(model, _endpoint(given or HOME, named), key("OLLAMA_API_KEY"), options)


def _endpoint(given: str, named: str) -> Endpoint:
    """OLLAMA_HOST may be a bare host; then the port is Ollama's."""
    if "://" in given:
        return endpoint(given, named)
    target = endpoint(f"http://{given}", named)
    bare = target.host.endswith("]") or ":" not in target.host
    return endpoint(f"http://{target.host}:11434", named) if bare else target


class OllamaAdapter(Adapter):
    """A model of an Ollama server."""

    provider = "ollama"
    package = "ollama"

    def __init__(self, model: str, target: Endpoint, credential: str | None, options: Options) -> None:
        super().__init__(model, target, (secret("openai_key", credential),) if credential else (), options)
        self._headers = dict(IDENTITY)
        if credential:
            self._headers["Authorization"] = f"Bearer {credential}"

    def request(self, asked: LLMInput) -> dict[str, Any]:
        """The request's body."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages_of(asked.messages),
            "options": {"num_predict": self._max_tokens(asked), **self._extra(asked)},
            "stream": self._options.stream,
        }
        if asked.tools:
            body["tools"] = tools_of(asked.tools)
        return body

    def converse(self, sdk: Any, body: dict[str, Any], call: Call) -> LLMOutput:
        """Send `body`, read the reply."""
        connect, wait = self._waits()
        with sdk.Client(
            host=self._endpoint.url,
            headers=self._headers,
            timeout=(connect, wait, wait, wait),
            **self._http(call),
        ) as client:
            try:
                reply = client.chat(**body)
                if not self._options.stream:
                    output = reply_of(_plain(reply))
                    call.say(output.text or output.final_answer or "")
                    return output
                pieces = Pieces()
                for piece in reply:
                    text = pieces.feed(_plain(piece))
                    call.begun = call.begun or pieces.begun
                    call.say(text)
                    if pieces.done:
                        break
                return reply_of(pieces.message())
            except sdk.ResponseError as error:
                if error.status_code == -1:  # an error in the place of a reply
                    raise Reported({"error": error.error}) from None
                raise
            except (AttributeError, KeyError, TypeError):  # the SDK reads a reply that is no object
                raise InvalidModelOutput("the reply is no chat reply") from None


def _plain(reply: Any) -> dict[str, Any]:
    value: dict[str, Any] = reply.model_dump(exclude_none=True)
    return value


# ---- out -----------------------------------------------------------------------------------------------


def messages_of(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history in Ollama's words."""
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        return {"role": "tool", "tool_name": wire_name(message["name"]), "content": content}
    out = {"role": role, "content": content}
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [
            {"function": {"name": wire_name(call["name"]), "arguments": arguments_object(call["arguments"])}}
            for call in calls
        ]
        if "thinking" in (raw := own_raw(message, "ollama")):
            out["thinking"] = raw["thinking"]
    return out


# ---- in ------------------------------------------------------------------------------------------------


def reply_of(reply: dict[str, Any]) -> LLMOutput:
    """A whole chat reply as LLMOutput. Raises InvalidModelOutput."""
    message = reply.get("message")
    if not isinstance(message, dict):
        raise InvalidModelOutput("the reply has no message")
    text = text_of(message.get("content"))
    calls = [_call(call) for call in list_of(message.get("tool_calls"))]
    finish = finish_of(reply.get("done_reason"), FINISH, bool(calls))
    thinking = text_of(message.get("thinking"))
    answered = finish == "length" or text
    return LLMOutput(
        text=(text or None) if calls else None,
        tool_calls=calls,
        final_answer=None if calls or not answered else text,
        usage=usage_of(reply.get("prompt_eval_count"), reply.get("eval_count")),
        finish_reason=finish,
        model=reply.get("model"),
        raw={"provider": "ollama", "thinking": thinking} if calls and thinking else None,
    )


def _call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidModelOutput("the reply has a tool call without a function's name")
    arguments = function.get("arguments")
    return ToolCall(function["name"], dict(arguments) if isinstance(arguments, dict) else text_of(arguments))


class Pieces:
    """A streamed reply. It is whole with `done`."""

    def __init__(self) -> None:
        self.begun = self.done = False
        self._last: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {"content": [], "thinking": []}
        self._calls: list[dict[str, Any]] = []

    def feed(self, piece: dict[str, Any]) -> str:
        """Take the next piece; the visible text in it."""
        message = piece.get("message")
        message = message if isinstance(message, dict) else {}
        said = {name: text_of(message.get(name)) for name in self._texts}
        for name, text in said.items():
            self._texts[name].append(text)
        calls = list_of(message.get("tool_calls"))
        self._calls += calls
        self.begun = self.begun or bool(calls or any(said.values()))
        self.done = piece.get("done") is True
        self._last = piece
        return said["content"]

    def message(self) -> dict[str, Any]:
        """The reply as it would have come in one piece. Raises Cut."""
        if not self.done:
            raise Cut
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        return self._last | {"message": {"role": "assistant", **texts, "tool_calls": self._calls}}
