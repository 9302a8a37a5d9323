"""A LangChain chat model as a model for an agent: `Callable[[LLMInput], LLMOutput]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..fail.errors import InputError, InvalidModelOutput
from ..runtime.formats import canonical_json
from ..runtime.formats.canonical_json import NotJson
from ..runtime.models.providers.common import (
    MAX_OUTPUT_TOKENS,
    arguments_object,
    finish_of,
    own_raw,
    usage_of,
    wire_name,
)
from ..runtime.models.providers.failures import Answered, failure_of, retry_after_ms
from ..runtime.models.providers.openai import tools_of
from ..runtime.models.types import LLMInput, LLMOutput, Message, ToolCall
from .langchain import call_untraced
from .schemas import require_module

PROVIDER: Final = "langchain"
# the words of the services that LangChain passes on, in lower case
FINISH: Final = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "completed", "complete"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_use", "tool_call", "function_call"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    **dict.fromkeys(("model_context_window_exceeded", "incomplete"), "length"),
    **dict.fromkeys(("refusal", "content_filter", "safety", "guardrail_intervened"), "refusal"),
}
_FINISH_KEYS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
# how chat models call the limit of a reply, and their own retries
_LIMITS: Final = ("max_tokens", "num_predict", "max_output_tokens")
_SHORTEST_SECRET: Final = 8
_HEADERS: Final = ("retry-after", "retry-after-ms", "date")
# blocks of a reply that our own messages hold already
_CALLS: Final = ("tool_use", "tool_call", "function_call", "invalid_tool_call")
_TEXT: Final = {"type", "text", "index", "annotations"}
# how a chat model reads the content of its own earlier reply
_FORMS: Final = ("model_provider", "output_version")


class LangChainModel:
    """A LangChain chat model, ready for `Agent(LangChainModel(ChatOpenAI(..., max_retries=0)), tools, policy)`.

    A call raises what the policy's retry knows: TransientModelError, TimeoutError, InvalidModelOutput, ModelError.
    A reply is limited to the tokens that the budget leaves, and comes in one piece. Nothing is cached or traced; of
    handlers, those set on the chat model itself are called. Its own `timeout` is the only limit on a call.

    Args:
        chat_model: The chat model; it is not changed.
        name: Its name in the record, instead of its class and model.
        own_retries: Whether the chat model may retry by itself, which no record shows.

    Raises:
        InputError: It is no chat model, or retries by itself, or langchain-core is not installed.
    """

    def __init__(self, chat_model: Any, *, name: str | None = None, own_retries: bool = False) -> None:
        base = require_module("langchain_core.language_models", "langchain-core", "langchain").BaseChatModel
        if not isinstance(chat_model, base):
            raise InputError(
                f"{type(chat_model).__name__} is not a LangChain chat model",
                remedy="give the chat model itself, its settings to its constructor, not bound",
            )
        fields = type(chat_model).model_fields
        if "max_retries" in fields and chat_model.max_retries != 0 and not own_retries:
            raise InputError(
                f"{type(chat_model).__name__} retries by itself, which no record shows",
                remedy="give it max_retries=0 (the policy's retry does it), or own_retries=True here",
            )
        # a stream that breaks off would look like one that never began, which is asked for again
        whole = {"disable_streaming": True, **({"streaming": False} if "streaming" in fields else {})}
        self._model = chat_model.model_copy(update={"cache": False, **whole})
        self._limit = next((limit for limit in _LIMITS if limit in fields), None)
        called = next(
            (value for key in ("model_name", "model", "model_id") if (value := _word(chat_model, key))), None
        )
        kind = type(chat_model).__name__
        self.identity = {
            "execution_path": "live",
            "provider": PROVIDER,
            "name": name or (f"{kind}/{called}" if called else kind),
            "script_digest": None,
        }
        self.secrets = tuple(_secrets(chat_model))

    def __repr__(self) -> str:
        return f"<{PROVIDER} model {self.identity['name']!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a model may hold a key and is not written anywhere")

    def __call__(self, request: LLMInput) -> LLMOutput:
        """Ask the chat model once."""
        host = type(self._model).__name__
        try:
            reply = call_untraced(lambda: self._ask(request))
        except Exception as error:  # noqa: BLE001 - becomes one of ours
            failure = failure_of(error, _http_answer(error), host, begun=False)
        else:
            return reply_of(reply, request.step_index)
        raise failure

    def _ask(self, request: LLMInput) -> Any:
        model = self._model
        if self._limit is not None:
            own = getattr(model, self._limit)
            most = min(request.max_output_tokens, own if type(own) is int and own > 0 else MAX_OUTPUT_TOKENS)
            model = model.model_copy(update={self._limit: max(1, most)})
        if request.tools:
            model = model.bind_tools(tools_of(request.tools))
        return model.invoke(messages_of(request.messages, request.instructions), config={"callbacks": []})


def _word(model: Any, key: str) -> str | None:
    value = getattr(model, key, None)
    return value if isinstance(value, str) and value else None


def _secrets(model: Any) -> Iterator[tuple[str, str]]:
    """Yield (kind, value) of each key that the chat model holds as a secret."""
    for key in type(model).model_fields:
        read = getattr(getattr(model, key, None), "get_secret_value", None)
        value = read() if callable(read) else None
        if isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            yield "api_key", value


def _http_answer(error: BaseException) -> Answered | None:
    """Return status and headers of the HTTP response behind an exception or one of its causes."""
    here: BaseException | None = error
    for _ in range(16):
        if here is None:
            return None
        response = getattr(here, "response", None)
        status = getattr(here, "status_code", None) or getattr(response, "status_code", None)
        if type(status) is int and status >= 300:
            headers = getattr(response, "headers", None) or {}
            kept = {name: str(headers[name]) for name in _HEADERS if name in headers}
            return Answered(status, retry_after_ms(kept, 0.0), _may_retry(headers))
        here = here.__cause__ or here.__context__
    return None


def _may_retry(headers: Mapping[str, str]) -> bool:
    return headers.get("x-should-retry") != "false"


# ---- out -------------------------------------------------------------------------------------------------


def messages_of(messages: Iterable[Message], instructions: str | None = None) -> list[Any]:
    """Return instructions and history as LangChain messages."""
    kinds = require_module("langchain_core.messages", "langchain-core", "langchain")
    out: list[Any] = [] if instructions is None else [kinds.SystemMessage(instructions)]
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "assistant":
            out.append(_assistant(kinds, message))
        elif role == "tool":
            out.append(
                kinds.ToolMessage(
                    content, tool_call_id=message["tool_call_id"], name=wire_name(message["name"])
                )
            )
        else:
            out.append((kinds.SystemMessage if role == "system" else kinds.HumanMessage)(content))
    return out


def _assistant(kinds: Any, message: Message) -> Any:
    calls = [
        {
            "type": "tool_call",
            "id": call["id"],
            "name": wire_name(call["name"]),
            "args": arguments_object(call["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    kept = own_raw(message, PROVIDER)
    if not kept or _seal(kept["message"]) != kept["seal"]:
        return kinds.AIMessage(message["content"] or "", tool_calls=calls)
    return kinds.AIMessage(**kept["message"], tool_calls=calls)


def _seal(kept: dict[str, Any]) -> str:
    """Return a digest of what a service may have signed; content that a redaction changed is not sent back."""
    blocks = kept["content"] if isinstance(kept["content"], list) else []
    signed = [block for block in blocks if not _is_ours(block)]
    return canonical_json.digest(canonical_json.encode([signed, kept["additional_kwargs"]]))


def _is_ours(block: Any) -> bool:
    """Return whether a content block contains no more than our own message does."""
    if _kind(block) in _CALLS:
        return "extras" not in block
    return isinstance(block, str) or block.keys() <= _TEXT


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else "text"


# ---- in --------------------------------------------------------------------------------------------------


def reply_of(message: Any, step: int) -> LLMOutput:
    """Return an AIMessage as LLMOutput.

    Calls whose arguments LangChain could not parse follow those that it could.

    Raises:
        InvalidModelOutput: It is another message, or a part of it cannot be recorded.
    """
    if getattr(message, "type", None) not in ("ai", "AIMessageChunk"):
        raise InvalidModelOutput("the reply is not an AIMessage")
    about = message.response_metadata
    calls_made = [*message.tool_calls, *message.invalid_tool_calls]
    refusal = message.additional_kwargs.get("refusal")
    finish = "refusal" if refusal else _finish(about, bool(calls_made))
    calls = [] if finish == "refusal" else [_call(call) for call in calls_made]
    text = _text(message.content) or (refusal if isinstance(refusal, str) else "")
    answered = finish in ("refusal", "length") or text
    usage = message.usage_metadata or {}
    return LLMOutput(
        text=(text or None) if calls else None,
        tool_calls=calls,
        final_answer=None if calls or not answered else text,
        usage=usage_of(usage.get("input_tokens"), usage.get("output_tokens")),
        finish_reason=finish,
        model=about.get("model_name") or about.get("model"),
        raw=_raw(message, calls_made, step) if calls else None,
    )


def _finish(about: Mapping[str, Any], called: bool) -> str | None:
    """Return how the reply ended, if the chat model passes on what the service says."""
    word = next((about[key] for key in _FINISH_KEYS if isinstance(about.get(key), str)), None)
    return None if word is None else finish_of(word.lower(), FINISH, called)


def _call(call: Mapping[str, Any]) -> ToolCall:
    """Return a call with its arguments as LangChain parsed them, or the text that it could not parse."""
    name, arguments = call.get("name"), call.get("args")
    if not isinstance(name, str) or not name:
        raise InvalidModelOutput("the reply has a tool call without a name")
    return ToolCall(name, arguments if isinstance(arguments, dict) else str(arguments or ""))


def _text(content: Any) -> str:
    """Return the visible text of content that is one text or blocks."""
    if isinstance(content, str):
        return content
    texts = [
        block if isinstance(block, str) else block.get("text") for block in content if _kind(block) == "text"
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _raw(message: Any, calls_made: list[Any], step: int) -> dict[str, Any] | None:
    """Return what the chat model expects back with the calls (thinking, signatures), under our own call ids."""
    more = {
        key: value
        for key, value in message.additional_kwargs.items()
        if key not in ("tool_calls", "function_call", "refusal")
    }
    if not more and (isinstance(message.content, str) or all(map(_is_ours, message.content))):
        return None
    ids = {call["id"]: f"tc_{step}_{i}" for i, call in enumerate(calls_made) if call.get("id")}
    forms = {key: message.response_metadata[key] for key in _FORMS if key in message.response_metadata}
    kept = _renamed({"content": message.content, "additional_kwargs": more, "response_metadata": forms}, ids)
    try:
        return {"provider": PROVIDER, "message": kept, "seal": _seal(kept)}
    except NotJson:
        raise InvalidModelOutput("the reply has a part that is not JSON") from None


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, dict):
        return {ids.get(key, key): _renamed(item, ids) for key, item in value.items()}
    return [_renamed(item, ids) for item in value] if isinstance(value, list) else value
