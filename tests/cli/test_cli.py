"""The command line: help, JSON, colour, hostile text, broken pipes and Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tachograph.cli.console import painter
from tachograph.cli.parser import make_parser
from tachograph.cli.progress import Progress
from tachograph.runtime.formats.escape import escape_terminal
from tests.support import (
    CANONICAL,
    FILES,
    ROOT,
    TASK,
    ask,
    cli,
    copy_project,
    environment,
    one_line,
    perform,
    policy_data,
    probe,
    tool,
    tree,
    well_formed,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("cli") / "project")


def _verbs(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its parser."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield from _verbs(verb, (*words, name))


VERBS = dict(_verbs(make_parser()))


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_lists_every_option_and_exits_0(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command_line.main([*words, "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    for action in VERBS[words]._actions:
        shown = action.option_strings or list(action.choices or [action.metavar or action.dest])
        assert [name for name in shown if name not in said] == []
        assert action.help != argparse.SUPPRESS
    assert "exit codes" in said


def test_no_command_prints_help_and_version_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import tachograph

    assert command_line.main([]) == 0 and "usage:" in capsys.readouterr().out
    assert command_line.main(["--version"]) == 0
    assert capsys.readouterr().out == f"tachograph {tachograph.__version__}\n"


CALL = json.dumps({"tool": "fetch", "arguments": {"url": "https://evil.test/"}})
JSON_VERBS: dict[str, tuple[tuple[str, ...], int, set[str]]] = {
    "run": (("run", TASK), 0, {"run_id", "ending", "answer", "folder", "failure_mode", "as_wanted"}),
    "check": (("check",), 0, {"runs", "drifted"}),
    "show": (("show", CANONICAL), 0, set()),
    "policy check": (("policy", "check"), 0, {"policy/v1.yaml"}),
    "policy version": (("policy", "version"), 0, {"version"}),
    "policy versions": (("policy", "version", "other.yaml", "policy/v1.yaml"), 0, {"other.yaml"}),
    "policy decide": (("policy", "decide", "-"), 1, {"decision", "rule_id", "reason", "at", "facts"}),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON_VERBS)
def test_json_is_one_document(name: str, project: Path) -> None:
    words, code, keys = JSON_VERBS[name]
    (project / "other.yaml").write_bytes((project / "policy/v1.yaml").read_bytes())
    done = cli(*words, "--json", cwd=project, input=CALL)
    assert done.returncode == code, done.stderr
    document = json.loads(done.stdout)
    assert done.stderr == "" and done.stdout.count("\n") == 1 and done.stdout.isascii()
    if keys:
        assert keys <= set(document)
    else:
        assert [line["type"] for line in document] == ["run", *["step"] * 5, "end"]


def test_policy_verbs_in_words(project: Path) -> None:
    version = json.loads((project / CANONICAL / "manifest.json").read_bytes())["policy_version"]
    assert cli("policy", "version", cwd=project).stdout == f"{version}\n"
    assert version in cli("policy", "check", cwd=project).stdout
    said = cli("policy", "decide", "-", cwd=project, input=CALL)
    assert said.returncode == 1 and said.stdout.startswith("deny  url_allowlist  policy/v1.yaml:")
    good = CALL.replace("evil.test", "corpus.test")
    said = cli("policy", "decide", "-", cwd=project, input=good)
    assert said.returncode == 0 and said.stdout.startswith("allow")


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nowhere"),
        ("show", "policy"),
        ("policy", "check", "gone.yaml"),
        ("policy", "version", "README.md"),
        ("policy", "decide", "gone.json"),
        ("policy", "decide", "policy/v1.yaml"),
        ("check", "--root", "data"),
        ("run", TASK, "--otlp", "nonsense"),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_writes_nothing(words: tuple[str, ...], project: Path) -> None:
    before = tree(project)
    line = one_line(cli(*words, cwd=project))
    assert "; " in line and tree(project) == before


# ---- what a terminal gets ------------------------------------------------------------------------------


def _at_a_terminal(project: Path, *words: str) -> tuple[str, int]:
    """What a command prints at a terminal, and its exit code."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "tachograph", *words]
    with subprocess.Popen(
        command, cwd=project, env=environment({"TERM": "xterm"}), stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        said = b""
        while select.select([leader], [], [], 30)[0]:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
        os.close(leader)
    return said.decode(), process.returncode


COLOURED = [("run", TASK), ("show", CANONICAL), ("policy", "decide", "call.json")]


@pytest.mark.parametrize("words", COLOURED, ids=lambda words: words[0])
def test_colour_at_a_terminal_only(words: tuple[str, ...], project: Path) -> None:
    (project / "call.json").write_text(CALL)
    coloured, code = _at_a_terminal(project, *words)
    plain, same = _at_a_terminal(project, *words, "--no-color")
    piped = cli(*words, cwd=project)
    assert code == same == piped.returncode
    assert re.search(r"\x1b\[[\d;]+m", coloured) and "\x1b" not in plain and "\x1b" not in piped.stdout
    assert re.sub(r"\x1b\[[\d;]+m", "", coloured) == plain
    if words[0] == "show":
        assert (
            "─ step 1" in plain and "\nstep 1 " in piped.stdout
        )  # a tree at a terminal, plain lines in a pipe
    elif words[0] == "run":  # a long answer is wrapped at a terminal
        assert plain.split() == piped.stdout.split() and max(map(len, plain.split("\r\n"))) <= 100
        assert "\r\n          dispatch room" in plain
    else:
        assert plain == piped.stdout.replace("\n", "\r\n")


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\r\nending    final_answer\u2028\U000e0041\x00 <b>"
)


def test_hostile_text_is_inert_in_progress() -> None:
    class Odd(Exception):
        pass

    Odd.__name__ = "\x1b[31mOdd"

    def run(args: dict[str, Any], io: Any) -> Any:
        raise Odd

    screen = StringIO()
    perform(
        [ask(probe("\x1b[31mnope"), text=HOSTILE), ask(probe(path=HOSTILE)), ask(probe())],
        [tool(run=run)],
        policy_data(on_deny="inform", approval={"required_for": ["probe"], "timeout_s": 1}),
        approve=lambda asked: __import__("tachograph").Answer("allow", HOSTILE, HOSTILE),
        listeners=[Progress(screen, painter(screen, no_color=False))],
    )
    said = screen.getvalue()
    assert said.isascii() or set(said) - set(map(chr, range(128))) <= {"…"}
    assert [c for c in said if c != "\n" and not c.isprintable()] == []
    assert not [line for line in said.splitlines() if line.startswith("ending")]
    assert "nope" in said and "Odd" in said


def test_attempts_of_calls_that_run_together_stand_below_their_call() -> None:
    screen = StringIO()
    perform(
        [ask(probe(n=1), probe(n=2)), ask(probe(n=3))],
        [tool(effect="read")],
        listeners=[Progress(screen, painter(screen, no_color=False))],
    )
    first, second, third = (f'call probe {{"n":{n}}}' for n in (1, 2, 3))
    found = [line.strip().split("  ")[0] for line in screen.getvalue().splitlines()]
    assert [word for word in found if word.startswith(("call", "allow", "attempt"))] == [
        *(first, "allow", second, "allow"),
        *(first, "attempt 1", second, "attempt 1"),
        *(third, "allow", "attempt 1"),
    ]


def test_hostile_text_is_inert_when_shown(tmp_path: Path) -> None:
    denied = perform([ask(probe(HOSTILE), text=HOSTILE)])
    refused = perform([ask(probe(path=HOSTILE))])
    for i, ran in enumerate((denied, refused)):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "state.jsonl").write_bytes(ran.state)
        said = cli("show", folder)
        assert said.returncode == 0
        assert [c for c in said.stdout if c != "\n" and not c.isprintable()] == []
        assert cli("show", folder, "--json").stdout.isascii()


def test_clipped_text_is_one_line_of_a_given_width() -> None:
    assert escape_terminal("abc", 3) == "abc" and escape_terminal("abcd", 3) == "ab…"
    assert "\n" not in escape_terminal(HOSTILE, 1000) and escape_terminal(HOSTILE, 1000).isprintable()


def test_a_ledger_of_unknown_shape_is_refused_by_show(tmp_path: Path) -> None:
    from tachograph.runtime.journal.ledger import Ledger

    for schema in ("ledger/v1", "ledger/v2"):
        book = Ledger()
        lines = [{"type": "run", "schema": schema}, {"type": "step"}, {"type": "end"}]
        (tmp_path / "state.jsonl").write_text("".join(f"{book.append(line)}\n" for line in lines))
        one_line(cli("show", tmp_path))


# ---- pipes and signals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("show", CANONICAL), ("run", TASK), ("check",)], ids=lambda words: words[0]
)
def test_a_reader_that_leaves_is_no_traceback(words: tuple[str, ...], project: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-W", "ignore", "-m", "tachograph", *words]
    done = subprocess.run(
        command, cwd=project, env=environment(), stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("show", CANONICAL), ("policy", "version")], ids=lambda words: words[0])
def test_output_that_cannot_be_written_is_one_line(words: tuple[str, ...], project: Path) -> None:
    with open("/dev/full", "w") as full:
        done = cli(*words, cwd=project, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    one_line(done)


_HANGING = """
import time
DESCRIPTION = "waits"
INPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
EFFECT, IDEMPOTENT, TRANSIENT = "pure", True, ()
IMPORTS = ("time",)
def run(args, io):
    time.sleep(30)
    return {}
"""

_WAITING_TASK = """
schema: task/v1
id: slow-v1
title: A run that waits
question: How long?
policy: {file: policy/v1.yaml, overlays: [slow.yaml]}
tools: [hang]
mounts: {corpus: data/corpus/v1}
llm: {stub: {turns: [{calls: [{tool: hang, arguments: {}}]}, {answer: done}]}}
"""


@pytest.mark.parametrize("expected", ["", "expected: {ending: final_answer}\n"], ids=["free", "expecting"])
def test_ctrl_c_in_a_run_leaves_a_whole_record_and_exits_130(tmp_path: Path, expected: str) -> None:
    project = copy_project(tmp_path / "project")
    (project / "tools" / "hang.py").write_text(_HANGING)
    (project / "slow.yaml").write_text("tool_registry: {allowed: [hang]}\n")
    (project / "tasks" / "slow").mkdir()
    (project / "tasks" / "slow" / "v1.yaml").write_text(_WAITING_TASK + expected)
    command = [sys.executable, "-m", "tachograph", "run", "tasks/slow/v1.yaml"]
    with subprocess.Popen(
        command,
        cwd=project,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "allow" in line:
                break
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=20)
    assert process.returncode == 130, complaint
    assert "Traceback" not in complaint
    kept = project / (".tachograph/rejected/slow-v1" if expected else "runs/slow/v1")
    lines, _ = well_formed((kept / "state.jsonl").read_bytes())
    assert lines[-1]["failure_mode"] == "interrupted"
    names = sorted(path.name for path in kept.iterdir())
    assert names == sorted(FILES)
    assert not list(project.glob("runs/*/*.partial"))


def test_a_task_that_ships_with_the_package_runs_from_anywhere(tmp_path: Path) -> None:
    done = cli("run", TASK, "--quiet", cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / CANONICAL).iterdir()) == sorted(FILES)


def test_from_below_the_root_paths_are_the_same(project: Path) -> None:
    below = project / "data" / "corpus"
    env = {"PYTHONPATH": str(project)}
    before = tree(project / "runs")
    assert cli("run", f"../../{TASK}", "--quiet", cwd=below, env=env).returncode == 0
    assert cli("check", f"../../{CANONICAL}", cwd=below, env=env).returncode == 0
    assert cli("check", cwd=below, env=env).returncode == 0
    assert tree(project / "runs") == before
