"""`result.history`: what a run leaves for the next one, which takes it however the run before it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from tachograph import Agent, Hooks, LLMInput, LLMOutput, Policy, Stub, ToolCall, record, replay, resume
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.recording.resume import resume_folder
from tachograph.fail.errors import Cancelled, InputError, TransientModelError
from tachograph.runtime.journal.requests import conversation_of, opening_messages, requests_of
from tests.evidence.forger import chained, lines_of
from tests.support import ROOT, Script, answer, ask, failing, policy_data, probe, tool


def _agent(replies: list[Any], run: Any = None, hooks: Any = (), **policy: Any) -> Agent:
    tools = [tool() if run is None else tool(run=run), tool("echo")]
    return Agent(Script(replies), tools, Policy.from_dict(policy_data(**policy)), hooks=hooks)


def test_a_conversation_goes_on() -> None:
    first = _agent([ask(probe(n=1), text="I look."), answer("There is one.")]).run("What is there?")
    assert [message["role"] for message in first.history] == ["user", "assistant", "tool", "assistant"]
    assert first.history[-1]["content"] == first.answer
    second = _agent([answer("Yes.")])
    result = second.run("Only one?", history=first.history)
    assert isinstance(second.llm, Script)
    (heard,) = second.llm.heard
    assert heard[1]["tool_calls"][0]["id"] == heard[2]["tool_call_id"] == "hc_0"
    assert heard[-1] == {"role": "user", "content": "Only one?"}
    assert [m["content"] for m in result.history[:4]] == [m["content"] for m in first.history]
    assert [m["content"] for m in result.history[4:]] == ["Only one?", "Yes."]
    third = _agent([answer("No.")]).run("And now?", history=result.history)
    assert len(third.history) == len(result.history) + 2


ENDS: dict[str, tuple[Agent, list[str]]] = {
    "denied": (_agent([ask(probe("absent"), probe(n=1))]), ["denied", "not_reached"]),
    "failed": (_agent([ask(probe(n=1), probe(n=2))], failing(KeyError())), ["failed", "not_reached"]),
    "cancelled": (
        _agent([ask(probe(n=1), probe(n=2))], failing(Cancelled("by code"))),
        ["cancelled", "not_reached"],
    ),
    "calls that are cut off": (_agent([ask(probe(n=1), finish_reason="length")]), ["not_reached"]),
    "no reply": (_agent([TransientModelError()] * 9), []),
    "an empty reply": (_agent([LLMOutput()]), []),
    "a refusal": (_agent([LLMOutput(finish_reason="refusal")]), []),
    "a budget": (_agent([ask(probe(n=1))], loop_budget={"max_iterations": 1}), []),
    "a hook": (_agent([], hooks=Hooks(before_model=lambda data: {"stop": "no"})), []),
}


@pytest.mark.parametrize("name", ENDS)
def test_however_it_ended_each_call_has_a_result_and_no_message_is_empty(name: str) -> None:
    agent, statuses = ENDS[name]
    result = agent.run("What is there?")
    assert not result.ok
    told = [m["content"] for m in result.history if m["role"] == "tool" and "no_result" in m["content"]]
    assert told == [f'{{"error":"no_result","status":"{status}"}}' for status in statuses]
    assert all(message["content"].strip() or message.get("tool_calls") for message in result.history)
    assert _agent([answer("Yes.")]).run("Again?", history=result.history).ok


def test_it_is_what_the_model_was_asked_with() -> None:
    """Under `inform` the last request, with the answer behind it, is the history."""
    replies = [
        ask(probe("absent")),
        ask(probe(n=1)),
        ask(probe(n=2), finish_reason="length"),
        LLMOutput(),
        answer(),
    ]
    agent = _agent(replies, failing(KeyError()), on_deny="inform", on_failure="inform")
    result = agent.run("What?", history=[{"role": "user", "content": "Hello"}])
    assert isinstance(agent.llm, Script) and result.ok
    assert result.history == [*agent.llm.heard[-1], {"role": "assistant", "content": "done"}]


@pytest.mark.parametrize(
    "run", sorted(path.parent for path in ROOT.glob("runs/*/*/state.jsonl")), ids=lambda run: run.name
)
def test_of_every_recorded_run_it_begins_with_the_last_request(run: Path) -> None:
    lines = lines_of(run)
    history = conversation_of(opening_messages(lines[0]), lines[1:-1])
    asked = [list(request.messages) for request in requests_of(lines)]
    assert asked == [] or history[: len(asked[-1])] == asked[-1]
    assert _agent([answer("Yes.")]).run("And now?", history=history).ok


def test_secrets_stay_out() -> None:
    key = "ghp_" + "a" * 36
    agent = _agent([answer(f"It is {key}.")], redact={"kinds": ["github_token"]})
    assert key not in str(agent.run(f"Is it {key}?").history)


def test_a_record_and_a_resumed_run_have_it_too(tmp_path: Any) -> None:
    agent = Agent(Stub([{"answer": "At the depot."}]), ["read"], Policy.shipped())
    result = record(agent, "Where?", tmp_path / "stub")
    said = [("user", "Where?"), ("assistant", "At the depot.")]
    assert [(m["role"], m["content"]) for m in result.history] == said
    keys: list[str] = []

    def model(asked: LLMInput) -> LLMOutput:
        if asked.step_index == 1:
            return ask(ToolCall("summarize", {"text": "It is open. It is dry.", "max_sentences": 1}))
        if not keys:
            raise InputError("the key is missing")
        return LLMOutput(final_answer="At the depot.")

    live = Agent(model, ["summarize"], Policy.shipped())
    with pytest.raises(InputError):
        record(live, "Where?", tmp_path / "live")
    keys.append("a key")
    resumed = resume(live, tmp_path / "live")
    history = resumed.history
    assert len(resumed.steps) == 2
    assert [m["role"] for m in history] == ["user", "assistant", "tool", "assistant"]
    assert [(m["role"], m["content"]) for m in (history[0], history[-1])] == said


KEY = "ghp_" + "a" * 36


class _Breaks:
    """A model that calls a tool, breaks unless it has its key, and answers; it counts as one of a service."""

    identity: ClassVar = {"execution_path": "live", "provider": "openai", "name": "m", "script_digest": None}

    def __init__(self, *, has_key: bool = True) -> None:
        self.has_key = has_key

    def __call__(self, asked: LLMInput) -> LLMOutput:
        if asked.step_index == 1:
            return ask(ToolCall("summarize", {"text": "It is open. It is dry.", "max_sentences": 1}))
        if not self.has_key:
            raise InputError("the key is missing")
        return LLMOutput(final_answer="Yes.")


def _after_a_secret(model: _Breaks, policy: Policy) -> tuple[Agent, list[dict[str, Any]]]:
    """An agent, and a history in which a placeholder of an earlier run stands, and one that is escaped."""
    first = Agent(Stub([{"answer": "Is it <secret:?"}]), ["summarize"], policy).run(f"It is {KEY}.")
    assert "<secret:github_token:1>" in first.history[0]["content"]
    return Agent(model, ["summarize"], policy), first.history


def test_placeholders_in_a_history_are_escaped_once(tmp_path: Path) -> None:
    agent, history = _after_a_secret(_Breaks(), Policy.load(ROOT / "policy/v1.yaml", root=ROOT))
    record(agent, f"And <secret:github_token:1>? Or {KEY}?", tmp_path / "run", history=history)
    assert "<secret::github_token:1>" in (tmp_path / "run/state.jsonl").read_text()
    assert replayed(tmp_path / "run", root=ROOT).lines == []
    assert replay(agent, tmp_path / "run").ok


@pytest.mark.parametrize("by", ["code", "folder"])
def test_a_run_with_placeholders_in_its_history_is_resumed(tmp_path: Path, by: str) -> None:
    model = _Breaks(has_key=False)
    agent, history = _after_a_secret(model, Policy.load(ROOT / "policy/v1.yaml", root=ROOT))
    out = tmp_path / "run"
    with pytest.raises(InputError, match="the key is missing"):
        record(agent, f"And <secret:github_token:1>? Or {KEY}?", out, history=history)
    model.has_key = True
    if by == "code":
        assert resume(agent, out).ok
    else:
        opened = {"open_model": lambda _: model, "has_model": True}
        assert resume_folder(out, resolutions={}, rebase=False, root=ROOT, **opened).ok
    assert replayed(out, root=ROOT).lines == []


def test_a_secret_that_stands_in_a_record_without_a_task_is_a_difference(tmp_path: Path) -> None:
    agent, history = _after_a_secret(_Breaks(), Policy.load(ROOT / "policy/v1.yaml", root=ROOT))
    record(agent, f"Or {KEY}?", tmp_path / "run", history=history)
    state = tmp_path / "run/state.jsonl"
    lines = lines_of(tmp_path / "run")
    assert lines[0]["question"] == "Or <secret:github_token:1>?"
    lines[0]["question"] = f"Or {KEY}?"
    state.write_bytes(chained(lines))
    found = replayed(tmp_path / "run", root=ROOT).lines
    assert any("line 1: first difference: line 1 /question" in line for line in found), found
