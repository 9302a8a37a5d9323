"""What an agent in code cannot be made of, or run with, is one line with what to do; nothing is left behind."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMInput, LLMOutput, Policy, tool
from tachograph.fail.errors import InputError, ModelError
from tachograph.runtime.log.events import Failed
from tests.project import script

POLICY = Policy.load(Path(__file__).parents[1] / "policy" / "v1.yaml")


model = script("done")


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effect="pure", name="add")
def other(a: int) -> int:
    """Add one."""
    return a + 1


AGENTS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((5, [], POLICY), {}, "llm"),
    ((model, add, POLICY), {}, "tools"),
    ((model, "add", POLICY), {}, "tools"),
    ((model, [], "policy/v1.yaml"), {}, "policy"),
    ((model, [], {"schema": "policy/v1"}), {}, "policy"),
    ((model, [add, other], POLICY), {}, "add"),
    ((model, [len], POLICY), {}, "len"),
    ((model, [], POLICY), {"hooks": [print]}, "hooks"),
    ((model, [], POLICY), {"hooks": print}, "hooks"),
    ((model, [], POLICY), {"mounts": {"nowhere": "."}}, "nowhere"),
    ((model, [], POLICY), {"output_type": 7}, "answer"),
    (("nobody:model", [], POLICY), {}, "nobody"),
]


@pytest.mark.parametrize(("arguments", "options", "word"), AGENTS)
def test_what_no_agent_is_made_of(arguments: tuple[Any, ...], options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as refused:
        Agent(*arguments, **options)
    assert len(str(refused.value).splitlines()) == 1


POLICIES = [None, "tools: 5", "extends: no.yaml", "tools: {add: {arguments: {/c: {in: [x]}}}}"]
POLICIES += [f"tools: {{add: {{{key}: }}}}" for key in ("mounts", "urls", "methods")]
POLICIES += ["loop_budget: {max_attempts: }", "redact: {kinds: [no_such_kind]}", "redact: {env: [A B]}"]
POLICIES += ["redact: {kinds: [], reveal_to: {add: [no_such_kind]}}"]


@pytest.mark.parametrize("text", POLICIES)
def test_errors_name_the_file_of_a_policy_as_it_was_given(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    if text is not None:
        file.write_text(f"schema: policy/v1\n{text}\n")
    with pytest.raises(InputError, match=f"^{tmp_path}/"):
        Agent(model, [add], Policy.load(file))


def test_why_a_model_failed_is_told_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    """The caller is told by a log record; the record of the run keeps what the service said, cut at a word."""

    def fails(asked: LLMInput) -> LLMOutput:
        raise ModelError("the service answered 401", status=401, service_text="word " * 100)

    with caplog.at_level(logging.WARNING, "tachograph"):
        result = Agent(fails, [], POLICY).run("?")
    assert (result.ending, result.mode) == ("failure_mode_terminal", "llm_failure")
    assert "HTTP 401 word word" in result.reason
    assert Agent(model, [], POLICY).run("?").reason == "the model answered"
    assert "the service answered 401" in caplog.text and "said: word" in caplog.text
    (failed,) = [event for event in result.events if isinstance(event, Failed)]
    assert failed.status == 401
    assert failed.said.endswith("word") and len(failed.said) < 301
