"""A small project whose agent is in code, for tests of such tasks and of what records them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

AGENT: Final = """\
from pathlib import Path

from tachograph import Agent, LLMOutput, Mount, Policy, Stub, ToolCall

from .words import ANSWER

policy = Policy.load("policy/v1.yaml")
script = [
    {"calls": [{"tool": "read", "arguments": {"path": "notes/first.md"}}]},
    {"answer": ANSWER},
]
agent = Agent(Stub(script), ["read"], policy, mounts={"notes": "data/notes"})


def make():
    return Agent(Stub(script), ["read"], policy, mounts={"notes": "data/notes"})


def model(asked):
    if asked.step_index == 1:
        return LLMOutput(tool_calls=[ToolCall("read", {"path": "notes/first.md"})])
    return LLMOutput(final_answer=ANSWER)


live = Agent(model, ["read"], policy, mounts={"notes": "data/notes"})
number = 3


def broken():
    raise ValueError("no key")
"""
POLICY: Final = """\
schema: policy/v1
tool_registry: {allowed: [read]}
sandbox: {mounts: {notes: read}}
loop_budget: {max_iterations: 5, max_tokens: 10000, max_tool_calls: 5, max_result_bytes: 10000}
cycle_detection: {max_repeats: 2}
"""
QUESTION: Final = "What is in the note?"


def code_project(root: Path) -> Path:
    """Lay out a project with the module `crew.notes`, which needs `crew.words`; return its folder."""
    files = {
        "policy/v1.yaml": POLICY,
        "data/notes/first.md": "a note\n",
        "crew/__init__.py": "",
        "crew/notes.py": AGENT,
        "crew/words.py": 'ANSWER = "a note"\n',
        "crew/unneeded.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def write_task(root: Path, agent: str = "crew.notes:agent", more: str = "", name: str = "code/notes") -> Path:
    """Write a task that names an agent in code; return its file."""
    path = root / f"tasks/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"schema: task/v1\nid: {name.replace('/', '-')}\ntitle: t\nquestion: {QUESTION}\nagent: {agent}\n"
    path.write_text(head + more, encoding="utf-8")
    return path
