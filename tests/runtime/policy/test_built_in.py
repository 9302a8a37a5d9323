"""An agent without a policy may compute and read, under a policy that its record names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, PolicyError, ToolCall, record, replay, tool
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files.words.rule_places import moved_on
from tachograph.runtime.formats.document_digest import digest_of_document
from tachograph.runtime.policy.built_in import BUILT_IN, built_in_of, built_in_policy, built_in_text
from tachograph.runtime.tools.contract import EFFECTS as KINDS
from tests.support import ROOT


@tool(effect="pure", idempotent=True)
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def of_kind(effect: str) -> Any:
    @tool(effect=effect)
    def probe(number: int) -> int:
        """Do something."""
        return number

    return probe


def model(asked: Any) -> LLMOutput:
    if asked.step_index == 1:
        return LLMOutput(tool_calls=[ToolCall("double", {"number": 21})])
    return LLMOutput(final_answer=asked.messages[-1]["content"])


def test_a_run_without_a_policy_is_recorded_with_the_built_in_one(tmp_path: Path) -> None:
    agent = Agent(model, [double])
    result = record(agent, "What is twice 21?", tmp_path / "run")
    assert result.ok and result.answer == '{"result":42}'
    line = json.loads((tmp_path / "run/state.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert line["policy"]["files"] == [{"path": BUILT_IN}]
    assert line["policy"]["version"] == agent.policy.version
    manifest = json.loads((tmp_path / "run/manifest.json").read_bytes())
    digest = digest_of_document(built_in_text())
    assert {"path": BUILT_IN, "sha256": digest, "canonical": True} in manifest["inputs"]
    assert result.steps[0]["policy_decisions"][0]["at"] == f"{BUILT_IN}#/tool_registry/allowed/double"
    assert verify(tmp_path / "run", tmp_path) == []
    assert replay(agent, tmp_path / "run").answer == result.answer
    assert moved_on(line, tmp_path) is None
    assert "policy has moved on" in str(
        moved_on({**line, "policy": {**line["policy"], "version": "0"}}, tmp_path)
    )


def test_a_record_is_replayed_without_the_code_of_its_agent(tmp_path: Path) -> None:
    def answers(asked: Any) -> LLMOutput:
        return LLMOutput(final_answer=f"{len(asked.tools)} tools")

    agent = Agent(answers, ["search", "read"], mounts={"corpus": ROOT / "data/corpus/v1"})
    assert agent.policy.mounts == {"corpus": "read"}
    record(agent, "What may you do?", tmp_path / "run")
    found = replayed(tmp_path / "run", root=ROOT)
    assert not [line for line in found.lines if "policy" in line], found.lines
    line = json.loads((tmp_path / "run/state.jsonl").read_text(encoding="utf-8").split("\n")[0])
    built_in = built_in_of(line)
    assert built_in is not None and built_in.version == line["policy"]["version"]
    line["policy"]["files"] = [{"path": "policy/v1.yaml"}]
    assert built_in_of(line) is None


@pytest.mark.parametrize("effect", KINDS)
def test_only_tools_that_compute_or_read_are_allowed(effect: str) -> None:
    if effect in ("pure", "read"):
        assert Agent(model, [of_kind(effect)]).policy.allowed == {"probe": 0}
        return
    with pytest.raises(PolicyError) as caught:
        Agent(model, [of_kind(effect)])
    line = str(caught.value)
    assert "\n" not in line and repr(effect) in line and "`allowed: [probe]`" in line


def test_following_the_remedy_allows_the_tool(tmp_path: Path) -> None:
    text = built_in_text().decode("utf-8")
    assert text.count("allowed: []") == 1
    (tmp_path / "policy.yaml").write_text(text.replace("allowed: []", "allowed: [probe]"), encoding="utf-8")
    agent = Agent(model, [of_kind("write")], Policy.load(tmp_path / "policy.yaml"))
    assert agent.policy.allowed == {"probe": 0}


def test_it_allows_no_url_no_network_and_no_tool_by_itself() -> None:
    policy = built_in_policy({})
    assert policy.allowed == {} and policy.mounts == {} and policy.approval_for == {}
    assert policy.data["url_allowlist"] == [] and policy.data["private_networks"] == []
    shipped = Policy.shipped()
    assert set(policy.redact) == set(shipped.redact) and policy.limits == shipped.limits
    assert policy.strict_arguments and policy.denies_overdraft


def test_a_plain_function_is_refused_with_the_line_to_write() -> None:
    def lookup(number: int) -> int:
        """Look up a number."""
        return number

    from tachograph import ToolError

    with pytest.raises(ToolError, match=r'write @tool\(effect="read"\) above it'):
        Agent(model, [lookup])  # type: ignore[list-item]
    with pytest.raises(ToolError, match="int is not a tool"):
        Agent(model, [3])  # type: ignore[list-item]
