"""Failures of which the model is told: what it reads, what is recorded, and where the run ends all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tachograph.fail.catalog import BROKEN, Ending
from tachograph.fail.errors import InvalidModelOutput
from tachograph.runtime.core.effects import Fault, FaultKind
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.journal.requests import requests_of
from tachograph.runtime.models.types import LLMOutput
from tests.runtime.loop.test_loop import ECHO, ROWS, Row
from tests.support import Ran, answer, ask, failing, perform, policy_data, probe, tool

INFORM = policy_data(on_failure="inform")
TOOL_ROWS = [row for row in ROWS if row.mode in BROKEN and row.ran]
REPLY_ROWS = [row for row in ROWS if row.mode == "llm_invalid_output"]


def _run(row: Row, policy: dict[str, Any] = INFORM, *replies: Any) -> Ran:
    run = failing(*(error() for error in row.errors)) if row.errors else row.run
    return perform(
        [row.first, *(replies or [answer()])],
        [tool(run=run, **row.tools), tool("echo", lambda args, io: {"said": "echo"})],
        policy,
        before=row.before,
    )


def _well_formed(messages: list[dict[str, Any]]) -> None:
    """Each call has one result right behind its message, and no two messages of the model stand together."""
    open_calls: list[str] = []
    for before, message in zip([{}, *messages], messages, strict=False):
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            continue
        assert open_calls == []
        assert message["role"] != before.get("role")
        if message["role"] == "assistant":
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
            assert open_calls or message["content"].strip()
    assert open_calls == []


@pytest.mark.parametrize("row", TOOL_ROWS, ids=lambda row: row.name)
def test_the_model_reads_of_a_failed_call_and_goes_on(row: Row) -> None:
    done = _run(row)
    assert done.result.ending == Ending.FINAL_ANSWER and done.result.mode is None
    failed, echoed = done.steps[0]["tool_results"]
    assert (failed["status"], failed["result"], echoed["status"]) == ("failed", None, "ok")
    told = failed["told"]
    assert done.model is not None and freeze(told).text == done.model.told()[0]["content"]
    fault = failed["attempts"][-1].get("fault")
    assert told.get("exception") == (fault and fault["exception"])
    assert (told["error"], told["kind"]) == ("tool_failed", row.mode)
    repeatable = row.name in ("retries used up", "idempotent time-out, used up")
    assert told["retryable"] is repeatable
    assert failed["modes"] == [row.mode] and done.steps[0]["failure_mode"] == row.mode
    assert done.named("tool_call")[0].error_type is not None
    assert done.named("agent_run")[0].error_type is None
    _well_formed(done.model.heard[-1])


@pytest.mark.parametrize("row", REPLY_ROWS, ids=lambda row: row.name)
def test_the_model_reads_why_its_reply_is_of_no_use(row: Row) -> None:
    done = _run(row)
    assert done.result.ending == Ending.FINAL_ANSWER and done.result.answer == "done"
    step = done.steps[0]
    assert step["failure_mode"] == "llm_invalid_output"
    if step["intended_tool_calls"]:
        assert {result["status"] for result in step["tool_results"]} == {"not_reached"}
        told = step["tool_results"][0]["told"]
        assert "told" not in step
    else:
        told = step["told"]
    assert told == {
        "error": "invalid_reply", "kind": "llm_invalid_output", "reason": step["errors"][0]["problem"],
        "retryable": True,
    }  # fmt: skip
    assert done.named("llm_call")[0].error_type == "llm_invalid_output"
    assert done.model is not None
    last = done.model.heard[-1][-1]
    assert freeze(told).text in last["content"]
    _well_formed(done.model.heard[-1])


@pytest.mark.parametrize("row", [*TOOL_ROWS, *REPLY_ROWS], ids=lambda row: row.name)
def test_what_the_model_saw_follows_from_the_ledger(row: Row) -> None:
    done = _run(row)
    found = list(requests_of(done.lines))
    assert [request.problems for request in found] == [()] * len(found)
    assert done.model is not None
    assert [list(request.messages) for request in found] == done.model.heard


def test_the_text_of_an_exception_is_told_to_nobody() -> None:
    done = perform([ask(probe()), answer()], [tool(run=failing(KeyError("a private word")))], INFORM)
    assert b"private" not in done.state
    assert done.results[0]["told"] == {
        "error": "tool_failed", "exception": "KeyError", "kind": "catalogued_unhandled",
        "reason": "the tool raised an exception", "retryable": False,
    }  # fmt: skip


def test_a_use_that_the_effect_does_not_cover_is_told() -> None:
    writes = tool(run=lambda args, io: io.write("box/x", "text") or {"said": "x"}, effect="read")
    done = perform([ask(probe()), answer()], [writes], INFORM)
    assert done.results[0]["told"]["reason"] == "the tool used io.write, which its effect kind does not cover"


def test_a_model_that_cannot_be_asked_ends_the_run() -> None:
    done = perform([ValueError()], policy=INFORM)
    assert (done.result.ending, done.result.mode) == (Ending.FAILURE, "llm_failure")


def test_more_failures_than_the_policy_names_end_the_run() -> None:
    policy = policy_data(on_failure={"default": "inform", "max_failures": 2})
    broken = tool(run=failing(*[KeyError()] * 9))
    done = perform([ask(probe(n=1)), LLMOutput(), ask(probe(n=2), ECHO)], [broken], policy)
    assert (done.result.ending, done.result.mode) == (Ending.FAILURE, "catalogued_unhandled")
    assert [result["status"] for result in done.results] == ["failed", "failed", "not_reached"]
    assert ["told" in result for result in done.results] == [True, False, False]
    assert "told" in done.steps[1]


def test_ten_failures_are_told_where_the_policy_names_no_number() -> None:
    policy = policy_data(on_failure="inform", loop_budget={"max_iterations": 30})
    done = perform([LLMOutput() for _ in range(11)], policy=policy)
    assert done.result.mode == "llm_invalid_output"
    assert ["told" in step for step in done.steps] == [True] * 10 + [False]


@pytest.mark.parametrize(("default", "word"), [("inform", "terminate"), ("terminate", "inform")])
def test_a_tool_may_be_answered_in_another_way(default: str, word: str) -> None:
    policy = policy_data(on_failure={"default": default, "tools": {"probe": word}})
    run = failing(*[KeyError()] * 9)
    for name, way in (("probe", word), ("echo", default)):
        done = perform([ask(probe(name)), answer()], [tool(run=run), tool("echo", run)], policy)
        assert done.result.ending == (Ending.FINAL_ANSWER if way == "inform" else Ending.FAILURE)
    done = perform([LLMOutput(), answer()], policy=policy)
    assert done.result.ending == (Ending.FINAL_ANSWER if default == "inform" else Ending.FAILURE)


def test_every_mode_of_a_call_is_recorded() -> None:
    first = failing(ConnectionError(), then={"other": 1})
    done = perform([ask(probe(), ECHO), answer()], [tool(run=first)], INFORM)
    assert done.results[0]["modes"] == ["tool_call_failure", "tool_output_invalid"]
    second = perform([ask(probe(), ECHO), answer()], [tool(run=failing(KeyError())),
        tool("echo", failing(ConnectionError()))], INFORM)  # fmt: skip
    assert [r["modes"] for r in second.results] == [["catalogued_unhandled"], ["tool_call_failure"]]


def test_pieces_of_an_answer_before_an_unusable_reply_are_dropped() -> None:
    piece = answer("first ", finish_reason="length")
    done = perform([piece, LLMOutput(), answer("whole")], policy=INFORM)
    assert done.result.answer == "whole" and "notice" not in done.steps[2]
    cut = perform([*[piece] * 4, answer("whole")], policy=INFORM)
    assert cut.result.answer == "whole" and cut.steps[3]["told"]["reason"].startswith(
        "an answer that was cut"
    )


def test_the_policy_stands_in_the_run_line_only_where_something_is_told() -> None:
    assert "on_failure" not in perform([answer()]).lines[0]["policy"]
    for words in ("terminate", {"max_failures": 3}, {"tools": {"probe": "terminate"}}):
        assert (
            "on_failure" not in perform([answer()], policy=policy_data(on_failure=words)).lines[0]["policy"]
        )
    assert perform([answer()], policy=INFORM).lines[0]["policy"]["on_failure"] == {
        "default": "inform", "max_failures": 10, "tools": {},
    }  # fmt: skip


def test_a_reply_that_the_adapter_cannot_read_leaves_no_empty_message() -> None:
    def model(asked: Any) -> LLMOutput:
        if asked.step_index == 1:
            raise InvalidModelOutput
        assert json.loads(json.dumps(list(asked.messages)))[1] == {
            "role": "assistant",
            "content": "(no words)",
        }
        return answer()

    assert perform(model, policy=INFORM).result.answer == "done"


def test_the_words_for_a_fault_are_cut() -> None:
    from tachograph.fail.catalog import FailureMode
    from tachograph.runtime.models.failure_messages import tool_failure

    told = tool_failure(FailureMode.CATALOGUED_UNHANDLED, Fault("E" * 900, FaultKind.OTHER), retryable=False)
    assert told["exception"] == "E" * 100
