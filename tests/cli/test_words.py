"""What the command line says: who answered, what stays, one of a thing, and how at a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tachograph.cli.commands import check as check_command
from tachograph.runtime.core.effects import AskHuman, Call
from tachograph.runtime.driver import file_approvals as approvals
from tests import cli_project
from tests.cli_project import GIVEN, RUN, TASK, Say
from tests.support import ROOT, cli, environment

shared, project, say = cli_project.shared, cli_project.project, cli_project.say


def test_the_committed_run_stays_where_there_is_one(say: Say, project: Path) -> None:
    task = project / TASK
    text = task.read_text(encoding="utf-8")
    assert "ending: final_answer" in text
    task.write_text(text.replace("ending: final_answer", "ending: approval_refused"), encoding="utf-8")
    code, _, err = say("run", TASK, "--quiet")
    assert code == 1, err
    assert "  the committed run stays; this one is kept in " in err
    shutil.rmtree(project / RUN)
    code, _, err = say("run", TASK, "--quiet")
    assert code == 1 and "stays" not in err and "  this one is kept in " in err


def test_resume_says_what_to_do_where_nothing_is_unfinished(say: Say) -> None:
    assert f"; the run is over: see `tachograph show {RUN}`" in say("resume", RUN)[2]
    code, _, err = say("resume", "runs/no/one")
    assert code == 2 and "runs/no/one: there is no unfinished run to go on with; name the folder" in err


QUESTION = AskHuman(1, 0, Call("tc_1_0", "write", None), "needs a person", "p.yaml:1", 60, "v", "demo")


def test_approve_says_who_answered_and_why(say: Say, project: Path) -> None:
    (project / "q.json").write_text(json.dumps(approvals.question(QUESTION)))
    assert "\nby " not in say("approve", "q.json")[1]
    hostile = "fine\x1b[2J\nanswer    deny"
    for words in (("--allow", "--by", "shift lead", "--why", hostile), ()):
        code, out, _ = say("approve", "q.json", *words)
        assert code == 0 and "\nanswer    allow\nby        shift lead\nwhy       fine\\u{1b}[2J" in out
        assert out.count("\nanswer ") == 1


def test_show_says_who_answered_and_why(say: Say) -> None:
    code, out, _ = say("show", f"runs/{GIVEN}")
    assert code == 0
    assert "\n       a person said allow by shift lead: a note in the sandbox does no harm\n" in out


def test_one_of_a_thing_is_one(say: Say, project: Path) -> None:
    shutil.copy(project / "policy/v1.yaml", project / "policy/one.yaml")
    (project / "o.yaml").write_text("{}\n")
    denied = say("show", "runs/policy_gates/pg5_arg_schema")[1]
    assert "used      1 step, " in denied
    out = say("replay", "--policy", "policy/one.yaml", "runs/policy_gates/pg5_arg_schema")[1]
    assert "would have gone another way" in out and "of 1 run would" in out and " 1 runs" not in out
    small = 'schema: policy/v1\ntool_registry: {allowed: [fetch]}\nurl_allowlist: ["https://corpus.test/"]\n'
    rest = "".join(
        f"{name}: {json.dumps(value)}\n"
        for name, value in {
            "sandbox": {"mounts": {"corpus": "read"}},
            "loop_budget": {
                "max_iterations": 6,
                "max_tokens": 5000,
                "max_tool_calls": 20,
                "max_result_bytes": 1000,
            },
            "cycle_detection": {"max_repeats": 3},
            "retry": {"max_retries": 2, "backoff_base_ms": 100, "backoff_cap_ms": 2000},
            "on_deny": "terminate",
        }.items()
    )
    alone = project.parent / "alone"
    (alone / "policy").mkdir(parents=True)
    (alone / "policy/v1.yaml").write_text(small + rest)
    code, out, err = say("policy", "check", "--root", str(alone))
    assert code == 0, err
    assert out.endswith(", 1 tool allowed, 1 URL entry, 1 mount\n")


@pytest.mark.parametrize(
    ("more", "code"),
    [("", 2), ("private_networks: [127.0.0.0/8]\n", 0), ("hosts", 0)],
    ids=["no network", "its network", "a folder answers for it"],
)
def test_policy_check_refuses_an_address_that_nobody_may_reach(
    tmp_path: Path, say: Say, more: str, code: int
) -> None:
    (tmp_path / "tasks" / "web").mkdir(parents=True)
    (tmp_path / "page").mkdir()
    (tmp_path / "policy").mkdir()
    task = """schema: task/v1\nid: web-page\ntitle: Read\nquestion: Read it.\nhosts: {127.0.0.1: {folder: page}}
llm: {stub: {turns: [{answer: done}]}}
policy: {file: p.yaml}
tools: [fetch]
"""
    if more == "hosts":
        (tmp_path / "tasks" / "web" / "page.yaml").write_text(task, encoding="utf-8")
        more = ""
    policy = (
        "schema: policy/v1\ntool_registry: {allowed: [fetch]}\nurl_allowlist: ['http://127.0.0.1:8000/']\n"
    )
    (tmp_path / "p.yaml").write_text(policy + more, encoding="utf-8")
    found, _, err = say("policy", "check", str(tmp_path / "p.yaml"), "--root", str(tmp_path))
    assert found == code, err
    assert ("127.0.0.1 is not a public address" in err) == (code == 2)


def test_a_terminal_that_cannot_draw_gets_plain_text(project: Path) -> None:
    def at_a_terminal(encoding: str) -> str:
        leader, follower = pty.openpty()
        env = environment({"TERM": "xterm", "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)})
        command = [sys.executable, "-m", "tachograph", "show", RUN, "--no-color"]
        with subprocess.Popen(command, cwd=project, env=env, stdout=follower, stderr=follower) as process:
            os.close(follower)
            said = b""
            while True:
                try:
                    piece = os.read(leader, 65536)
                except OSError:
                    break
                if not piece:
                    break
                said += piece
        os.close(leader)
        assert process.returncode == 0
        return said.decode(encoding)

    pytest.importorskip("rich")
    plain = at_a_terminal("ascii")
    assert (
        "\\u" not in plain
        and plain.replace("\r\n", "\n") == cli("show", RUN, cwd=project, env={"PYTHONPATH": str(ROOT)}).stdout
    )
    assert "\u2500" in at_a_terminal("utf-8")


@pytest.mark.parametrize(
    "text", ["", "  ", "short", "long " * 99, "x" * 399, "a-b" * 99, "\x1b[2J\nending    no" * 9]
)
def test_an_answer_is_wrapped_at_a_terminal_only(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tachograph.cli import run_result as running

    plain = running._answer(text)
    assert "\n" not in plain and plain.startswith("answer    ")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(running, "width_of", lambda _stream: 60)
    first, *more = running._answer(text).split("\n")
    assert first.startswith("answer    ") and all(row.startswith(" " * 10) for row in more)
    assert max(len(row) for row in (first, *more)) <= 60
    assert "".join("".join((first, *more)).split()) == "".join(plain.split())


def test_a_bisect_whose_reader_left_says_nothing_of_the_commit(
    say: Say, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_options: Any) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(check_command, "_checked", leave)
    monkeypatch.setattr(command_line, "_drop_output", lambda: None)
    assert say("check", "--bisect") == (1, "", "")


def test_policy_decide_shows_every_rule_where_that_is_wanted(say: Say, tmp_path: Path) -> None:
    call = tmp_path / "call.json"
    call.write_text('{"tool": "write", "arguments": {"path": "corpus/x.md", "text": "y"}}', encoding="utf-8")
    for more, not_asked in (((), 5), (("--all",), 0)):
        code, out, _ = say("policy", "decide", str(call), *more)
        assert code == 1 and out.startswith("deny  sandbox_path") and out.count("not asked") == not_asked
