"""The command line: what it prints, its exit codes, and that bad input leaves nothing behind."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tachograph import Agent, LLMOutput, Policy, record
from tachograph.evidence.project import Project
from tests.commands import Capsys, exit_code, output_of
from tests.project import cut, edit, files_below, rewrite
from tests.servers import unused_port

ROOT = Path(__file__).parents[1]


def test_the_way_of_a_run(two_runs: Path, capsys: Capsys) -> None:
    assert (two_runs / "runs/LIST").read_text() == "s/call\ns/sent_once\n"
    manifest = two_runs / "runs/s/call/manifest.json"
    manifest.write_text(manifest.read_text().replace('"time": "2', '"time": "1'))  # made at another time
    before = files_below(two_runs / "runs")
    assert b'"time": "1' in before[manifest]
    assert exit_code("run", "tasks/s/call.yaml") == exit_code("run", "s/call") == 0
    assert files_below(two_runs / "runs") == before
    for command in ("check", "verify", "replay"):
        assert exit_code(command) == 0
        assert exit_code(command, "s/call") == 0
        assert exit_code(command, "runs/s/call") == 0
    assert "final_answer" in output_of(capsys, "show", "s/call").out


def test_a_log_that_was_cut_is_shown_as_far_as_it_goes(two_runs: Path, capsys: Capsys) -> None:
    log = two_runs / "runs/s/call/state.jsonl"
    whole = log.read_bytes()
    for end, shown in ((100, 0), (-100, whole.count(b"\n") - 1), (whole.rindex(b"\n", 0, -1) + 1, -1)):
        log.write_bytes(whole[:end])
        told = output_of(capsys, "show", "s/call", code=2)
        assert "runs/s/call/state.jsonl" in told.err and told.out.count("\n") == shown % whole.count(b"\n")
        rest = whole[:end].rpartition(b"\n")[2].decode()
        assert output_of(capsys, "show", str(log)).out.endswith(f"{rest}\n" if rest else "step ended\n")


def test_tasks_runs_and_list_have_to_agree(two_runs: Path, capsys: Capsys) -> None:
    (two_runs / "tasks/s/call.yaml").unlink()
    os.rename(two_runs / "runs/s/call", two_runs / "runs/s/other \udcff")
    (two_runs / "runs/s/round").symlink_to("round")
    found = output_of(capsys, "check", code=2).out
    for word in ("\\u{dcff}: has no task", "yaml: is not there", "lacks s/o", "names s/call"):
        assert word in found
    (two_runs / "runs/LIST").unlink()
    os.mkfifo(two_runs / "runs/LIST")  # whoever opens it waits for ever
    assert exit_code("show", "s/round") == exit_code("policy", "test", "runs/s/round") == 2
    assert exit_code("doctor") == exit_code("run", "s/sent_once") == 0
    assert (two_runs / "runs/LIST").read_bytes() == b"s/other \xff\ns/sent_once\n"
    assert "lacks" not in output_of(capsys, "check", code=2).out


def test_commands_that_end_at_the_same_time_list_all_runs(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first waits, with its list, until the other has written one or waits for the first."""
    project, goes_on, fsync, flock = Project(two_runs), threading.Event(), os.fsync, fcntl.flock

    def write() -> None:
        try:
            project.write_list()
        finally:
            goes_on.set()

    def late(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(fcntl, "flock", lambda fd, how: goes_on.set() or flock(fd, how))
        (two_runs / "runs/s/third").mkdir()
        others.append(pool.submit(write))
        goes_on.wait(60)
        fsync(fd)

    others: list[Future[None]] = []
    monkeypatch.setattr(os, "fsync", late)
    with ThreadPoolExecutor(1) as pool:
        project.write_list()
        others[0].result(60)
    assert (two_runs / "runs/LIST").read_text() == "s/call\ns/sent_once\ns/third\n"


BAD = [
    (["run", "tasks/s/absent.yaml"], "absent.yaml"),
    (["run", "policy"], "policy"),
    (["run", "s/cal"], "did you mean 's/call'"),
    (["check", "s/absent"], "tachograph ls"),
    (["check", "x" * 5000], "x: File name too long"),
    (["review", "x" * 5000], "x: git finds no such commit here"),
    (["resume", "s/call"], "s/call"),
    (["frobnicate"], "frobnicate"),
    (["verfy"], "verify"),
    (["check", "--github", "--json"], "one of them"),
    (["run", "tasks/a\n::error::b\x1b[2K.yaml"], "\\u{a}"),
    (["run", "--fast"], "--fast"),
]


@pytest.mark.parametrize(("arguments", "word"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(
    two_tasks: Path, capsys: Capsys, arguments: list[str], word: str
) -> None:
    said = output_of(capsys, *arguments, code=2).err
    assert said.count("\n") == 1
    assert word in said
    assert not list((two_tasks / "runs").glob("*/*"))


def rules(tool: str, said: str) -> str:
    """Return what stands in the place of `"on_deny"` in a policy, so that it says something of a tool."""
    return f'"tools": {{"{tool}": {said}}}, "on_deny"'


BROKEN = [
    # what is broken, how, and what the line names
    ("policy/call.yaml", '"schema": "policy/v1"', '"schema": "policy/v2"', "policy/call.yaml:1:"),
    ("policy/call.yaml", '"tool_registry"', '"tool_registri"', "tool_registry"),
    ("policy/call.yaml", '"max_tokens": 5000', '"max_tokens": "5000"', "policy/call.yaml:1:"),
    ("policy/call.yaml", "https://good.test/", "https://*.test/", "wildcard"),
    ("policy/call.yaml", '"denied": ["shell"]', '"denied": ["echo"]', "'echo'"),
    ("tasks/s/call.yaml", '"llm"', '"lm"', "tasks/s/call.yaml:1:"),
    ("tasks/s/call.yaml", '"answer": "done"', '"answer": {"$result": 9}', "tasks/s/call.yaml:1:"),
    ("tasks/s/call.yaml", '"s-call"', '"s-other"', "s-call"),
    ("tasks/s/call.yaml", '"book": "book"', '"book": "../.."', "outside of the project"),
    ("tasks/s/call.yaml", '"book": "book"', '"book": "bok"', "tasks/s/call.yaml:1:"),
    ("tasks/s/call.yaml", '"book": "book"', '"shelf": "book"', "'shelf'"),
    ("tasks/s/call.yaml", '"good.test"', '"Good.test"', "tasks/s/call.yaml:1:"),
    ("tasks/s/call.yaml", '"good.test"', '"https://good.test/"', "tasks/s/call.yaml:1:"),
    ("tasks/s/call.yaml", '"box/a.txt"', '"book/z.txt"', "'book'"),
    ("tasks/s/call.yaml", '"policy/call.yaml"', '"policy/gone.yaml"', "tasks/s/call.yaml:1:"),
    ("policy/call.yaml", '"odd"', '"od"', "did you mean 'odd'"),
    ("policy/call.yaml", '"on_deny"', rules("ecko", '{"methods": ["GET"]}'), "'ecko'"),
    ("policy/call.yaml", '"on_deny"', rules("echo", '{"arguments": {"/txt": {"in": []}}}'), "'/txt'"),
    ("policy/call.yaml", '"on_deny"', rules("echo", '{"ask_if": {"/text": {"maximum": 1}}}'), "maximum"),
    ("policy/call.yaml", '"on_deny"', rules("echo", '{"arguments": {"/text": {}}}'), "keyword"),
    ("policy/call.yaml", '"on_deny"', rules("echo", '{"arguments": {"/text": {"in": "no"}}}'), "'no'"),
    ("policy/call.yaml", '"on_deny"', rules("page", '{"urls": ["https://*.a"]}'), "wildcard"),
    ("tools/echo.py", "def run", "def (", "tools/echo.py:"),
    ("tools/echo.py", 'EFFECT = "pure"', "import no_such", "tools/echo.py:16:"),
    ("tools/echo.py", 'EFFECT = "pure"', "import no_such", "'no_such'"),
    ("tools/echo.py", '"additionalProperties": False,', "", "additionalProperties"),
    ("tools/look.py", '"path:read"', '"path:reed"', "x-resource"),
]


@pytest.mark.parametrize(("file", "old", "new", "word"), BROKEN)
def test_a_broken_file_is_named_and_nothing_is_written(
    two_tasks: Path, capsys: Capsys, file: str, old: str, new: str, word: str
) -> None:
    edit(two_tasks / file, old, new)
    said = output_of(capsys, "run", "tasks/s/call.yaml", code=2).err
    assert said.count("\n") == 1
    assert word in said
    assert not list((two_tasks / "runs").glob("*/*"))


def test_a_missed_expectation_replaces_nothing(two_runs: Path, capsys: Capsys) -> None:
    before = (two_runs / "runs/s/call/state.jsonl").read_bytes()
    edit(two_runs / "tasks/s/call.yaml", '"final_answer"', '"loop_budget"')
    os.chdir(two_runs / "tasks")  # which the fixture takes back
    told = output_of(capsys, "run", "s/call", code=1).err.partition("tachograph show ")[2].partition("`")[0]
    assert exit_code("show", told) == 0 and exit_code("doctor") == 0
    assert f"{told}; read" in capsys.readouterr().out
    assert (two_runs / "runs/s/call/state.jsonl").read_bytes() == before
    assert (two_runs / ".tachograph/rejected/s-call/run_report.md").is_file()


def test_a_doubt_is_told_and_settled(two_runs: Path, capsys: Capsys) -> None:
    folder = two_runs / "runs/s/sent_once"
    partial = cut(folder, 4)  # up to the beginning of the call
    assert "resume" in output_of(capsys, "run", "tasks/s/sent_once.yaml", code=2).err
    (partial / "mounts").mkdir(exist_ok=True)
    assert exit_code("show", "s/sent_once.partial") == 0
    assert "1.c0.i1" in output_of(capsys, "resume", "s/sent_once", code=3).err
    assert exit_code("resume", "s/sent_once", "--done", "1.c0.i1") == 0
    assert b'"settled"' in (folder / "state.jsonl").read_bytes()
    assert exit_code("verify", "s/sent_once") == 0


def test_policy_tests(two_tasks: Path, capsys: Capsys) -> None:
    (two_tasks / "policy/tests").mkdir()
    asked = '"call": {"tool": "echo", "arguments": {"text": "a"}}'
    test = f'{{"name": "n", {asked}, "expect": "deny", "rule": "tool_registry"}}'
    path = two_tasks / "policy/tests/t.yaml"
    text = f'{{"schema": "policy-tests/v1", "policy": "policy/call.yaml", "tests": [{test}]}}'
    path.write_text(text.replace("deny", "allow"))
    assert exit_code("policy", "test") == 0
    path.write_text(text)
    assert "policy/tests/t.yaml:1:" in output_of(capsys, "policy", "test", code=1).out
    touch = '"touch": {"path": "a/b"}'
    odd = '"tool": "echo", ' + touch.replace("}", ', "found": "lnk"}')
    for wrong in ('"cal": {}', '"reach": {}', touch, odd, f'{asked}, "used": {{"call": 1}}'):
        path.write_text(text.replace(asked, wrong))
        assert "policy/tests/t.yaml:1:" in output_of(capsys, "policy", "test", code=2).err
    path.write_text(text.replace("policy/call.yaml", "policy/cal.yaml"))
    assert "policy/tests/t.yaml:1:" in output_of(capsys, "policy", "test", code=2).err
    # a project whose tools are functions in code
    shutil.copytree(two_tasks / "policy", two_tasks.parent / "code/policy")
    shutil.copytree(two_tasks / "policy", two_tasks / "policy/deep")
    shutil.copy(two_tasks / "policy/call.yaml", two_tasks.parent)  # where no project is
    for place in ("policy", "policy/deep", "..", "../code/policy"):
        assert exit_code("policy", "check", f"{place}/call.yaml") == 0


def test_ctrl_c_leaves_a_run_that_goes_on(
    two_tasks: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = '    if __import__("os").environ.pop("INTERRUPT", ""):\n        raise KeyboardInterrupt\n'
    edit(two_tasks / "tools/echo.py", "    return {", f"{interrupt}    return {{")
    monkeypatch.setenv("INTERRUPT", "once")
    assert "resume" in output_of(capsys, "run", "tasks/s/call.yaml", code=130).err
    assert exit_code("resume", "s/call") == 0
    assert exit_code("check", "s/call") == 0
    edit(two_tasks / "tools/echo.py", "    return {", "    raise ValueError\n    return {")
    rewrite(two_tasks / "tasks/s/call.yaml", expected={})
    monkeypatch.setenv("INTERRUPT", "once")
    assert [exit_code(word, "s/call") for word in ("run", "resume", "run")] == [130, 1, 1]


@pytest.mark.parametrize(("lines", "word"), [(3, "resume s/call"), (0, "state.jsonl: No space")])
def test_a_full_disk_is_one_line(
    two_tasks: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, lines: int, word: str
) -> None:
    written = 0
    write = os.write

    def full(fd: int, data: bytes) -> int:
        nonlocal written
        written += b'"event"' in data
        if written > lines:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert exit_code("run", "tasks/s/call.yaml") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and word in said
    assert [exit_code(word, "s/call") for word in ("resume" if lines else "run", "check")] == [0, 0]


def process(project: Path, code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, after some code."""
    start = f"import sys; {code}; sys.argv[0] = 'tachograph'; import tachograph.__main__ as it; it.process()"
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", start, *words]
    return subprocess.run(command, cwd=project, env=given, capture_output=True, text=True, check=False)


def test_ctrl_c_while_the_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    ended = process(tmp_path, "pass")
    assert (ended.returncode, ended.stderr) == (130, "tachograph: stopped\n")


def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    done = process(tmp_path, "pass", "init", "look ☃", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0 and "look \\u2603" in done.stdout and not done.stderr


def test_without_the_extra_for_live_models(tmp_path: Path) -> None:
    assert exit_code("init", str(tmp_path / "new")) == 0
    missing = "sys.modules |= dict.fromkeys(('httpx2', 'openai'))"
    asked = ("run", "--profile", "keeper", "hi", "--llm", "openai:m")
    done = process(tmp_path / "new", missing, *asked)
    assert done.returncode == 2 and "tachograph[live]" in done.stderr and done.stderr.count("\n") == 1


def test_a_project_without_a_task_and_what_is_no_file_of_one(two_tasks: Path, capsys: Capsys) -> None:
    shutil.rmtree(two_tasks / "tasks/s")
    (two_tasks / "tasks/s/one.yaml").mkdir(parents=True)
    assert (exit_code("run"), exit_code("run", "s/one")) == (0, 2)
    told = capsys.readouterr()
    assert "no task" in told.out and "did you mean" not in told.err


def test_without_a_command_the_help_is_printed(capsys: Capsys) -> None:
    assert "check" in output_of(capsys, code=2).out


def test_a_resume_under_other_code_is_refused(two_runs: Path, capsys: Capsys) -> None:
    os.rename(two_runs / "runs/s/call", two_runs / "runs/s/call.partial")
    # which the run never calls, and offers to the model
    edit(two_runs / "tools/look.py", '"Read a file."', '"Look into a file."')
    assert output_of(capsys, "resume", "s/call", code=1).err.count("\n") == 1


def test_a_scripted_run_needs_no_event_loop(two_tasks: Path) -> None:
    program = "from tachograph.cli.main import main; main(['run', 's/call'])"
    check = f"import atexit; atexit.register(lambda: print('asyncio' in sys.modules)); {program}"
    done = process(two_tasks, check)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "False"


def test_an_open_run_is_told_alike_everywhere(two_runs: Path, capsys: Capsys) -> None:
    os.rename(two_runs / "runs/s/call", two_runs / "runs/s/call.partial")
    how = "`tachograph resume s/call`"
    for command in ("check", "accept", "verify", "replay", "explain"):
        said = output_of(capsys, command, "s/call", code=2).err
        assert how in said and said.count("\n") == 1
    assert how in output_of(capsys, "show", "s/call").out.splitlines()[-1]
    said = output_of(capsys, "check", code=1).out
    assert how in said and "tasks/s/call.yaml" not in said
    assert exit_code("resume", "s/call") == exit_code("check", "s/call") == 0
    assert exit_code("resume", "s/call") == 2


def test_a_record_of_code_among_those_of_tasks_is_passed_over(two_runs: Path, capsys: Capsys) -> None:
    agent = Agent(lambda asked: LLMOutput(final_answer="yes"), [], Policy.load("policy/call.yaml"))
    record(agent, "Is it so?", out="runs/code/mine")
    for command in ("check", "replay", "explain"):
        assert "runs/code/mine: " in output_of(capsys, command).err
        # it would be done with less than was asked
        assert "tachograph.check" in output_of(capsys, command, "s/call", "code/mine", code=2).err
    assert exit_code("accept", "code/mine") == 2
    assert exit_code("verify", "code/mine") == exit_code("ls") == 0
    os.rename("runs/code/mine", "runs/code/mine.partial")
    for command in (("show", "code/mine"), ("verify", "code/mine"), ("doctor",), ("check",)):
        exit_code(*command)
        said = "".join(capsys.readouterr())
        assert "`tachograph.resume`" in said and "tachograph resume" not in said  # which it has no task for
    shutil.copytree("runs/code/mine.partial", "../mine.partial")
    assert "tachograph.check" in output_of(capsys, "check", "../mine", code=2).err
    os.chdir(two_runs.parent)  # out of the project, until the fixture takes it back
    for command in ("check p/runs/code/mine.partial", "resume mine", "accept mine"):
        assert "tachograph.check" in output_of(capsys, *command.split(), code=2).err


def test_any_folder_with_a_log_is_read(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    shutil.copytree(two_runs / "runs/s/call", two_runs.parent / "mine")
    shutil.copytree(two_runs / "runs/s/call", two_runs.parent / "open.partial")
    for place, path in ((two_runs, "../mine"), (two_runs.parent, "mine")):
        monkeypatch.chdir(place)
        assert exit_code("show", path) == exit_code("verify", path) == 0
    assert exit_code("verify", "open.partial") == exit_code("show", "no") == 2
    assert "no/state.jsonl: cannot be read" in capsys.readouterr().err
    assert exit_code("show", str(two_runs / "tasks/s/call.yaml")) == 2  # a file that is not a log
    address = f"http://127.0.0.1:{unused_port()}/v1/traces"
    assert address in output_of(capsys, "push", "mine", "--endpoint", address, code=1).err


def test_what_may_not_be_read_is_one_line(
    two_tasks: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    def refused(self: Project) -> list[str]:
        raise PermissionError(13, "Permission denied", "runs/s")

    monkeypatch.setattr(Project, "run_names", refused)
    for command in ("ls", "verify", "check"):
        assert output_of(capsys, command, code=2).err == "tachograph: runs/s: Permission denied\n"
    assert output_of(capsys, "doctor", code=1).out.count("runs/s") == 1


def test_a_check_tells_of_all_runs_where_an_input_may_not_be_read(two_tasks: Path) -> None:
    exit_code("run")
    (two_tasks / "tasks/s/call.yaml").chmod(0)
    powerless = "setpriv --bounding-set -all --inh-caps -all".split() if os.geteuid() == 0 else []
    command = [*powerless, sys.executable, "-m", "tachograph", "check"]
    done = subprocess.run(command, cwd=two_tasks, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    assert "1 of 2 runs hold" in done.stdout


@pytest.mark.parametrize("words", ["--help", "show --tree canonical/v1"])
def test_a_closed_standard_output_is_no_error(words: str) -> None:
    command = ["sh", "-c", f'"$0" -m tachograph {words} >&-', sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    unread, out = os.pipe()
    os.close(unread)
    broken = subprocess.run([sys.executable, "-m", "tachograph", "-h"], cwd=ROOT, stdout=out, check=False)
    assert broken.returncode == 141  # as shells have it of what SIGPIPE ends


def test_a_completion_is_a_success(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    monkeypatch.setenv("_TACHOGRAPH_COMPLETE", "zsh_source")
    assert "#compdef tachograph" in output_of(capsys).out


def test_output_that_is_lost_is_no_success() -> None:
    code = "import sys, tachograph.cli.main as it; it.main = lambda: (print(0), sys.exit(0)); "
    code += "import tachograph.__main__ as it; it.process()"
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for out, said in (("/dev/full", 1), ("/dev/null", 0)):
        with open(out, "w") as file:
            done = subprocess.run(command, stdout=file, cwd=ROOT, env=environment, check=False)
        assert done.returncode == said
