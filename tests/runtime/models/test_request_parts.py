"""What the model is asked with, beside the messages: it stands once in the ledger, and each step points to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tachograph.fail.errors import InputError
from tachograph.runtime.agent import Agent
from tachograph.runtime.formats.canonical_json import digest, encode
from tachograph.runtime.models.request_parts import options_of
from tachograph.runtime.models.types import LLMInput, LLMOutput
from tachograph.runtime.policy.policy import Policy
from tests.support import Script, answer, ask, perform, policy_data, probe, tool


def _sets(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(line.get("request_parts", {}).get("tools", ()))


def test_the_tools_stand_once_in_the_run_line_as_the_model_gets_them() -> None:
    replies = [ask(probe(n=1)), ask(probe("echo", n=2)), answer()]
    heard: list[list[dict[str, Any]]] = []

    def model(asked: LLMInput) -> LLMOutput:
        heard.append(
            [
                {
                    "name": spec.name,
                    "description": spec.description,
                    "input_schema": json.loads(spec.input_schema),
                }
                for spec in asked.tools
            ]
        )
        return replies[asked.step_index - 1]

    run, *steps, _ = perform(model).lines
    (offered,) = _sets(run)
    assert [item["name"] for item in offered["tools"]] == ["probe", "echo"]
    assert offered["digest"] == digest(encode(offered["tools"]))
    assert heard == [offered["tools"]] * 3
    assert all(not _sets(step) for step in steps)
    assert [step["llm_input"]["tools"] for step in steps] == [offered["digest"]] * 3


def test_tools_that_the_policy_does_not_allow_are_not_offered() -> None:
    policy = policy_data(tool_registry={"allowed": ["echo"]})
    done = perform([answer()], policy=policy)
    assert [item["name"] for item in _sets(done.lines[0])[0]["tools"]] == ["echo"]


def test_a_set_that_first_appears_later_stands_where_it_appears() -> None:
    policy = policy_data(loop_budget={"max_iterations": 3, "wrap_up": True})
    replies = [ask(probe(n=1)), ask(probe(n=2)), answer()]
    done = perform(replies, policy=policy)
    run, first, second, last, _ = done.lines
    assert not _sets(first) and not _sets(second)
    assert _sets(last) == [{"digest": digest("[]"), "tools": []}]
    assert last["llm_input"]["tools"] == digest("[]") != _sets(run)[0]["digest"]


def test_an_agent_without_tools_has_the_empty_set_in_its_run_line() -> None:
    agent = Agent(
        Script([answer()]),
        [],
        Policy.from_dict(policy_data(tool_registry={"allowed": ["search"], "denied": []})),
    )
    run, step = _lines_of(agent)
    assert _sets(run) == [{"digest": digest("[]"), "tools": []}] and not _sets(step)


def _lines_of(agent: Agent) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    agent.execute(agent.configure_run("What now?"), on_line=lambda line, _text: lines.append(line))
    return lines[:2]


def _agent(options: object) -> Agent:
    model = Script([answer()])
    model.identity = {**model.identity, "options": options}  # type: ignore[misc]
    return Agent(model, [tool(), tool("echo")], Policy.from_dict(policy_data()))


def test_options_stand_once_and_not_in_the_description_of_the_model() -> None:
    run, step = _lines_of(_agent({"temperature": 0.5, "seed": 7.0}))
    (entry,) = run["request_parts"]["options"]
    assert entry["options"] == {"temperature": 0.5, "seed": 7} == options_of(run)
    assert entry["digest"] == digest('{"seed":7,"temperature":0.5}') == step["llm_input"]["options"]
    assert "options" not in run["model"]


def test_a_model_without_options_leaves_no_trace_of_them() -> None:
    run, step = _lines_of(_agent({}))
    assert "options" not in run["request_parts"] and "options" not in step["llm_input"]
    assert options_of(run) == {}


@pytest.mark.parametrize("options", ["hot", [1], {"temperature": float("nan")}, {1: 2}], ids=str)
def test_options_that_no_record_can_hold_are_refused_before_anything_happens(options: object) -> None:
    agent = _agent(options)
    with pytest.raises(InputError, match="options cannot be written down"):
        _lines_of(agent)
    assert agent.llm.heard == []  # type: ignore[attr-defined]
