"""The official SDKs over loopback servers of ours: whole sessions, streamed and in one piece."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tachograph.fail.errors import ModelError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.providers import Adapter
from tachograph.runtime.models.types import LLMOutput, ToolCall, read_reply
from tachograph.runtime.policy.policy import Policy
from tests.providers.asking import LONG, PROVIDERS, ask, asked, failing, one_call, opened
from tests.providers.protocols import STREAM, WHOLE, Turn
from tests.providers.servers import Broken, Raw, Server, body
from tests.support import ROOT


def canonical_turns() -> list[Turn]:
    """What the model says in the recorded canonical run."""
    lines = (ROOT / "runs/canonical/v1/state.jsonl").read_text(encoding="utf-8").splitlines()
    turns = []
    for line in [json.loads(line) for line in lines][1:-1]:
        said = line["llm_output"]
        calls = [(call["name"], json.dumps(call["arguments"])) for call in line["intended_tool_calls"]]
        turns.append(Turn(said["text"] or said["final_answer"], tuple(calls), usage=tuple(said["usage"])))
    return turns


def canonical_run(adapter: Adapter, ledger: Any) -> list[dict[str, Any]]:
    agent = Agent(
        adapter,
        ["search", "fetch", "read", "write", "summarize"],
        Policy.load(ROOT / "policy/v1.yaml"),
        mounts={"corpus": ROOT / "data/corpus/v1"},
        hosts={"corpus.test": ROOT / "data/corpus/v1"},
    )
    question = "What must a driver do when the recorder fails on the road?"
    agent.run(question, seed=7, run_id="one", clock=VirtualClock(), ledger=ledger)
    return [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]


def essence(line: dict[str, Any]) -> list[Any]:
    """What a step says that does not depend on who said it, or on how a tool found its result."""
    said = {name: value for name, value in line["llm_output"].items() if name not in ("model", "raw")}
    decisions = [decision["decision"] for decision in line["policy_decisions"]]
    results = [result["result"] for result in line["tool_results"]]
    return [said, line["llm_input"], line["intended_tool_calls"], decisions, results, line["usage"]]


def test_the_canonical_task_takes_the_same_steps_on_all_three(tmp_path: Any) -> None:
    recorded = (ROOT / "runs/canonical/v1/state.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = [json.loads(line) for line in recorded]
    whole: dict[bool, list[Any]] = {}
    for name in PROVIDERS:
        pytest.importorskip(name)
        for stream in (True, False):
            with Server(canonical_turns()) as server:
                adapter = opened(name, server.base_url(name), stream=stream)
                lines = canonical_run(adapter, tmp_path / f"{name}-{stream}.jsonl")
            assert lines[0]["model"] == adapter.identity
            assert list(map(essence, lines[1:-1])) == list(map(essence, wanted[1:-1]))
            assert lines[-1]["final_answer"] == wanted[-1]["final_answer"]
            for line in lines:
                line.pop("prev")
            lines[0].pop("model")
            assert lines == whole.setdefault(stream, lines), "ledgers differ in the model's name alone"


def test_ids_on_the_wire_are_ours_and_pair_up(tmp_path: Any) -> None:
    for name in ("openai", "anthropic"):
        pytest.importorskip(name)
        with Server(canonical_turns()) as server:
            canonical_run(opened(name, server.base_url(name)), tmp_path / f"{name}.jsonl")
            last = json.dumps(server.requests[-1].body)
        for step in range(1, 5):
            assert last.count(f'"tc_{step}_0"') == 2, "the call, and its result"
        assert "call_" not in last.replace("tool_call_id", "") and "toolu_" not in last


def test_two_sessions_send_the_same_bytes(provider: str, tmp_path: Any) -> None:
    sent = []
    for count in range(2):
        with Server(canonical_turns()) as server:
            canonical_run(opened(provider, server.base_url(provider)), tmp_path / f"{count}.jsonl")
            sent.append([request.body for request in server.requests])
    assert sent[0] == sent[1]


@pytest.mark.usefixtures("way")
def test_tokens_come_as_they_are_written(provider: str) -> None:
    shown: list[str] = []
    output = ask(provider, LONG, on_text=shown.append)
    assert len(shown) > 5 and "".join(shown) == output.text == LONG.text
    shown.clear()
    ask(provider, LONG, on_text=shown.append, stream=False)
    assert shown == [LONG.text]


@pytest.mark.usefixtures("way")
def test_the_first_tokens_are_shown_before_the_last_ones_exist(provider: str) -> None:
    shown: list[str] = []
    failing(provider, ModelError, Broken(LONG, 6, "stall"), timeout_s=0.2, on_text=shown.append)
    assert LONG.text.startswith("".join(shown)) and shown


@pytest.mark.usefixtures("way")
def test_a_reply_is_whole_before_the_connection_ends(provider: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
    said = b"".join(STREAM[provider](Turn("x")))
    assert ask(provider, Raw(head + said, then="stall"), timeout_s=1.0).final_answer == "x"


@pytest.mark.usefixtures("way")
def test_no_compressed_reply_is_asked_for(provider: str) -> None:
    with Server([Turn("x")]) as server:
        one_call(opened(provider, server.base_url(provider)), asked())
        assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.usefixtures("way")
def test_what_is_asked_for_arrives(provider: str) -> None:
    with Server([Turn("x")]) as server:
        one_call(
            opened(provider, server.base_url(provider), extra={"seed": 7, "cache_prompt": False}), asked()
        )
        sent = server.requests[0].body
    assert sent["seed"] == 7 and "extra_body" not in sent
    assert sent["cache_prompt"] is False and sent["messages"]


@pytest.mark.usefixtures("way")
def test_a_service_that_does_not_stream_all_the_same(provider: str) -> None:
    shown: list[str] = []
    document = json.dumps(WHOLE[provider](LONG, "m")).encode()
    output = ask(provider, Raw(body(document)), on_text=shown.append)
    assert output.text == LONG.text and len(output.tool_calls) == 2 and "".join(shown) == LONG.text


def test_an_adapter_serves_several_threads(provider: str) -> None:
    with Server([Turn("x")] * 8) as server:
        adapter = opened(provider, server.base_url(provider))
        answers: list[LLMOutput] = []
        threads = [threading.Thread(target=lambda: answers.append(adapter(asked()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [output.final_answer for output in answers] == ["x"] * 8


@pytest.mark.usefixtures("way")
def test_malformed_arguments_and_unknown_tools_are_handed_on() -> None:
    for name in ("openai", "anthropic"):
        pytest.importorskip(name)
        output = ask(name, Turn(calls=(("rm -rf", '{"query": '), ("search", "[]"))))
        assert list(output.tool_calls) == [ToolCall("rm -rf", '{"query": '), ToolCall("search", "[]")]
        reply = read_reply(output, 1, Redactor([]))
        assert [call.problem for call in reply.calls] == ["not JSON", "not an object"]
