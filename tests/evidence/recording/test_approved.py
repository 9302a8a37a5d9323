"""A person's answer in a record: given to one call under one policy, and never served for another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import resume_folder
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.core.effects import Answer, AskHuman, AskModel
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tachograph.runtime.policy.policy import Policy
from tests.evidence.project import copy_inputs, edit_lines, replaced

RUN = "runs/policy_gates/approval_given"
TASK = "tasks/policy_gates/approval_given.yaml"
OVERLAY = "policy/overlays/approve_write.yaml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", ["policy_gates/approval_given"])


def perform(project: Path, said: Callable[[AskHuman], Any], out: str = "mine/run") -> Path:
    """The task with a person who is asked, instead of the answers that it holds."""
    agent, setting = build(load_task(project / TASK, root=project))
    record_run(agent, replace(setting, approve=said, approvals="file"), project / out)
    return project / out


def approval(run: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (run / "state.jsonl").read_text().split("\n")[:-1]]
    found: dict[str, Any] = next(
        e["approval"] for line in lines[1:-1] for e in line["policy_decisions"] if "approval" in e
    )
    return found


@pytest.mark.parametrize("said", [True, False, None])
def test_a_check_asks_nobody_twice(project: Path, said: bool | None) -> None:
    run = perform(project, lambda _: said)
    assert approval(run)["answer"] == {True: "allow", False: "deny", None: "silence"}[said]
    assert examine(run, root=project).lines == []
    assert replayed(run, root=project).lines == []
    assert verify(run, project) == []


def test_the_task_s_own_answers_stand_where_nobody_else_was_asked(project: Path) -> None:
    replaced(project / TASK, "answer: allow", "answer: deny")
    found = examine(project / RUN, root=project)
    assert found.kind == "VERDICT"


def test_an_answer_under_another_policy_is_not_served(project: Path) -> None:
    run = perform(project, lambda _: True)
    replaced(project / OVERLAY, "timeout_s: 60", "timeout_s: 61")
    found = examine(run, root=project)
    assert found.kind == "VERDICT"
    assert any("for another call or policy" in line or "allow -> deny" in line for line in found.lines)


def test_an_answer_to_another_call_is_not_served(project: Path) -> None:
    run = perform(project, lambda _: True)
    replaced(project / TASK, "The dispatch room is at", "The dispatch room is not at")
    assert examine(run, root=project).kind == "VERDICT"


def test_what_if_takes_the_answer_for_one(project: Path) -> None:
    run = perform(project, lambda _: True)
    replaced(project / OVERLAY, "timeout_s: 60", "timeout_s: 61")
    other = Policy.load(project / "policy/v1.yaml", [project / OVERLAY], root=project)
    found = under(run, other, root=project)
    assert found.flip is None and found.why is None


@pytest.mark.parametrize("digest", ["0" * 64, None, ""])
def test_a_forged_question_is_found_by_verify_and_by_replay(project: Path, digest: str | None) -> None:
    def forge(lines: list[dict[str, Any]]) -> None:
        lines[1]["policy_decisions"][0]["approval"]["digest"] = digest

    edit_lines(project / RUN, forge, chain=True)
    assert any("was given for another call, policy or run" in line for line in verify(project / RUN, project))
    found = replayed(project / RUN, root=project)
    # a record that names no question at all is told of, one of another question allows nothing
    assert found.lines != [] and (digest is None or found.kind == "VERDICT")


def test_a_person_s_words_are_for_the_question_that_was_asked(project: Path) -> None:
    run = perform(project, lambda asked: Answer("allow", "ann", None, "0" * 64))
    assert approval(run)["answer"] == "deny"
    asked: list[AskHuman] = []

    def allow(question: AskHuman) -> Answer:
        asked.append(question)
        return Answer("allow", "ann", None, question.digest)

    run = perform(project, allow, "mine/other")
    assert approval(run) == {"answer": "allow", "by": "ann", "why": None, "digest": asked[0].digest}


def test_gone_on_with_under_another_policy_the_person_is_asked_again(project: Path) -> None:
    agent, setting = build(load_task(project / TASK, root=project))

    def dies(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
        if not isinstance(effect, AskModel):
            raise ForceQuit  # after the answer, before the tool
        return real()

    out = project / "mine/run"
    asked: list[str] = []

    def allow(question: AskHuman) -> bool:
        asked.append(question.policy)
        return True

    setting = replace(setting, inject=dies, approve=allow, approvals="file")
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, setting, out, durability="effect")
    replaced(project / OVERLAY, "timeout_s: 60", "timeout_s: 61")
    result = resume_folder(
        out,
        resolutions={},
        rebase=True,
        root=project,
        approver=lambda policy, way: allow if way == "file" else None,
    )
    assert result.ok and len(asked) == len(set(asked)) == 2
    assert verify(out, project) == []


def test_gone_on_with_under_the_same_policy_nobody_is_asked_again(project: Path) -> None:
    agent, setting = build(load_task(project / TASK, root=project))

    def dies(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
        if not isinstance(effect, AskModel):
            raise ForceQuit
        return real()

    out = project / "mine/run"
    setting = replace(setting, inject=dies, approve=lambda _: True, approvals="file")
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, setting, out, durability="effect")

    def never(_: AskHuman) -> bool:
        raise AssertionError("asked again")

    assert resume_folder(out, resolutions={}, rebase=False, root=project, approver=lambda *_: never).ok
    assert approval(out)["answer"] == "allow"
    assert examine(out, root=project).lines == []
