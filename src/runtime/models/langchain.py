"""A chat model of LangChain as the model of an agent. Nothing of LangChain is imported: it is known by what it has."""

from __future__ import annotations

from typing import Any, ClassVar

from ...fail.errors import InputError, class_of
from ..formats.strict_json import map_texts
from ..log.values import ModelName
from .langchain_messages import ChatModel, is_chat_model, text_of
from .providers import fields
from .providers.anthropic import Blocks
from .providers.failures import Unaddressed, failure_of
from .providers.openai import Chunks, offered
from .types import LLMInput, LLMOutput, Message, ToolCall

# fields of a model that bound a reply
_LIMITS = ("max_tokens", "max_output_tokens", "num_predict")
# where services say why a reply ended
_STOPS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
# parts of a reply that our own messages hold: its calls and its refusal
_CALLS = ("tool_use", "tool_call", "function_call")
_OURS = ("tool_calls", "function_call", "refusal")


class _Reply(fields.Reply):
    finishes: ClassVar = {
        **Blocks.finishes,
        **Chunks.finishes,
        "completed": "stop",
        "function_call": "tool_calls",
        "max_output_tokens": "length",
        "safety": "refusal",
    }


class LangChainModel:
    """A chat model of LangChain. An agent makes one of a model that it is given; this one takes settings too.

    No attempt is repeated here, as far as the model lets its own retries be switched off: retries are recorded.

    Args:
        model: The model, such as `ChatAnthropic(model="claude-sonnet-4-5")`.
        **settings: What is given to it with every request, such as `temperature=0.0`.

    Attributes:
        name: What a record calls it.
        options: The settings.

    Raises:
        InputError: It is none.
    """

    def __init__(self, model: ChatModel, **settings: Any) -> None:
        if not is_chat_model(model):
            raise InputError(f"{class_of(model)} is no chat model of LangChain", remedy="give one, unbound")
        self._model: Any = _asking_once(model)
        self.options = settings
        told = self._model._get_ls_params(**settings)
        name = told.get("ls_model_name") or self._model._llm_type
        self.name = ModelName(told.get("ls_provider") or "langchain", name)
        self._kept_for = f"langchain.{self.name.provider}"

    def __call__(self, asked: LLMInput) -> LLMOutput:
        """Ask the model once.

        This is not a coroutine: models keep connections of the event loop that they were first used in, and of the next
        run it is another one.

        Raises:
            TransientModelError: The service is busy, or could not be reached.
            TimeoutError: The service was silent for too long.
            InvalidModelOutput: The reply cannot be used.
            ModelError: Anything else that failed.
        """
        try:
            model, settings = self._bounded(asked.max_output_tokens)
            if asked.tools:
                model = model.bind_tools([offered(tool) for tool in asked.tools])
            return self._read(model.invoke(self._sent(asked), **settings))
        except Exception as error:  # noqa: BLE001 - an SDK may raise anything
            secrets = [it for it in vars(self._model).values() if hasattr(it, "get_secret_value")]
            keys = "\n".join(str(it.get_secret_value()) for it in secrets)
            failed = failure_of(error, Unaddressed(self.name.provider, keys), begun=False)
        raise failed  # outside of the handler: the SDK's exception holds the request, and so the key

    def _bounded(self, most: int) -> tuple[Any, dict[str, Any]]:
        """Return the model with its replies bounded, and the other settings."""
        limit = next((name for name in _LIMITS if hasattr(self._model, name)), None)
        if limit is None:
            return self._model, self.options
        own = self.options.get(limit, getattr(self._model, limit))
        bound = max(1, min(most, own if type(own) is int and own > 0 else most))
        settings = {name: value for name, value in self.options.items() if name != limit}
        return self._model.model_copy(update={limit: bound}), settings

    def _sent(self, asked: LLMInput) -> list[dict[str, Any]]:
        """Return the conversation as LangChain reads it."""
        system = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
        found = [{**it} if it["role"] != "assistant" else self._turn(it) for it in asked.messages]
        return system + [it for it in found if it["content"] or it.get("tool_calls")]

    def _turn(self, message: Message) -> dict[str, Any]:
        made = message.get("tool_calls", ())
        names, ids = [fields.wire_name(it["name"]) for it in made], [it["id"] for it in made]
        said = [fields.arguments_object(it["arguments"]) for it in made]
        each = zip(names, said, ids, strict=True)
        calls = [{"name": name, "args": args, "id": id} for name, args, id in each]
        kept = fields.kept_in(message, self._kept_for) or {"turn": {"content": message["content"]}, "ids": []}
        # ids of calls are ours, also where a service keeps signatures by id
        ours = {theirs: its for theirs, its in zip(kept["ids"], ids, strict=False) if theirs}
        turn = map_texts(kept["turn"], lambda text, name: ours.get(text, text))
        return {"role": "assistant", **turn, "tool_calls": calls}

    def _read(self, message: Any) -> LLMOutput:
        reply, told, beside = _Reply(), message.response_metadata, message.additional_kwargs
        blocks = message.content if isinstance(message.content, list) else []
        refused = [it["refusal"] for it in (beside, *blocks) if isinstance(it, dict) and it.get("refusal")]
        cut = (told.get("incomplete_details") or {}).get("reason")
        stop = "refusal" if refused else cut or next((told[it] for it in _STOPS if told.get(it)), None)
        reply.stop = str(stop).lower() if stop else None
        reply.model = told.get("model_name") or told.get("model")
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        beside = {name: value for name, value in beside.items() if name not in _OURS}
        raw = None
        if beside or not all(map(_is_plain, blocks)):
            whose = {name: told[name] for name in ("model_provider", "output_version") if name in told}
            turn = {"content": message.content, "additional_kwargs": beside, "response_metadata": whose}
            raw = fields.kept_for(self._kept_for, {"turn": turn, "ids": [call["id"] for call in calls]})
        text = text_of(message.content) or "".join(refused)
        # the arguments of an invalid call are text
        proposed = [ToolCall(call["name"] or "", call["args"] or {}) for call in message.tool_calls]
        proposed += [ToolCall(call["name"] or "", call["args"] or "") for call in message.invalid_tool_calls]
        return reply.whole(text, proposed, _usage(message.usage_metadata or {}), raw)


def _asking_once(model: Any) -> Any:
    """Return a copy without retries, the clients in it too: an SDK's client is known by its `with_options`."""
    if not hasattr(model, "max_retries"):
        return model
    once = model.model_copy(update={"max_retries": 0})
    for name, value in list(vars(once).items()):
        client: Any = value if hasattr(value, "with_options") else getattr(value, "_client", None)
        if name not in type(once).model_fields:
            del vars(once)[name]  # a cached value, which was made with retries
        elif hasattr(client, "with_options"):
            bare = client.with_options(max_retries=0)
            vars(once)[name] = bare if client is value else type(value)(bare)
    return once


def _is_plain(block: Any) -> bool:
    """Return whether our own messages hold all of a block."""
    if isinstance(block, str) or block.keys() <= {"type", "text"}:
        return True
    return block.get("type") in _CALLS and "extras" not in block


def _usage(told: dict[str, Any]) -> dict[str, Any]:
    read, written = told.get("input_token_details") or {}, told.get("output_token_details") or {}
    cached_for = ("cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
    return {
        "input_tokens": told.get("input_tokens"),
        "output_tokens": told.get("output_tokens"),
        "cached_tokens": read.get("cache_read"),
        "cache_write_tokens": sum(read.get(name) or 0 for name in cached_for),
        "reasoning_tokens": written.get("reasoning"),
    }
