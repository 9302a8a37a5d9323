"""Calls that ran together, under another policy: each fact and each result is compared at its own call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph import Policy
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tests.evidence.forger import lines_of
from tests.evidence.project import copy_inputs, replaced

NAME = "policy_gates/pg1_redirect_off_allowlist"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A run in which three pages are fetched at once: the first two redirect, of which the second is denied."""
    project = copy_inputs(tmp_path / "project", [NAME])
    replaced(project / "tools/fetch.py", "IDEMPOTENT = True", "IDEMPOTENT = True\nPARALLEL = True")
    task = project / f"tasks/{NAME}.yaml"
    replaced(task, "file: policy/v1.yaml", "file: policy/v1.yaml\n  overlays: [policy/overlays/inform.yaml]")
    replaced(
        task,
        '      /moved.md: "https://news.example/landing"\n',
        '      /moved.md: "https://news.example/landing"\n      /near.md: "https://corpus.test/op-a1.md"\n',
    )
    call = '          - tool: fetch\n            arguments: {url: "https://corpus.test/%s.md"}\n'
    replaced(task, call % "moved", "".join(call % page for page in ("near", "moved", "op-a4")))
    text = task.read_text(encoding="utf-8").split("expected:")[0]
    task.write_text(text + '      - answer: "It has moved."\n', encoding="utf-8")
    agent, setting = build(load_task(task, root=project))
    record_run(agent, setting, project / "runs" / NAME)
    return project


def _under(project: Path, **sections: Any) -> Any:
    policy = Policy.load(project / "policy/v1.yaml", [project / "policy/overlays/inform.yaml"], root=project)
    return under(project / "runs" / NAME, Policy.from_dict({**policy.data, **sections}), root=project)


def test_the_calls_ran_together(project: Path) -> None:
    step = lines_of(project / "runs" / NAME)[1]
    assert step["groups"] == [["tc_1_0", "tc_1_1", "tc_1_2"]]
    positions = [entry["position"] for entry in step["policy_decisions"]]
    assert positions == ["d0", "d1", "d2", "i0.1.c0", "i1.1.c0"]


def test_under_its_own_policy_it_goes_as_recorded(project: Path) -> None:
    found = _under(project)
    assert found.is_same and found.same == 5


def test_a_fact_that_another_policy_allows_is_a_widening_at_its_call(project: Path) -> None:
    found = _under(project, url_allowlist=["https://corpus.test/", "https://news.example/"])
    assert found.flip is not None and (found.flip.kind, found.flip.position) == ("widening", "i1.1.c0")


def test_a_result_that_no_longer_fits_is_named_at_its_call(project: Path) -> None:
    limits = Policy.load(project / "policy/v1.yaml", root=project).data["loop_budget"]
    step = lines_of(project / "runs" / NAME)[1]
    most = len(str(step["tool_results"][0]["result"])) + 40
    found = _under(project, loop_budget={**limits, "max_result_bytes": most})
    assert found.flip is not None and (found.flip.kind, found.flip.position) == ("tightening", "d2.r")
