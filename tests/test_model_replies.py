"""What is made of a model's reply whatever it holds, and what the model reads of one that could not be used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tachograph import Agent, LLMInput, LLMOutput, Policy, Tool, ToolCall
from tachograph.fail.errors import ModelError
from tachograph.runtime.effects import AskPerson
from tachograph.runtime.log.events import Answered, ModelReplied, Waited
from tachograph.runtime.models.types import MOST_TOKENS, read_reply
from tachograph.runtime.run import head_of, make_run
from tachograph.runtime.world.virtual import Virtual, run_now
from tests.tables.rows import closed, roomy


@pytest.mark.parametrize(("number", "is_usable"), [(64, True), (65, False)])
def test_calls_of_one_reply_are_bounded(number: int, is_usable: bool) -> None:
    read = read_reply(LLMOutput(tool_calls=[ToolCall("t", "{}")] * number), "3.m1", 3, 10)
    assert bool(read.problem) != is_usable
    assert [call.id for call in read.calls] == [f"tc_3_{n}" for n in range(number if is_usable else 0)]


def test_a_name_is_cut() -> None:
    (call,) = read_reply(LLMOutput(tool_calls=[ToolCall("n" * 1000, "{}")]), "1.m1", 1, 10).calls
    assert call.name == "n" * 200


@pytest.mark.parametrize("absurd", [10**30, MOST_TOKENS + 1, -1, 0, True, 1.5, "9", None, float("nan")])
def test_usage_is_a_count_or_stands_for_bytes(absurd: Any) -> None:
    usage = {"input_tokens": absurd, "output_tokens": 7}
    read = read_reply(LLMOutput(final_answer="hello", usage=usage), "1.m1", 1, 10).usage
    is_counted = type(absurd) is int and absurd > 0
    assert (read.input_tokens, read.output_tokens) == (MOST_TOKENS if is_counted else 10, 7)
    assert read.estimated != is_counted


USELESS = {
    "both": LLMOutput(text="x", tool_calls=[ToolCall("t", {}), ToolCall("t", "no json")], final_answer="now"),
    "cut off": LLMOutput(tool_calls=[ToolCall("t", {})], finish_reason="length"),
    "neither": LLMOutput(),
    "blank": LLMOutput(final_answer="  "),
    "too many": LLMOutput(tool_calls=[ToolCall("t", {})] * 65),
    "none": None,
}


@pytest.mark.parametrize("name", USELESS)
def test_each_call_of_an_unusable_reply_gets_a_message_and_none_is_empty(name: str) -> None:
    asked: list[list[Any]] = []

    def model(request: LLMInput) -> Any:
        asked.append([*request.messages])
        return USELESS[name] if request.step_index == 1 else LLMOutput(final_answer="done")

    tool = Tool("t", "", closed(), closed(), "pure", lambda arguments, io: {})
    result = Agent(model, [tool], Policy.from_dict(roomy(["t"], on_failure="inform"))).run("?")
    assert result.ending == "final_answer"
    _, said, *told = asked[1]
    calls = [call["id"] for call in said.get("tool_calls", [])]
    assert [message["tool_call_id"] for message in told if message["role"] == "tool"] == calls
    assert len(told) == max(1, len(calls))
    assert all(message["content"] or message.get("tool_calls") for message in asked[1])
    assert not [event for event in result.events if event.at.endswith(".d")]


def test_what_a_service_signed_is_dropped_where_a_secret_was_replaced() -> None:
    def model(request: LLMInput) -> LLMOutput:
        raw = {"signed": "to someone@mail.test" if request.step_index == 1 else "to nobody"}
        return LLMOutput(text="x", finish_reason="pause", raw=raw) if request.step_index < 3 else LLMOutput(final_answer="x")  # fmt: skip

    policy = Policy.from_dict(roomy([], redact={"kinds": ["email"]}))
    replies = [event for event in Agent(model, [], policy).run("?").events if isinstance(event, ModelReplied)]
    assert [reply.raw for reply in replies] == [None, {"signed": "to nobody"}, None]


class Asked(Virtual):
    """Keeps what a person is asked, and how long is waited."""

    def answer(self, pending: Any) -> Answered:
        assert isinstance(pending.effect, AskPerson)
        self.digests = [*getattr(self, "digests", []), pending.effect.digest]
        return Answered(at=pending.at, answer="allow")


def played(
    run_id: str = "r", seed: int = 1, names: str = "tt", x: int = 1, **sections: Any
) -> tuple[Any, Any]:
    """Return the digests of the questions of a run, and its waits: each call fails once."""
    failed: list[Any] = []

    def fails_once(arguments: Any, io: Any) -> Any:
        if io.idempotency_key not in failed:
            failed.append(io.idempotency_key)
            raise ConnectionError
        return {}

    def model(request: LLMInput) -> LLMOutput:
        if request.step_index > 1:
            return LLMOutput(final_answer="done")
        return LLMOutput(tool_calls=[ToolCall(name, {"x": x + n}) for n, name in enumerate(names)])

    more: dict[str, Any] = {"idempotent": True, "transient": (ConnectionError,)}
    tools = [Tool(name, "", closed(x={}), closed(), "write", fails_once, **more) for name in "tu"]
    retry = {"max_retries": 1, "backoff_base_ms": 10_000, "backoff_cap_ms": 60_000}
    policy = roomy(["t", "u"], retry=retry, approval={"required_for": ["t", "u"]}, **sections)
    agent = Agent(model, tools, Policy.from_dict(policy))
    spec = agent.spec("?", run_id=run_id, seed=seed)
    with agent.workspace() as workspace:
        world = Asked(model, workspace)
        events = run_now(make_run(spec, head_of(spec, agent.model), world)).journal.events
    return world.digests, [event.took for event in events if isinstance(event, Waited)]


def test_jitter_follows_from_seed_run_and_address_alone() -> None:
    waits = [played()[1], played(seed=2)[1], played(run_id="s")[1]]
    assert played(x=5, on_deny="inform")[1] == waits[0]
    assert len({wait for run in waits for wait in run}) == 6


def test_an_answer_belongs_to_one_question() -> None:
    """Which tool, which arguments, under which policy, in which run, at which place."""
    assert played()[0] == played(seed=9)[0]
    others = [played(), played(names="uu"), played(x=3), played(on_deny="inform"), played(run_id="s")]
    assert len({digest for digests, _ in others for digest in digests}) == 10
    same = played(names="tt", x=1)[0][0], played(names="ut", x=0)[0][1]
    assert same[0] != same[1]  # the same call at another place


def test_a_schema_is_copied_and_compiled_once() -> None:
    schema = closed(x={"type": "integer"})
    tools = [Tool(name, "", schema, closed(), "pure", lambda arguments, io: {}) for name in "tu"]
    schema["properties"]["x"]["type"] = "string"
    for tool in tools:
        assert tool.input_schema["properties"]["x"] == {"type": "integer"}
        assert tool.input_validator(strict=True).first_mismatch({"x": 1}) is None
    assert tools[0].input_validator(strict=True) is tools[1].input_validator(strict=True)


def test_pieces_of_a_reply_that_breaks_off_show_nothing_that_was_held_back() -> None:
    told: list[str] = []

    class Breaks:
        def __call__(self, asked: LLMInput) -> LLMOutput:
            raise AssertionError

        async def ask(self, asked: LLMInput, tell: Any) -> LLMOutput:
            for piece in ("I send ", "ghp_", "a1B2" * 8):
                tell(piece)
            raise ModelError("it broke off")

    policy = Policy.from_dict(roomy([], redact={"kinds": ["github_token"]}))
    agent = Agent(Breaks(), [], policy)

    async def streamed() -> None:
        def started(world: Any) -> None:
            world.on_piece = lambda piece: told.append(piece.text)

        assert (await agent.arun("?", started=started)).mode == "llm_failure"

    asyncio.run(streamed())
    assert "".join(told) == "I send "
