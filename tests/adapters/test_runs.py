"""A recorded run with adapted tools is verified and replayed like any other."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, ReplayError, Stub, record, replay
from tachograph.adapters import from_langchain, from_openai_agents, tool_from_function
from tachograph.evidence.checking.verify import verify
from tachograph.runtime.tools.contract import Tool
from tests.support import policy_data

called: list[str] = []


def look(url: str, times: int = 1) -> str:
    """Look at a page."""
    called.append(url)
    return url * times


def look_again(url: str, times: int = 1) -> str:
    """Look at a page."""
    return url * times * 2


TERMS: dict[str, Any] = {
    "effect": "network",
    "idempotent": True,
    "name": "probe",
    "resources": {"url": "url"},
}


def _tool(kind: str, function: Any = look) -> Tool:
    if kind == "function":
        return tool_from_function(function, **TERMS)
    if kind == "langchain":
        pytest.importorskip("langchain_core", reason="langchain-core is not installed: make test-adapters")
        tools = importlib.import_module("langchain_core.tools")
        return from_langchain(tools.StructuredTool.from_function(function), **TERMS)
    pytest.importorskip("agents", reason="openai-agents is not installed: make test-adapters")
    agents = importlib.import_module("agents")
    return from_openai_agents(agents.function_tool(function, strict_mode=False), **TERMS)


def _policy(**sections: Any) -> Policy:
    return Policy.from_dict(policy_data(tool_registry={"allowed": ["probe"]}, **sections))


def _agent(tool: Tool) -> Agent:
    call = {"tool": "probe", "arguments": {"url": "https://GOOD.test/a", "times": 2}}
    script = [{"calls": [call]}, {"answer": {"$result": 0, "at": "/result"}}]
    return Agent(Stub(script), [tool], _policy())


@pytest.mark.parametrize("kind", ["function", "langchain", "openai_agents"])
def test_a_run_is_recorded_verified_and_replayed(kind: str, tmp_path: Path) -> None:
    agent = _agent(_tool(kind))
    called.clear()
    result = record(agent, "What is there?", tmp_path / "run", run_id="r")
    assert result.answer == "https://good.test/ahttps://good.test/a" and called == ["https://good.test/a"]
    assert verify(tmp_path / "run", tmp_path) == []
    again = replay(agent, tmp_path / "run")
    assert again.answer == result.answer and called == ["https://good.test/a"], "no tool ran"
    first = json.loads((tmp_path / "run/state.jsonl").read_bytes().splitlines()[0])
    (tool,) = first["tools"]
    assert tool["file"] is None
    (source,) = json.loads((tmp_path / "run/manifest.json").read_bytes())["inputs"]
    assert source == {"path": "<tool probe>", "sha256": agent.gate.tools["probe"].digest}
    other = _tool(kind, look_again)
    assert other.digest != agent.gate.tools["probe"].digest
    assert other.schema_digest == agent.gate.tools["probe"].schema_digest


def test_under_another_policy_it_is_another_run(tmp_path: Path) -> None:
    agent = _agent(_tool("function"))
    record(agent, "What is there?", tmp_path / "run", run_id="r")
    with pytest.raises(ReplayError):
        replay(Agent(agent.llm, [_tool("function")], _policy(url_allowlist=[])), tmp_path / "run")
