"""The official SDKs in runs that somebody watches: pieces of text are events, and change nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, AgentEvent, EventListener, Policy, VirtualClock, open_model
from tests.providers.protocols import Turn
from tests.providers.servers import Broken, Reply, Server, Status
from tests.support import policy_data, tool

CALLS = (("probe", '{"n": 1}'), ("probe", '{"n": 2}'))
ANSWER = "The driver writes it down, by hand — and has the recorder repaired."
SCRIPT = [Turn("I look first.", CALLS, usage=(21, 9)), Turn(ANSWER, usage=(30, 12))]


def _by_run(agent: Agent, **given: Any) -> list[AgentEvent]:
    heard: list[AgentEvent] = []
    agent.run("What now?", listeners=[EventListener(heard.append)], **given)
    return heard


def _by_stream(agent: Agent, **given: Any) -> list[AgentEvent]:
    async def main() -> list[AgentEvent]:
        return [event async for event in agent.stream("What now?", **given)]

    return asyncio.run(main())


def _unheard(agent: Agent, **given: Any) -> list[AgentEvent]:
    agent.run("What now?", **given)
    return []


Way = Callable[..., list[AgentEvent]]
HEARD = pytest.mark.parametrize("hear", [_by_run, _by_stream])


def _made(
    provider: str, hear: Way, script: list[Reply], ledger: Path, **options: Any
) -> tuple[list[AgentEvent], list[dict[str, Any]], list[bool]]:
    """What was heard of a run, its ledger, and whether each request asked for a stream."""
    with Server(script) as server:
        options = {"timeout_s": 2.0, "total_s": 4.0, **options}
        model = open_model(f"{provider}:some-model", base_url=server.base_url(provider), **options)
        agent = Agent(model, [tool(), tool("echo")], Policy.from_dict(policy_data()))
        heard = hear(agent, run_id="same", clock=VirtualClock(), ledger=ledger)
        streamed = [request.body.get("stream", False) for request in server.requests]
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    for line in lines[1:-1]:
        line.pop("prev")
        if line["llm_output"] is not None:
            line["llm_output"].pop("model")  # the server of these tests names another one in a stream
    return heard, lines, streamed


def _said(heard: list[AgentEvent], step: int) -> str:
    return "".join(e.data["text"] for e in heard if e.what == "text_delta" and e.step == step)


@HEARD
def test_pieces_are_heard_and_the_record_is_the_same_as_without(
    provider: str, hear: Way, tmp_path: Path
) -> None:
    heard, lines, streamed = _made(provider, hear, list(SCRIPT), tmp_path / "heard")
    _, whole, in_one_piece = _made(provider, _unheard, list(SCRIPT), tmp_path / "unheard")
    assert streamed == [True, True] and in_one_piece == [False, False]
    assert _said(heard, 1) == "I look first." and _said(heard, 2) == ANSWER
    assert len([event for event in heard if event.what == "text_delta"]) > 10
    assert lines[:-1] == whole[:-1] and lines[-1]["final_answer"] == whole[-1]["final_answer"] == ANSWER
    first = lines[1]
    assert [call["arguments"] for call in first["intended_tool_calls"]] == [{"n": 1}, {"n": 2}]
    assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (21, 9)
    assert [step["llm_output"]["finish_reason"] for step in lines[1:3]] == ["tool_calls", "stop"]
    assert "text_delta" not in (tmp_path / "heard").read_text(encoding="utf-8")


@HEARD
def test_how_a_reply_ends_is_the_same_in_pieces(provider: str, hear: Way, tmp_path: Path) -> None:
    cut = {"anthropic": "max_tokens"}.get(provider, "length")
    refused = (
        Turn("I would rather", finish="refusal")
        if provider == "anthropic"
        else Turn(refusal="I would rather")
    )
    for turn, ending in ((Turn("and so on", finish=cut), "length"), (refused, "refusal")):
        script = [turn, Turn(" and on", finish=None)]
        heard, lines, _ = _made(provider, hear, list(script), tmp_path / f"{ending}-heard")
        _, whole, _ = _made(provider, _unheard, list(script), tmp_path / f"{ending}-unheard")
        assert lines[1]["llm_output"]["finish_reason"] == ending
        assert lines[1:-1] == whole[1:-1] and lines[-1]["terminal_reason"] == whole[-1]["terminal_reason"]
        assert _said(heard, 1) == (turn.text or turn.refusal)


@HEARD
@pytest.mark.parametrize("how", ["drop", "corrupt", "overloaded_error"])
def test_a_stream_that_breaks_off_ends_the_run_after_what_was_heard(
    provider: str, hear: Way, how: str, tmp_path: Path
) -> None:
    heard, lines, _ = _made(provider, hear, [Broken(Turn(ANSWER), 6, how)], tmp_path / "run")
    assert _said(heard, 1) and ANSWER.startswith(_said(heard, 1))
    assert heard[-1].what == "ended" and lines[-1]["failure_mode"] in ("llm_failure", "llm_invalid_output")
    assert lines[1]["llm_output"] is None or lines[1]["llm_output"]["text"] is None


@HEARD
def test_a_busy_service_is_asked_again_and_pieces_say_for_which_attempt(
    provider: str, hear: Way, tmp_path: Path
) -> None:
    heard, lines, _ = _made(provider, hear, [Status(503), Turn("x")], tmp_path / "run")
    deltas = [event.data for event in heard if event.what == "text_delta"]
    assert deltas == [{"attempt": 2, "text": "x"}] and lines[-1]["final_answer"] == "x"


@pytest.mark.parametrize("stream", [True, False])
def test_who_says_how_replies_come_is_obeyed_whoever_listens(
    provider: str, stream: bool, tmp_path: Path
) -> None:
    heard, _, streamed = _made(provider, _by_run, list(SCRIPT), tmp_path / "heard", stream=stream)
    _, _, unheard = _made(provider, _unheard, list(SCRIPT), tmp_path / "unheard", stream=stream)
    assert streamed == unheard == [stream, stream]
    assert _said(heard, 2) == ANSWER
