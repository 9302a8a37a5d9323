"""Whatever fails in a run, the official SDKs get requests that their services take, in that run and in the next."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import pytest

from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.policy.policy import Policy
from tests.providers.asking import opened
from tests.providers.protocols import Turn
from tests.providers.servers import Reply, Server, Status
from tests.support import policy_data, tool

SEEDS = 24
CUT_OFF = {"anthropic": "max_tokens", "openai": "length"}
ARGUMENTS = (
    '{"n":1}',
    '{"n":2}',
    '{"n":99}',
    "{",
    "[]",
    "",
    '{"path":"books/gone.md"}',
    '{"url":"https://bad.test/"}',
)
FAULTS = (ConnectionError, TimeoutError, KeyError, PermissionError, OSError)


def _turn(draw: random.Random, provider: str) -> Reply:
    """A reply: calls of all kinds, words, nothing, a refusal, a piece of an answer, an error of the service."""
    kind = draw.randrange(10)
    if kind < 5:
        names = draw.choices(["probe", "echo", "absent"], [4, 3, 1], k=draw.randint(1, 4))
        calls = tuple((name, draw.choice(ARGUMENTS)) for name in names)
        return Turn(draw.choice(["", "I look."]), calls, finish=CUT_OFF[provider] if kind == 4 else None)
    if kind == 5:
        return Turn(draw.choice(["", " \n"]))
    if kind == 6:
        return Turn("The first half", finish=CUT_OFF[provider])
    if kind == 7:
        return Status(draw.choice([429, 500, 503, 400]))
    if kind == 8 and provider == "openai":
        return Turn(refusal="I would rather not.")
    return Turn("At the depot.")


def _policy(draw: random.Random) -> Policy:
    return Policy.from_dict(
        policy_data(
            on_deny=draw.choice(["inform", "inform", "terminate"]),
            on_failure=draw.choice(["inform", "inform", "terminate"]),
            loop_budget=draw.choice([{}, {"max_iterations": 2}, {"max_tool_calls": 2}, {"wrap_up": True}]),
            retry={"max_retries": 1, "backoff_base_ms": 1, "backoff_cap_ms": 1},
        )
    )


def _run(draw: random.Random) -> Any:
    def run(_arguments: Mapping[str, Any], _io: Any) -> Any:
        if draw.random() < 0.4:
            raise draw.choice(FAULTS)()
        return draw.choice([{"said": "ok"}, {"said": "ok"}, {"said": 1}, None])

    return run


def _bodies(provider: str, seed: int) -> tuple[list[dict[str, Any]], str]:
    """The bodies of a run in which anything may fail and of two that go on from it, and the ending of the first."""
    draw = random.Random(seed)
    script = [_turn(draw, provider) for _ in range(14)]
    with Server([*script, *[Turn("Done.")] * 60]) as server:
        history: list[dict[str, Any]] = []
        endings = []
        for question in ("What is there?", "And then?", "Is that all?"):
            model = opened(provider, server.base_url(provider), stream=draw.random() < 0.5)
            run = _run(draw)
            agent = Agent(model, [tool(run=run), tool("echo", run)], _policy(draw), instructions="Be brief.")
            result = agent.run(question, history=history, run_id="r", clock=VirtualClock(), seed=seed)
            history = result.history
            endings.append(result.ending)
    return [request.body for request in server.requests], endings[0]


def _consume(value: Any) -> None:
    """Walk through validated data: pydantic looks at what is iterable only when it is iterated."""
    if isinstance(value, Mapping):
        value = value.values()
    if not isinstance(value, str | bytes) and isinstance(value, Iterable):
        for item in value:
            _consume(item)


@lru_cache
def _sdk_type(module: str, name: str) -> Any:
    """The SDK's own type of a request, which bodies are held against."""
    pydantic = pytest.importorskip("pydantic")
    return pydantic.TypeAdapter(getattr(import_module(module), name))


def _check_chat_completions(body: dict[str, Any]) -> None:
    """What OpenAI documents: each call is answered at once by its id; who speaks is known; no turn is empty."""
    params = _sdk_type("openai.types.chat.completion_create_params", "CompletionCreateParams")
    _consume(params.validate_python(body))
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0) and message["content"]
            continue
        assert waiting == []
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        assert len({*waiting}) == len(waiting)
        assert calls or message["content"].strip()
    assert waiting == [] and body["messages"][-1]["role"] != "assistant"


def _check_messages(body: dict[str, Any]) -> None:
    """What Anthropic documents: turns alternate from the user on, results stand first and answer the turn before."""
    _consume(_sdk_type("anthropic.types.message_create_params", "MessageCreateParams").validate_python(body))
    turns = body["messages"]
    assert [turn["role"] for turn in turns] == [("user", "assistant")[i % 2] for i in range(len(turns))]
    assert turns[-1]["role"] == "user"
    asked: list[str] = []
    for turn in turns:
        blocks = turn["content"]
        assert blocks and all(block["text"].strip() for block in blocks if block["type"] == "text")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == asked
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert all(isinstance(block["input"], dict) for block in blocks if block["type"] == "tool_use")
    assert asked == []


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_every_request_is_one_that_the_service_takes(provider: str, seed: int) -> None:
    pytest.importorskip(provider)
    bodies, _ = _bodies(provider, seed)
    assert len(bodies) >= 3
    for body in bodies:
        (_check_messages if provider == "anthropic" else _check_chat_completions)(body)


def test_the_runs_end_in_many_ways() -> None:
    pytest.importorskip("openai")
    endings = {_bodies("openai", seed)[1] for seed in range(5)}
    assert {"final_answer", "failure_mode_terminal", "policy_denial_terminal", "loop_budget"} <= endings
