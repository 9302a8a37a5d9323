"""The official SDKs over loopback servers of ours: what is sent after failures of which the model was told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.policy.policy import Policy
from tests.providers.asking import PROVIDERS, opened
from tests.providers.protocols import Turn
from tests.providers.servers import Server
from tests.support import failing, policy_data, tool

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["place"],
    "properties": {"place": {"type": "string"}},
}
CUT_OFF = {"anthropic": "max_tokens"}


def _turns(provider: str) -> list[Turn]:
    """A failed call and one that works, calls that are cut off, an empty reply, words for data, data."""
    return [
        Turn("I try both.", (("probe", '{"n":1}'), ("echo", '{"n":2}'))),
        Turn("Again.", (("echo", '{"n":3}'),), finish=CUT_OFF.get(provider, "length")),
        Turn(""),
        Turn("At the depot."),
        Turn('{"place": "depot"}'),
    ]


def _bodies(provider: str, *, stream: bool) -> list[dict[str, Any]]:
    """Return the bodies that a server gets in a run that answers only with the last turn."""
    pytest.importorskip("openai" if provider == "ollama" else provider)
    policy = Policy.from_dict(policy_data(on_failure="inform"))
    with Server(_turns(provider)) as server:
        model = opened(provider, server.base_url(provider), stream=stream)
        agent = Agent(model, [tool(run=failing(KeyError())), tool("echo")], policy, output_type=SCHEMA)
        result = agent.run("Where?", run_id="r", clock=VirtualClock())
    assert result.output == {"place": "depot"}
    assert [step["failure_mode"] for step in result.steps] == [
        *("catalogued_unhandled", "llm_invalid_output", "llm_invalid_output", "output_mismatch", None),
    ]
    return [request.body for request in server.requests]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "anthropic"])
def test_chat_completions_get_a_result_for_each_call_and_turns_that_alternate(
    provider: str, stream: bool
) -> None:
    *_, body = _bodies(provider, stream=stream)
    messages = body["messages"]
    assert [message["role"] for message in messages] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user", "assistant", "user"),
    ]
    asked = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    results = [message for message in messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == asked
    told = [json.loads(message["content"]) for message in results]
    assert [item.get("error") for item in told] == ["tool_failed", None, "invalid_reply"]
    assert all(message["content"] or message.get("tool_calls") for message in messages)
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_anthropic_gets_results_first_in_turns_that_alternate(stream: bool) -> None:
    *_, body = _bodies("anthropic", stream=stream)
    turns = body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 4 + ["user"]
    kinds = [[block["type"] for block in turn["content"]] for turn in turns]
    assert kinds == [
        *(["text"], ["text", "tool_use", "tool_use"], ["tool_result", "tool_result"]),
        *(["text", "tool_use"], ["tool_result"], ["text"], ["text"], ["text"]),
        ["text", "text"],  # why the answer does not fit, and the notice that two steps are left
    ]
    used = [block["id"] for turn in turns for block in turn["content"] if block["type"] == "tool_use"]
    back = [b["tool_use_id"] for turn in turns for b in turn["content"] if b["type"] == "tool_result"]
    assert used == back
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
