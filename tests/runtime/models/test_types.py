"""The model's side: messages that nobody can change, and a reply read once, strictly and totally."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.core.effects import Call, Reply
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import digest, encode
from tachograph.runtime.models.types import (
    FINISH_REASONS,
    MAX_VALUES,
    MOST_TOKENS,
    History,
    LLMOutput,
    Messages,
    ToolCall,
    read_call,
    read_reply,
)

PLAIN = Redactor([])
EMAIL = Redactor(["email"])
# an object and a list hold all the others
HELD = '{"a":[' + ",".join("1" for _ in range(MAX_VALUES - 2)) + "]}"


def read(**fields: Any) -> Reply:
    return read_reply(LLMOutput(**fields), 3, PLAIN)


# ---- messages -------------------------------------------------------------------------------------------------


def test_messages_are_a_window_on_texts_and_give_copies() -> None:
    history = History()
    history.add({"role": "user", "content": "a"})
    early = history.window()
    history.add({"role": "assistant", "content": "b"})
    assert len(early) == 1 and len(history.window()) == 2
    early[0]["content"] = "changed"
    for message in early:
        message.clear()
    assert [message["content"] for message in history.window()] == ["a", "b"]
    assert early[0] == early[-1] == {"role": "user", "content": "a"}


@given(st.lists(st.text(max_size=3), max_size=5), st.slices(6), st.integers(-8, 8))
def test_messages_behave_like_a_list(contents: list[str], part: slice, index: int) -> None:
    whole = [{"content": content} for content in contents if content.isascii()]
    found = Messages([encode(message) for message in whole] + ["{}"], len(whole))
    assert list(found) == whole and len(found) == len(whole)
    assert found[part] == whole[part]
    if -len(whole) <= index < len(whole):
        assert found[index] == whole[index]
    else:
        with pytest.raises(IndexError):
            found[index]


def test_a_historys_digest_is_a_chain() -> None:
    history = History()
    first, second = {"content": "é"}, {"content": "b"}
    history.add(first)
    assert history.digest == digest(encode(first))
    history.add(second)
    assert history.digest == digest(digest(encode(first)) + encode(second))
    assert history.bytes == len((encode(first) + encode(second)).encode())


# ---- a usable reply -------------------------------------------------------------------------------------------


def test_an_answer() -> None:
    reply = read(final_answer="yes", text="thinking", finish_reason="stop", model="m", raw={"b": 1, "a": 2.0})
    assert (reply.final_answer, reply.text, reply.finish_reason, reply.model) == (
        "yes",
        "thinking",
        "stop",
        "m",
    )
    assert reply.raw is not None and reply.raw.text == '{"a":2,"b":1}'
    assert reply.problem is None and reply.calls == ()


def test_calls_get_ids_of_ours_and_arguments_as_one_text() -> None:
    reply = read(tool_calls=[ToolCall("a", '{"y": 1.0, "x": "\\u0061"}'), ToolCall("b", {"k": [None]})])
    assert [(c.id, c.name, c.arguments.text if c.arguments else None) for c in reply.calls] == [
        ("tc_3_0", "a", '{"x":"a","y":1}'), ("tc_3_1", "b", '{"k":[null]}'),
    ]  # fmt: skip
    assert reply.problem is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "neither an answer nor tool calls"),
        ({"text": "only talk"}, "neither an answer nor tool calls"),
        ({"final_answer": "a", "tool_calls": [ToolCall("t", "{}")]}, "both an answer and tool calls"),
        (
            {"tool_calls": [ToolCall("t", "{}")], "finish_reason": "length"},
            "tool calls of a reply that was cut off by length",
        ),
        ({"final_answer": "a", "raw": {1, 2}}, "raw is no JSON: not JSON data"),
        ({"final_answer": "a", "raw": [float("nan")]}, "raw is no JSON: NaN or infinity"),
        ({"final_answer": 7}, "text that is no string"),
        ({"final_answer": "a", "text": b"b"}, "text that is no string"),
        ({"tool_calls": "t"}, "tool_calls is no list"),
        ({"tool_calls": None}, "tool_calls is no list"),
        ({"tool_calls": [("t", "{}")]}, "a tool call that is no ToolCall with a name"),
        ({"tool_calls": [ToolCall(None, "{}")]}, "a tool call that is no ToolCall with a name"),  # type: ignore[arg-type]
    ],
)
def test_no_usable_reply(fields: dict[str, Any], problem: str) -> None:
    assert read(**fields).problem == problem


def test_an_answer_cut_off_by_length_is_an_answer() -> None:
    assert read(final_answer="a", finish_reason="length").problem is None


@pytest.mark.parametrize("output", [None, "text", {}, {"final_answer": "a"}, LLMOutput, object()])
def test_what_is_no_output_is_a_problem(output: Any) -> None:
    assert read_reply(output, 1, PLAIN).problem == "no LLMOutput"


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ({"input_tokens": 0, "output_tokens": 5}, (0, 5)),
        ({"input_tokens": 100_000_001, "output_tokens": 1, "more": "x"}, (100_000_001, 1)),
        ({"input_tokens": MOST_TOKENS, "output_tokens": 10**400}, (MOST_TOKENS, MOST_TOKENS)),
    ]
    + [
        (odd, None)
        for odd in (
            None, {}, [], 5, "5", {"input_tokens": 1}, {"input_tokens": -1, "output_tokens": 1},
            {"input_tokens": True, "output_tokens": 1},
            {"input_tokens": 1.0, "output_tokens": 1}, {"input_tokens": "1", "output_tokens": 1},
        )
    ],
)  # fmt: skip
def test_usage_is_two_counts_or_nothing(usage: Any, kept: Any) -> None:
    assert read(final_answer="a", usage=usage).usage == kept


class Reason(enum.StrEnum):
    STOP = "stop"


class Word(str):
    def __str__(self) -> str:
        return "something else"


@pytest.mark.parametrize(
    "reason", [*FINISH_REASONS, "end_turn", "", None, 5, ["stop"], Reason.STOP, Word("stop")]
)
def test_a_finish_reason_is_one_of_ours_or_none(reason: Any) -> None:
    kept = read(final_answer="a", finish_reason=reason).finish_reason
    assert kept is None or (type(kept) is str and kept in FINISH_REASONS and kept == reason)
    assert (kept is None) == (reason not in FINISH_REASONS)


def test_a_subclass_of_str_is_no_more_than_its_text() -> None:
    reply = read(text=Word("a"), model=Word("m"), tool_calls=[ToolCall(Word("t"), Word('{"a":1}'))])
    assert (reply.text, reply.model, reply.calls[0].name) == ("a", "m", "t")
    assert {type(reply.text), type(reply.model), type(reply.calls[0].name)} == {str}
    assert reply.calls[0].arguments is not None


def test_lone_surrogates_are_replaced_and_names_are_cut() -> None:
    reply = read(text="\ud800x", final_answer="y\udfff", model="m" * 999)
    assert (reply.text, reply.final_answer) == ("?x", "y?")
    assert reply.model == "m" * 200


# ---- arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "raw", "problem"),
    [
        ("[1]", "[1]", "not an object"),
        ("null", "null", "not an object"),
        ('"{}"', '"{}"', "not an object"),
        ("", "", "not JSON"),
        ("{", "{", "not JSON"),
        ('{"a":1,"a":2}', '{"a":1,"a":2}', "duplicate key"),
        ('{"a":"\ud800"}', '{"a":"?"}', "lone surrogate"),
        ({"a": {1}}, None, "not JSON data"),
        ({1: 2}, None, "a key that is no string"),
        (None, None, "not text"),
        (b"{}", None, "not text"),
        (7, None, "not text"),
        (HELD[:-2] + ",1]}", HELD[:-2] + ",1]}", "more than 50,000 values"),
        ({"a": [1] * (MAX_VALUES - 1)}, None, "more than 50,000 values"),
        ({"a": [[[]]] * 30_000}, None, "more than 50,000 values"),
        (dict.fromkeys(map(str, range(MAX_VALUES)), 1), None, "more than 50,000 values"),
    ],
)
def test_arguments_that_are_no_object(arguments: Any, raw: str | None, problem: str) -> None:
    assert read_call("i", "t", arguments, PLAIN) == Call("i", "t", None, raw, problem)


def test_as_many_values_as_there_may_be() -> None:
    for arguments in (HELD, json.loads(HELD), {"a": "[" * 200_000}):
        found = read_call("i", "t", arguments, PLAIN)
        assert found.problem is None and found.arguments is not None


def test_everything_that_enters_is_redacted() -> None:
    secret = "a" + "@" + "b.test"
    reply = read_reply(
        LLMOutput(
            text=secret,
            tool_calls=[ToolCall("t", f'{{"x":"{secret}"}}'), ToolCall(secret, f"no json {secret}")],
            raw=[secret],
        ),
        1,
        Redactor(["email"]),
    )
    assert secret not in repr(reply)
    assert reply.calls[1].raw == "no json <secret:email:1>"
    assert secret not in repr(read_reply(LLMOutput(final_answer=secret), 1, EMAIL))


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=2)
    | st.sampled_from(
        [Reason.STOP, Word("w"), ToolCall("t", "{}"), ToolCall(Word("t"), Word("[")), ToolCall(b"t", 5)]
    ),  # type: ignore[arg-type]
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.lists(ANY, max_size=7))
def test_reading_is_total_and_what_it_gives_can_be_recorded(fields: list[Any]) -> None:
    reply = read_reply(LLMOutput(*fields), 1, EMAIL)
    encode(
        [
            reply.text,
            reply.final_answer,
            reply.finish_reason,
            reply.model,
            reply.usage,
            reply.raw,
            reply.problem,
        ]
    )
    encode([call.to_dict() for call in reply.calls])
    if reply.problem is None:
        assert (reply.final_answer is None) == bool(reply.calls)
