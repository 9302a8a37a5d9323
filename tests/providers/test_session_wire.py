"""What the loop says of its own accord, and what is offered, as it goes over the wire of each protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tachograph.runtime.models.types import MAX_CONTINUATIONS, NOTICES
from tests.providers import sessions
from tests.providers.protocols import Turn
from tests.providers.servers import Request, Server
from tests.providers.sessions import ANSWER, READ, SEARCH, Project

project = sessions.project

CUT = {"openai": "length", "anthropic": "max_tokens", "ollama": "length"}


def cut(provider: str, text: str) -> Turn:
    return Turn(text, finish=CUT[provider])


def last_said(request: Request) -> str:
    """The text of the last turn of a request, which is the user's."""
    turn = request.body["messages"][-1]
    assert turn["role"] == "user"
    content = turn["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def offered(request: Request) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in request.body.get("tools", [])]


def said_in(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---- cut-off answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["--no-color", "--no-stream"])
def test_a_cut_off_answer_is_asked_for_the_rest(project: Project, provider: str, stream: str) -> None:
    script = [cut(provider, "The driver stops"), cut(provider, " at the next"), Turn(" safe place.")]
    with Server(script) as server:
        assert project.run(server, provider, stream).code == 0
        first, second, third = server.requests
    lines = project.lines()
    assert lines[-1]["final_answer"] == "The driver stops at the next safe place."
    assert last_said(second) == last_said(third) == NOTICES["go_on"]
    # what was said so far goes back as it was, each piece a turn of its own
    roles = [turn["role"] for turn in third.body["messages"] if turn["role"] != "system"]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert "The driver stops" in said_in(third.body["messages"][1])
    assert " at the next" in said_in(third.body["messages"][3])
    assert NOTICES["go_on"] not in said_in(first.body) and offered(third) == offered(first) != []
    assert [line.get("notice") for line in lines[1:-1]] == [None, "go_on", "go_on"]
    assert [line["llm_output"]["finish_reason"] for line in lines[1:-1]] == ["length", "length", "stop"]
    project.proven()


def test_continuations_are_bounded(project: Project, provider: str) -> None:
    with Server([cut(provider, "again ")] * 9) as server:
        assert project.run(server, provider).code == 1
        assert len(server.requests) == MAX_CONTINUATIONS + 1
    assert project.lines()[-1]["failure_mode"] == "llm_invalid_output"
    project.proven()


def test_calls_that_were_cut_off_are_neither_continued_nor_run(project: Project, provider: str) -> None:
    with Server([Turn(SEARCH.text, SEARCH.calls, finish=CUT[provider]), ANSWER]) as server:
        assert project.run(server, provider).code == 1
        assert len(server.requests) == 1
    lines = project.lines()
    assert lines[-1]["failure_mode"] == "llm_invalid_output"
    assert lines[1]["errors"] == [
        {"position": "m", "problem": "tool calls of a reply that was cut off by length"}
    ]
    assert lines[1]["intended_tool_calls"] and lines[-1]["totals"]["tool_calls"] == 0


# ---- the last steps ------------------------------------------------------------------------------------


def test_near_the_limit_the_model_is_told(project: Project, provider: str) -> None:
    project.overlay("loop_budget: {max_iterations: 4}\n")
    with Server([SEARCH, READ, SEARCH, ANSWER]) as server:
        assert project.run(server, provider).code == 0
        told = [said_in(request.body["messages"][-1]) for request in server.requests]
        every = [offered(request) for request in server.requests]
    assert [NOTICES["two_left"] in text for text in told] == [False, False, True, False]
    assert all(tools == every[0] for tools in every) and len(every[0]) == 5
    assert [line.get("notice") for line in project.lines()[1:-1]] == [None, None, "two_left", None]
    project.proven()


def test_wrap_up_offers_no_tools_in_the_last_step(project: Project, provider: str) -> None:
    project.overlay("loop_budget: {max_iterations: 3, wrap_up: true}\n")
    with Server([SEARCH, READ, ANSWER]) as server:
        words = (
            ("--llm-option", 'tool_choice={"type": "any"}')
            if provider == "anthropic"
            else ("--llm-option", "tool_choice=required")
        )
        assert project.run(server, provider, *words).code == 0
        bodies = [request.body for request in server.requests]
        every = [offered(request) for request in server.requests]
    assert [len(tools) for tools in every] == [5, 5, 0]
    assert not bodies[2].get("tools") and "tool_choice" not in bodies[2]
    assert "tool_choice" in bodies[1]
    assert NOTICES["last"] in said_in(bodies[2]["messages"][-1])
    # what was called and found before is still there
    assert "op-a4" in said_in(bodies[2]["messages"])
    assert [line.get("notice") for line in project.lines()[1:-1]] == [None, "two_left", "last"]
    project.proven()


def test_a_call_in_the_last_step_ends_at_the_limit(project: Project, provider: str) -> None:
    project.overlay("loop_budget: {max_iterations: 2, wrap_up: true}\n")
    with Server([SEARCH, READ, ANSWER]) as server:
        assert project.run(server, provider).code == 1
        assert len(server.requests) == 2
    assert project.lines()[-1]["terminal_reason"] == "loop_budget"
    project.proven()


# ---- what a reply may cost -----------------------------------------------------------------------------


def test_a_reply_may_be_as_long_as_the_budget_leaves(project: Project, provider: str) -> None:
    project.overlay("loop_budget: {max_tokens: 200}\n")
    with Server([Turn(SEARCH.text, SEARCH.calls, usage=(100, 20)), ANSWER]) as server:
        assert project.run(server, provider).code == 0
        bodies = [request.body for request in server.requests]
    assert [body["max_tokens"] for body in bodies] == [200, 80]


def test_a_denial_is_told_and_the_model_goes_on(project: Project, provider: str) -> None:
    project.overlay("on_deny: inform\n")
    away = Turn("", (("fetch", '{"url": "https://elsewhere.test/"}'),))
    with Server([away, ANSWER]) as server:
        assert project.run(server, provider).code == 0
        told = said_in(server.requests[1].body["messages"])
    assert "policy_denied" in told and "url_allowlist" in told
    project.proven()


def test_parallel_calls_and_their_results(project: Project, provider: str) -> None:
    with Server([Turn("Both.", (*SEARCH.calls, *READ.calls)), ANSWER]) as server:
        assert project.run(server, provider).code == 0
        turns = server.requests[1].body["messages"]
    assert [result["status"] for result in project.lines()[1]["tool_results"]] == ["ok", "ok"]
    if provider == "anthropic":  # all results of a turn in one message
        assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
        assert [part["tool_use_id"] for part in turns[2]["content"]] == ["tc_1_0", "tc_1_1"]
    else:
        assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool"]
    project.proven()


def test_a_canonical_task_without_a_server_is_a_recorded_failure(project: Project, provider: str) -> None:
    project.overlay("retry: {max_retries: 1, backoff_base_ms: 1, backoff_cap_ms: 1}\n")
    with Server([]) as server:
        words = project.words(server, provider)
    said = project(*words)  # the server is gone
    assert said.code == 1 and "failed or was lost" in said.err
    assert project.lines()[-1]["failure_mode"] == "llm_failure"
    project.proven()
