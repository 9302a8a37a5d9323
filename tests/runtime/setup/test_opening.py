"""Instructions, variables and history: strict where they enter, part of each request, free of secrets in the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph import Agent, InputError, LLMOutput, ToolCall, record, replay, resume, tool
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.runtime.journal.requests import requests_of
from tachograph.runtime.setup.opening import Opening, opening_of

KEY = "AKIAIOSFODNN7EXAMPLE"
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": f"My key is {KEY}."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "name": "double", "arguments": '{"number": 1}'},
            {"id": "b", "name": "double", "arguments": json.dumps({"key": KEY})},
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": json.dumps({"key": KEY})},
    {"role": "tool", "tool_call_id": "a", "name": "double", "content": "2"},
    {"role": "assistant", "content": "Done."},
]
CALLS = HISTORY[1]
RESULT = HISTORY[3]


def read_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "state.jsonl").read_text(encoding="utf-8").splitlines()]


@tool(effect="pure", idempotent=True)
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def model(asked: Any) -> LLMOutput:
    if asked.step_index == 1:
        return LLMOutput(tool_calls=[ToolCall("double", {"number": 21})])
    return LLMOutput(final_answer=f"{asked.instructions} / {len(asked.messages)}")


def test_they_are_asked_recorded_and_replayed_without_secrets(tmp_path: Path) -> None:
    agent = Agent(model, [double], instructions="Help {who}. Use {key}. Keep {{who}} and {0}.")
    result = record(agent, "Go on.", tmp_path / "run", variables={"who": "Ann", "key": KEY}, history=HISTORY)
    said = "Help Ann. Use <secret:aws_access_key:1>. Keep {who} and {0}."
    assert result.answer == f"{said} / 8"
    for file in (tmp_path / "run").iterdir():
        assert KEY not in file.read_text(encoding="utf-8"), file
    lines = read_lines(tmp_path / "run")
    run = lines[0]
    assert run["instructions"] == {"variables": {"key": "<secret:aws_access_key:1>", "who": "Ann"}}
    (part,) = run["request_parts"]["instructions"]
    assert part["text"] == said
    assert [line["llm_input"]["instructions"] for line in lines[1:-1]] == [part["digest"]] * 2
    assert [line["llm_input"]["messages"] for line in lines[1:-1]] == [6, 8]
    assert [message["role"] for message in run["history"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [call["id"] for call in run["history"][1]["tool_calls"]] == ["hc_0", "hc_1"]
    assert run["history"][2] == {
        "role": "tool",
        "tool_call_id": "hc_1",
        "name": "double",
        "content": '{"key":"<secret:aws_access_key:1>"}',
    }
    assert verify(tmp_path / "run", tmp_path) == []
    first, second = requests_of(lines)
    assert (first.instructions, first.problems, second.problems) == (said, (), ())
    assert list(first.messages)[:5] == run["history"]
    assert replay(agent, tmp_path / "run").answer == result.answer


def test_a_changed_history_or_text_is_noticed_by_the_record_itself(tmp_path: Path) -> None:
    record(Agent(model, [double], instructions="Help."), "Go on.", tmp_path / "run", history=HISTORY)
    lines = read_lines(tmp_path / "run")
    changed = json.loads(json.dumps(lines))
    changed[0]["history"][4]["content"] = "Not done."
    assert "other messages" in next(requests_of(changed)).problems[0]
    changed = json.loads(json.dumps(lines))
    changed[0]["request_parts"]["instructions"][0]["text"] = "Harm."
    assert "instructions: the content is not" in next(requests_of(changed)).problems[0]


def test_a_run_without_them_has_none_of_their_keys(tmp_path: Path) -> None:
    record(Agent(lambda asked: LLMOutput(final_answer="yes")), "Well?", tmp_path / "run")
    lines = read_lines(tmp_path / "run")
    assert not {"instructions", "history"} & lines[0].keys()
    assert lines[0]["request_parts"].keys() == {"tools"}
    assert "instructions" not in lines[1]["llm_input"]


def test_a_record_of_code_is_replayed_from_itself(tmp_path: Path) -> None:
    agent = Agent(lambda asked: LLMOutput(final_answer="yes"), instructions="Say {{this}} to {who}.")
    record(agent, "Well?", tmp_path / "run", variables={"who": "Ann"}, history=HISTORY)
    assert replayed(tmp_path / "run", root=tmp_path).lines == []


def test_a_run_that_died_goes_on_with_what_it_opened_with(tmp_path: Path) -> None:
    keys: list[str] = []

    def asks(asked: Any) -> LLMOutput:
        if asked.step_index == 2 and not keys:
            raise InputError("the key is missing")
        return model(asked)

    agent = Agent(asks, [double], instructions="Help {who}.")
    with pytest.raises(InputError, match="the key is missing"):
        record(agent, "Go on.", tmp_path / "run", variables={"who": "Ann"}, history=HISTORY)
    keys.append("here")
    assert resume(agent, tmp_path / "run").answer == "Help Ann. / 8"
    assert verify(tmp_path / "run", tmp_path) == []


def test_instructions_count_where_a_provider_counts_no_tokens() -> None:
    plain, told = (
        Agent(lambda asked: LLMOutput(final_answer="yes"), instructions=text).run("Well?").steps[0].usage
        for text in (None, "é" * 50)
    )
    assert told["input_tokens"] == plain["input_tokens"] + 100 and told["estimated"]


@pytest.mark.parametrize(
    ("template", "variables", "said"),
    [
        ("Help {who}.", {}, "the variable 'who', which has no value"),
        ("Help.", {"who": "Ann"}, "do not name the variable 'who'"),
        ("Keep {{who}}.", {"who": "Ann"}, "do not name the variable 'who'"),
        (None, {"who": "Ann"}, "do not name the variable 'who'"),
        ("Help {who}.", {"who": 3}, "the variable 'who' is not a text"),
        ("Help {who}.", {"who": "\ud800"}, "lone surrogate"),
        ("Help {who}.", {"who": "x" * 200_001}, "more than 200,000 characters"),
        ("Help {who}.", {"w o": "Ann"}, "'w o' is not the name of a variable"),
        ("Help {who}.", [("who", "Ann")], "variables must be a mapping"),
        ("", {}, "the instructions must be a text"),
        (b"Help.", {}, "the instructions must be a text"),
        ("\ud800", {}, "lone surrogate"),
    ],
    ids=str,
)
def test_bad_instructions_are_one_line(template: Any, variables: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Agent(model, [double], instructions=template).run("Well?", variables=variables)
    assert said in str(caught.value) and "\n" not in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize(
    "name", ["HOME", "USER", "depot", "date", "time", "now", "hostname", "cwd", "run_id"]
)
def test_nothing_around_a_run_gives_a_variable_its_value(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "from the environment")
    with pytest.raises(InputError, match=f"the variable '{name}', which has no value"):
        Agent(model, [double], instructions=f"It is {{{name}}}.").run("Well?")
    made = opening_of(f"${{{name}}} $%{name}%", {name: f"${name} {{{name}}}"}, None)
    assert made.instructions == f"$${name} {{{name}}} $%{name}%"


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ("hello", "must be a list of messages"),
        ({"role": "user", "content": "a"}, "must be a list of messages"),
        (["hello"], "message 1 of the history is of no role"),
        ([{"role": "system", "content": "a"}], "message 1 of the history is of no role"),
        ([{"role": "user"}], "message 1 of the history has other keys"),
        ([{"role": "user", "content": "a", "id": "b"}], "message 1 of the history has other keys"),
        ([{"role": "user", "content": 3}], "something else where text belongs"),
        ([CALLS], "message 1 of the history has the call 'a' without a result"),
        (
            [CALLS, {"role": "user", "content": "a"}],
            "message 2 of the history comes before the result of 'a'",
        ),
        ([RESULT], "message 1 of the history is the result of no call"),
        ([*HISTORY, RESULT], "message 6 of the history is the result of no call"),
        ([CALLS, {**RESULT, "name": "halve"}], "is the result of a call of 'double'"),
        ([{**CALLS, "tool_calls": [CALLS["tool_calls"][0]] * 2}], "has two calls 'a'"),
        ([{**CALLS, "tool_calls": "a"}], "tool_calls that are no list"),
        ([{**CALLS, "tool_calls": [{"id": "a"}]}], "a call with other keys"),
        ([{"role": "assistant", "content": "a", "raw": float("nan")}], "the history is not JSON"),
        ([{"role": "user", "content": "\ud800"}], "the history is not JSON"),
        (({"role": "user", "content": "a"} for _ in range(10_001)), "more than 10,000 messages"),
    ],
    ids=lambda value: value if isinstance(value, str) else "history",
)
def test_bad_history_is_one_line(history: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Agent(model, [double]).run("Well?", history=history)
    assert said in str(caught.value) and "\n" not in str(caught.value) and caught.value.remedy


@given(st.dictionaries(st.sampled_from(["a", "b", "_c1"]), st.text(max_size=8)), st.text(max_size=8))
def test_every_value_stands_where_its_name_does(values: dict[str, str], rest: str) -> None:
    """A value is text: names in braces within it are not variables."""
    rest = rest.replace("{", "").replace("}", "")
    template = rest + "|".join(f"{{{name}}}" for name in values)
    values = {name: f"{{b}}{value}" for name, value in values.items()}
    try:
        made = opening_of(template or "x", values, None)
    except InputError as error:
        assert "surrogate" in str(error)
        return
    assert made.instructions == (rest + "|".join(values.values()) or "x")


def test_an_opening_reads_back_from_its_run_line() -> None:
    made = opening_of("Help {who}.", {"who": "Ann"}, HISTORY)
    line: Any = {
        "request_parts": {"instructions": [{"digest": "", "text": made.instructions}]},
        **made.run_line_keys(),
    }
    assert Opening.of_line(line).as_text() == made.as_text()
    assert Opening.of_line({"request_parts": {}}) == Opening()
