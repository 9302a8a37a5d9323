"""A policy file may name tools that are defined in code, where a task of the project names their agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as cli
from tachograph.evidence.tasks.code.tools import with_tools_in_code
from tachograph.runtime.formats.shipped_files import shipped
from tests.evidence.tasks.code.code_project import POLICY, QUESTION

AGENT = """\
from tachograph import Agent, Policy, Stub, tool


@tool(effect="read")
def lookup(code: str) -> str:
    '''Look up a depot by its code.'''
    return {"OB": "Ollerbeck"}.get(code, "unknown")


script = [{"calls": [{"tool": "lookup", "arguments": {"code": "OB"}}]}, {"answer": "Ollerbeck"}]
agent = Agent(Stub(script), [lookup, "read"], Policy.load("policy/v1.yaml"), mounts={"notes": "data"})
"""
TESTS = """\
schema: policy-tests/v1
tests:
  - name: a lookup is allowed
    call: {tool: lookup, arguments: {code: OB}}
    expect: allow
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose policy allows `lookup`, a function of the agent that a task names."""
    files = {
        "policy/v1.yaml": POLICY.replace("allowed: [read]", "allowed: [read, lookup]"),
        "policy/without.yaml": POLICY,
        "policy/tests/v1.yaml": TESTS,
        "tools/read.py": shipped("tools/read.py").read_text(encoding="utf-8"),
        "data/first.md": "a note\n",
        "crew/__init__.py": "",
        "crew/depots.py": AGENT,
        "tasks/depots/ob.yaml": "schema: task/v1\nid: depots-ob\ntitle: t\n"
        f"question: {QUESTION}\nagent: crew.depots:agent\n",
        "call.json": json.dumps({"tool": "lookup", "arguments": {"code": "OB"}}),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = {
    "check": ["policy", "check"],
    "diff": ["policy", "diff", "policy/v1.yaml", "policy/v1.yaml"],
    "test": ["policy", "test"],
    "coverage": ["policy", "coverage", "--min", "0", "--jobs", "1"],
    "decide": ["policy", "decide", "call.json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_on_policies_know_a_tool_in_code(project: Path, name: str, capsys: Any) -> None:
    assert cli.main(COMMANDS[name]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_without_such_a_task_the_error_says_how_to_name_the_tool(
    project: Path, name: str, capsys: Any
) -> None:
    (project / "tasks/depots/ob.yaml").unlink()
    assert cli.main(COMMANDS[name]) == 2
    said = capsys.readouterr().err
    assert "there is no tool" in said and "'lookup'" in said and len(said.splitlines()) == 1
    assert "name the agent that has it in a task (`agent: module:name`)" in said


def test_a_diff_tells_what_a_tool_in_code_is_allowed(project: Path, capsys: Any) -> None:
    assert cli.main(["policy", "diff", "policy/without.yaml", "policy/v1.yaml"]) == 1
    assert "lookup" in capsys.readouterr().out


def test_a_misspelt_name_is_refused_with_the_tool_in_code(project: Path, capsys: Any) -> None:
    policy = project / "policy/without.yaml"
    policy.write_text(POLICY.replace("allowed: [read]", "allowed: [read, lokup]"))
    assert cli.main(["policy", "check", "policy/without.yaml"]) == 2
    said = capsys.readouterr().err
    assert "policy/without.yaml:2" in said and "'lookup'?" in said


def test_code_is_executed_only_where_a_name_needs_it(project: Path, capsys: Any) -> None:
    (project / "crew/depots.py").write_text("raise ValueError('executed')\n")
    assert cli.main(["policy", "check", "policy/without.yaml"]) == 0
    assert with_tools_in_code({}, [], project) == {}
    capsys.readouterr()
    assert cli.main(["policy", "check"]) == 2
    said = capsys.readouterr().err
    assert "crew/depots.py:1" in said and "executed" in said
