"""Work on all cores: the same results, errors and endings as a plain loop, and nothing left behind."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking import workers as parallel
from tachograph.evidence.checking.differences import drift
from tachograph.evidence.checking.differences.compare import Findings
from tachograph.evidence.checking.workers import Ticker, WorkerLost, each
from tachograph.fail.errors import PolicyError, ReplayError
from tests.evidence.project import FEW, all_runs, copy_inputs, edit_lines, replaced
from tests.support import ROOT, attend_to_ctrl_c, environment

HERE = os.getpid()
REAL = parallel._has_one_thread


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runner may have a thread of its own beside this one, which holds none of our locks."""
    monkeypatch.setattr(parallel, "_has_one_thread", lambda: True)


def _square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


@pytest.mark.parametrize("jobs", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 40, 203])
def test_the_results_come_in_order(count: int, jobs: int) -> None:
    told: list[int] = []
    found = each(_square, range(count), jobs=jobs, tell=lambda done, _: told.append(done))
    assert [square for square, _ in found] == [number**2 for number in range(count)]
    assert told == list(range(1, count + 1))
    others = {pid for _, pid in found} - {HERE}
    assert len(others) <= jobs
    assert bool(others) == (jobs > 1 and count >= parallel.WORTH)
    assert _children() == []


def test_the_cores_at_hand_are_the_default() -> None:
    assert parallel.cores() == len(os.sched_getaffinity(0))
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(whole)})
    try:
        assert {pid for _, pid in each(_square, range(50))} == {HERE}
    finally:
        os.sched_setaffinity(0, whole)


def test_beside_a_thread_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_has_one_thread", REAL)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert {pid for _, pid in each(_square, range(50), jobs=2)} == {HERE}
    finally:
        stop.set()
        thread.join()


def test_what_the_first_item_loaded_is_had_by_every_worker() -> None:
    loaded: list[int] = []

    def work(_number: int) -> int:
        if not loaded:
            loaded.append(os.getpid())
        return loaded[0]

    assert set(each(work, range(40), jobs=2)) == {HERE}


def test_workers_do_not_run_far_ahead_of_what_is_taken(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.touch()

    def work(_number: int) -> None:
        with begun.open("a") as file:
            file.write("x")

    def slowly(done: int, _result: None) -> None:
        if done == 2:
            time.sleep(0.5)
            ahead.append(begun.stat().st_size)

    ahead: list[int] = []
    each(work, range(1000), jobs=2, tell=slowly)
    assert begun.stat().st_size == 1000
    assert ahead[0] <= 1 + 2 * parallel._AHEAD * parallel._MOST_AT_ONCE


def _children() -> list[str]:
    """Processes whose parent we are."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return path.read_text().split()


# ---- errors ----------------------------------------------------------------------------------------------


def _policy_error(number: int) -> int:
    if number in (17, 90):
        time.sleep(0.05 if number == 17 else 0)  # the later one comes first
        raise PolicyError("is wrong", file=f"p{number}.yaml", line=3, column=4, remedy="mend it")
    return number


def test_the_first_item_that_fails_counts_as_in_a_loop() -> None:
    for jobs in (1, 2, 4):
        with pytest.raises(PolicyError) as caught:
            each(_policy_error, range(100), jobs=jobs)
        assert str(caught.value) == "p17.yaml:3:4: is wrong; mend it"
        assert (caught.value.line, caught.value.remedy) == (3, "mend it")
        assert _children() == []


def test_an_error_whose_parameters_nobody_knows_arrives_whole() -> None:
    def work(number: int) -> None:
        if number == 20:
            raise ReplayError(4, "the messages differ", "digest")

    with pytest.raises(ReplayError, match="the messages differ") as caught:
        each(work, range(40), jobs=2)
    assert (caught.value.step, caught.value.what) == (4, "digest")


def test_an_unforeseen_error_says_where_it_was_raised() -> None:
    def work(number: int) -> float:
        return 1 / (number - 20)

    with pytest.raises(ZeroDivisionError) as caught:
        each(work, range(40), jobs=2)
    assert "return 1 / (number - 20)" in "".join(caught.value.__notes__)


class _Odd(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.held = threading.Lock()


def test_an_error_that_cannot_be_sent_is_told_of() -> None:
    def work(number: int) -> None:
        if number == 20:
            raise _Odd

    with pytest.raises(RuntimeError, match="_Odd: odd"):
        each(work, range(40), jobs=2)


@pytest.mark.parametrize("how", ["killed", "left", "from outside"])
def test_a_worker_that_is_gone_is_an_error_and_no_hang(how: str, tmp_path: Path) -> None:
    left = tmp_path / "pid"

    def work(number: int) -> int:
        if number == 20:
            if how == "left":
                os._exit(9)
            os.kill(os.getpid(), signal.SIGKILL)
        # something that a tool left behind holds the worker's end of the pipe
        if how == "from outside" and number == 19 and os.fork() == 0:
            left.write_text(str(os.getpid()))
            time.sleep(60)
            left.write_text("over")
            os._exit(0)
        return number

    with pytest.raises(WorkerLost) as caught:
        each(work, range(40), jobs=2, name=lambda number: f"runs/{number}")
    text = str(caught.value)
    said = "ended with exit code 9" if how == "left" else "was ended by signal 9"
    assert re.match(r"runs/(1?\d|20): ", text) and said in text and "--jobs 1" in text and "\n" not in text
    assert _children() == []
    if left.exists():
        assert left.read_text() != "over", "it was waited for"
        os.kill(int(left.read_text()), signal.SIGKILL)


# ---- what is sent ----------------------------------------------------------------------------------------


def test_findings_with_drift_arrive_as_they_are() -> None:
    before: list[dict[str, Any]] = [{"type": "run", "schema": 1}, {"type": "step", "step_index": 1, "a": 1}]
    after: list[dict[str, Any]] = [{"type": "run", "schema": 1}, {"type": "step", "step_index": 1, "b": {}}]

    def work(_number: int) -> Findings:
        return Findings("runs/x", ["line"], drift=drift.compare(before, after))

    here, *others = each(work, range(20), jobs=2)
    assert here.drift is not None and here.drift.first is not None
    for there in others:
        assert there == here and there.drift is not None and there.drift.first is not None
        # a mark is told apart by being that very object, and is `nothing` to a reader
        assert there.drift.first.to_dict() == here.drift.first.to_dict()
        assert str(there.drift.first) == str(here.drift.first) and "nothing" in str(there.drift.first)
        assert there.drift.gravest is not None and there.drift.gravest.after is drift.ABSENT


def test_two_processes_find_what_one_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tachograph.cli import main as cli

    project = copy_inputs(tmp_path / "project")
    replaced(project / "policy/v1.yaml", "max_retries: 3", "max_retries: 2")
    edit_lines(project / "runs/policy_gates/inform_adapts", lambda lines: lines[2].pop("usage"))
    (project / "runs/policy_gates/pg5_arg_schema/stray.txt").write_text("x")
    monkeypatch.chdir(project)
    for words in (["check"], ["check", "--json"], ["verify"], ["replay"], ["replay", "--json"]):
        seen = []
        for jobs in ("1", "2"):
            code = cli.main([*words, "--jobs", jobs])
            seen.append((code, *capsys.readouterr()))
        assert seen[0] == seen[1] and seen[0][0] == 1, words


# ---- signals ---------------------------------------------------------------------------------------------

_SLEEPERS = """
import os, sys, time
from tachograph.cli import main as cli
from tachograph.evidence.checking import check
here, real = os.getpid(), check.examine
def examine(folder, root=None):
    if os.getpid() != here:
        os.write(1, b"%d\\n" % os.getpid())  # whole at once: the other one writes too
        try:
            time.sleep(60)
        except BaseException:
            if os.environ.get("STUBBORN"):
                time.sleep(60)
            raise
    return real(folder, root=root)
check.examine = examine
sys.exit(cli.main(["check", "--jobs", "2"]))
"""


def _workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The numbers of the two workers once both sleep."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    if not all(lines):
        raise AssertionError(process.communicate())
    return [int(line) for line in lines]


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.parametrize("stubborn", ["", "1"])
@pytest.mark.parametrize(
    ("signum", "to", "code", "said"),
    [
        (signal.SIGINT, "parent", 130, "tachograph: interrupted\n"),
        (signal.SIGINT, "group", 130, "tachograph: interrupted\n"),
        (signal.SIGTERM, "parent", 143, ""),
    ],
)
def test_a_signal_ends_all_workers(signum: int, to: str, code: int, said: str, stubborn: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLEEPERS],
        cwd=ROOT,
        env=environment({"STUBBORN": stubborn, "PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=attend_to_ctrl_c,
    )
    workers = _workers_of(process)
    (os.killpg if to == "group" else os.kill)(process.pid, signum)
    _, err = process.communicate(timeout=20)  # they would sleep for a minute
    assert process.returncode == code and err == said
    assert not any(_alive(pid) for pid in workers)


def test_workers_leave_when_their_parent_is_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLEEPERS.replace("time.sleep(60)", "time.sleep(0.3)")],
        cwd=ROOT,
        env=environment({"PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE,
        text=True,
    )
    workers = _workers_of(process)
    process.kill()
    process.communicate()
    until = time.monotonic() + 30
    while any(map(_alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(_alive, workers))


def test_closed_streams_do_no_harm(tmp_path: Path) -> None:
    project = copy_inputs(tmp_path / "project", [*FEW, *_MORE])
    command = f"{shlex.quote(sys.executable)} -m tachograph check --jobs 2 --json"
    env = environment({"PYTHONPATH": str(ROOT)})
    for closed in ("<&-", "<&- 2>&-", "2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], cwd=project, env=env, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["runs"] == len(FEW) + len(_MORE)
    done = subprocess.run(["sh", "-c", f"{command} >&-"], cwd=project, env=env, check=False)
    assert done.returncode in (0, 2)


_MORE = (
    "loop/wrap_up",
    "policy_gates/inform_adapts",
    "policy_gates/pg3_loop_budget",
    "failure_modes/timeout",
)


# ---- how far it is ---------------------------------------------------------------------------------------


def _on_a_terminal(words: list[str], cwd: Path) -> tuple[int, str, str]:
    """Exit code, standard output and what a terminal on standard error got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, cwd=cwd, env=environment({"PYTHONPATH": str(ROOT)}), stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        got += piece
    os.close(ours)
    out, _ = process.communicate()
    return process.returncode, out.decode(), got.decode()


def test_one_line_at_a_terminal_and_nothing_elsewhere(tmp_path: Path) -> None:
    slow = _SLEEPERS.replace("time.sleep(60)", "time.sleep(0.06)").replace("os.write(1, ", "len(")
    runs = len(all_runs())
    code, out, err = _on_a_terminal([sys.executable, "-c", slow], ROOT)
    assert (code, out) == (0, f"check: {runs} runs re-derived, all files identical\n") or "drifted" in out
    assert "\n" not in err
    lines = [line for line in err.split("\r") if line.strip()]
    assert 2 <= len(lines) <= runs
    for line in lines:
        assert re.fullmatch(r"check: \d+ of \d+ runs, \d+ drifted *", line), line
    counts = [int(line.split()[1]) for line in lines]
    assert counts == sorted(counts)
    # cleared at the end: blanks as wide as what stood there
    assert err.endswith(f"\r{'':<{max(map(len, lines))}}\r")
    done = subprocess.run(
        [sys.executable, "-c", slow],
        cwd=ROOT,
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""


def test_the_line_comes_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = [0.0]
    monkeypatch.setattr(parallel, "stopwatch", lambda: now[0])
    screen = Terminal()
    with Ticker(screen, "check", 1000, "drifted", lambda found: found % 2 == 0) as tell:
        for done in range(1, 1001):
            now[0] += 0.001
            tell(done, done)
    lines = [line for line in screen.getvalue().split("\r") if line.strip()]
    assert 8 <= len(lines) <= 10 and lines[0] == "check: 100 of 1000 runs, 50 drifted"
    with Ticker(None, "check", 3, "drifted", bool) as tell:
        tell(1, 1)


@pytest.mark.parametrize("jobs", ["0", "-1", "x", "1.5", ""])
def test_jobs_is_a_number_from_one(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    from tachograph.cli import main as cli

    assert cli.main(["check", "--jobs", jobs]) == 2
    assert "give a whole number from 1" in capsys.readouterr().err
