"""In: replies of each protocol, whole or streamed, as LLMOutput. Pure, no SDK is needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import InvalidModelOutput
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.providers import anthropic, openai
from tachograph.runtime.models.providers.failures import Cut, Reported
from tachograph.runtime.models.providers.wire import events
from tachograph.runtime.models.types import FINISH_REASONS, LLMOutput, ToolCall, read_reply
from tests.providers.protocols import STREAM, WHOLE, Turn

MODULES: dict[str, Any] = {"openai": openai, "anthropic": anthropic}
PROVIDERS = tuple(MODULES)
PAIR = (("search", '{"query": "a"}'), ("read", "{}"))


def whole(provider: str, turn: Turn) -> LLMOutput:
    output = MODULES[provider].reply_of(WHOLE[provider](turn, "model-as-served"))
    assert isinstance(output, LLMOutput)
    return output


def gathered(provider: str, chunks: Iterable[bytes]) -> tuple[LLMOutput, str]:
    """A reply put together from a stream, and the text that was visible while it came."""
    said = []
    gather = openai.Chunks() if provider == "openai" else anthropic.Blocks()
    for event, data in events(chunks):
        said.append(gather.feed(event, data))
        if gather.done:
            break
    return MODULES[provider].reply_of(gather.message()), "".join(said)


def streamed(provider: str, turn: Turn) -> LLMOutput:
    return gathered(provider, STREAM[provider](turn))[0]


def comparable(output: LLMOutput) -> tuple[Any, ...]:
    """Everything but the raw text of arguments, which only a stream has."""
    reply = read_reply(output, 1, Redactor([]))
    return (
        reply.text,
        reply.calls,
        reply.final_answer,
        reply.finish_reason,
        reply.usage,
        reply.model,
        reply.raw,
    )


# ---- both ways to send say the same -------------------------------------------------------------------------


KEYS = st.text(st.characters(max_codepoint=0xD7FF), max_size=4)  # what canonical JSON takes as a key
ARGUMENTS = st.dictionaries(KEYS, st.text(max_size=5) | st.integers(-9, 9), max_size=2)
TURNS = st.builds(
    Turn,
    text=st.text(max_size=20),
    calls=st.lists(st.tuples(st.sampled_from(["search", "read"]), ARGUMENTS.map(json.dumps)), max_size=3).map(
        tuple
    ),
    thinking=st.text(max_size=10),
    usage=st.none() | st.tuples(st.integers(5, 99), st.integers(0, 99)),
    cached=st.integers(0, 5),
)


@pytest.mark.parametrize("provider", PROVIDERS)
@settings(max_examples=40, deadline=None)
@given(turn=TURNS, size=st.integers(1, 40))
def test_a_stream_is_the_same_reply(provider: str, turn: Turn, size: int) -> None:
    data = b"".join(STREAM[provider](turn))
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    output, said = gathered(provider, chunks)
    assert comparable(output) == comparable(whole(provider, turn))
    assert said == turn.text == (output.text or output.final_answer or "")


@settings(max_examples=40, deadline=None)
@given(turn=TURNS.filter(lambda turn: not turn.thinking))
def test_the_protocols_say_the_same(turn: Turn) -> None:
    first, second = (comparable(streamed(provider, turn)) for provider in PROVIDERS)
    assert first == second


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("text", ['{"query":   "a"}', '{"query": "a"', "[1]", "not JSON", '{"a":1,"a":2}'])
def test_the_text_of_arguments_is_the_model_s_own(provider: str, text: str) -> None:
    output = streamed(provider, Turn(calls=(("search", text),)))
    assert list(output.tool_calls) == [ToolCall("search", text)]


def test_no_arguments_at_all() -> None:
    (call,) = streamed("openai", Turn(calls=(("search", ""),))).tool_calls
    assert call.arguments == "", "the model's error"
    (call,) = streamed("anthropic", Turn(calls=(("search", ""),))).tool_calls
    assert call.arguments == {}, "the protocol's way to write an empty object"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text_and_parallel_calls(provider: str) -> None:
    output = streamed(provider, Turn("I look.", PAIR))
    assert output.text == "I look." and output.final_answer is None
    assert output.finish_reason == "tool_calls"
    assert [call.name for call in output.tool_calls] == ["search", "read"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nothing_of_the_server_s_own_making_is_kept(provider: str) -> None:
    turn = Turn("I look.", PAIR, thinking="first")
    for way in (streamed, whole):
        assert repr(way(provider, turn)) == repr(way(provider, turn)), "ids, dates or timings"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_usage_counts_cached_tokens_as_input(provider: str) -> None:
    for cached in (0, 9):
        output = streamed(provider, Turn("x", usage=(20, 3), cached=cached))
        assert output.usage == {"input_tokens": 20, "output_tokens": 3}
    assert streamed(provider, Turn("x", usage=None)).usage is None


# ---- how it ended -------------------------------------------------------------------------------------------


FINISHES = {
    "openai": openai.FINISH | {"function_call": "other", "eos": "other"},
    "anthropic": anthropic.FINISH | {"compaction": "other"},
}


@pytest.mark.parametrize(
    ("provider", "word", "wanted"),
    [(provider, word, wanted) for provider, words in FINISHES.items() for word, wanted in words.items()],
)
def test_every_way_to_end_is_named(provider: str, word: str, wanted: str) -> None:
    assert wanted in FINISH_REASONS
    calls = PAIR if wanted == "tool_calls" else ()
    for way in (streamed, whole):
        output = way(provider, Turn("x", calls, finish=word))
        assert output.finish_reason == wanted
        assert output.final_answer == (None if calls else "x")


def test_an_ending_that_the_calls_belie() -> None:
    for provider, stop, called in (
        ("openai", "stop", "tool_calls"),
        ("anthropic", "end_turn", "tool_use"),
    ):
        assert streamed(provider, Turn(calls=PAIR, finish=stop)).finish_reason == "tool_calls"
        if called is not None:
            output = streamed(provider, Turn("x", finish=called))
            assert output.finish_reason == "other" and output.final_answer == "x"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_cut_off_by_length_are_kept_and_marked(provider: str) -> None:
    word = "max_tokens" if provider == "anthropic" else "length"
    output = streamed(provider, Turn(calls=PAIR[:1], finish=word))
    assert output.finish_reason == "length" and len(output.tool_calls) == 1
    assert read_reply(output, 1, Redactor([])).problem == "tool calls of a reply that was cut off by length"
    output = streamed(provider, Turn("half an ans", finish=word))
    assert output.finish_reason == "length" and output.final_answer == "half an ans"
    assert streamed(provider, Turn("", finish=word)).final_answer == ""


def test_a_refusal_is_an_answer_and_calls_nothing() -> None:
    for turn, provider in (
        (Turn(refusal="I will not."), "openai"),
        (Turn("I will not.", finish="content_filter"), "openai"),
        (Turn("I will not.", PAIR, finish="content_filter"), "openai"),
        (Turn(refusal="I will not."), "anthropic"),
        (Turn("I will not.", PAIR, finish="refusal"), "anthropic"),
    ):
        for way in (streamed, whole):
            output = way(provider, turn)
            assert output.finish_reason == "refusal" and output.final_answer == "I will not."
            assert not output.tool_calls and output.text is None and output.raw is None
    assert streamed("anthropic", Turn(finish="refusal")).final_answer == ""


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply_that_says_nothing_is_neither_answer_nor_call(provider: str) -> None:
    output = streamed(provider, Turn(""))
    assert output.final_answer is None and not output.tool_calls
    assert read_reply(output, 1, Redactor([])).problem == "neither an answer nor tool calls"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_thinking_is_kept_only_where_it_has_to_go_back(provider: str) -> None:
    assert streamed(provider, Turn("x", thinking="hm")).raw is None
    assert streamed(provider, Turn("x", PAIR)).raw is None
    raw = streamed(provider, Turn("x", PAIR, thinking="hm")).raw
    assert raw["provider"] == provider and "hm" in json.dumps(raw)


# ---- streams that are not whole -------------------------------------------------------------------------------


def cut_streams(provider: str) -> Iterator[tuple[int, list[bytes]]]:
    parts = list(STREAM[provider](Turn("I look.", PAIR)))
    for count in range(len(parts)):
        yield count, parts[:count]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_stream_that_ends_early_is_cut(provider: str) -> None:
    counts = []
    for count, parts in cut_streams(provider):
        with pytest.raises(Cut):
            gathered(provider, parts)
        counts.append(count)
    assert len(counts) > 5


def test_a_stream_needs_both_its_end_and_a_reason() -> None:
    parts = list(STREAM["openai"](Turn("I look.", usage=None)))
    for lacking in (parts[:-1], [*parts[:-2], parts[-1]]):
        with pytest.raises(Cut):
            gathered("openai", lacking)


def test_half_an_event_is_none() -> None:
    parts = list(STREAM["openai"](Turn("abcdef")))
    with pytest.raises(Cut):
        gathered("openai", [*parts[:-1], b"data: [DONE]"])
    assert list(
        events([b"data: a", b"\n", b"data: b\r\n\r\n", b": note\n\nevent: x\ndata:c\n\ndata: d"])
    ) == [
        ("", "a\nb"),
        ("x", "c"),
    ]


def test_line_separators_of_unicode_are_ordinary_text() -> None:
    text = "a\u2028b\u0085c\x0bd\x0ce"
    for provider in ("openai", "anthropic"):
        assert streamed(provider, Turn(text)).final_answer == text


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_error_in_the_stream_is_reported_with_its_word(provider: str) -> None:
    data = {"type": "error", "error": {"type": "overloaded_error", "message": "something long"}}
    with pytest.raises(Reported) as caught:
        gathered(provider, [b"event: error\ndata: " + json.dumps(data).encode() + b"\n\n"])
    assert caught.value.word == "overloaded_error" and str(caught.value) == ""


@pytest.mark.parametrize(
    "chunk", [b"data: {\n\n", b"data: []\n\n", b"data: \xff\n\n", b"data: " + b"[" * 99_999 + b"\n\n"]
)
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_events_that_are_no_objects(provider: str, chunk: bytes) -> None:
    with pytest.raises(InvalidModelOutput):
        gathered(provider, [chunk])


# ---- services that differ ---------------------------------------------------------------------------------------


def openai_chunks(*deltas: dict[str, Any]) -> list[bytes]:
    finish = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in [*chunks, finish]] + [
        b"data: [DONE]\n\n"
    ]


def test_calls_that_are_all_numbered_0_are_told_apart_by_their_ids() -> None:
    def call(name: str, arguments: Any, call_id: str | None) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"tool_calls": [{"index": 0, "id": call_id, "function": function}]}

    output, _ = gathered("openai", openai_chunks(call("search", "{}", "a"), call("read", '{"p":1}', "b")))
    assert list(output.tool_calls) == [ToolCall("search", "{}"), ToolCall("read", '{"p":1}')]
    output, _ = gathered("openai", openai_chunks(call("search", '{"q"', "a"), call("search", ":1}", "a")))
    assert list(output.tool_calls) == [ToolCall("search", '{"q":1}')]
    output, _ = gathered("openai", openai_chunks(call("search", {"q": 1}, None)))
    assert list(output.tool_calls) == [ToolCall("search", {"q": 1})]


def test_signatures_beside_calls_come_back_in_place() -> None:
    calls = [
        {
            "index": 0,
            "id": "a",
            "function": {"name": "x", "arguments": "{}"},
            "extra_content": {"g": {"s": "="}},
        },
        {"index": 1, "id": "b", "function": {"name": "y", "arguments": "{}"}},
    ]
    output, _ = gathered("openai", openai_chunks({"tool_calls": calls}))
    assert output.raw == {"provider": "openai", "extra_content": [{"g": {"s": "="}}, None]}


def test_text_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "reference"}, {"type": "text", "text": "b"}]
    choice = {"message": {"content": parts}, "finish_reason": "stop"}
    assert openai.reply_of({"choices": [choice]}).final_answer == "ab"
