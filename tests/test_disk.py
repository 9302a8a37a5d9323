"""What is on the disk before what, and what becomes of a run whose disk, folder or process is not what it was."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.folder import partial_of
from tachograph.evidence.manifest import InputLog
from tachograph.evidence.record import record, resume
from tachograph.evidence.verify import verify
from tachograph.fail.errors import OutputError, SystemFailure
from tachograph.runtime.log.file import LogFile
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import run
from tests.deaths import fork
from tests.project import made, recorded
from tests.tables.rows import closed, roomy


def named(fd: int) -> str:
    """Return the name of what a descriptor is open on."""
    return Path(os.readlink(f"/proc/self/fd/{fd}")).name


def test_what_rests_on_something_comes_after_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write a line; the intent before the effect, the effect's file before its outcome, the outcome before all."""
    task, folder = made(tmp_path, "written_once")
    done: list[str] = []
    write, fsync, rename = os.write, os.fsync, os.rename

    def noting_write(fd: int, data: bytes) -> int:
        if named(fd) == "state.jsonl":
            assert data.count(b"\n") == 1 and data.endswith(b"\n")
            done.append(data.partition(b'"event":"')[2].partition(b'"')[0].decode())
        return write(fd, data)

    def noting_fsync(fd: int) -> None:
        done.append(f"sync {named(fd)}")
        fsync(fd)

    def noting_rename(old: Any, new: Any, **more: Any) -> None:
        done.append(f"rename {new}")
        rename(old, new, **more)

    for name, function in (("write", noting_write), ("fsync", noting_fsync), ("rename", noting_rename)):
        monkeypatch.setattr(os, name, function)
    (tool,) = (tool for tool in task.tools if tool.name == "log")
    monkeypatch.setattr(
        tool, "run", lambda args, io: (done.append("effect"), io.write("box/new/l", "x"), {})[2]
    )
    record(task, folder)
    at = done.index("tool_started")
    temporary = next(word for word in done[at:] if word.startswith("sync .tachograph-"))
    assert done[at : done.index("step_ended")] == [
        "tool_started", "sync state.jsonl", "effect", "sync box", temporary, "rename l", "sync new", "tool_returned",
        "sync state.jsonl",
    ]  # fmt: skip
    # each folder that was made is on the disk with the one above it
    assert done.index("sync runs") < done.index("sync s") < done.index("sync written_once.partial") < at
    assert "sync s" in done[done.index("run_ended") :]


@pytest.mark.parametrize(
    ("file", "code"),
    [("state.jsonl", errno.EIO), (".tachograph-", errno.ENOSPC), (".tachograph-", errno.EDQUOT)],
)
def test_after_a_failed_sync_nothing_more_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, code: int
) -> None:
    """A disk that a tool finds full ends the run and not the tool, which may swallow the error."""
    task, folder = made(tmp_path, "written_once")
    log, done = folder.with_name("written_once.partial") / "state.jsonl", list[str]()
    (tool,) = (tool for tool in task.tools if tool.name == "log")
    fsync = os.fsync

    def swallows(args: Any, io: Any) -> Any:
        with contextlib.suppress(OSError):
            io.write("box/l.txt", "x")
        done.append("effect")
        return {}

    def failing(fd: int) -> None:
        if log.exists() and b"tool_started" in log.read_bytes() and named(fd).startswith(file):
            raise OSError(code, "a word of the system")
        fsync(fd)

    with monkeypatch.context() as patch, pytest.raises((SystemFailure, OSError)):
        patch.setattr(os, "fsync", failing)
        patch.setattr(tool, "run", swallows)
        record(task, folder)
    assert b"tool_started" in log.read_bytes().splitlines()[-1] and not folder.exists()
    assert done == ([] if file == "state.jsonl" else ["effect"])
    resume(task, folder, {"1.c0.i1": "not_done"})
    assert verify(folder, "run") == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, 0])
def test_an_input_that_cannot_be_noted_ends_the_run_and_not_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Of a tool that goes on without the document; without an error a line is written in part."""
    task, folder = made(tmp_path, "reads_side_by_side")
    (tool,) = (tool for tool in task.tools if tool.name == "look")
    look, write, later = tool.run, os.write, list[str]()

    def swallows(args: Any, io: Any) -> Any:
        with contextlib.suppress(OSError):
            return look(args, io)
        with contextlib.suppress(OSError):
            later.append(io.read("book/b.txt"))
        return {"text": ""}

    def fails(fd: int, data: bytes) -> int:
        if named(fd) != "inputs.jsonl" or b"c.txt" not in data:
            return write(fd, data)
        if code:
            raise OSError(code, "a word of the system")
        return write(fd, data[:-3])

    with monkeypatch.context() as patch, pytest.raises(SystemFailure) as ended:
        patch.setattr(os, "write", fails)
        patch.setattr(tool, "run", swallows)
        record(task, folder)
    assert not folder.exists() and later == [] and "tachograph resume" in ended.value.lines()[0]
    log = InputLog(folder.with_name("reads_side_by_side.partial"))
    assert [*log.inputs] == ["book/a.txt"]
    log.close()
    resume(task, folder, {})
    assert verify(folder, "run") == [] and b"gamma" in (folder / "state.jsonl").read_bytes()
    assert b"book/deep/c.txt" in (folder / "manifest.json").read_bytes()


def test_nothing_is_written_behind_a_part_of_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, write = InputLog(tmp_path), os.write
    for cut in (3, None):
        with contextlib.suppress(OSError), monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data, cut=cut: write(fd, data[:cut]))
            log.add("book/a.txt", "0" * 64)
    log.close()
    assert (tmp_path / "inputs.jsonl").read_bytes().count(b"\n") == len(InputLog(tmp_path).inputs) == 1


def test_a_line_that_the_disk_takes_in_part_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, folder = made(tmp_path, "call")
    write, given = os.write, list[bytes]()

    def full(fd: int, data: bytes) -> int:
        if named(fd) != "state.jsonl":
            return write(fd, data)
        given.append(data)
        if len(given) == 2:
            raise OSError(errno.EFBIG, "a word of the system")
        return write(fd, data[:3])

    with monkeypatch.context() as patch, pytest.raises(OSError, match="a word of the system"):
        patch.setattr(os, "write", full)
        record(task, folder)
    assert given[1] == given[0][3:] and [*folder.parent.iterdir()] == []  # nothing was done


def test_a_torn_line_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, folder = recorded(tmp_path, "call")
    partial = folder.rename(partial_of(folder))
    whole = (partial / "state.jsonl").read_bytes()
    for tail, told in ((b"", False), (b'{"event":"ste', True), (b"\0" * 300, True)):
        caplog.clear()
        (partial / "state.jsonl").write_bytes(whole + tail)
        LogFile(partial).close()
        assert ("state.jsonl" in caplog.text) == told
        assert (partial / "state.jsonl").read_bytes() == whole


# ---- other processes -------------------------------------------------------------------------------------------------


def test_a_tool_that_forks_and_returns_in_the_child_does_not_go_on_as_the_run() -> None:
    parent, ended = os.getpid(), list[int]()

    def forks(args: Any, io: Any) -> Any:
        pid = fork()
        if pid:
            ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return {}

    tool = Tool("forks", "", closed(), closed(), "pure", forks)
    result = run(roomy(["forks"]), [tool], [{"calls": [{"tool": "forks"}]}, {"answer": "done"}])
    if os.getpid() != parent:
        os._exit(1)
    assert (ended, result.ending) == ([70], "final_answer")


def test_a_forked_child_holds_the_lock_and_writes_nothing(tmp_path: Path) -> None:
    """What it inherited may still be at work on the files of the run, so nobody goes on meanwhile."""
    log, (wait, go_on) = LogFile(tmp_path), os.pipe()
    log.write(b"x\n")
    if (pid := fork()) == 0:
        os.close(go_on)
        os.read(wait, 1)
        log.write(b"y\n")
        os._exit(1)
    log.close()
    with pytest.raises(OutputError, match="another process"):
        LogFile(tmp_path)
    os.close(go_on)
    os.close(wait)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 70
    assert (tmp_path / "state.jsonl").read_bytes() == b"x\n"
    (tmp_path / "state.jsonl").unlink()
    LogFile(tmp_path).close()


def test_a_folder_that_is_exchanged_while_it_is_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    lock = fcntl.flock

    def exchanged(fd: int, how: int) -> None:
        (tmp_path / "run").rename(tmp_path / "away")
        (tmp_path / "run").mkdir()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", exchanged)
    with pytest.raises(OutputError, match="another process"):
        LogFile(tmp_path / "run")
    assert [*(tmp_path / "run").iterdir()] == [*(tmp_path / "away").iterdir()] == []


def test_without_its_log_a_run_that_goes_on_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, folder = made(tmp_path, "sent_once")
    sent: list[Any] = []
    for tool in task.tools:
        monkeypatch.setattr(tool, "run", lambda args, io: sent.append(args) or {})
    record(task, folder)
    log = folder.rename(partial_of(folder)) / "state.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))  # up to the model's reply
    assert sent
    sent.clear()
    with pytest.raises(OSError):
        resume(task, folder, {}, lambda event: log.unlink(missing_ok=True))
    assert not sent


@pytest.mark.parametrize("what", ["log removed", "folder moved", "folder exchanged"])
def test_a_run_whose_folder_is_taken_away_puts_nothing_in_place(tmp_path: Path, what: str) -> None:
    task, folder = made(tmp_path, "call")
    partial = folder.with_name("call.partial")

    def take(event: Any) -> None:
        if event.at == "1.e" and what == "log removed":
            (partial / "state.jsonl").unlink()
        elif event.at == "1.e":
            partial.rename(tmp_path / "away")
            if what == "folder exchanged":
                partial.mkdir()

    with pytest.raises(OSError):
        record(task, folder, take)
    assert not folder.exists()
