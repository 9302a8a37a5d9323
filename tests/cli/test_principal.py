"""`run --principal` and the task's `principal`: who asks stands in the record, and every reader decides by it."""

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
from tests.evidence.forger import Lines, forge

TASK = "tasks/loop/lookup.yaml"
POLICY = "policy/who.yaml"
TEXT = f"""schema: task/v1
id: loop-lookup
title: Who asks
question: Where may I sleep?
policy: {{file: {POLICY}}}
principal: clerk
tools: [search]
mounts: {{corpus: data/corpus/v1}}
llm: {{stub: {{turns: [{{calls: [{{tool: search, arguments: {{query: rest}}}}]}}, {{answer: In the depot.}}]}}}}
"""
RULES = """schema: policy/v1
tool_registry: {allowed: [search]}
principals:
  clerk: {tools: {}}
  intern: {tools: {search: deny}}
sandbox: {mounts: {corpus: read}}
loop_budget: {max_iterations: 5, max_tokens: 9999, max_tool_calls: 5, max_result_bytes: 99999}
cycle_detection: {max_repeats: 2}
on_deny: inform
"""
OUT = "elsewhere/lookup"
PLACE = "runs/loop/lookup"


@pytest.fixture(autouse=True)
def task(project: Path) -> Path:
    file = project / TASK
    file.parent.mkdir(exist_ok=True)
    file.write_text(TEXT, encoding="utf-8")
    (project / POLICY).write_text(RULES, encoding="utf-8")
    return file


def _lines(project: Path, out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project / out / "state.jsonl").read_text().splitlines()]


def _decided(project: Path, out: str) -> list[str]:
    return [entry["rule_id"] for line in _lines(project, out)[1:-1] for entry in line["policy_decisions"]]


def test_the_task_says_who_asks(say: Say, project: Path) -> None:
    assert say("run", TASK)[0] == 0
    assert _lines(project, PLACE)[0]["principal"] == "clerk"
    assert "principal" not in _decided(project, PLACE)
    assert "- On behalf of clerk\n" in (project / PLACE / "run_report.md").read_text()
    assert "\nprincipal clerk\n" in say("show", "loop/lookup")[1]
    for command in ("check", "replay", "verify"):
        assert say(command, "loop/lookup")[0] == 0, command


def test_the_caller_goes_before_the_task_and_every_reader_follows_the_record(say: Say, project: Path) -> None:
    assert say("run", TASK, "--principal", "intern", "--out", OUT)[0] == 0
    assert _lines(project, OUT)[0]["principal"] == "intern"
    assert _decided(project, OUT) == ["principal"]
    for command in ("check", "replay", "verify"):
        code, out, err = say(command, OUT)
        assert code == 0, (out, err)
    code, out, _ = say("explain", OUT)
    assert code == 0 and 'principal "intern" may not call tool "search"' in out
    assert f"{POLICY}:5" in out and "on whose behalf a tool may be called is for a person" in out


def test_another_policy_decides_for_the_recorded_principal(say: Say, project: Path) -> None:
    say("run", TASK, "--principal", "intern", "--out", OUT)
    other = project / "policy/other.yaml"
    other.write_text(RULES.replace("{search: deny}", "{}"))
    code, out, _ = say("replay", OUT, "--policy", str(other))
    assert code == 1 and "principal" in out and "allow" in out
    other.write_text(RULES + "# the same\n")
    assert say("replay", OUT, "--policy", str(other))[0] == 0


def test_below_runs_the_task_alone_decides(say: Say, project: Path) -> None:
    code, _, err = say("run", TASK, "--principal", "intern")
    assert code == 2 and "a principal other than the task's makes another run" in err
    assert not (project / PLACE).exists()
    assert say("run", TASK, "--principal", "clerk")[0] == 0


def test_a_run_of_another_principal_in_the_place_of_the_task_is_an_error(say: Say, project: Path) -> None:
    say("run", TASK)
    say("run", TASK, "--principal", "intern", "--out", OUT)
    shutil.rmtree(project / PLACE)
    shutil.copytree(project / OUT, project / PLACE)
    code, out, err = say("check", "loop/lookup")
    assert code == 1 and f"states principal intern, but {TASK} has principal clerk" in out + err


@pytest.mark.parametrize("named", ["intern", None])
def test_a_forged_principal_is_found(say: Say, project: Path, named: str | None) -> None:
    def change(lines: Lines) -> None:
        lines[0].pop("principal")
        if named is not None:
            lines[0]["principal"] = named

    say("run", TASK)
    forge(project / PLACE, change, root=project)
    code, out, err = say("check", "loop/lookup")
    assert code == 1 and f"but {TASK} has principal clerk" in out + err


def test_a_name_that_no_principal_can_have_is_found(say: Say, project: Path) -> None:
    say("run", TASK, "--principal", "intern", "--out", OUT)
    forge(project / OUT, lambda lines: lines[0].update(principal="in tern"), root=project)
    code, out, err = say("verify", OUT)
    assert code == 1 and ":1: its principal is no name of a principal" in out + err


@pytest.mark.parametrize("name", ["", "in tern", "intern\n", "ä"])
def test_a_name_that_cannot_be_read_is_one_line_and_writes_nothing(
    say: Say, project: Path, name: str
) -> None:
    code, out, err = say("run", TASK, "--principal", name, "--out", OUT)
    assert (code, out, err.count("\n")) == (2, "", 1) and "principal is no name of a principal" in err
    assert not (project / "elsewhere").exists()


def test_a_task_with_such_a_name_is_refused_at_its_line(say: Say, project: Path) -> None:
    (project / TASK).write_text(TEXT.replace("principal: clerk", 'principal: "in tern"'))
    code, _, err = say("run", TASK)
    assert code == 2 and err.count("\n") == 1 and f"{TASK}:6:" in err


def test_an_unfinished_run_goes_on_for_the_principal_that_it_was_begun_for(say: Say, project: Path) -> None:
    stops = "faults:\n  - {target: tool, step: 1, call: 0, cancels: interrupted}\n"
    (project / TASK).write_text(TEXT.replace("principal: clerk", "principal: intern") + stops)
    words = ("run", TASK, "--out", OUT, "--durability", "effect")
    assert say(*words, "--principal", "clerk")[0] == 130
    code, _, err = say(*words, "--resume", "--principal", "intern")
    assert code == 2 and "was begun for another principal" in err
    say("resume", OUT, "--on-signal", "cancel")
    assert _lines(project, OUT)[0]["principal"] == "clerk"


def test_a_live_run_is_checked_for_the_principal_that_it_was_given(project: Path) -> None:
    def model(asked: LLMInput) -> LLMOutput:
        return LLMOutput(final_answer="Nowhere.", usage={"input_tokens": 9, "output_tokens": 9})

    file = project / TASK
    file.write_text(TEXT[: TEXT.index("llm:")] + "live: {models: ['callable:*']}\n")
    agent, config = build(load_task(file), model=model, principal="intern")
    out = project / OUT
    record_run(agent, config, out)
    assert _lines(project, OUT)[0]["principal"] == "intern"
    assert examine(out, root=project).lines == []


CALL = '{"tool": "search", "arguments": {"query": "rest"}}'


@pytest.mark.parametrize(
    ("given", "stated", "rule", "code"),
    [
        ("clerk", None, "sandbox_path", 0),
        ("intern", None, "principal", 1),
        (None, None, "principal", 1),
        (None, "clerk", "sandbox_path", 0),
        ("intern", "clerk", "principal", 1),
    ],
)
def test_one_call_is_decided_for_a_principal(
    say: Say, project: Path, given: str | None, stated: str | None, rule: str, code: int
) -> None:
    call = {**json.loads(CALL), **({} if stated is None else {"principal": stated})}
    (project / "call.json").write_text(json.dumps(call))
    words = [] if given is None else ["--principal", given]
    found, out, _ = say("policy", "decide", "call.json", "--policy", POLICY, *words)
    assert found == code and out.split()[1] in (rule, "tool_registry")[: 2 - code], out


def test_a_call_for_a_name_that_cannot_be_read_is_bad_input(say: Say, project: Path) -> None:
    (project / "call.json").write_text(CALL)
    code, _, err = say("policy", "decide", "call.json", "--policy", POLICY, "--principal", "in tern")
    assert code == 2 and err.count("\n") == 1 and "principal is no name of a principal" in err


def test_policy_tests_ask_for_a_principal(say: Say, project: Path) -> None:
    call = "call: {tool: search, arguments: {query: rest}}"
    (project / "policy/tests/who.yaml").write_text(
        f"schema: policy-tests/v1\npolicy: {{file: {POLICY}}}\ntests:\n"
        f"  - {{name: a clerk may, {call}, principal: clerk, expect: allow}}\n"
        f"  - {{name: an intern may not, {call}, principal: intern, expect: deny, rule: principal, at: 5}}\n"
        f"  - {{name: nobody else may, {call}, expect: deny, rule: principal, at: 3}}\n"
    )
    code, out, err = say("policy", "test", "policy/tests/who.yaml")
    assert code == 0 and "3 tests: 3 ok" in out, (out, err)
