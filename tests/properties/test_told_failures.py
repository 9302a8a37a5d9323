"""Where the model is told of failures, each run ends within its budgets and leaves a history that providers take."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.fail.catalog import ENDINGS, MODES, Ending
from tachograph.fail.errors import InvalidModelOutput, TransientModelError
from tachograph.runtime.journal.requests import requests_of
from tachograph.runtime.models.providers import anthropic, openai
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tests.support import answer, perform, policy_data, tool

CALLS = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from(["probe", "echo", "echo", "absent"]),
        st.sampled_from(['{"n":1}', '{"n":2}', '{"n":99}', "{", "[]", '{"path":"books/x"}']),
    ),
    min_size=1,
    max_size=3,
)
REPLIES = st.one_of(
    st.builds(LLMOutput, tool_calls=CALLS),
    st.builds(LLMOutput, tool_calls=CALLS, finish_reason=st.sampled_from(["length", "stop"])),
    st.builds(LLMOutput, tool_calls=CALLS, final_answer=st.sampled_from(["x", ""])),
    st.sampled_from(
        [
            *(LLMOutput(), answer(""), answer(" \n"), LLMOutput(text="hm"), LLMOutput(final_answer=3)),  # type: ignore[arg-type]
            *(answer("part", finish_reason="length"), {"no": "output"}, InvalidModelOutput()),
            *(TransientModelError(), answer("done")),
        ]
    ),
)
ACTS = st.one_of(
    st.sampled_from([{"said": "ok"}, {"said": 1}, None, {"other": 1}, b"x", {"said": float("nan")}]),
    st.sampled_from([ConnectionError, TimeoutError, KeyError, SystemExit, MemoryError, PermissionError]),
)
POLICIES = st.builds(
    policy_data,
    on_deny=st.sampled_from(["terminate", "inform"]),
    on_failure=st.builds(
        dict,
        default=st.just("inform"),
        tools=st.sampled_from([{}, {"echo": "terminate"}]),
        max_failures=st.integers(1, 8),
    ),
    loop_budget=st.sampled_from(
        [{}, {"max_iterations": 3}, {"max_tool_calls": 2}, {"max_tokens": 900}, {"wrap_up": True}]
    ),
    retry=st.sampled_from([None, {"max_retries": 1}]),
)


def _in_order(messages: list[dict[str, Any]]) -> None:
    """Each call has exactly one result, right behind its message; two turns of the model never meet."""
    waiting: list[str] = []
    said_last = ""
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
            assert not message["role"] == said_last == "assistant"
        if message["role"] == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls", ())]
        said_last = message["role"]
    assert waiting == []


def _fits_anthropic(messages: list[dict[str, Any]]) -> None:
    """Roles alternate from the user on, no text is empty, and results stand first in the turn behind their calls."""
    _, turns = anthropic.messages_of(messages)
    assert [turn["role"] for turn in turns] == [("user", "assistant")[i % 2] for i in range(len(turns))]
    asked: list[str] = []
    for turn in turns:
        blocks = turn["content"]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == (asked if turn["role"] == "user" else [])
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]


def _fits_openai(messages: list[dict[str, Any]]) -> None:
    """Roles alternate, where the results of a turn's calls are left out, and no message is empty."""
    sent = openai.messages_of(messages)
    roles = [message["role"] for message in sent]
    assert all(one != other for one, other in pairwise(roles) if one != "tool")
    assert all(message["content"] or message.get("tool_calls") for message in sent)


@settings(max_examples=150, deadline=None)
@given(
    replies=st.lists(REPLIES, max_size=8),
    acts=st.lists(ACTS, max_size=10),
    policy=POLICIES,
    idempotent=st.booleans(),
)
def test_every_sequence_of_faults_ends_within_its_budgets_and_leaves_a_valid_history(
    replies: list[Any], acts: list[Any], policy: dict[str, Any], idempotent: bool
) -> None:
    said, done, heard = list(replies), list(acts), list[list[dict[str, Any]]]()

    def model(asked: LLMInput) -> Any:
        heard.append(list(asked.messages))
        reply = said.pop(0) if said else answer()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run(_args: dict[str, Any], _io: Any) -> Any:
        act = done.pop(0) if done else {"said": "ok"}
        if isinstance(act, type):
            raise act("a private word")
        return act

    ran = perform(model, [tool(run=run, idempotent=idempotent), tool("echo", run)], policy)
    limits, told = policy["loop_budget"], ran.end["totals"].get("told_failures", 0)
    assert ran.result.ending in ENDINGS and (ran.result.mode is None or ran.result.mode in MODES)
    assert (ran.result.ending == Ending.FINAL_ANSWER) == (ran.result.answer is not None)
    assert told <= policy["on_failure"]["max_failures"]
    assert len([step for step in ran.steps if step["llm_input"] is not None]) <= limits["max_iterations"]
    assert ran.end["totals"]["tool_calls"] <= limits["max_tool_calls"]
    assert b"a private word" not in ran.state
    for messages in heard:
        _in_order(messages)
        _fits_anthropic(messages)
        _fits_openai(messages)
    rebuilt = {tuple(map(str, request.messages)) for request in requests_of(ran.lines)}
    assert rebuilt == {tuple(map(str, messages)) for messages in heard}
