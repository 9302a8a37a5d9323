"""Out: the history and the tools in the words of each protocol. Pure, no SDK is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.models.providers import anthropic, common, openai
from tachograph.runtime.models.providers.common import arguments_object, wire_name
from tachograph.runtime.models.providers.wire import Options
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolSpec, read_reply
from tests.providers.asking import SCHEMA, asked

CALLS = [
    {"id": "tc_1_0", "name": "search", "arguments": '{"query":"sleep"}'},
    {"id": "tc_1_1", "name": "read", "arguments": "{}"},
]
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Where?"}
ASSISTANT = {"role": "assistant", "content": "I look.", "tool_calls": CALLS}
RESULTS = [
    {"role": "tool", "tool_call_id": "tc_1_0", "name": "search", "content": '{"hits":[]}'},
    {"role": "tool", "tool_call_id": "tc_1_1", "name": "read", "content": '{"text":"x"}'},
]
LATER = {"role": "system", "content": "Finish now."}
HISTORY = [SYSTEM, QUESTION, ASSISTANT, *RESULTS, LATER]
TARGET = common.endpoint("http://127.0.0.1:1", "the base URL")


def options(stream: bool = True, extra: dict[str, Any] | None = None) -> Options:
    return Options(None, 1.0, 1.0, 1000, stream, extra or {})


def adapters(**kwargs: Any) -> dict[str, common.Adapter]:
    chosen = options(**kwargs)
    return {
        "openai": openai.OpenAIAdapter("m", TARGET, None, chosen, modern=False),
        "anthropic": anthropic.AnthropicAdapter("m", TARGET, None, None, chosen),
    }


# ---- the whole history -----------------------------------------------------------------------------------


def test_openai_messages() -> None:
    function = {"name": "search", "arguments": '{"query":"sleep"}'}
    assert openai.messages_of(HISTORY) == [
        SYSTEM,
        QUESTION,
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "tc_1_0", "type": "function", "function": function},
                {"id": "tc_1_1", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "tc_1_0", "content": '{"hits":[]}'},
        {"role": "tool", "tool_call_id": "tc_1_1", "content": '{"text":"x"}'},
        LATER,
    ]


def test_anthropic_messages_have_all_results_of_a_turn_in_one() -> None:
    system, messages = anthropic.messages_of(HISTORY)
    assert system == "Be brief."
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "tc_1_0", "name": "search", "input": {"query": "sleep"}},
                {"type": "tool_use", "id": "tc_1_1", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "tc_1_0", "content": '{"hits":[]}'},
                {"type": "tool_result", "tool_use_id": "tc_1_1", "content": '{"text":"x"}'},
                {"type": "text", "text": "Finish now."},
            ],
        },
    ]


def test_anthropic_gets_no_empty_text_and_no_turn_twice() -> None:
    silent = ASSISTANT | {"content": ""}
    early = {"role": "user", "content": "said between"}
    system, messages = anthropic.messages_of([SYSTEM, SYSTEM, QUESTION, silent, early, *RESULTS])
    assert system == "Be brief.\n\nBe brief."
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["type"] for block in messages[1]["content"]] == ["tool_use", "tool_use"]
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "tool_result", "text"]
    nothing = {"role": "assistant", "content": ""}
    assert anthropic.messages_of([QUESTION, nothing, QUESTION])[1] == [
        {"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "text", "text": "Where?"}]}
    ]


# ---- what a model may have made up ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", '{"a":NaN}', '{"a":1}}', '{"a":1,"a":2}', "[" * 9999]
)
def test_arguments_that_are_no_object_travel_as_the_model_wrote_them(text: str) -> None:
    history = [QUESTION, ASSISTANT | {"tool_calls": [CALLS[0] | {"arguments": text}]}]
    wanted = {"unparsed": text}
    assert arguments_object(text) == wanted
    assert json.loads(openai.messages_of(history)[1]["tool_calls"][0]["function"]["arguments"]) == wanted
    assert anthropic.messages_of(history)[1][1]["content"][1]["input"] == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("search", "search"), ("rm -rf /", "rm_-rf__"), ("", "_"), ("a" * 80, "a" * 64), ("é.b", "__b")],
)
def test_names_are_ones_that_the_services_take_back(name: str, wanted: str) -> None:
    assert wire_name(name) == wanted
    history = [QUESTION, ASSISTANT | {"tool_calls": [CALLS[0] | {"name": name}]}]
    assert openai.messages_of(history)[1]["tool_calls"][0]["function"]["name"] == wanted
    assert anthropic.messages_of(history)[1][1]["content"][1]["name"] == wanted


# ---- signed thinking --------------------------------------------------------------------------------------


def thinking_turn(thinking: str = "first this") -> tuple[LLMOutput, dict[str, Any]]:
    """A reply with signed thinking, and the message that the history keeps of it."""
    blocks = [
        {"type": "thinking", "thinking": thinking, "signature": "c2lnbmVk"},
        {"type": "text", "text": "I look."},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "tool_use", "id": "toolu_random", "name": "search", "input": '{"query":"sleep"}'},
    ]
    output = anthropic.reply_of({"content": blocks, "stop_reason": "tool_use"})
    reply = read_reply(output, 1, Redactor(["email"]).for_model_output())
    assert reply.raw is not None and reply.problem is None
    message = {"role": "assistant", "content": "I look.", "tool_calls": CALLS[:1], "raw": reply.raw.value()}
    return output, message


def test_signed_thinking_goes_back_as_it_came_with_our_ids() -> None:
    output, message = thinking_turn()
    assert "toolu_random" not in canonical_json.encode(output.raw)
    assert anthropic.messages_of([QUESTION, message])[1][1]["content"] == [
        {"type": "thinking", "thinking": "first this", "signature": "c2lnbmVk"},
        {"type": "text", "text": "I look."},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "tool_use", "id": "tc_1_0", "name": "search", "input": {"query": "sleep"}},
    ]


def test_a_paused_turn_goes_back_whole() -> None:
    """The service goes on with a turn that it paused only if it gets all blocks back, its own calls among them."""
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sleep"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ]
    output = anthropic.reply_of({"content": blocks, "stop_reason": "pause_turn"})
    assert (output.finish_reason, output.final_answer, output.tool_calls) == ("pause", "I look.", [])
    reply = read_reply(output, 1, Redactor([]).for_model_output())
    assert reply.raw is not None and reply.problem is None
    message = {"role": "assistant", "content": "I look.", "raw": reply.raw.value()}
    assert anthropic.messages_of([QUESTION, message])[1][1]["content"] == blocks


def test_thinking_in_which_a_secret_was_replaced_stays_out() -> None:
    _, message = thinking_turn("mail to someone@example.org")
    assert "someone@example.org" not in canonical_json.encode(message)
    blocks = anthropic.messages_of([QUESTION, message])[1][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "tool_use"]


def test_a_reply_goes_back_to_its_own_provider_only() -> None:
    _, message = thinking_turn()
    sent = json.dumps(openai.messages_of([message]))
    assert "first this" not in sent and "raw" not in sent
    other = message | {"raw": {"provider": "openai", "reasoning_content": "x", "extra_content": [{"g": 1}]}}
    assert "raw" not in json.dumps(anthropic.messages_of([other]))
    (back,) = openai.messages_of([other])
    assert back["reasoning_content"] == "x" and back["tool_calls"][0]["extra_content"] == {"g": 1}


# ---- the request ------------------------------------------------------------------------------------------


def test_tools_keep_every_keyword_of_their_schemas() -> None:
    wanted = json.loads(SCHEMA)
    made = {name: adapter.request(asked()) for name, adapter in adapters().items()}
    assert made["openai"]["tools"][0]["function"]["parameters"] == wanted
    assert made["anthropic"]["tools"] == [
        {"name": "search", "description": "Search the corpus.", "input_schema": wanted}
    ]
    for adapter in adapters().values():
        assert "tools" not in adapter.request(asked(tools=()))


@pytest.mark.parametrize(("left", "wanted"), [(50_000, 1000), (77, 77), (0, 1)])
def test_a_reply_is_always_bounded(left: int, wanted: int) -> None:
    bodies = {name: adapter.request(asked(left=left)) for name, adapter in adapters().items()}
    assert bodies["openai"]["max_tokens"] == wanted
    assert bodies["anthropic"]["max_tokens"] == wanted
    own = openai.OpenAIAdapter("m", TARGET, None, options(), modern=True).request(asked(left=left))
    assert own["max_completion_tokens"] == wanted and "max_tokens" not in own


def test_nothing_is_asked_for_that_has_a_default() -> None:
    streamed = {name: set(adapter.request(asked())) for name, adapter in adapters().items()}
    assert streamed == {
        "openai": {"model", "messages", "max_tokens", "tools", "stream", "stream_options"},
        "anthropic": {"model", "messages", "max_tokens", "tools", "stream"},
    }
    whole = {name: adapter.request(asked()) for name, adapter in adapters(stream=False).items()}
    assert "stream" not in whole["openai"] and "stream" not in whole["anthropic"]


def test_what_is_asked_for_is_sent_with_every_request() -> None:
    extra = {"temperature": 0, "tool_choice": "required"}
    chosen = {name: adapter.request(asked()) for name, adapter in adapters(extra=extra).items()}
    assert chosen["openai"]["extra_body"] == chosen["anthropic"]["extra_body"] == extra
    for adapter in adapters(extra=extra).values():
        assert "tool_choice" not in json.dumps(adapter.request(asked(tools=())))


def test_the_same_input_makes_the_same_request() -> None:
    def bodies(given: LLMInput) -> list[str]:
        return [json.dumps(adapter.request(given)) for adapter in adapters().values()]

    given = asked(*HISTORY)
    assert bodies(given) == bodies(given) == bodies(asked(*HISTORY))
    assert bodies(given) != bodies(asked(*HISTORY, tools=(ToolSpec("other", "", SCHEMA),)))


# ---- the schema of the final answer ----------------------------------------------------------------------

CLOSED: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["place"],
    "properties": {"place": {"type": "string"}},
}


def shaped(schema: dict[str, Any]) -> LLMInput:
    return replace(asked(), output_schema=canonical_json.encode(schema))


def test_the_schema_of_the_answer_is_in_the_words_of_each_protocol() -> None:
    given = adapters()
    wanted = {"name": "answer", "schema": CLOSED, "strict": True}
    body = given["openai"].request(shaped(CLOSED))
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}
    body = given["anthropic"].request(shaped(CLOSED))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": CLOSED}}
    for adapter in given.values():
        assert not {"response_format", "output_config"} & adapter.request(asked()).keys()


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": True},
        {"required": []},
        {"properties": {"place": {"type": "string", "maxLength": 3}}},
        {"properties": {"place": {"type": "array", "items": {"type": "object"}}}},
    ],
    ids=["open", "optional", "limited", "open inside"],
)
def test_only_what_openai_holds_a_reply_to_is_strict(change: dict[str, Any]) -> None:
    body = adapters()["openai"].request(shaped({**CLOSED, **change}))
    assert body["response_format"]["json_schema"]["strict"] is False


def test_other_settings_of_anthropics_output_are_kept() -> None:
    body = adapters(extra={"output_config": {"effort": "low"}})["anthropic"].request(shaped(CLOSED))
    assert body["extra_body"]["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": CLOSED},
    }


def test_openai_reads_messages_of_the_user_in_a_row_as_one() -> None:
    more = {"role": "user", "content": "Finish."}
    assert openai.messages_of([QUESTION, more]) == [{"role": "user", "content": "Where?\n\nFinish."}]
    assert QUESTION["content"] == "Where?"
