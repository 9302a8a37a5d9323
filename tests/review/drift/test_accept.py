"""Accepting drift: what is put in place, what is refused, what `runs/ACCEPTED.jsonl` says and how it is held to it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files.folder import Folder
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.review.drift.accept import recover
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tests.evidence.project import DENIED, RETRIED, live_task, replaced
from tests.review import accepting
from tests.review.accepting import ACCEPTED, Say, edit, entries, stable
from tests.review.drift_changes import CHANGES, GIVEN, MINUTES, OVERLAY, PAGE, REMARK, RUNS, task_of
from tests.support import CANONICAL, FILES, tree

LIVE = "runs/live/v1"
project, say, shipped = accepting.project, accepting.say, accepting.shipped


class Live:
    """A model that is no script; it is asked when the run is recorded, and never again."""

    identity = {"execution_path": "live", "provider": "openai", "name": "some-model", "script_digest": None}  # noqa: RUF012

    def __init__(self) -> None:
        self.replies = [
            LLMOutput(tool_calls=[ToolCall("read", {"path": "corpus/op-a4.md"})], finish_reason="tool_calls"),
            LLMOutput(final_answer="done"),
        ]

    def __call__(self, asked: LLMInput) -> LLMOutput:
        return self.replies.pop(0)


@pytest.fixture
def live(project: Path) -> Path:
    agent, setting = build(load_task(project / live_task(project), root=project), model=Live())
    record_run(agent, setting, project / LIVE)
    index.update(project)
    return project


# ---- accepting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaced_it", [True, False], ids=["replaced", "moved"])
def test_what_a_killed_accept_moved_aside_is_removed_or_put_back(project: Path, replaced_it: bool) -> None:
    run = project / CANONICAL
    before = tree(run)
    (shutil.copytree if replaced_it else shutil.move)(run, run.with_name(f"{run.name}.old"))
    assert recover(project) == []
    assert not [*project.glob("runs/*/*.old")] and tree(run) == before


def test_what_a_run_gives_takes_the_place_of_what_is_recorded(project: Path, say: Say) -> None:
    edit(project, MINUTES)
    before, wanted = stable(project / RETRIED), examine(project / RETRIED, root=project).fresh
    others = {name: kept for name, kept in tree(project).items() if not name.startswith(RETRIED)}
    code, out, err = say("accept", RETRIED, "--reason", "  the room asks for 21 minutes \n")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "accept: 1 run will be recorded anew; no verdict changes"
    assert out.splitlines()[-1].startswith(f"accept: 1 run recorded anew; {ACCEPTED} says why")
    assert wanted is not None
    for file in FILES[:3]:
        assert (project / RETRIED / file).read_bytes() == wanted[file]
    (entry,) = entries(project)
    first = entry.pop("first")
    assert (first["step"], first["pointer"], first["class"]) == (1, "/tool_results/0/result/text", "EFFECT")
    assert entry.pop("inputs") == [
        {
            "path": PAGE,
            "before": "62e741064f903b3f1dd70d97f24334494e7d80b8badbc73a9441386411fa2041",
            "after": canonical_json.digest((project / PAGE).read_bytes()),
        }
    ]
    assert entry == {
        "schema": "accepted/v1",
        "run": RETRIED,
        "reason": "the room asks for 21 minutes",
        "cause": [PAGE],
        "class": "EFFECT",
        "classes": {"EFFECT": 2, "DIGEST-ONLY": entry["classes"]["DIGEST-ONLY"]},
        "manifest": {"before": before, "after": stable(project / RETRIED)},
    }
    assert examine(project / RETRIED, root=project).ok and verify(project / RETRIED, project) == []
    assert index.problems(project) == []
    now = tree(project)
    assert {name: now[name] for name in others if name != index.INDEX} == {
        name: kept for name, kept in others.items() if name != index.INDEX
    }
    assert not list((project / "runs").rglob("*.partial")) and not list((project / "runs").rglob("*.old"))


def test_all_at_once_for_one_reason_told_before(project: Path, say: Say) -> None:
    edit(project, (OVERLAY, "[write]", "[]"), REMARK)
    code, out, _ = say("accept", "--all", "--reason", "no person is asked any more")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == f"accept: 7 runs will be recorded anew; 1 verdict changes in 1 run: {GIVEN} (1)"
    assert lines[1].startswith(
        f"VERDICT  {GIVEN}  step 1 /policy_decisions/0/rule_id: approval -> sandbox_path"
    )
    assert lines[2].startswith("DIGEST-ONLY  6 runs: ")
    assert [entry["run"] for entry in entries(project)] == sorted(f"runs/{run}" for run in RUNS)
    assert {entry["reason"] for entry in entries(project)} == {"no person is asked any more"}
    assert say("check")[0] == 0 and say("verify")[0] == 0
    code, out, _ = say("accept", "--all", "--reason", "again")
    assert (code, out) == (0, "accept: no run drifted, so there is nothing to accept\n")
    assert len(entries(project)) == 7


def test_as_json(project: Path, say: Say) -> None:
    edit(project, REMARK, (task_of(GIVEN), "ending: final_answer", "ending: cancelled"))
    code, out, _ = say("accept", "--all", "--reason", "words", "--json")
    data = json.loads(out)
    assert code == 1 and out.count("\n") == 1
    assert data["accepted"] == entries(project) and len(data["recorded"]) == 6
    assert list(data["left"]) == [GIVEN] and "fix the task first" in data["left"][GIVEN]


def test_what_cannot_be_accepted_is_left_out_of_all_and_told(project: Path, say: Say) -> None:
    edit(project, REMARK)
    replaced(project / DENIED / "trace.json", '"deny"', '"DENY"')
    edit(project, (task_of(GIVEN), "ending: final_answer", "ending: cancelled"))
    before = {run: tree(project / run) for run in (DENIED, GIVEN)}
    code, out, _ = say("accept", "--all", "--reason", "a remark")
    assert code == 1 and len(entries(project)) == 5
    assert f"left  {DENIED}: was changed by hand, which is not drift; restore it" in out
    assert (
        f"left  {GIVEN}: misses what its task expects (ending: expected cancelled, found final_answer)" in out
    )
    assert before == {run: tree(project / run) for run in (DENIED, GIVEN)}


def test_a_run_of_a_live_model_is_accepted_from_its_own_replies(live: Path, say: Say) -> None:
    """A remark in a policy moves a digest; nothing the model was told."""
    then = json.loads((live / LIVE / "state.jsonl").read_text().splitlines()[0])
    edit(live, REMARK)
    assert examine(live / LIVE, root=live).kind == "DIGEST-ONLY"
    assert say("check", LIVE)[1].splitlines()[-1] == f'accept it: tachograph accept {LIVE} --reason "..."'
    assert say("accept", LIVE, "--reason", "a remark")[0] == 0
    assert examine(live / LIVE, root=live).ok and replayed(live / LIVE, root=live).lines == []
    now = json.loads((live / LIVE / "state.jsonl").read_text().splitlines()[0])
    assert now["clock"] == then["clock"] and now["run_id"] == then["run_id"]
    assert [entry["class"] for entry in entries(live)] == ["DIGEST-ONLY"] and index.problems(live) == []


def test_a_seal_is_not_carried_over(project: Path, say: Say) -> None:
    edit(project, REMARK)
    (project / DENIED / "seal.json").write_text("{}")
    code, out, _ = say("accept", DENIED, "--reason", "a remark")
    assert code == 0 and f"seal  {DENIED}: its seal was of what it was before; seal it again" in out
    assert sorted(path.name for path in (project / DENIED).iterdir()) == sorted(FILES)


# ---- what is refused ---------------------------------------------------------------------------------------


def _tampered(project: Path) -> None:
    edit(project, REMARK)
    replaced(project / DENIED / "state.jsonl", '"top_k":3', '"top_k":4')


def _manifest(project: Path) -> None:
    edit(project, REMARK)
    replaced(project / DENIED / "manifest.json", '"seed": 7', '"seed": 8')


def _outside(project: Path) -> None:
    edit(project, REMARK)
    shutil.copytree(project / DENIED, project / "aside")


REASON = ("--reason", "so")
REFUSED: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "a run that does not drift": (
        lambda p: None,
        (DENIED, *REASON),
        f"{DENIED}: does not drift, so there is nothing to accept; nothing was written",
    ),
    "one of two does not drift": (
        lambda p: edit(p, MINUTES),
        (RETRIED, DENIED, *REASON),
        f"{DENIED}: does not drift, so there is nothing to accept; nothing was written",
    ),
    "an edited ledger": (
        _tampered,
        (DENIED, *REASON),
        f"{DENIED}: was changed by hand, which is not drift; ",
    ),
    "an edited manifest": (
        _manifest,
        (DENIED, *REASON),
        f"{DENIED}: was changed by hand, which is not drift; ",
    ),
    "a run without its trace": (
        lambda p: (p / DENIED / "trace.json").unlink(),
        (DENIED, *REASON),
        f"{DENIED}: cannot be made again: {DENIED}/trace.json: cannot be read",
    ),
    "a run that misses its expectation": (
        lambda p: edit(p, *CHANGES["a tool denied"].edits),
        (CANONICAL, *REASON),
        f"{CANONICAL}: misses what its task expects (ending: expected final_answer, found policy_denial_terminal)",
    ),
    "a task that does not load": (
        lambda p: edit(p, (task_of(DENIED), "schema: task/v1", "schema: task/v9")),
        (DENIED, *REASON),
        f"{DENIED}: cannot be made again: {task_of(DENIED)}:1:9: ",
    ),
    "a run outside runs/": (
        _outside,
        ("aside", *REASON),
        "aside: is not a run below runs/ of this project; ",
    ),
    "no run": (lambda p: None, ("runs/x", *REASON), "runs/x: there is no such run; "),
    "no reason": (lambda p: edit(p, REMARK), (DENIED,), "a change is accepted for a reason; give --reason "),
    "an empty reason": (
        lambda p: edit(p, REMARK),
        (DENIED, "--reason", " \n\t"),
        "a change is accepted for a reason; give --reason ",
    ),
    "a reason without end": (
        lambda p: edit(p, REMARK),
        (DENIED, "--reason", "x" * 2001),
        "the reason is longer than 2000 characters",
    ),
    "a reason that is no text": (
        lambda p: edit(p, REMARK),
        (DENIED, "--reason", "\udc80"),
        "the reason is longer than 2000 characters or no text",
    ),
    "nothing named": (lambda p: edit(p, REMARK), REASON, "it is not said what to accept; "),
    "named and all": (
        lambda p: edit(p, REMARK),
        (DENIED, "--all", *REASON),
        "it is not said what to accept; ",
    ),
    "what was accepted before cannot be read": (
        lambda p: (edit(p, REMARK), (p / ACCEPTED).write_text("{}\n")),
        (DENIED, *REASON),
        f"{ACCEPTED}:1: says nothing usable of 'cause'; restore the line or take it out",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_everything_as_it_is(name: str, project: Path, say: Say) -> None:
    change, words, said = REFUSED[name]
    change(project)
    before = tree(project)
    code, _, err = say("accept", *words)
    assert code == 2 and err.startswith(f"tachograph: {said}") and err.count("\n") == 1, err
    assert tree(project) == before


def test_a_live_run_that_needs_its_model_again(live: Path, say: Say) -> None:
    edit(live, MINUTES)
    before = tree(live)
    code, _, err = say("accept", LIVE, "--reason", "so")
    assert code == 2 and f"{LIVE}: needs its model again; record it with `tachograph run " in err
    assert tree(live) == before


@pytest.mark.parametrize(("value", "refused"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_ci_never_accepts(
    value: str, refused: bool, project: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(project, REMARK)
    monkeypatch.setenv("CI", value)
    before = tree(project)
    code, _, err = say("accept", DENIED, "--reason", "so")
    assert (code == 2) == refused == (tree(project) == before)
    assert err.startswith("tachograph: CI never accepts; ") == refused


def test_a_run_that_another_process_records_is_left(project: Path, say: Say) -> None:
    edit(project, REMARK)
    with Folder(project / GIVEN) as busy:
        busy.discard()
        code, _, err = say("accept", "--all", "--reason", "so")
    assert code == 2 and "another process is recording there" in err
    assert not (project / ACCEPTED).exists() and examine(project / DENIED, root=project).kind == "DIGEST-ONLY"


# ---- whole or not at all -----------------------------------------------------------------------------------


def test_a_full_disk_leaves_all_runs_as_they_are(
    project: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(project, REMARK)
    before = tree(project)
    real, calls = Path.open, []

    def full(self: Path, *args: Any, **more: Any) -> Any:
        if args == ("xb",):
            calls.append(self)
            if len(calls) == 6:
                raise OSError(28, "full")
        return real(self, *args, **more)

    monkeypatch.setattr(Path, "open", full)
    code, _, err = say("accept", "--all", "--reason", "so")
    assert code == 2 and "cannot be written down (full); make room" in err and len(calls) == 6
    assert tree(project) == before


def test_what_is_in_place_when_it_fails_has_its_line(
    project: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(project, REMARK)
    real, done = Folder.finish, []

    def finish(self: Folder) -> None:
        if len(done) == 2:
            raise OSError(5, "gone")
        real(self)
        done.append(self.out)

    monkeypatch.setattr(Folder, "finish", finish)
    code, _, err = say("accept", "--all", "--reason", "so")
    assert code == 2 and "cannot be put in place (OSError); accept again" in err
    assert [entry["run"] for entry in entries(project)] == [
        path.relative_to(project).as_posix() for path in done
    ]
    assert index.problems(project) == [] and not list((project / "runs").rglob("*.partial"))
    monkeypatch.undo()
    monkeypatch.chdir(project)
    monkeypatch.delenv("CI", raising=False)
    assert command_line.main(["accept", "--all", "--reason", "the rest"]) == 0
    assert len(entries(project)) == 7 and command_line.main(["check"]) == 0
