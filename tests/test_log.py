"""The log: every damage is named, a torn end is cut, and nothing is written after a failed write."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tachograph.evidence.manifest import read_manifest
from tachograph.evidence.record import record, resume
from tachograph.evidence.record_files import NAMES, read_files
from tachograph.evidence.tasks import load_task
from tachograph.evidence.verify import problems_of
from tachograph.fail.errors import OutputError, RecordError
from tachograph.runtime.log.events import RunEnded, StepEnded, Waited, encode
from tachograph.runtime.log.file import LogFile
from tachograph.runtime.log.journal import Journal
from tachograph.runtime.log.lines import Damaged, LineWriter, read_log
from tests.project import make_project, scenarios


def log_of(*texts: bytes) -> bytes:
    writer = LineWriter()
    return b"".join(writer.line(text) for text in texts)


STEPS = [encode(StepEnded(at=f"{n}.e", added=f"{n:012}")) for n in range(1, 6)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    rows = [row for row in scenarios() if row["name"] == "link_found_late"]
    root = make_project(tmp_path_factory.mktemp("p"), rows)
    record(load_task(root / "tasks/s/link_found_late.yaml"), root / "runs/s/link_found_late")
    return read_files(root / "runs/s/link_found_late", "run")


def other_inputs(files: dict[str, bytes], name: str, changed: bytes) -> bool:
    """Whether a manifest names other inputs, which `check` derives and compares, and `verify` takes as they are."""
    return name == "manifest.json" and read_manifest(changed, name)[0] != read_manifest(files[name], name)[0]


@pytest.mark.parametrize("name", NAMES)
def test_no_byte_is_free(files: dict[str, bytes], name: str) -> None:
    content = files[name]
    end = content.index(b'"made"') if name == "manifest.json" else len(content)
    step = 1 if name in ("state.jsonl", "manifest.json") else 7
    free = []
    for n in range(0, end, step):
        before, byte, after = content[:n], content[n : n + 1], content[n + 1 :]
        for changed in (before + bytes([byte[0] ^ 1]) + after, before + after, before + byte + byte + after):
            if not problems_of({**files, name: changed}, "run") and not other_inputs(files, name, changed):
                free.append((n, before[-30:], changed[n : n + 30]))
    assert free == []


def test_a_foreign_file_is_named(files: dict[str, bytes]) -> None:
    assert "notes.txt" in problems_of({**files, "notes.txt": b""}, "run")[0]
    assert (
        "trace.json" in problems_of({name: files[name] for name in NAMES if name != "trace.json"}, "run")[0]
    )


@pytest.mark.parametrize(
    ("lines", "number", "word"),
    [
        ([0, 1, 3, 4], 3, "lost"),
        ([0, 1, 1, 2, 3, 4], 3, "twice"),
        ([0, 2, 1, 3, 4], 2, "moved"),
        ([1, 2, 3, 4], 1, "lost"),
    ],
)
def test_a_lost_doubled_or_moved_line_is_named(lines: list[int], number: int, word: str) -> None:
    whole = log_of(*STEPS).splitlines(keepends=True)
    with pytest.raises(Damaged, match=word) as raised:
        read_log(b"".join(whole[n] for n in lines))
    assert raised.value.number == number


def test_other_line_endings_are_told_as_such() -> None:
    with pytest.raises(Damaged, match="carriage return"):
        read_log(log_of(*STEPS).replace(b"\n", b"\r\n"))


@pytest.mark.parametrize("tail", [b'{"event":"step', b"\0" * 300, STEPS[1]])
def test_a_torn_end_is_left_out_of_an_open_log_alone(tail: bytes) -> None:
    data = log_of(STEPS[0]) + tail
    assert len(read_log(data, is_open=True)) == 1
    with pytest.raises(Damaged):
        read_log(data)


def test_a_changed_line_feed_is_not_torn() -> None:
    data = log_of(*STEPS[:2])
    for changed in (b"\x0b", b" ", b"\0"):
        with pytest.raises(Damaged):
            read_log(data[:-1] + changed, is_open=True)


@pytest.mark.parametrize(
    "text",
    [
        STEPS[0].replace(b":", b": ", 1),
        STEPS[0][:-1] + b',"mode":""}',  # a default that is written out
        STEPS[0][:-1] + b',"more":1}',
        STEPS[0].replace(b"step_ended", b"step_begun"),
        STEPS[0].replace(b'"at":"1.e",', b'"at":"1.e","at":"1.e",'),
        b'{"event":"waited","at":"1.m1.w","t":7.0}',
        b'{"event":"tool_returned","at":"1.c0.i1","result":{"b":1,"a":2},"size":13}',
        b'{"event":"tool_returned","at":"1.c0.i1","result":{"a":'
        + b"[" * 100_000
        + b"]" * 100_000
        + b'},"size":1}',
        b"[]",
        b"",
    ],
)
def test_only_what_a_log_writes_is_read(text: bytes) -> None:
    with pytest.raises(Damaged):
        read_log(log_of(text))


def test_a_separator_in_a_text_ends_no_line() -> None:
    text = encode(RunEnded(at="end", ending="x", answer="a\u2028b\x85c", sha256=LineWriter().sha256))
    assert len(read_log(log_of(text))) == 1


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with pytest.raises(OutputError, match="another process"):
            LogFile(tmp_path)
    finally:
        os.close(fd)
    LogFile(tmp_path).close()


@pytest.mark.parametrize("how", ["removed", "linked", "a link"])
def test_a_log_that_others_can_reach_is_refused(tmp_path: Path, how: str) -> None:
    if how == "a link":
        (tmp_path / "state.jsonl").symlink_to("elsewhere")
        with pytest.raises(OutputError):
            LogFile(tmp_path)
        assert not (tmp_path / "elsewhere").exists()
        return
    log = LogFile(tmp_path)
    if how == "removed":
        (tmp_path / "state.jsonl").unlink()
    else:
        os.link(tmp_path / "state.jsonl", tmp_path / "other")
    with pytest.raises(OSError, match="removed or linked"):
        log.write(b"x\n")
    log.close()


def test_nothing_is_written_after_a_failed_write() -> None:
    written: list[bytes] = []

    class Full:
        def write(self, line: bytes) -> None:
            if written:
                raise OSError(28, "No space left on device")
            written.append(line)

        def sync(self) -> None: ...

    journal = Journal(file=Full())
    journal.append(Waited(at="1.m1.w"))
    for _ in range(2):
        with pytest.raises(OSError):
            journal.append(Waited(at="1.m2.w"))
    assert len(written) == len(journal.lines) == 1


def test_a_damaged_middle_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    rows = [row for row in scenarios() if row["name"] == "call"]
    root = make_project(tmp_path, rows)
    task = load_task(root / "tasks/s/call.yaml")
    record(task, root / "runs/s/call")
    partial = root / "runs/s/call.partial"
    os.rename(root / "runs/s/call", partial)
    data = (partial / "state.jsonl").read_bytes().replace(b"echo", b"ECHO")
    (partial / "state.jsonl").write_bytes(data)
    with pytest.raises(RecordError):
        resume(task, root / "runs/s/call", {})
    assert (partial / "state.jsonl").read_bytes() == data
