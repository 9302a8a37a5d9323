"""The script: turns by step, pointers into what was really found, and errors that say where and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import TaskError
from tachograph.runtime.log.values import ModelName
from tachograph.runtime.models.scripted import Script
from tachograph.runtime.models.types import LLMInput, LLMOutput, Messages, ToolCall

DENIAL = {"error": "policy_denied", "rule": "url_allowlist", "reason": "no"}
RESULTS: list[Any] = [
    {"hits": [{"id": "op-a3", "n": 1}, {"id": "op-b1", "n": None}], "a/b": {"~": "tilde", "": "empty"}},
    "plain text",
    DENIAL | {"executed": False, "retryable": False},
]


def asked(step: int = 1) -> LLMInput:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": ""}]
    messages += [{"role": "tool", "content": json.dumps(result)} for result in RESULTS]
    return LLMInput("r", step, Messages([json.dumps(message).encode() for message in messages]), (), 100)


def answer(value: Any) -> str | None:
    return Script([{"answer": value}])(asked()).final_answer


def refused(turns: list[Any], step: int = 1) -> TaskError:
    with pytest.raises(TaskError) as error:
        Script(turns)(asked(step))
    assert error.value.remedy and error.value.file == "<script>"
    return error.value


def test_a_turn_says_calls_and_answers() -> None:
    turns = [
        {"say": "let me see", "calls": [{"tool": "search", "arguments": {"top_k": 2, "query": "x"}}, {"tool": "noop"}]},
        {"calls": [{"tool": "read", "arguments_text": "{not json"}], "usage": {"input_tokens": 1, "output_tokens": 2}},
        {"answer": "done", "finish_reason": "refusal"},
    ]  # fmt: skip
    script = Script(turns)
    assert script.name == ModelName("stub", "script", "stub")
    one, two, three = (script(asked(step)) for step in (1, 2, 3))
    calls = [ToolCall("search", {"query": "x", "top_k": 2}), ToolCall("noop", {})]
    assert one == LLMOutput(text="let me see", tool_calls=calls, finish_reason="tool_calls", model="stub")
    assert two.tool_calls == [ToolCall("read", "{not json")]
    assert two.usage == {"input_tokens": 1, "output_tokens": 2}
    assert (three.final_answer, three.finish_reason, three.tool_calls) == ("done", "refusal", [])


def test_messages_do_not_grow_with_the_run() -> None:
    texts = [b"0", b"1"]
    messages = Messages(texts)
    texts.append(b"2")
    assert [*messages] == messages[:] == [0, 1] and len(messages) == 2 and messages[-1] == 1


def test_it_is_a_function_of_the_step_and_the_messages() -> None:
    turns = [{"answer": "one"}, {"calls": [{"tool": "t", "arguments": {"v": {"$result": 1}}}]}]
    before = json.dumps(turns)
    script = Script(turns)
    first = [script(asked(step)) for step in (2, 1, 1, 2)]
    assert first[0] == first[3] and first[1] == first[2] and json.dumps(turns) == before


@pytest.mark.parametrize(
    ("pointer", "number", "value"),
    [
        ("/hits/0/id", 0, "op-a3"), ("/hits/1/id", 0, "op-b1"), ("/a~1b/~0", 0, "tilde"), ("/a~1b/", 0, "empty"),
        ("", 1, "plain text"), ("/error", 2, "policy_denied"),
    ],
)  # fmt: skip
def test_a_pointer_finds_what_a_result_holds(pointer: str, number: int, value: str) -> None:
    assert answer({"$result": number, "at": pointer}) == value


def test_pointers_stand_anywhere_in_arguments() -> None:
    arguments = {
        "id": {"$result": 0, "at": "/hits/0/id"},
        "deep": [{"all": {"$result": 0, "at": "/hits/1"}}],
        "text": {"$join": ["corpus/", {"$result": 0, "at": "/hits/0/id"}, ".md"]},
        "nested": {"$join": [{"$join": ["a", "b"]}, "c", 7]},
        "whole": {"$result": 1},
    }
    (call,) = Script([{"calls": [{"tool": "t", "arguments": arguments}]}])(asked()).tool_calls
    assert call.arguments == {
        "id": "op-a3", "deep": [{"all": {"id": "op-b1", "n": None}}], "text": "corpus/op-a3.md", "nested": "abc7",
        "whole": "plain text",
    }  # fmt: skip


DANGLING = "/none /hits/2 /hits/-1 /hits/- /hits/+0 /hits/00 /hits/0_0 /hits/\u0660 hits/0/id hits".split()
DANGLING += "/hits/x /hits/0/id/0 /hits/0/n/x /hits/0/id/ /hits/999999999999 /a/b /a~1b/~1".split()
DANGLING += ["/hits/ 0", " /hits"]


@pytest.mark.parametrize("pointer", DANGLING)
def test_a_pointer_that_dangles_is_an_error(pointer: str) -> None:
    calls = [{"tool": "t"}, {"tool": "t", "arguments": {"a": [{"$result": 0, "at": pointer}]}}]
    error = refused([{"calls": calls}])
    assert repr(pointer) in error.message and "/0/calls/1/arguments/a/0" in error.message


def test_a_result_that_is_a_denial_is_told_as_one() -> None:
    assert "url_allowlist: no" in refused([{"answer": {"$result": 2, "at": "/hits"}}]).message


NO_TEXT: list[Any] = [5, [], {}, {"$result": 0}, {"$result": 0, "at": "/hits/0/n"}, ["a"]]
# a result that is not there, a pointer that is no text, and what is not joined
NO_TEXT += [{"$result": number} for number in (3, -1, 99, "0", 0.0, None, True, [0])]
NO_TEXT += [{"$result": 0, "at": at} for at in (0, None, ["/hits"], {"a": 1})]
NO_TEXT += [{"$join": it} for it in ("text", [True], [1.5], [None], ["a", ["b"]], {"a": "b"}, 5)]
NO_TEXT += [{"$join": [{"$result": 0, "at": "/hits"}]}]


@pytest.mark.parametrize("value", NO_TEXT)
def test_an_answer_is_text(value: Any) -> None:
    assert "/0/answer" in refused([{"answer": value}]).message


@pytest.mark.parametrize(
    ("turns", "step", "place"),
    [([], 1, "(at /)"), ([{"answer": "a"}], 2, "(at /0)"), ([{}] * 3, 9, "(at /2)")],
)
def test_a_script_that_runs_out_is_an_error(turns: list[Any], step: int, place: str) -> None:
    error = refused(turns, step)
    assert place in error.message and f"turn {step}" in error.message


@pytest.mark.parametrize(
    ("turns", "place"),
    [
        ([{"answer": "a"}, {"anwser": "b"}], "(at /1)"), ([{"calls": [{"name": "read"}]}], "(at /0/calls/0)"),
        (["answer"], "(at /0)"), ([{"calls": [{"tool": "t"}, "read"]}], "(at /0/calls/1)"),
        ([{"calls": [{}]}], "(at /0/calls/0)"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_when_the_script_is_made(turns: list[Any], place: str) -> None:
    with pytest.raises(TaskError) as error:
        Script(turns)
    assert place in str(error.value)


@given(st.text(max_size=12), st.integers(-2, 4))
def test_a_pointer_finds_or_is_refused(pointer: str, number: int) -> None:
    arguments = {"v": {"$result": number, "at": pointer}}
    try:
        found = Script([{"calls": [{"tool": "t", "arguments": arguments}]}])(asked())
    except TaskError as error:
        assert error.remedy
    else:
        assert isinstance(found.tool_calls[0].arguments, dict)
