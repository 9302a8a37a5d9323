"""What a person gives the command line that is not meant: the wrong folder, nothing at all, what cannot be read."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tachograph.cli.commands.views import show as show_command
from tachograph.cli.parser import make_parser
from tachograph.evidence.recording import index
from tachograph.fail.errors import InputError
from tachograph.review.plan.plan import runs_in as plan_runs
from tachograph.runtime.driver import file_approvals as approvals
from tests import cli_project
from tests.cli_project import RUN, TASK, Say
from tests.support import ROOT, environment, one_line, tree

shared, project, say = cli_project.shared, cli_project.project, cli_project.say


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """A command that hangs fails its test."""

    def late(_signum: int, _frame: FrameType | None) -> None:
        raise AssertionError("still at work")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# ---- no project ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("verify",),
        ("replay",),
        ("replay", "--policy", str(ROOT / "policy/v1.yaml")),
        ("accept", "--all", "--reason", "x"),
        ("policy", "test"),
        ("policy", "test", str(next((ROOT / "policy/tests").glob("*.yaml")))),
        ("policy", "coverage"),
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_outside_a_project_nothing_is_judged(
    words: tuple[str, ...], say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, out, err = say(*words)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "this is not a project" in err and "; go to one, or give --root DIR" in err


def test_outside_a_project_what_is_named_is_looked_at(
    say: Say, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert say("check", "--root", "../project")[0] == 0
    assert say("check", f"../project/{RUN}")[0] == 0
    assert say("policy", "version", "../project/policy/v1.yaml")[0] == 0
    shutil.copytree(project / "runs", "runs")
    assert say("verify")[0] == 0  # runs that were made in code need no policy/


# ---- what cannot be read -------------------------------------------------------------------------------------


def _without_rights() -> tuple[str, ...]:
    """What a program is started with so that permissions count for it, also for root."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root may read everything, and setpriv is not here")
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def _without_permission(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_without_rights(), sys.executable, "-m", "tachograph", *words],
        cwd=project,
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _refused(project: Path, *words: str) -> str:
    done = _without_permission(project, *words)
    assert done.stdout == ""
    line = one_line(done)
    assert "Permission denied" in line and "; " in line and "the output" not in line
    return line


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("verify",),
        ("replay",),
        ("policy", "coverage"),
        ("policy", "diff", "policy/v1.yaml", "policy/v1.yaml", "--runs", "runs"),
        ("site", "runs", "../site"),
    ],
    ids=" ".join,
)
def test_runs_that_cannot_be_seen_are_not_passed_over(words: tuple[str, ...], project: Path) -> None:
    place = project / "runs/failure_modes"
    place.chmod(0)
    try:
        assert "runs/failure_modes: cannot be read" in _refused(project, *words)
    finally:
        place.chmod(0o755)
    assert not (project.parent / "site").exists()


@pytest.mark.parametrize(
    "place, words",
    [
        (RUN, ("check",)),
        (RUN, ("verify",)),
        (RUN, ("show", RUN)),
        (RUN, ("policy", "diff", "policy/v1.yaml", "policy/v1.yaml", "--runs", "runs")),
        ("runs/INDEX.json", ("check",)),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_named(place: str, words: tuple[str, ...], project: Path) -> None:
    (project / place).touch()
    (project / place).chmod(0)
    try:
        assert place in _refused(project, *words)
    finally:
        (project / place).chmod(0o755)


@pytest.mark.parametrize("name, is_of_a_run", [(f"{RUN}/state.jsonl", True), ("runs/ACCEPTED.jsonl", False)])
def test_check_goes_on_past_a_file_that_cannot_be_read(name: str, is_of_a_run: bool, project: Path) -> None:
    (project / name).touch()
    (project / name).chmod(0)
    try:
        done = _without_permission(project, "check", "--json")
    finally:
        (project / name).chmod(0o644)
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    assert report["runs"] > 1
    unread = [f"{name}: cannot be read (Permission denied); check its permission"]
    unsearched = [f"{name}: cannot be searched for secrets (Permission denied); check its permission"]
    assert report["drifted"] == ({RUN: unread} if is_of_a_run else {})
    assert report["index"] == (unsearched if is_of_a_run else unread + unsearched)


@pytest.mark.parametrize(
    "words", [("policy", "check", "policy/v1.yaml"), ("run", "tasks/canonical/v1.yaml")], ids=" ".join
)
def test_tools_that_cannot_be_listed_are_not_taken_for_none(words: tuple[str, ...], project: Path) -> None:
    (project / "tools").chmod(0)
    try:
        line = _refused(project, *words)
    finally:
        (project / "tools").chmod(0o755)
    assert "tools: cannot be read (Permission denied); check the permission of the folder" in line


def test_a_folder_that_cannot_be_listed_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/kind/one").mkdir(parents=True)
    (tmp_path / "runs/loop").symlink_to("loop")
    (tmp_path / "runs/gone").symlink_to("nowhere")
    (tmp_path / "runs/file").touch()
    assert index.folders_in(tmp_path / "runs") == [tmp_path / "runs/kind"]
    assert index.folders_in(tmp_path / "runs/file") == index.folders_in(tmp_path / "none") == []

    def refuse(path: Any) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    for walk in (index.folders_in, index.digests, lambda place: plan_runs([place])):
        with pytest.raises(InputError, match="runs: cannot be read \\(Permission denied\\); ") as found:
            walk(tmp_path if walk is index.digests else tmp_path / "runs")  # type: ignore[operator]
        assert str(tmp_path / "runs") in str(found.value)


def test_an_error_that_is_not_of_the_output_names_its_file(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_options: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "some/file")

    monkeypatch.setattr(show_command, "show", fail)
    code, out, err = say("show", RUN)
    assert (code, out) == (2, "") and err.startswith("tachograph: some/file: Input/output error; ")


# ---- empty texts, circles, numbers -----------------------------------------------------------------------------

PATHS = {"FILE", "DIR", "RUN", "RUNS_DIR", "OUT", "CALL.json", "OLD", "NEW", "ask|FOLDER"}


def _actions(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _actions(below, f"{words} {name}")
        elif (action.metavar or action.dest) in PATHS | {"task"}:
            yield words.strip(), action


GIVEN_PATHS = [(words, action) for words, action in _actions(make_parser())]


@pytest.mark.parametrize(
    "words, action", [pytest.param(words, a, id=f"{words} {a.dest}") for words, a in GIVEN_PATHS]
)
def test_every_path_has_to_name_something(words: str, action: argparse.Action) -> None:
    assert callable(action.type)
    with pytest.raises(InputError, match="an empty text names nothing; "):
        action.type("")


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "--key", ""),
        ("replay", "--policy", ""),
        ("policy", "test", "--policy", ""),
        ("policy", "test", "--junit", ""),
        ("check", "--html", ""),
        ("check", "--root", ""),
        ("site", "", "../site"),
        ("run", TASK, "--out", ""),
        ("init", ""),
        ("accept", "", "--reason", "x"),
        ("check", ""),
    ],
    ids=" ".join,
)
def test_an_empty_text_is_refused(words: tuple[str, ...], say: Say, project: Path) -> None:
    before = tree(project.parent)
    code, out, err = say(*words)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "an empty text names nothing" in err or "there is no such run" in err
    assert tree(project.parent) == before


@pytest.mark.parametrize(
    "words",
    [
        ("run", "loop"),
        ("explain", "loop"),
        ("policy", "suggest", "loop"),
        ("show", "loop"),
        ("resume", "loop"),
    ],
    ids=" ".join,
)
def test_a_circle_of_links_is_one_line(words: tuple[str, ...], say: Say, project: Path) -> None:
    (project / "loop").symlink_to("loop")
    code, out, err = say(*words)
    assert (code, out) == (2, "") and err.count("\n") == 1 and "loop" in err and "; " in err


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "0", "-0.0", "soon", "\x1b[2J"])
@pytest.mark.parametrize("words", [("run", TASK), ("push", RUN, "--endpoint", "http://[::1]:9")])
def test_a_timeout_is_a_time(words: tuple[str, ...], given: str, say: Say, project: Path) -> None:
    before = tree(project)
    code, out, err = say(*words, f"--timeout={given}")
    assert (code, out) == (2, "") and err.startswith("tachograph: --timeout: ") and err.count("\n") == 1
    assert "must be a number of seconds above 0" in err and "\x1b" not in err
    assert tree(project) == before


@pytest.mark.parametrize(
    "given, said",
    [
        ("--jobs=0", "whole number from 1"),
        ("--jobs=-3", "whole number from 1"),
        ("--min=nan", "must be a number from 0 to 100"),
        ("--min=101", "must be a number from 0 to 100"),
    ],
)
def test_numbers_of_coverage(given: str, said: str, say: Say) -> None:
    code, _, err = say("policy", "coverage", given)
    assert code == 2 and said in err and "_percent" not in err and "_jobs" not in err


def test_a_key_that_is_missing_is_told_of_first(say: Say, project: Path) -> None:
    os.mkfifo(project / "pipe")
    for name, what in (("gone.pem", "no such key file"), ("pipe", "no plain file")):
        code, out, err = say("verify", "--key", name)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert err.startswith(f"tachograph: {name}: ") and what in err and "seal" not in err


# ---- what gives no end -------------------------------------------------------------------------------------


def test_a_pipe_is_not_waited_for(say: Say, project: Path) -> None:
    os.mkfifo(project / "pipe")
    for words in (("approve", "pipe"), ("approve", "pipe", "--allow"), ("policy", "decide", "pipe")):
        code, out, err = say(*words)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert "no plain file" in err and "NotPlain" not in err


def test_a_device_is_no_json(say: Say) -> None:
    code, out, err = say("policy", "decide", os.devnull)
    assert (code, out) == (2, "") and err == (
        f"tachograph: {os.devnull}: cannot be read (no plain file); give a JSON file, or -\n"
    )


def test_what_is_too_long_is_refused(say: Say, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachograph.evidence.queries.decide._MOST", 1 << 20)
    monkeypatch.setattr(approvals, "_MAX_BYTES", 1 << 20)
    with (project / "long.json").open("wb") as file:
        file.truncate(1 << 40)
    assert "is longer than 1 MiB; give a JSON file" in say("policy", "decide", "long.json")[2]
    assert "(longer than 1 MiB); name a file" in say("approve", "long.json")[2]


def test_what_is_no_json_is_said_once(say: Say, project: Path) -> None:
    (project / "call.json").write_text("{")
    assert "call.json: is not JSON; write {" in say("policy", "decide", "call.json")[2]
    (project / "call.json").write_text('{"a": 1, "a": 2}')
    assert "call.json: is not JSON: " in say("policy", "decide", "call.json")[2]


# ---- what is written over --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, what",
    [
        (("check", "--html", "policy/v1.yaml"), "page of ours"),
        (("policy", "test", "policy/tests/v1.yaml", "--junit", "tools/fetch.py"), "report of ours"),
    ],
    ids=["html", "junit"],
)
def test_what_is_not_ours_is_not_replaced(
    words: tuple[str, ...], what: str, say: Say, project: Path, tmp_path: Path
) -> None:
    before = tree(project)
    code, _, err = say(*words)
    assert (
        code == 2 and err == f"tachograph: {words[-1]}: already exists and is not a {what}; name a new file\n"
    )
    assert tree(project) == before
    place = str(tmp_path / "made")
    for _ in range(2):  # our own is
        assert say(*words[:-1], place)[0] == 0
    made = Path(place).read_bytes()
    Path(place).write_bytes(b"")
    assert say(*words[:-1], place)[0] == 0 and Path(place).read_bytes() == made


def test_a_draft_is_written_whole_or_not_at_all(
    say: Say, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: Any, _data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = tree(project)
    with monkeypatch.context() as patch:
        real = os.fdopen

        def opened(*words: Any, **more: Any) -> Any:
            class Full(io.BufferedWriter):
                write = full

            stream = real(*words, **more)
            of_a_command = sys._getframe(1).f_globals["__name__"].endswith("cli.commands.common")
            return Full(stream.detach()) if of_a_command and words[1:] == ("wb",) else stream

        patch.setattr(os, "fdopen", opened)
        code, out, err = say("policy", "suggest", RUN, "--out", "s.yaml")
        assert (code, out) == (2, "") and err == (
            "tachograph: s.yaml: cannot be written (No space left on device); make room there\n"
        )
        assert "(No space left on device); make room" in say("check", "--html", "page.html")[2]
    assert tree(project) == before
    assert say("policy", "suggest", RUN, "--out", "s.yaml")[0] == 0
    written = (project / "s.yaml").read_bytes()
    assert "is there already" in say("policy", "suggest", RUN, "--out", "s.yaml")[2]
    assert (project / "s.yaml").read_bytes() == written and len(written) > 100


def test_a_draft_replaces_nothing_that_comes_meanwhile(tmp_path: Path) -> None:
    from tachograph.cli.commands.common import write_new
    from tachograph.fail.errors import OutputError

    (tmp_path / "s.yaml").write_text("theirs")
    with pytest.raises(OutputError, match="File exists\\); name a new file"):
        write_new(tmp_path / "s.yaml", "ours")
    assert tree(tmp_path).keys() == {"s.yaml"} and (tmp_path / "s.yaml").read_text() == "theirs"
