"""The table of runs in `runs/README.md`, the policies, the tasks and the recorded runs against each other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from tachograph import Policy
from tachograph.evidence.project import Project
from tachograph.evidence.record_files import read_files, whole_log
from tachograph.runtime.policy.sections import policy_schema

ROOT = Path(__file__).parents[2]
# | [`kind/name`](kind/name/run_report.md) | what it shows | `ending` |
ROW = re.compile(r"\| \[`(\w+/\w+)`\]\((\S+)/run_report\.md\) \|.*\| `(\w+)` \|")


def test_the_table_of_runs_says_how_each_ends() -> None:
    rows = ROW.findall((ROOT / "runs" / "README.md").read_text(encoding="utf-8"))
    runs = Project(ROOT).run_names()
    assert runs, "runs/ holds no run"
    assert sorted(name for name, _, _ in rows) == runs
    for name, folder, ending in rows:
        log = read_files(ROOT / "runs" / folder, name)["state.jsonl"]
        assert (name, whole_log(log, name)[-1].event.ending) == (folder, ending)  # type: ignore[attr-defined]


def test_tasks_runs_and_their_list_agree() -> None:
    assert Project(ROOT).problems() == []


def test_the_schema_of_policies_is_that_of_the_types() -> None:
    written = json.loads((ROOT / "policy" / "v1.schema.json").read_bytes())
    assert written == policy_schema()
    Draft202012Validator.check_schema(written)
    for path in (ROOT / "policy").glob("*.yaml"):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        Draft202012Validator(written).validate(data)
        assert not Draft202012Validator(written).is_valid({**data, "tool_registy": {}})


def test_every_task_is_under_a_policy_that_loads() -> None:
    project = Project(ROOT)
    policies = sorted((ROOT / "policy").glob("*.yaml"))
    assert policies, "policy/ holds no policy"
    for path in policies:
        Policy.load(path)
    for name in project.task_names():
        task = project.task_of(name)
        assert task.spec.id == name.replace("/", "-")
        assert task.run_spec().gates.own.policy.version in {Policy.load(path).version for path in policies}
