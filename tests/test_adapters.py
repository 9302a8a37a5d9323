"""Models, messages and tools of LangChain, as an agent takes them."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from tachograph import Agent, Fallback, LangChainModel, Policy, check, from_langchain, record, replay
from tachograph.fail.errors import InputError, ToolError
from tachograph.runtime.log.events import Failed, ModelReplied
from tests.project import POLICY, merged

OWN = {
    "tool_registry": {"allowed": ["add", "say"]},
    "retry": {"max_retries": 1, "backoff_base_ms": 0},
    "on_deny": "inform",
    "tools": {"say": {"resources": {"/text": "text"}}},
}
ALLOWED = Policy.from_dict(merged(POLICY, OWN))


class Numbers(BaseModel):
    a: int
    b: int = 2


class Text(BaseModel):
    text: str


class OfLangChain:
    """What a tool of LangChain has, as `langchain_core.tools.StructuredTool` has it."""

    def __init__(self, name: str, schema: type[BaseModel]) -> None:
        self.name, self.description, self.tool_call_schema = name, f"{name} it.", schema

    async def ainvoke(self, arguments: dict[str, Any]) -> Any:
        read = self.tool_call_schema.model_validate(arguments)
        return read.a + read.b if isinstance(read, Numbers) else arguments["text"]


add, say = OfLangChain("add", Numbers), OfLangChain("say", Text)


def test_a_tool_of_langchain_is_closed_and_external() -> None:
    made = from_langchain(add)
    assert made.effect == "external"
    assert made.input_schema["additionalProperties"] is False
    assert from_langchain(add, effect="pure").effect == "pure"
    with pytest.raises(ToolError, match="EFFECT"):
        from_langchain(add, effect="odd")


class Client:
    """What a client of an SDK has."""

    def __init__(self, max_retries: int = 2) -> None:
        self.max_retries = max_retries

    def with_options(self, max_retries: int) -> Client:
        return Client(max_retries)


class Calls:
    """What a client calls with, as `openai.resources.chat.Completions` does."""

    def __init__(self, client: Client) -> None:
        self._client = client


class ChatOfLangChain:
    """What a chat model of LangChain has; it gives its replies in turn, and keeps what it is asked."""

    _llm_type = "chat"
    model_fields = dict.fromkeys("max_tokens max_retries api_key client replies asked root".split())

    def __init__(self, *replies: Any) -> None:
        self.max_tokens, self.max_retries, self.replies = None, None, list(replies)
        self.api_key = SimpleNamespace(get_secret_value=lambda: "sk-0123456789")
        self.root = Client()
        self.client = Calls(self.root)
        self.kept = "made with retries"
        self.asked: list[Any] = []

    def _get_ls_params(self, **settings: Any) -> dict[str, str]:
        return {"ls_provider": "theirs", "ls_model_name": "chat-1"}

    def model_copy(self, update: dict[str, Any]) -> ChatOfLangChain:
        made = copy(self)
        vars(made).update(update)
        return made

    def bind_tools(self, tools: Any) -> Any:
        return SimpleNamespace(invoke=lambda messages, **settings: self.invoke(messages, tools, **settings))

    def invoke(self, messages: Any, tools: Any = (), **settings: Any) -> Any:
        self.asked.append((messages, tools, settings, self))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def message(kind: str, content: Any = "", **more: Any) -> SimpleNamespace:
    """Return what has the shape of a message of LangChain."""
    empty: dict[str, Any] = {"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None, "name": None}
    whole = {**empty, "response_metadata": {}, "additional_kwargs": {}, **more}
    return SimpleNamespace(type=kind, content=content, **whole)


def call(name: str, args: Any, call_id: str) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id}


USED = {"input_tokens": 9, "output_tokens": 5}
DETAILS = {"input_token_details": {"cache_read": 4, "cache_creation": None, "ephemeral_5m_input_tokens": 2}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def test_a_chat_model_of_langchain(tmp_path: Path) -> None:
    used = {**USED, **DETAILS, "output_token_details": {"reasoning": 3}}
    told = {"stop_reason": "tool_use", "model_name": "chat-1-a", "model_provider": "theirs"}
    blocks = [THOUGHT, {"type": "text", "text": "I add."}, {"type": "tool_use", "id": "x", "name": "add"}]
    calls = {"tool_calls": [call("add", {"a": 1}, "x")], "invalid_tool_calls": [call("say", '{"text', "y")]}
    first = message("ai", blocks, usage_metadata=used, response_metadata=told, **calls)
    chat = ChatOfLangChain(first, message("ai", "3", response_metadata={"finish_reason": "stop"}))
    agent = Agent(LangChainModel(chat, top_p=0.5), [add, say], ALLOWED, instructions="Be short.")
    made = record(agent, "What is 1 and 2?", out=tmp_path / "run")
    assert (made.ending, made.answer) == ("final_answer", "3")
    assert check(agent, tmp_path / "run") == [] and replay(agent, tmp_path / "run").answer == "3"
    replied = next(event for event in made.events if isinstance(event, ModelReplied))
    assert [(it.arguments, it.text) for it in replied.calls] == [({"a": 1}, ""), (None, '{"text')]
    assert (replied.text, replied.finish, replied.model) == ("I add.", "tool_calls", "chat-1-a")
    counted = replied.usage
    assert (counted.input_tokens, counted.output_tokens, counted.reasoning_tokens) == (9, 5, 3)
    assert (counted.cached_tokens, counted.cache_write_tokens, counted.estimated) == (4, 2, False)
    (_, tools, settings, asked), (messages, *_) = chat.asked
    assert [tool["function"]["name"] for tool in tools] == ["add", "say"] and settings == {"top_p": 0.5}
    assert 0 < asked.max_tokens <= 5_000 and not hasattr(asked, "kept")
    assert asked.max_retries == asked.root.max_retries == asked.client._client.max_retries == 0
    assert (chat.max_retries, chat.root.max_retries, chat.max_tokens) == (None, 2, None)
    assert [it["role"] for it in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert messages[2]["content"] == [*blocks[:2], {**blocks[2], "id": "tc_1_0"}]
    assert messages[2]["response_metadata"] == {"model_provider": "theirs"}
    broken = call("say", {"unparsed": '{"text'}, "tc_1_1")
    assert messages[2]["tool_calls"] == [call("add", {"a": 1}, "tc_1_0"), broken]


def failing(name: str, **more: Any) -> Exception:
    error: Exception = type(name, (Exception,), {})(name)
    vars(error).update(more)
    return error


def test_what_fails_in_langchain() -> None:
    echo = {"error": {"message": "no such key: sk-01234567"}}
    for error, kind, attempts in [
        (failing("RateLimitError", status_code=429, body=None), "transient", 2),
        (failing("ServerError", code=503), "transient", 2),
        (failing("AuthenticationError", status_code=401, body=echo), "other", 1),
        (failing("TransportError"), "transient", 2),
        (ValueError("odd"), "invalid", 1),
    ]:
        chat = ChatOfLangChain(error, error, message("ai", "3"))
        made = Agent(Fallback([chat, chat]), [], ALLOWED).run("What?")
        failed = [event for event in made.events if isinstance(event, Failed)]
        assert [event.kind for event in failed][:attempts] == [kind] * attempts
        assert len(chat.asked) == len(failed) + (made.ending == "final_answer")
        assert made.events[0].model.provider == "theirs"  # type: ignore[attr-defined]
        assert not any(event.said for event in failed)


def test_a_refusal_of_langchain_is_one() -> None:
    refused = message("ai", additional_kwargs={"refusal": "No."}, response_metadata={"finish_reason": "stop"})
    assert Agent(ChatOfLangChain(refused), [], ALLOWED).run("What?").ending == "refused"


def test_messages_of_langchain_are_a_history() -> None:
    calls = {"tool_calls": [call("add", {"a": 1}, "x")], "invalid_tool_calls": [call("add", "{", "lost")]}
    history = [
        message("human", [{"type": "text", "text": "1 and 2?"}]),
        message("ai", **calls),
        message("tool", "three", tool_call_id="x"),
        {"role": "assistant", "content": "3"},
    ]
    chat = ChatOfLangChain(message("AIMessageChunk", "4"))
    assert Agent(chat, [], ALLOWED).run("And 1 more?", history=history).answer == "4"
    question, asked, result, said, further = chat.asked[0][0]
    assert (question["content"], said["content"], further["content"]) == ("1 and 2?", "3", "And 1 more?")
    assert asked["tool_calls"] == [call("add", {"a": 1}, "x")]
    assert (result["name"], result["tool_call_id"], result["content"]) == ("add", "x", '"three"')
    image = message("human", [{"type": "image_url", "image_url": {"url": "data:"}}])
    for wrong, remedy in ((message("system", "Be short."), "instructions"), (image, "not text")):
        with pytest.raises(InputError, match=remedy):
            Agent(chat, [], ALLOWED).run("What?", history=[wrong])
