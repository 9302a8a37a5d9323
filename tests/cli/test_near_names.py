"""What the commands say of a name that leads nowhere, of a file that is shut, and of a broken chain."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, RecordError, TaskError, ToolCall
from tachograph.cli import main as cli
from tachograph.evidence.tasks.task import load_task
from tachograph.runtime.journal import ledger
from tests.runtime.workspace.test_safe_open import as_nobody
from tests.support import ROOT

NEAR = "did you mean 'canonical/v1'? "


@pytest.mark.parametrize("name", ["tasks/canonical/v11.yaml", "canonical/v11.yaml", "tasks/canonicl/v1.yaml"])
def test_a_wrong_task_name_gets_the_nearest_task(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(["run", name]) == 2
    assert f"{name}: no such task file; did you mean 'tasks/canonical/v1.yaml'?" in capsys.readouterr().err


def test_a_task_name_like_none_gets_an_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = tmp_path / "tasks/mine/b.yaml"
    mine.parent.mkdir(parents=True)
    mine.touch()
    for folder, name, example in (
        (tmp_path, "x.yaml", "tasks/canonical/v1.yaml"),
        (tmp_path, "y.yaml", "tasks/mine/b.yaml"),
        (
            ROOT,
            "x.yaml",
            min(path.relative_to(ROOT).as_posix() for path in (ROOT / "tasks").glob("*/*.yaml")),
        ),
    ):
        monkeypatch.chdir(folder)
        with pytest.raises(TaskError) as caught:
            load_task(name)
        assert str(caught.value) == f"{name}: no such task file; name a file such as {example}"
        (tmp_path / "policy").mkdir(exist_ok=True)  # a project from now on


@pytest.mark.parametrize("folder", [ROOT, ROOT / "docs", Path("/")])
@pytest.mark.parametrize("name", ["canonical/v1", "canonical/v1.yaml"])
def test_a_task_is_found_without_its_folder_and_ending(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(["run", name, "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run/state.jsonl").read_bytes() == (
        ROOT / "runs/canonical/v1/state.jsonl"
    ).read_bytes()


def test_the_folder_of_a_run_is_no_task(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(["run", "runs/canonical/v1"]) == 2
    said = "runs/canonical/v1: is not a regular file; did you mean 'tasks/canonical/v1.yaml'?"
    assert capsys.readouterr().err == f"tachograph: {said}\n"


def test_a_pipe_in_the_place_of_a_task_is_not_called_its_own_name(tmp_path: Path) -> None:
    for folder in ("policy", "tasks/mine"):
        (tmp_path / folder).mkdir(parents=True)
    os.mkfifo(tmp_path / "tasks/mine/first.yaml")
    with pytest.raises(TaskError) as caught:
        load_task(tmp_path / "tasks/mine/first.yaml")
    said = "is not a regular file; name a file such as tasks/canonical/v1.yaml"
    assert str(caught.value) == f"{tmp_path}/tasks/mine/first.yaml: {said}"


def test_a_task_that_is_shut_is_not_called_another_name() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        folder.chmod(0o755)
        file = folder / "a.yaml"
        file.write_text("")
        file.chmod(0)
        with as_nobody(), pytest.raises(TaskError) as caught:
            load_task(file)
    said = "cannot be read (Permission denied); check the file's kind and permission"
    assert str(caught.value) == f"{file}: {said}"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("canonical/v11", "did you mean 'canonical/v1'? "),
        ("runs/canonical/v11", "did you mean 'canonical/v1'? "),
        ("x", ""),
    ],
)
@pytest.mark.parametrize("command", ["show", "check", "verify"])
def test_no_run_names_the_nearest_and_ls(
    command: str, name: str, near: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main([command, name]) == 2
    said = f"tachograph: {name}: there is no such run; {near}`tachograph ls` lists the runs\n"
    assert capsys.readouterr().err == said


def test_a_broken_chain_names_the_lines_that_may_have_been_changed() -> None:
    texts = (ROOT / "runs/canonical/v1/state.jsonl").read_bytes().splitlines(keepends=True)
    for number, said in (
        (2, "line 1 or the link in this line"),
        (3, "line 2 or an earlier one, or the link"),
    ):
        line = json.loads(texts[number - 1])
        line["prev"] = "0" * 64
        broken = [*texts]
        broken[number - 1] = (
            json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        )
        with pytest.raises(RecordError) as caught:
            list(ledger.read(b"".join(broken), "s"))
        assert f"s:{number}: does not follow from the line before: {said}" in str(caught.value)


def test_a_result_says_why_a_call_was_denied() -> None:
    def model(asked: Any) -> LLMOutput:
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[call])
        return LLMOutput(final_answer="so")

    call = ToolCall("fetch", {"url": "https://other.test/"})
    mounts = {"corpus": ROOT / "data/corpus/v1"}
    agent = Agent(model, ["fetch", "search"], Policy.load(ROOT / "policy/v1.yaml"), mounts=mounts)
    why = agent.run("q").why
    assert why is not None and why.startswith("url_allowlist: ") and "url_allowlist" in why.split("(")[-1]
    call = ToolCall("search", {"query": "rest"})
    allowed = agent.run("q")
    assert allowed.steps[0]["policy_decisions"][0]["decision"] == "allow" and allowed.why is None
