"""A check of a live run names a decision that goes another way, though the record cannot answer what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph import record
from tachograph.cli import main as cli
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.cut_off import DecisionsUnderWay
from tachograph.runtime.core.effects import Call, Decided
from tachograph.runtime.driver.ports import RunEvent
from tachograph.runtime.policy.gate import ALLOW, DENY, ESCALATE, Decision
from tests.evidence.project import replaced
from tests.evidence.tasks.code.code_project import POLICY

AGENT = """\
from tachograph import Agent, LLMOutput, Policy, ToolCall, tool


@tool(effect="read")
def lookup(code: str) -> str:
    '''Look up a depot by its code.'''
    return {"OB": "Ollerbeck"}.get(code, "unknown")


def model(asked):
    if asked.step_index == 1:
        return LLMOutput(tool_calls=[ToolCall("lookup", {"code": "OB"})])
    return LLMOutput(final_answer="so")


def make():
    return Agent(model, [lookup, "read"], Policy.load("policy/v1.yaml"))
"""
RUN = "runs/depots/ob"
ALLOWED = ("allowed: [read]", "allowed: [read, lookup]")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    policy = POLICY.replace("sandbox: {mounts: {notes: read}}\n", "")
    for name, text in {"policy/v1.yaml": policy, "crew/depots.py": AGENT}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _recorded(project: Path) -> Path:
    record("crew.depots:make", "Which depot is OB?", task="tasks/depots/ob.yaml")
    assert examine(project / RUN, root=project).ok
    return project / RUN


def test_a_denial_that_would_be_allowed_is_the_gravest_difference(project: Path, capsys: Any) -> None:
    run = _recorded(project)
    replaced(project / "policy/v1.yaml", *ALLOWED)
    found = examine(run, root=project)
    assert "attempt 1 of call 0 (lookup) is not in the record" in found.lines[0]
    assert found.kind == "VERDICT" and found.drift is not None and found.drift.gravest is not None
    assert str(found.drift.gravest) == "step 1 /policy_decisions/0/decision: deny -> allow"
    assert cli.main(["check", RUN]) == 1
    said = capsys.readouterr().out
    assert f"VERDICT  {RUN}" in said and "deny -> allow [VERDICT]" in said
    assert "policy/v1.yaml" in said and "lookup" in said


def test_a_call_that_would_be_denied_is_told_as_before(project: Path) -> None:
    replaced(project / "policy/v1.yaml", *ALLOWED)
    run = _recorded(project)
    replaced(project / "policy/v1.yaml", *reversed(ALLOWED))
    found = examine(run, root=project)
    assert found.kind == "VERDICT"
    assert any("/policy_decisions/0/decision: allow -> deny" in line for line in found.lines)


# ---- one step ------------------------------------------------------------------------------------------------


def _decided(decision: str, rule: str = "tool_registry", *, index: int | None = 0) -> Decided:
    call: Any = None if index is None else Call.__new__(Call)
    if call is not None:
        object.__setattr__(call, "id", f"tc_1_{index}")
    made = Decision(decision, rule, "because", "policy/v1.yaml#/a", {})  # type: ignore[arg-type]
    return Decided(1, index, call, made)


def _line(recorded: dict[str, Any], *decided: Decided) -> Any:
    entry = {"position": "d0", "phase": "proposal", "id": "tc_1_0", "rule_id": "tool_registry", **recorded}
    listener = DecisionsUnderWay()
    for item in decided:
        listener(RunEvent("decided", item=item))
    return listener.line([{"type": "run"}, {"type": "step", "policy_decisions": [entry]}, {"type": "end"}], 1)


def test_what_is_decided_as_recorded_is_no_difference() -> None:
    assert _line({"decision": "allow"}, _decided(ALLOW)) is None
    assert _line({"decision": "allow"}) is None
    assert _line({"decision": "allow"}, _decided(ALLOW), _decided(ALLOW, index=None)) is None
    answered = {"decision": "deny", "rule_id": "approval", "approval": {"answer": "deny"}}
    assert _line(answered, _decided(ESCALATE, "approval")) is None
    stopped = {"decision": "deny", "rule_id": "approval"}
    assert _line(stopped, _decided(ESCALATE, "approval")) is None


def test_what_is_decided_otherwise_takes_the_place_of_the_record() -> None:
    (entry,) = _line({"decision": "deny"}, _decided(ALLOW))["policy_decisions"]
    assert (entry["decision"], entry["id"], entry["phase"]) == ("allow", "tc_1_0", "proposal")
    (entry,) = _line({"decision": "deny"}, _decided(ESCALATE, "approval"))["policy_decisions"]
    assert (entry["decision"], entry["rule_id"]) == ("escalate", "approval")
    _, entry = _line({"decision": "allow"}, _decided(DENY, "loop_budget", index=None))["policy_decisions"]
    assert (entry["position"], entry["phase"], entry["id"]) == ("d", "step", None)


def test_a_step_that_is_over_has_a_line_of_its_own() -> None:
    listener = DecisionsUnderWay()
    listener(RunEvent("decided", item=_decided(ALLOW)))
    listener(RunEvent("line", line={}))
    entry = {"position": "d0", "decision": "deny", "rule_id": "tool_registry"}
    assert listener.line([{"type": "run"}, {"type": "step", "policy_decisions": [entry]}], 1) is None
    assert listener.line([{"type": "run"}, {"type": "end"}], 1) is None
    assert listener.line([{"type": "run"}], 1) is None
