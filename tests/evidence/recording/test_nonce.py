"""An answer from outside serves one run: the nonce of its run is part of each question."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Stub, record
from tachograph import replay as replay_in_code
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.proof import unproven_field
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.recording.async_record import arecord
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import resume_folder
from tachograph.evidence.tasks.place import Place
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.core.effects import Answer, AskHuman, AskModel
from tachograph.runtime.driver.file_approvals import ByFile, answer_file
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tests.evidence.project import copy_inputs, edit_lines
from tests.support import policy_data, tool

TASK = "tasks/policy_gates/approval_given.yaml"
RUN = "runs/policy_gates/approval_given"
NONCE = re.compile("[0-9a-f]{32}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", ["policy_gates/approval_given"])


def perform(project: Path, approve: Callable[[AskHuman], Any], out: str, **more: Any) -> Path:
    agent, setting = build(load_task(project / TASK, root=project))
    record_run(agent, replace(setting, approve=approve, approvals="file", **more), project / out)
    return project / out


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (run / "state.jsonl").read_text().split("\n")[:-1]]


def approval(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = next(
        entry["approval"]
        for line in lines_of(run)[1:-1]
        for entry in line["policy_decisions"]
        if "approval" in entry
    )
    return found


def answering(folder: Path) -> ByFile:
    """A person who allows what is asked the first time, and is not there any more later."""
    told: list[Path] = []

    def tell(path: Path, _: AskHuman) -> None:
        if not told:
            answer_file(path, "allow", "ann", None)
        told.append(path)

    return ByFile(folder, tell=tell, poll_s=0.01)


def test_the_same_folder_of_answers_is_asked_anew_by_a_second_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / "answers"
    first = perform(project, answering(folder), "mine/first")
    assert approval(first)["answer"] == "allow"
    answered = next(folder.glob("*.json")).read_text(encoding="utf-8")
    monkeypatch.setattr("tachograph.runtime.driver.file_approvals.nap", lambda _: None)
    clock = iter(range(10_000))
    monkeypatch.setattr("tachograph.runtime.driver.file_approvals.stopwatch", lambda: float(next(clock)))

    def offer(path: Path, asked: AskHuman) -> None:
        assert json.loads(answered)["digest"] != asked.digest
        assert path.name not in {file.name for file in folder.iterdir() if file.read_text() == answered}

    second = perform(project, ByFile(folder, tell=offer), "mine/second")
    assert approval(second)["answer"] == "silence"
    assert lines_of(first)[0]["nonce"] != lines_of(second)[0]["nonce"]

    def copy(path: Path, asked: AskHuman) -> None:
        path.write_text(answered, encoding="utf-8")

    third = perform(project, ByFile(folder, tell=copy), "mine/third")
    assert (approval(third)["answer"], approval(third)["why"]) == (
        "deny",
        "the question in the file was changed",
    )


def test_an_answer_to_the_question_of_another_run_refuses(project: Path) -> None:
    seen: list[str] = []

    def allow(asked: AskHuman) -> Answer:
        assert asked.nonce is not None and NONCE.fullmatch(asked.nonce)
        seen.append(asked.digest)
        return Answer("allow", "ann", None, seen[0])

    assert approval(perform(project, allow, "mine/first"))["answer"] == "allow"
    second = approval(perform(project, allow, "mine/second"))
    assert (second["answer"], len(set(seen))) == ("deny", 2)


def test_what_reads_a_record_asks_by_its_nonce(project: Path) -> None:
    run = perform(project, lambda _: True, "mine/run")
    assert NONCE.fullmatch(lines_of(run)[0]["nonce"])
    assert examine(run, root=project).lines == []
    assert replayed(run, root=project).lines == []
    assert verify(run, project) == []
    overlay = project / "policy/overlays/approve_write.yaml"
    policy = Policy.load(project / "policy/v1.yaml", [overlay], root=project)
    assert under(run, policy, root=project).flip is None


def test_a_record_without_a_nonce_is_asked_as_it_was(project: Path) -> None:
    run = perform(project, lambda _: True, "mine/run", nonce="")
    assert "nonce" not in lines_of(run)[0]
    assert approval(run)["digest"] == approval(project / RUN)["digest"]
    assert examine(run, root=project).lines == [] == replayed(run, root=project).lines
    assert verify(run, project) == []


def test_scripted_answers_have_no_nonce(project: Path) -> None:
    agent, setting = build(load_task(project / TASK, root=project))
    record_run(agent, setting, project / "mine/run")
    assert "nonce" not in lines_of(project / "mine/run")[0]
    assert (project / "mine/run/state.jsonl").read_bytes() == (project / RUN / "state.jsonl").read_bytes()


@pytest.mark.parametrize("nonce", ["0" * 32, "f", 5, None])
def test_another_nonce_is_found(project: Path, nonce: object) -> None:
    run = perform(project, lambda _: True, "mine/run")
    edit_lines(run, lambda lines: lines[0].update(nonce=nonce), chain=True)
    assert verify(run, project) != []
    assert replayed(run, root=project).lines != [] and examine(run, root=project).lines != []


def test_a_nonce_that_the_task_does_not_provide_for_is_found(project: Path) -> None:
    edit_lines(project / RUN, lambda lines: lines[0].update(nonce="0" * 32), chain=True)
    place, task = Place(project, RUN), load_task(project / TASK, root=project)
    assert any("has a nonce" in line for line in place.problems(lines_of(project / RUN)[0], task))
    assert verify(project / RUN, project) != [] and examine(project / RUN, root=project).lines != []


def test_only_the_record_states_a_nonce_and_what_was_answered(project: Path) -> None:
    run = lines_of(perform(project, lambda _: True, "mine/run"))[0]
    for line in (run, {key: value for key, value in run.items() if key != "approvals"}):
        entry = unproven_field([line], line, "/nonce")
        assert entry is not None and entry.when == "person"


def test_gone_on_with_the_questions_are_those_of_the_run(project: Path) -> None:
    agent, setting = build(load_task(project / TASK, root=project))

    def dies(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
        if not isinstance(effect, AskModel):
            raise ForceQuit
        return real()

    def stops(_: AskHuman) -> bool:
        raise KeyboardInterrupt

    out = project / "mine/run"
    setting = replace(setting, inject=dies, approve=lambda _: True, approvals="file")
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record_run(agent, setting, out, durability="effect")
    begun = re.search(r'"nonce": ?"([0-9a-f]{32})"', (project / "mine/run.partial/journal.jsonl").read_text())
    assert begun is not None
    assert resume_folder(out, resolutions={}, rebase=False, root=project, approver=lambda *_: stops).ok
    assert lines_of(out)[0]["nonce"] == begun[1]
    assert verify(out, project) == [] == examine(out, root=project).lines


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callable_in_code_is_asked_with_a_nonce(tmp_path: Path, is_async: bool) -> None:
    policy = Policy.from_dict(policy_data(approval={"required_for": ["probe"], "timeout_s": 60}))
    turns = [{"calls": [{"tool": "probe", "arguments": {}}]}, {"answer": "Done."}]
    asked: list[AskHuman] = []

    def allow(question: AskHuman) -> bool:
        asked.append(question)
        return True

    for name in ("first", "second"):
        agent = Agent(Stub(turns), [tool(), tool("echo")], policy)
        if is_async:
            assert asyncio.run(arecord(agent, "?", tmp_path / name, approve=allow)).ok
        else:
            assert record(agent, "?", tmp_path / name, approve=allow).ok
        assert lines_of(tmp_path / name)[0]["nonce"] == asked[-1].nonce
        assert replay_in_code(Agent(Stub(turns), [tool(), tool("echo")], policy), tmp_path / name).ok
    assert len({question.digest for question in asked}) == 2
    record(Agent(Stub([{"answer": "Done."}]), [tool(), tool("echo")], policy), "?", tmp_path / "unasked")
    assert "nonce" not in lines_of(tmp_path / "unasked")[0]


def test_the_same_call_a_second_time_is_another_question() -> None:
    """Who keeps an answer with its digest cannot give it twice."""
    kept: list[str] = []

    def approve(asked: AskHuman) -> Answer:
        kept.append(asked.digest)
        return Answer("allow", digest=kept[0])

    call = {"calls": [{"tool": "search", "arguments": {"query": "rest"}}]}
    sections = {"approval": {"required_for": ["search"], "timeout_s": 5}, "on_deny": "inform"}
    policy = Policy.from_dict({**Policy.shipped().data, **sections})
    agent = Agent(
        Stub([call, call, {"answer": "done"}]), ["search"], policy, mounts={"corpus": "data/corpus"}
    )
    result = agent.run("q", approve=approve)
    said = [
        entry["approval"]["answer"]
        for step in result.steps
        for entry in step.decisions
        if "approval" in entry
    ]
    assert said == ["allow", "deny"] and len(set(kept)) == 2
