"""The ledger: a chain in which every damage is seen and named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import RecordError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.effects import RunEnded
from tachograph.runtime.formats.canonical_json import MAX_DEPTH, Fragment, digest, encode, freeze
from tachograph.runtime.journal.ledger import SCHEMA, Ledger, Totals, end_line, read, text_of
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

CLOSED = {"type": "object", "additionalProperties": False}


def small() -> bytes:
    """A ledger of four lines, some with U+2028 in them: it is legal there and splits nothing."""
    book = Ledger()
    lines: list[dict[str, Any]] = [{"type": "run", "schema": SCHEMA, "run_id": "r"}]
    lines += [{"type": "step", "n": i, "text": "a\u2028b\u0085\r"} for i in (1, 2)]
    lines += [{"type": "end", "lines": 4}]
    return "".join(book.append(line) + "\n" for line in lines).encode()


SMALL = small()


def refused(data: bytes) -> RecordError:
    with pytest.raises(RecordError) as error:
        list(read(data, "state.jsonl"))
    assert error.value.file == "state.jsonl" and error.value.remedy
    assert "\n" not in str(error.value)
    return error.value


def test_a_whole_ledger_is_read() -> None:
    lines = list(read(SMALL, "state.jsonl"))
    assert [line["type"] for line in lines] == ["run", "step", "step", "end"]
    assert lines[0]["prev"] is None
    texts = SMALL.split(b"\n")[:-1]
    assert [line["prev"] for line in lines[1:]] == [digest(text) for text in texts[:-1]]


def test_the_head_is_the_digest_of_the_last_line() -> None:
    book = Ledger()
    assert (book.head, book.lines) == (None, 0)
    texts = [book.append({"type": "run"}), book.append({"type": "end"})]
    assert book.lines == 2
    assert book.head == digest(texts[-1])


# ---- damage --------------------------------------------------------------------------------------------------


def test_a_changed_byte_is_seen_wherever_it_stands() -> None:
    """Named is its line or the one after; in the last line it may only show in the head that a manifest holds."""
    last = SMALL.rstrip(b"\n").rfind(b"\n") + 1
    head = digest(SMALL.split(b"\n")[-2])
    for position in range(len(SMALL)):
        for flip in (1, 2, 32):
            data = SMALL[:position] + bytes([SMALL[position] ^ flip]) + SMALL[position + 1 :]
            line = SMALL[:position].count(b"\n") + 1
            if position < last:
                assert refused(data).line in (line, line + 1), (position, flip)
                continue
            try:
                list(read(data, "state.jsonl"))
            except RecordError as error:
                assert error.line in (line, line + 1), (position, flip)
            else:
                assert digest(data.split(b"\n")[-2]) != head


def test_every_cut_is_seen() -> None:
    for size in range(len(SMALL)):
        whole = SMALL[:size].count(b"\n")
        assert refused(SMALL[:size]).line == whole + 1


@pytest.mark.parametrize(
    ("order", "line"),
    [
        ([1, 2, 3], 1), ([0, 2, 3], 2), ([0, 1, 3], 3), ([0, 1, 2], 4), ([], 1), ([0], 2), ([3], 1),
        ([0, 0, 1, 2, 3], 2), ([0, 1, 1, 2, 3], 3), ([0, 1, 2, 2, 3], 4), ([0, 1, 2, 3, 3], 5),
        ([1, 0, 2, 3], 1), ([0, 2, 1, 3], 2), ([0, 1, 3, 2], 3), ([0, 1, 2, 3, 0, 1, 2, 3], 5),
    ],
)  # fmt: skip
def test_a_lost_doubled_or_moved_line_is_named(order: list[int], line: int) -> None:
    lines = SMALL.split(b"\n")
    assert refused(b"".join(lines[i] + b"\n" for i in order)).line == line


@pytest.mark.parametrize("more", [b"\n", b"{}\n", b"x", b"x\n", b" ", b"\x00\n"])
def test_an_appended_line_is_named(more: bytes) -> None:
    assert refused(SMALL + more).line == 5


def test_a_line_chained_behind_the_end_is_named() -> None:
    book = Ledger()
    texts = [
        book.append(line) for line in ({"type": "run", "schema": SCHEMA}, {"type": "end"}, {"type": "step"})
    ]
    assert refused("".join(text + "\n" for text in texts).encode()).line == 3


@pytest.mark.parametrize(
    ("kinds", "line"),
    [(["step"], 1), (["end"], 1), (["run", "run"], 2), (["run", "other"], 2), (["run", None], 2)],
)
def test_a_line_of_the_wrong_kind_is_named(kinds: list[Any], line: int) -> None:
    book = Ledger()
    texts = [book.append({"type": kind, "schema": SCHEMA}) for kind in kinds]
    assert refused("".join(text + "\n" for text in texts).encode()).line == line


def test_another_version_is_refused() -> None:
    book = Ledger()
    text = book.append({"type": "run", "schema": "ledger/v9"})
    assert refused(f"{text}\n".encode()).line == 1
    assert "ledger/v9" in str(refused(f"{text}\n".encode()))


@pytest.mark.parametrize(
    "text",
    ["[]", "1", "null", '{"prev": null}', '{"b":1,"a":2}', '{"a":1,"a":1}', '{"a":1.0}', '{"a":NaN}', '{"a":"\\u0061"}',
     '{"a":"\\ud800"}', '{"a":' + "[" * 9999, "\ufeff{}", '{"a":9007199254740993}', '{"a":' + "9" * 5000 + "}"],
)  # fmt: skip
def test_what_is_no_canonical_object_is_refused(text: str) -> None:
    assert refused(f"{text}\n".encode()).line == 1


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ('"n":1', '"n":1.0'),
        ('"n":1', '"n": 1'),
        ('"n":1', '"n":1,"n":1'),
        ('"t":"é"', '"t":"\\u00e9"'),
        ('"n":1,"prev":null', '"prev":null,"n":1'),
    ],
)
def test_another_text_of_the_same_line_is_refused_though_the_chain_holds(written: str, other: str) -> None:
    book = Ledger()
    first = book.append({"type": "run", "schema": SCHEMA, "n": 1, "t": "é"})
    assert written in first
    first = first.replace(written, other)
    book.head = digest(first)
    assert refused(f"{first}\n{book.append({'type': 'end'})}\n".encode()).line == 1


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_other_encodings_are_refused(codec: str) -> None:
    refused(SMALL.decode().replace("\u2028", "é").encode(codec) + b"\n")


@given(st.binary(max_size=60))
def test_reading_is_total(data: bytes) -> None:
    refused(data)


@given(st.lists(st.sampled_from(range(4)), max_size=6), st.binary(max_size=3))
def test_no_other_sequence_of_lines_is_a_ledger(order: list[int], more: bytes) -> None:
    lines = SMALL.split(b"\n")
    data = b"".join(lines[i] + b"\n" for i in order) + more
    if data != SMALL:
        refused(data)


# ---- a run's own ledger ------------------------------------------------------------------------------------


def _run(model: Any, tools: list[Tool], tmp_path: Any) -> bytes:
    data = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": [tool.name for tool in tools]},
        "loop_budget": {
            "max_iterations": 9,
            "max_tokens": 10**6,
            "max_tool_calls": 9,
            "max_result_bytes": 10**6,
        },
        "cycle_detection": {"max_repeats": 2},
    }
    path = tmp_path / "state.jsonl"
    Agent(model, tools, Policy.from_dict(data)).run("?", run_id="r", ledger=path)
    return bytes(path.read_bytes())


def test_a_run_with_the_deepest_data_can_be_read_back(tmp_path: Any) -> None:
    deep = "1"
    for _ in range(MAX_DEPTH - 1):
        deep = f"[{deep}]"
    any_of = {**CLOSED, "properties": {"v": {"x-resource": "none"}}}

    def model(asked: LLMInput) -> LLMOutput:
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("echo", f'{{"v":{deep}}}')], raw=json.loads(f"[{deep}]"))
        return LLMOutput(final_answer="done")

    echo = Tool("echo", "", any_of, any_of, "pure", True, lambda args, io: args)
    lines = list(read(_run(model, [echo], tmp_path), "state.jsonl"))
    assert lines[1]["tool_results"][0]["status"] == "ok"
    assert lines[-1]["terminal_reason"] == "final_answer"


def test_the_totals_are_those_of_the_steps(tmp_path: Any) -> None:
    said = Tool(
        "say", "", CLOSED, {**CLOSED, "properties": {"t": {}}}, "pure", True, lambda args, io: {"t": "é"}
    )

    def model(asked: LLMInput) -> LLMOutput:
        usage = {"input_tokens": 5, "output_tokens": 2}
        if asked.step_index <= 2:
            return LLMOutput(tool_calls=[ToolCall("say", "{}")], usage=usage)
        return LLMOutput(final_answer="done", usage=usage)

    *steps, end = list(read(_run(model, [said], tmp_path), "state.jsonl"))[1:]
    totals = Totals()
    for step in steps:
        totals.add(step)
    assert end["totals"] == totals.to_dict() == {
        "steps": 3, "tool_calls": 2, "attempts": 2, "retries": 0, "denials": 0,
        "input_tokens": 15, "output_tokens": 6, "result_bytes": 2 * len('{"t":"é"}'.encode()),
    }  # fmt: skip
    assert end["lines"] == len(steps) + 2


def test_the_totals_know_what_was_called_and_read() -> None:
    totals = Totals()
    attempts = [{"reads": ["a/x.md"]}, {"reads": ["a/x.md", "z"]}]
    totals.add(
        {
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "policy_decisions": [{"decision": "deny"}, {"decision": "allow"}],
            "tool_results": [
                {"name": "read", "attempts": attempts, "result": None},
                {"name": "write", "attempts": [], "result": None},
            ],
        }
    )
    line = end_line({"run_id": "r"}, totals, RunEnded("final_answer", "a"), 3, 9)
    assert totals.called == {"read"} and totals.documents == {"a/x.md", "z"}
    assert line["totals"]["denials"] == 1 and line["totals"]["retries"] == 1 and "inputs" not in line


def test_text_of_a_value_is_the_same_decoded_or_not() -> None:
    assert text_of(Fragment('{"a":1}')) == text_of({"a": 1}) == encode({"a": 1}) == freeze({"a": 1.0}).text
