"""A LangChain chat model as a model of ours: fakes, and the real clients over loopback."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed: make test-adapters")

from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import Field, SecretStr

from tachograph import Agent
from tachograph.adapters import LangChainModel
from tachograph.adapters.langchain_model import messages_of, reply_of
from tachograph.fail.errors import InvalidModelOutput, ModelError, TransientModelError
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tests.adapters.kit import refused
from tests.providers.asking import asked
from tests.providers.protocols import Turn
from tests.providers.servers import Raw, Reply, Server, Status
from tests.support import perform, policy_data

KEY = "sk-test-0123456789abcdefghij"


class Chat(GenericFakeChatModel):
    """A fake that takes tools, and keeps what it was asked and offered."""

    key: SecretStr | None = None
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    offered: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self.offered.append(tools)
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.asked.append(messages)
        return super()._generate(messages, *args, **kwargs)


def chat(*replies: BaseMessage, **more: Any) -> Chat:
    return Chat(messages=iter(replies), **more)


def calling(*names: str, **more: Any) -> AIMessage:
    calls = [{"name": name, "args": {"n": i}, "id": f"their-{i}"} for i, name in enumerate(names)]
    return AIMessage(**{"content": "", "tool_calls": calls, **more})


# ---- what it is ----------------------------------------------------------------------------------------


def test_it_names_itself_and_its_secrets() -> None:
    model = LangChainModel(chat(key=SecretStr(KEY)))
    named = {"execution_path": "live", "provider": "langchain", "name": "Chat", "script_digest": None}
    assert model.identity == named and model.secrets == (("api_key", KEY),)
    assert LangChainModel(chat(), name="mine").identity["name"] == "mine"
    assert KEY not in repr(model)
    with pytest.raises(TypeError):
        pickle.dumps(model)


def test_what_is_no_chat_model_or_retries_by_itself_is_refused() -> None:
    class Trying(Chat):
        max_retries: int | None = None

    trying = Trying(messages=iter(()))
    assert "retries by itself" in refused(lambda: LangChainModel(trying))
    LangChainModel(trying, own_retries=True)
    LangChainModel(trying.model_copy(update={"max_retries": 0}))
    for no_model in (len, chat().with_retry(), "ChatOpenAI"):
        assert "is not a LangChain chat model" in refused(lambda no_model=no_model: LangChainModel(no_model))


# ---- a run with a fake ---------------------------------------------------------------------------------


def test_a_run_goes_through_it() -> None:
    first = calling(
        "probe", "echo", usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    )
    fake = chat(first, AIMessage("so", response_metadata={"model_name": "m-1", "finish_reason": "stop"}))
    ran = perform(LangChainModel(fake))
    assert ran.result.answer == "so" and [r["status"] for r in ran.results] == ["ok", "ok"]
    assert ran.steps[0]["usage"]["input_tokens"] == 5
    user, said, *results = fake.asked[1]
    assert isinstance(user, HumanMessage) and isinstance(said, AIMessage)
    assert [(c["id"], c["name"], c["args"]) for c in said.tool_calls] == [
        ("tc_1_0", "probe", {"n": 0}),
        ("tc_1_1", "echo", {"n": 1}),
    ]
    assert [(m.tool_call_id, m.content) for m in results if isinstance(m, ToolMessage)] == [
        ("tc_1_0", '{"said":"ok"}'),
        ("tc_1_1", '{"said":"ok"}'),
    ]
    (probe, _) = fake.offered[0]
    assert probe["function"]["name"] == "probe" and "x-resource" not in json.dumps(probe)
    assert ran.lines[0]["model"]["provider"] == "langchain"


def test_thinking_comes_back_under_our_ids_unless_a_secret_was_in_it() -> None:
    thinking = {"type": "thinking", "thinking": "Mail a@b.example", "signature": "c2ln"}
    blocks = [thinking, {"type": "tool_use", "id": "their-0", "name": "probe", "input": {"n": 0}}]
    more = {"signatures": {"their-0": "abc"}, "tool_calls": [{"id": "their-0"}]}
    for policy, kept in ((policy_data(), True), (policy_data(redact=["email"]), False)):
        fake = chat(calling("probe", content=blocks, additional_kwargs=more), AIMessage("so"))
        perform(LangChainModel(fake), policy=policy)
        said = fake.asked[1][1]
        assert isinstance(said, AIMessage) and said.tool_calls[0]["id"] == "tc_1_0"
        if kept:
            assert said.content == [thinking, {**blocks[1], "id": "tc_1_0"}]
            assert said.additional_kwargs == {"signatures": {"tc_1_0": "abc"}}
        else:
            assert said.content == "" and said.additional_kwargs == {}


def test_what_our_own_message_holds_is_not_kept_twice() -> None:
    blocks = [
        {"type": "text", "text": "hm"},
        {"type": "tool_use", "id": "their-0", "name": "probe", "input": {}},
    ]
    output = reply_of(calling("probe", content=blocks), 1)
    assert output.raw is None and output.text == "hm"


# ---- replies -------------------------------------------------------------------------------------------


def _said(**about: Any) -> LLMOutput:
    return reply_of(AIMessage("text", response_metadata=about), 1)


FINISHES = [
    ({}, None),
    ({"finish_reason": "stop"}, "stop"),
    ({"stop_reason": "end_turn"}, "stop"),
    ({"done_reason": "length"}, "length"),
    ({"finish_reason": "MAX_TOKENS"}, "length"),
    ({"stop_reason": "max_tokens"}, "length"),
    ({"status": "incomplete"}, "length"),
    ({"status": "completed"}, "stop"),
    ({"finish_reason": "content_filter"}, "refusal"),
    ({"finish_reason": "SAFETY"}, "refusal"),
    ({"stopReason": "tool_use"}, "other"),  # without a call
    ({"finish_reason": "made_up"}, "other"),
    ({"finish_reason": 3}, None),
]


@pytest.mark.parametrize(("about", "finish"), FINISHES, ids=str)
def test_how_a_reply_ended(about: dict[str, Any], finish: str | None) -> None:
    output = _said(**about)
    assert output.finish_reason == finish and output.final_answer == "text"


def test_a_call_that_was_cut_off_says_so() -> None:
    cut = calling("probe", response_metadata={"stop_reason": "max_tokens"})
    assert reply_of(cut, 1).finish_reason == "length"
    assert (
        reply_of(calling("probe", response_metadata={"status": "completed"}), 1).finish_reason == "tool_calls"
    )


def test_arguments_that_langchain_cannot_read_reach_the_gate_as_they_are() -> None:
    bad = {"name": "echo", "args": '{"n": 1,}', "id": "b", "error": None, "type": "invalid_tool_call"}
    output = reply_of(calling("probe", invalid_tool_calls=[bad]), 1)
    assert output.tool_calls == [ToolCall("probe", {"n": 0}), ToolCall("echo", '{"n": 1,}')]
    fake = chat(AIMessage("", invalid_tool_calls=[{**bad, "name": "probe"}]))
    ran = perform(LangChainModel(fake))
    assert ran.decisions[0]["rule_id"] == "arg_schema"
    with pytest.raises(InvalidModelOutput):
        reply_of(AIMessage("", invalid_tool_calls=[{**bad, "name": None}]), 1)


def test_refusals_texts_in_blocks_and_what_is_no_reply() -> None:
    refusal = AIMessage("", additional_kwargs={"refusal": "No."})
    assert (reply_of(refusal, 1).final_answer, reply_of(refusal, 1).finish_reason) == ("No.", "refusal")
    both = calling("probe", additional_kwargs={"refusal": "No."})
    assert reply_of(both, 1).tool_calls == []
    blocks = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a"}, "b"]
    assert reply_of(AIMessage(blocks), 1).final_answer == "ab"  # type: ignore[arg-type]
    assert reply_of(AIMessage(""), 1).final_answer is None
    for no_reply in (HumanMessage("x"), "x", None):
        with pytest.raises(InvalidModelOutput):
            reply_of(no_reply, 1)
    unsaid = calling("probe", additional_kwargs={"more": object()})
    with pytest.raises(InvalidModelOutput):
        reply_of(unsaid, 1)


def test_instructions_are_the_system_message() -> None:
    model = chat(AIMessage("From six to ten."))
    result = Agent(LangChainModel(model), instructions="You answer drivers.").run("When?")
    assert result.answer == "From six to ten."
    (sent,) = model.asked
    assert [type(message) for message in sent] == [SystemMessage, HumanMessage]
    assert sent[0].content == "You answer drivers."


def test_messages_both_ways() -> None:
    call = {"id": "tc_1_0", "name": "odd name", "arguments": "[1"}
    history = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "tc_1_0", "name": "odd name", "content": "{}"},
    ]
    system, user, said, result = messages_of(history)
    assert isinstance(system, SystemMessage) and isinstance(user, HumanMessage)
    assert said.tool_calls[0]["args"] == {"unparsed": "[1"} and said.tool_calls[0]["name"] == "odd_name"
    assert result.name == "odd_name"


# ---- failures and leaks --------------------------------------------------------------------------------


class Failing(FakeListChatModel):
    error: Any = None

    def _call(self, *args: Any, **kwargs: Any) -> str:
        raise self.error


class RateLimitError(Exception):
    status_code = 429


class APIConnectionError(Exception):
    """Named as the SDKs name theirs."""


FAILURES = [
    (RateLimitError("x"), TransientModelError),
    (APIConnectionError("x"), TransientModelError),
    (TimeoutError("x"), TimeoutError),
    (ValueError("x"), InvalidModelOutput),
    (KeyError("x"), ModelError),
]


@pytest.mark.parametrize(
    ("error", "kind"), FAILURES, ids=lambda item: getattr(item, "__name__", type(item).__name__)
)
def test_failures_are_told_apart(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        LangChainModel(Failing(responses=[""], error=error))(asked(tools=()))
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None and caught.value.__context__ is None


class Listener(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard = 0

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.heard += 1


def test_nothing_is_traced_cached_or_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    import langsmith.utils

    seen: list[object] = []

    class Looking(FakeListChatModel):
        def _call(self, *args: Any, **kwargs: Any) -> str:
            seen.append(langsmith.utils.tracing_is_enabled())
            return "so"

    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    langsmith.utils.get_env_var.cache_clear()
    listener = Listener()
    token = var_child_runnable_config.set({"callbacks": [listener]})
    set_llm_cache(InMemoryCache())
    try:
        model = LangChainModel(Looking(responses=["so"]))
        assert [model(asked(tools=())).final_answer for _ in range(2)] == ["so", "so"]
    finally:
        set_llm_cache(None)
        var_child_runnable_config.reset(token)
        langsmith.utils.get_env_var.cache_clear()
    assert seen == [False, False] and listener.heard == 0
    own = Looking(responses=["so"], callbacks=[listener])
    LangChainModel(own)(asked(tools=()))
    assert listener.heard == 1, "what is set on the chat model itself is called"


# ---- the real clients over loopback --------------------------------------------------------------------


def _openai(server: Server, **more: Any) -> Any:
    chats = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    settings = {"model": "m", "api_key": KEY, "base_url": server.base_url("openai"), "max_retries": 0}
    return LangChainModel(chats.ChatOpenAI(**{**settings, **more}))


def test_openai_is_asked_once_for_what_the_budget_leaves() -> None:
    with Server([Turn("hm", (("probe", '{"n": 1}'),)), Turn("so")]) as server:
        ran = perform(_openai(server, streaming=True))
        first, second = (request.body for request in server.requests)
    assert ran.result.answer == "so" and ran.steps[0]["usage"]["input_tokens"] == 11
    assert first["max_completion_tokens"] == 8192 and not first.get("stream")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["probe", "echo"]
    assert second["messages"][1]["tool_calls"][0]["id"] == "tc_1_0"
    assert second["messages"][2] == {"role": "tool", "tool_call_id": "tc_1_0", "content": '{"said":"ok"}'}
    assert KEY.encode() not in ran.state
    with Server([Turn("so")] * 2) as server:
        _openai(server)(asked(left=50))
        _openai(server, max_tokens=20)(asked(left=50))
        assert [request.body["max_completion_tokens"] for request in server.requests] == [50, 20]


OVER_HTTP: list[tuple[Reply, type[Exception], int | None]] = [
    (Status(429, {"retry-after": "3"}), TransientModelError, 3000),
    (Status(503), TransientModelError, None),
    (Status(500, {"x-should-retry": "false"}), ModelError, None),
    (Status(401), ModelError, None),
    (Status(400), ModelError, None),
    (Raw(b"", then="reset"), TransientModelError, None),
    (Raw(b"", then="stall"), TimeoutError, None),
    (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{"), TransientModelError, None),
]


@pytest.mark.parametrize(("reply", "kind", "wait"), OVER_HTTP, ids=lambda item: str(item)[:40])
def test_openais_failures_are_told_apart(reply: Reply, kind: type[Exception], wait: int | None) -> None:
    with Server([reply, Turn("so")]) as server:
        with pytest.raises(kind) as caught:
            _openai(server, timeout=0.5)(asked())
        assert type(caught.value) is kind and len(server.requests) == 1
    assert getattr(caught.value, "retry_after_ms", None) == wait
    assert KEY not in str(caught.value) and "127.0.0.1" not in str(caught.value)


def test_a_rate_limit_is_waited_out_by_the_policys_retry() -> None:
    with Server([Status(429), Turn("so")]) as server:
        ran = perform(_openai(server))
    assert ran.result.answer == "so"
    *failed, last = (a["outcome"] for a in ran.steps[0]["llm_attempts"])
    # the client may find the connection of the refusal closed, which is one more that is worth a retry
    assert failed and set(failed) == {"transient_failure"} and last == "success"


def test_anthropics_thinking_goes_back_signed() -> None:
    chats = pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")
    with Server([Turn("hm", (("probe", '{"n": 1}'),), thinking="Let me see."), Turn("so")]) as server:
        base = server.base_url("anthropic")
        model = chats.ChatAnthropic(model="m", api_key=KEY, base_url=base, max_retries=0)
        ran = perform(LangChainModel(model))
        first, second = (request.body for request in server.requests)
    assert ran.result.answer == "so" and first["max_tokens"] <= 8192
    thinking, _, call = second["messages"][1]["content"]
    assert thinking["type"] == "thinking" and thinking["signature"]
    assert call["id"] == "tc_1_0" == second["messages"][2]["content"][0]["tool_use_id"]
    assert ran.steps[0]["llm_output"]["finish_reason"] == "tool_calls"
