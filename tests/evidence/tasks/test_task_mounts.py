"""The mounts of a task: what it writes is private, and what it reads may come from an installer's cache."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import TaskError
from tachograph.runtime.policy.policy import Policy
from tests.support import ROOT, tree

TASK = """\
schema: task/v1
id: canonical-mounts
title: t
question: q
policy: {file: policy/v1.yaml}
tools: [read, search, write]
mounts:
  corpus: data/corpus/v1
llm:
  stub:
    turns:
      - calls:
          - {tool: write, arguments: {path: sandbox/read.py, content: "1/0"}}
          - {tool: search, arguments: {query: recorder}}
          - {tool: read, arguments: {path: corpus/op-a1.md}}
      - answer: done
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose files have second names elsewhere."""
    made = tmp_path / "project"
    for name in ("policy", "tools", "data/corpus/v1"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "cache" / name, ignore=ignored)
        shutil.copytree(tmp_path / "cache" / name, made / name, copy_function=os.link)
    (made / "tasks/canonical").mkdir(parents=True)
    return made


def write_task(project: Path, text: str) -> Path:
    path = project / "tasks/canonical/mounts.yaml"
    path.write_text(text)
    return path


def test_a_task_runs_on_hard_linked_files_and_changes_none(project: Path) -> None:
    agent, setting = build(load_task(write_task(project, TASK)))
    before = tree(project)
    result = agent.execute(setting)
    assert result.ending == "final_answer"
    results = result.steps[0]["tool_results"]
    assert [item["status"] for item in results] == ["ok", "ok", "ok"]
    assert len(results[1]["result"]["hits"]) == 5
    assert tree(project) == before


@pytest.mark.parametrize("folder", ["tools", "policy", "out", "data/corpus/v1", "."])
def test_a_mount_for_writing_is_never_a_folder_of_the_project(project: Path, folder: str) -> None:
    """A check makes the run again: it would write there each time."""
    (project / "out").mkdir()
    task = load_task(write_task(project, TASK.replace("mounts:\n", f"mounts:\n  sandbox: {folder}\n")))
    with pytest.raises(TaskError) as caught:
        build(task)
    error = caught.value
    assert (error.file, error.line) == ("tasks/canonical/mounts.yaml", 8)
    assert "'sandbox'" in error.message and error.remedy is not None and "setup" in error.remedy


def test_another_policy_may_be_asked_what_it_would_let_be_written(project: Path) -> None:
    task = load_task(write_task(project, TASK))
    data = yaml.safe_load((project / "policy/v1.yaml").read_text())
    data["sandbox"]["mounts"]["corpus"] = "write"
    agent, _ = build(task, policy=Policy.from_dict(data))
    assert agent.policy.mounts["corpus"] == "write"


def test_files_for_a_run_that_writes_come_from_its_setup(project: Path) -> None:
    setup = "setup:\n  - {path: sandbox/read.py, text: old}\nmounts:"
    agent, setting = build(load_task(write_task(project, TASK.replace("mounts:", setup))))
    assert agent.execute(setting).ending == "final_answer"
