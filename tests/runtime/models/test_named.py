"""A model that is only named is opened when a run asks it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, InputError, LLMOutput, record, replay
from tachograph.runtime.models import providers
from tachograph.runtime.models.named import NamedModel


class Opened:
    """An opened model that answers, and counts how often one was opened."""

    secrets = (("api_key", "sk-of-a-test-0123456789"),)

    def __init__(self, counter: list[str], spec: str) -> None:
        counter.append(spec)

    def __call__(self, asked: Any) -> LLMOutput:
        return LLMOutput(final_answer="It is sk-of-a-test-0123456789.")


def test_it_is_opened_once_by_the_run_and_its_key_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter: list[str] = []
    monkeypatch.setattr(providers, "open_model", lambda spec: Opened(counter, spec))
    agent = Agent("anthropic:some-model")
    assert agent.identity["name"] == "some-model" and counter == []
    result = record(agent, "Who are you?", tmp_path / "run")
    assert counter == ["anthropic:some-model"]
    assert result.answer == "It is <secret:api_key:1>."
    agent.run("Again?")
    assert len(counter) == 1


def test_a_replay_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "open_model", lambda spec: Opened([], spec))
    record(Agent("openai:some-model"), "Who are you?", tmp_path / "run")

    def never(spec: str) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(providers, "open_model", never)
    assert replay(Agent("openai:some-model"), tmp_path / "run").answer == "It is <secret:api_key:1>."


@pytest.mark.parametrize("spec", ["some-model", "anthropic:", "nobody:some-model", ":x", "openai:a b"])
def test_a_bad_name_is_refused_when_the_agent_is_made(spec: str) -> None:
    with pytest.raises(InputError) as caught:
        Agent(spec)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    agent = Agent("anthropic:some-model")
    with pytest.raises(InputError, match=r"ANTHROPIC_API_KEY|not installed"):
        record(agent, "Who are you?", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_making_an_agent_imports_no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("anthropic", "openai"):
        monkeypatch.setitem(sys.modules, name, None)
    assert repr(NamedModel("anthropic:some-model")) == "<model 'anthropic:some-model'>"
