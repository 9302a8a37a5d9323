"""Messages and chat models of LangChain. Nothing of it is imported: each is known by what it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ...fail.errors import InputError
from ..formats import strict_json

_TYPES = {name: kind for kind in ("human", "ai", "tool", "system") for name in (kind, f"{kind}messagechunk")}


class ChatModel(Protocol):
    """What an agent takes as a chat model of LangChain."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Return the model with tools."""

    def invoke(self, input: Any, *others: Any, **options: Any) -> Any:
        """Reply."""


def is_chat_model(value: Any) -> bool:
    """Return whether a value is a chat model of LangChain; a bound one is none, since it would lose what is bound."""
    return all(hasattr(type(value), name) for name in ("invoke", "bind_tools", "_llm_type"))


def text_of(content: Any) -> str:
    """Return the text of a message, which may be in blocks; the other blocks of it are left out."""
    if isinstance(content, str):
        return content
    texts = [it if isinstance(it, str) else it.get("type") == "text" and it.get("text") for it in content]
    return "".join(text for text in texts if text)


def plain_messages(messages: Iterable[Any]) -> list[Any]:
    """Return messages with those of LangChain as plain ones; whatever else there is stays as it is.

    Raises:
        InputError: There is a system message, or one of a person that is more than text.
    """
    found = list(messages)
    answered = {it.tool_call_id for it in found if _type(it) == "tool"}
    names: dict[str, str] = {}
    for place, message in enumerate(found):
        kind = _type(message)
        if kind == "system":
            raise InputError("the history holds a system message", remedy="give it as instructions")
        if kind == "human":
            parts = [] if isinstance(message.content, str) else message.content
            if any(isinstance(it, dict) and it.get("type") != "text" for it in parts):
                raise InputError("the history holds a message that is not text", remedy="leave it out")
            found[place] = {"role": "user", "content": text_of(message.content)}
        elif kind == "ai":
            # nothing answers a call with broken arguments but what reads them as we do
            broken = [it for it in message.invalid_tool_calls if it["id"] in answered]
            calls = [_call(it) for it in (*message.tool_calls, *broken)]
            names |= {it["id"]: it["name"] for it in calls}
            found[place] = {"role": "assistant", "content": text_of(message.content)}
            found[place] |= {"tool_calls": calls} if calls else {}
        elif kind == "tool":
            its = {"tool_call_id": message.tool_call_id, "name": message.name}
            its["name"] = its["name"] or names.get(message.tool_call_id, "tool")
            found[place] = {"role": "tool", **its, "content": _json(message.content)}
    return found


def _type(message: Any) -> str | None:
    said = getattr(message, "type", None) if hasattr(message, "content") else None
    return _TYPES.get(said.lower()) if isinstance(said, str) else None


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["args"]
    if not isinstance(arguments, str):
        arguments = strict_json.canonical(strict_json.as_json(arguments or {})).decode()
    return {"id": call["id"], "name": call["name"] or "", "arguments": arguments}


def _json(content: Any) -> str:
    """Return a result as JSON text, which results of ours are."""
    try:
        strict_json.parse(text := text_of(content))
        return text
    except strict_json.NotJson:
        return strict_json.canonical(text).decode()
