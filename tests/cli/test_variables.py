"""`run --variable`: values given beside the task go into a run elsewhere, and a check makes it again with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tachograph import LLMInput, LLMOutput
from tachograph.evidence.checking.check import examine
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tests.cli_project import Say
from tests.cli_project import project as project
from tests.cli_project import say as say
from tests.cli_project import shared as shared

TASK = "tasks/loop/greeting.yaml"
TEXT = """schema: task/v1
id: loop-greeting
title: A variable
question: Where am I?
instructions: "You answer drivers of {depot}, who speak {language}."
variables: {language: Norwegian}
policy: {file: policy/v1.yaml}
tools: []
llm: {stub: {turns: [{answer: In the depot.}]}}
"""
OUT = "elsewhere/greeting"
KEY = "ghp_" + "a" * 36


@pytest.fixture(autouse=True)
def task(project: Path) -> Path:
    file = project / TASK
    file.parent.mkdir(exist_ok=True)
    file.write_text(TEXT, encoding="utf-8")
    return file


def _run_line(project: Path, out: str = OUT) -> dict[str, Any]:
    line: dict[str, Any] = json.loads((project / out / "state.jsonl").read_text().split("\n")[0])
    return line


def test_a_value_stands_in_the_record_and_in_the_request(say: Say, project: Path) -> None:
    code, _, _ = say("run", TASK, "--variable", "depot=Oslo = Alnabru", "--out", OUT)
    assert code == 0
    run = _run_line(project)
    assert run["instructions"]["variables"] == {"depot": "Oslo = Alnabru", "language": "Norwegian"}
    asked = run["request_parts"]["instructions"][0]["text"]
    assert asked == "You answer drivers of Oslo = Alnabru, who speak Norwegian."
    for command in ("check", "replay", "verify"):
        code, out, err = say(command, OUT)
        assert code == 0, (out, err)


def test_it_goes_before_the_value_of_the_task(say: Say, project: Path) -> None:
    assert say("run", TASK, "--variable", "depot=Oslo", "--variable", "language=Thai", "--out", OUT)[0] == 0
    assert _run_line(project)["instructions"]["variables"] == {"depot": "Oslo", "language": "Thai"}
    assert say("check", OUT)[0] == 0


def test_a_forged_value_is_found(say: Say, project: Path) -> None:
    say("run", TASK, "--variable", "depot=Oslo", "--out", OUT)
    state = project / OUT / "state.jsonl"
    state.write_text(state.read_text().replace('"depot":"Oslo"', '"depot":"Bergen"'))
    assert say("check", OUT)[0] == 1 and say("verify", OUT)[0] == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["depot"],
            "'depot' gives no variable a value; write NAME=VALUE; a value is never read from the env",
        ),
        (["=x"], "gives no variable a value"),
        (["de pot=x"], "gives no variable a value"),
        (["depot=\udcff"], "the value is not UTF-8 text"),
        (["depot=a", "depot=b"], "depot has two values"),
        (["depot=a", "city=b"], f"{TASK}: the instructions do not name the variable 'city'"),
        (["language=Thai"], f"{TASK}:5:1: the instructions name the variable 'depot', which has no value"),
        ([f"depot={KEY}"], "--variable depot holds a secret"),
        (["depot=<secret:github_token:1>"], "--variable depot holds a secret"),
    ],
)
def test_what_is_wrong_is_one_line_and_writes_nothing(
    say: Say, project: Path, given: list[str], said: str
) -> None:
    if given == ["language=Thai"]:
        (project / TASK).write_text(TEXT.replace("variables: {language: Norwegian}\n", ""))
    words = [word for value in given for word in ("--variable", value)]
    code, out, err = say("run", TASK, *words, "--out", OUT)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err
    assert KEY not in err and not (project / "elsewhere").exists()


def test_below_runs_the_task_alone_decides(say: Say, project: Path) -> None:
    code, _, err = say("run", TASK, "--variable", "depot=Oslo")
    assert code == 2 and "values of variables other than the task's make another run" in err


def test_a_record_below_runs_has_no_say(say: Say, project: Path) -> None:
    """A run with other values, put into the place of the task's run, is not made again with its own values."""
    (project / TASK).write_text(TEXT.replace("{language: Norwegian}", "{language: Norwegian, depot: Bergen}"))
    assert say("run", TASK, "--variable", "depot=Oslo", "--out", OUT)[0] == 0
    assert say("run", TASK)[0] == 0 and say("check", "loop/greeting")[0] == 0
    shutil.rmtree(project / "runs/loop/greeting")
    shutil.copytree(project / OUT, project / "runs/loop/greeting")
    code, out, _ = say("check", "loop/greeting")
    assert code == 1 and "variables/depot" in out


def test_a_secret_in_the_task_is_redacted_again(say: Say, project: Path) -> None:
    text = TEXT.replace("{language: Norwegian}", f"{{language: Norwegian, depot: {KEY}}}")
    (project / TASK).write_text(text.replace("tools: []", "tools: [search]"))
    assert say("run", TASK, "--out", OUT)[0] == 0
    assert _run_line(project)["instructions"]["variables"]["depot"] == "<secret:github_token:1>"
    assert say("check", OUT)[0] == 0


def test_an_unfinished_run_goes_on_with_the_values_that_it_was_begun_with(say: Say, project: Path) -> None:
    calls = "{calls: [{tool: search, arguments: {query: rest}}]}, {answer: In the depot.}"
    text = TEXT.replace("tools: []", "tools: [search]\nmounts: {corpus: data/corpus/v1}")
    text = text.replace("{answer: In the depot.}", calls)
    stops = "faults:\n  - {target: tool, step: 1, call: 0, cancels: interrupted}\n"
    (project / TASK).write_text(text + stops)
    words = ("run", TASK, "--out", OUT, "--durability", "effect")
    assert say(*words, "--variable", "depot=Oslo")[0] == 130
    code, _, err = say(*words, "--resume", "--variable", "depot=Bergen")
    assert code == 2 and "was begun with another value of the variable 'depot'" in err
    say(*words, "--resume", "--variable", "depot=Oslo", "--on-signal", "cancel")
    assert _run_line(project)["instructions"]["variables"]["depot"] == "Oslo"


def test_a_live_run_is_checked_with_the_values_that_it_was_given(project: Path) -> None:
    def model(asked: LLMInput) -> LLMOutput:
        return LLMOutput(final_answer=str(asked.instructions), usage={"input_tokens": 9, "output_tokens": 9})

    file = project / TASK
    file.write_text(TEXT[: TEXT.index("llm:")] + "live: {models: ['callable:*']}\n")
    agent, config = build(load_task(file), model=model, variables={"depot": "Oslo"})
    out = project / OUT
    assert record_run(agent, config, out).answer == "You answer drivers of Oslo, who speak Norwegian."
    assert examine(out, root=project).lines == []
