"""What is made of a model's reply whatever it holds, and what a wait and a question follow from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, Tool, ToolCall
from tachograph.runtime.log.events import Answered, ModelReplied, Waited
from tachograph.runtime.models.scripted import Script
from tachograph.runtime.models.types import MOST_TOKENS, read_reply
from tachograph.runtime.run import head_of, make_run
from tachograph.runtime.world.perform import Fault
from tachograph.runtime.world.virtual import Virtual, run_now
from tests.project import POLICY, merged
from tests.tables.rows import closed, roomy


def test_calls_of_one_reply_are_counted_and_their_names_cut() -> None:
    for number in (64, 65):
        read = read_reply(LLMOutput(tool_calls=[ToolCall("n" * 1000, "{}")] * number), "3.m1", 3, 10)
        assert bool(read.problem) == (number > 64)
        kept = [(f"tc_3_{n}", "n" * 200) for n in range(64)]
        assert [(call.id, call.name) for call in read.calls] == (kept if number == 64 else [])


@pytest.mark.parametrize("absurd", [10**30, MOST_TOKENS + 1, -1, 0, True, 1.5, "9", None, float("nan")])
def test_usage_is_a_count_or_stands_for_bytes(absurd: Any) -> None:
    usage = {"input_tokens": absurd, "output_tokens": 7}
    read = read_reply(LLMOutput(final_answer="hello", usage=usage), "1.m1", 1, 10).usage
    is_counted = type(absurd) is int and absurd > 0
    assert (read.input_tokens, read.output_tokens) == (MOST_TOKENS if is_counted else 10, 7)


def test_what_a_service_signed_is_dropped_where_a_secret_was_replaced() -> None:
    replies = [LLMOutput(finish_reason="pause", raw={"to": to}) for to in ("someone@mail.test", "nobody")]
    replies.append(LLMOutput(final_answer="done"))
    policy = Policy.from_dict(roomy([], redact={"kinds": ["email"]}))
    agent = Agent(lambda asked: replies[asked.step_index - 1], [], policy)
    kept = [event.raw for event in agent.run("?").events if isinstance(event, ModelReplied)]
    assert kept == [None, {"to": "nobody"}, None]


class Asked(Virtual):
    """Keeps what a person is asked."""

    def answer(self, pending: Any) -> Answered:
        self.digests = [*getattr(self, "digests", []), pending.effect.digest]
        return Answered(at=pending.at, answer="allow")


OTHER = Tool(
    "absent", "", closed(text={"type": "string"}), closed(), "pure", lambda arguments, io: {}, idempotent=True
)


def played(run_id: str = "r", seed: int = 1, tool: str = "echo", words: str = "ab", **delta: Any) -> Any:
    """Return the digests of the questions of a run, and its waits: each call times out once."""
    policy: dict[str, Any] = {"retry": {"backoff_base_ms": 10**4, "backoff_cap_ms": 10**5}}
    policy["approval"] = {"required_for": ["echo", "absent"]}
    calls = [{"tool": tool, "arguments": {"text": word}} for word in words]
    model, kit = Script([{"calls": calls}, {"answer": "done"}]), Path(__file__).parent / "kit"
    agent = Agent(model, ["echo", OTHER], Policy.from_dict(merged(POLICY, {**policy, **delta})), root=kit)
    spec = agent.spec("?", run_id=run_id, seed=seed)
    with agent.workspace() as workspace:
        world = Asked(workspace, lambda at: Fault(TimeoutError()) if at.endswith(".i1") else None)
        events = run_now(make_run(spec, head_of(spec), world)).journal.events
    return world.digests, [event.took for event in events if isinstance(event, Waited)]


def test_jitter_follows_from_seed_run_and_address_alone() -> None:
    waits = [played()[1], played(seed=2)[1], played(run_id="s")[1]]
    assert played(words="cd", on_deny="inform")[1] == waits[0]
    assert len({wait for run in waits for wait in run}) == 6


def test_an_answer_belongs_to_one_question() -> None:
    """Which tool, which arguments, under which policy, in which run, at which place."""
    assert played()[0] == played(seed=9)[0]
    runs = [played(), played(tool="absent"), played(words="ba"), played(on_deny="inform"), played(run_id="s")]
    assert len({digest for digests, _ in runs for digest in digests}) == 10


def test_a_schema_is_copied_and_compiled_once() -> None:
    schema = closed(x={"type": "integer"})
    one, other = (Tool(name, "", schema, closed(), "pure", lambda arguments, io: {}) for name in "tu")
    schema["properties"]["x"]["type"] = "string"
    assert one.input_schema == closed(x={"type": "integer"})
    assert one.input_validator(strict=True) is other.input_validator(strict=True)


@pytest.mark.parametrize("odd", [2**60, float("nan"), "\ud800", b"x", [2**60], {(1, 2): 3}])
def test_arguments_that_are_no_json_are_kept_and_others_are_another_call(odd: Any) -> None:
    tried = [{"n": odd}, {"n": odd, "more": 1}, [{"n": odd}]]
    replies = [LLMOutput(tool_calls=[ToolCall("echo", it)]) for it in tried]  # type: ignore[arg-type]
    replies.append(LLMOutput(final_answer="done"))
    policy = Policy.from_dict(roomy([], on_deny="inform"))
    result = Agent(lambda asked: replies[asked.step_index - 1], [], policy).run("?")
    assert result.ending == "final_answer"
    assert len({call.text for it in result.events if isinstance(it, ModelReplied) for call in it.calls}) == 3
