"""The log: every damage is named, a torn end is cut, and nothing is written after a failed write."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tachograph.evidence.check import check
from tachograph.evidence.folder import partial_of
from tachograph.evidence.manifest import read_manifest
from tachograph.evidence.record import resume
from tachograph.evidence.record_files import derive, read_files, whole_log
from tachograph.evidence.tasks import Task, load_task
from tachograph.evidence.verify import problems_of, verify
from tachograph.fail.errors import OutputError, RecordError
from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.log.events import AgentStarted, RunEnded, StepEnded, Waited, decode
from tachograph.runtime.log.file import LogFile
from tachograph.runtime.log.journal import Diverged, Journal
from tachograph.runtime.log.lines import Damaged, LineWriter, read_log
from tests.project import recorded


def log_of(*texts: bytes) -> bytes:
    writer = LineWriter()
    return b"".join(writer.line(text) for text in texts)


STEPS = [canonical(StepEnded(at=f"{n}.e", added=f"{n:012}")) for n in range(1, 6)]


HOME = Path(__file__).parents[1]


def settled(folder: Path) -> tuple[Task, Path]:
    """Record a run whose process ended while it sent something, and a person knew whether that happened."""
    task, out = recorded(folder, "sent_after_a_refused_connection")
    log = out.rename(partial_of(out)) / "state.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[: data.index(b'{"event":"tool_returned","at":"2.c0.i1"')])
    resume(task, out, {"2.c0.i1": "done"})
    return task, out


# each record, and how many of three changes are made at each byte; the first is large
RECORDS: dict[str, tuple[int, Callable[[Path], tuple[Task, Path]]]] = {
    "canonical": (1, lambda _: (load_task(HOME / "tasks/canonical/v1.yaml"), HOME / "runs/canonical/v1")),
    "told": (3, lambda folder: recorded(folder, "hook_person_secret_and_failure")),
    "settled": (3, settled),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return read_files(recorded(tmp_path_factory.mktemp("p") / "p", "link_found_late")[1], "run")


@pytest.mark.parametrize("kind", RECORDS)
def test_no_byte_is_free(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `verify` takes as it stands is the inputs, which the next test is about, and `made`.

    A line and a log that were read, and what follows from it, are kept for when another one is changed.
    """
    derived: dict[tuple[bytes, str], dict[str, bytes]] = {}

    def derive_once(log: bytes, *rest: Any) -> dict[str, bytes]:
        key = log, str(rest[2:])
        return derived.get(key) or derived.setdefault(key, derive(log, *rest))

    monkeypatch.setattr("tachograph.evidence.verify.derive", derive_once)
    monkeypatch.setattr("tachograph.evidence.verify.whole_log", cache(whole_log))
    monkeypatch.setattr("tachograph.runtime.log.lines.decode", cache(decode))
    ways, make = RECORDS[kind]
    files = read_files(make(tmp_path / "p")[1], "run")
    taken = read_manifest(files["manifest.json"], "run")
    free = []
    for name, content in files.items():
        is_whole = name in ("state.jsonl", "manifest.json")
        for n in range(0, len(content), 1 if is_whole else 7):
            before, byte, after = content[:n], content[n : n + 1], content[n + 1 :]
            changes = [before + bytes([byte[0] ^ 1]) + after, before + after, before + byte + byte + after]
            for way in range(ways if is_whole else 1):
                changed = changes[(n + way) % 3]
                if name == "manifest.json" and takes_other(changed, taken):
                    continue
                if not problems_of({**files, name: changed}, "run"):
                    free.append((name, n, changed[n - 30 : n + 30]))
    assert free == []


def takes_other(changed: bytes, taken: Any) -> bool:
    try:
        return read_manifest(changed, "run") != taken
    except RecordError:
        return False


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("is_lost", [True, False])
def test_no_input_is_free(kind: str, is_lost: bool, tmp_path: Path) -> None:
    """Where `verify` takes other inputs as they stand, a check names each."""
    task, out = RECORDS[kind][1](tmp_path / "p")
    folder = Path(shutil.copytree(out, tmp_path / "changed"))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    inputs = {item["path"]: item["sha256"] for item in manifest["inputs"]}
    other = [{"path": path, "sha256": sha256[::-1]} for path, sha256 in inputs.items()]
    manifest["inputs"] = [] if is_lost else other
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "manifest.json").write_text(f"{text}\n")
    assert verify(folder, "run") == []
    assert {found.at for found in check(task, folder, "run") if found.kind == "INPUT"} == inputs.keys()
    assert check(task, out, "run") == []


def log_again(data: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """Return a log with other texts, whose checks and digest are right."""
    texts = change([line.text for line in read_log(data)])
    ended = decode(texts.pop())
    return log_of(*texts, canonical(structs.replace(ended, sha256=sha256(log_of(*texts)).hexdigest())))


def nested(head: bytes, reply: bytes, end: bytes) -> list[bytes]:
    """Return a log of agents that start each other, deeper than any policy lets them."""
    first: Any = decode(head)
    agent = AgentStarted(at="", question="", model=first.model, policy=first.policy)
    places = ["1.c0/" * n for n in range(400)]
    replies = [canonical(structs.replace(decode(reply), at=f"{it}1.m1")) for it in places]
    heads = [canonical(structs.replace(agent, at=f"{it}1.c0/0")) for it in places]
    return [head, *(text for both in zip(replies, heads, strict=True) for text in both), end]


# by a place and a word in what is said, how the lines of a log are damaged
LINES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    ":4: changed": lambda lines: [*lines[:3], lines[3].upper(), *lines[4:]],
    ":2: lost": lambda lines: [lines[0], *lines[2:]],
    ":1: lost": lambda lines: lines[1:],
    ":3: twice": lambda lines: [*lines[:2], *lines[1:]],
    ":2: moved": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    ":1: carriage": lambda lines: [line[:-1] + b"\r\n" for line in lines],
    "cut off": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "empty": lambda lines: [*lines, b"\0" * 300],
    "not ended": lambda lines: lines[:-1],
    "of others": lambda lines: [log_of(*(line[:-21] + b"}" for line in [*lines[:2], *lines[3:]]))],
    "no event": lambda lines: [log_again(b"".join(lines), lambda texts: [texts[0], b"{}", *texts[1:]])],
    "not begin": lambda lines: [log_again(b"".join(lines), lambda texts: texts[1:])],
    "no run": lambda lines: [
        log_again(b"".join(lines), lambda texts: [*texts[:2], canonical(Waited(at="1.m2.w")), *texts[2:]])
    ],
    "form a run": lambda lines: [log_again(b"".join(lines), lambda it: nested(it[0], it[1], it[-1]))],
}
# likewise, how its folder is
FOLDERS: dict[str, Callable[[Path], object]] = {
    "trace.json: missing": lambda folder: (folder / "trace.json").unlink(),
    "notes.txt: belongs": lambda folder: (folder / "notes.txt").touch(),
    "more: regular": lambda folder: (folder / "more").mkdir(),
    "cannot read": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "trace.json: follow": lambda folder: (folder / "trace.json").write_bytes(b"{}"),
    "no manifest": lambda folder: (folder / "manifest.json").write_bytes(b"[]"),
    "is not a manifest": lambda it: (it / "manifest.json").write_text('{"inputs":[],"made":{"":NaN}}'),
}


def told(files: dict[str, bytes], folder: Path, damage: str) -> str:
    """Return what is said of a damaged record."""
    folder.mkdir()
    for name, content in files.items():
        lines = content.splitlines(keepends=True)
        is_other = name == "state.jsonl" and damage in LINES
        (folder / name).write_bytes(b"".join(LINES[damage](lines) if is_other else lines))
    if damage in FOLDERS:
        FOLDERS[damage](folder)
    return "; ".join(verify(folder, "run"))


@pytest.mark.parametrize("damage", [*LINES, *FOLDERS])
def test_each_damage_is_named(files: dict[str, bytes], tmp_path: Path, damage: str) -> None:
    said = told(files, tmp_path / "run", damage)
    assert all(part in said for part in damage.split()), said


def test_a_record_of_another_run_is_found(tmp_path: Path) -> None:
    _, folder = recorded(tmp_path, "call")
    assert verify(folder, "runs/s/call") == []
    assert "is of tasks/s/call.yaml" in verify(folder, "runs/s/other")[0]


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
        b'{"event":"waited","at":"1.m1.w","t":1e400}',
        b'{"event":"run_ended","at":"end","ending":"\\ud800","sha256":""}',
        b'{"event":"stop_asked","at":"1.a1","scope":"","why":"boredom"}',
        b'{"event":"tool_returned","at":"1.c0.i1","result":{"b":1,"a":2},"size":13}',
        b'{"event":"tool_returned","at":"1.c0.i1","result":{"a":%b},"size":1}'
        % (b"[" * 10**5 + b"]" * 10**5),
        b"[]",
        b"",
    ],
)
def test_only_what_a_log_writes_is_read(text: bytes) -> None:
    with pytest.raises(Damaged):
        read_log(log_of(text))


def test_no_two_lines_share_an_address() -> None:
    with pytest.raises(Damaged, match="line 2 has the address of a line before it"):
        read_log(log_of(STEPS[0], STEPS[0].replace(b"01", b"02")))


def test_a_separator_in_a_text_ends_no_line() -> None:
    text = canonical(RunEnded(at="end", ending="x", answer="a\u2028b\x85c", sha256=sha256(b"").hexdigest()))
    assert len(read_log(log_of(text))) == 1


@pytest.mark.parametrize("how", ["removed", "linked", "closed", "a link"])
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
    elif how == "closed":  # by other code, which has opened another file since
        os.dup2(os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR), log._fd)
    else:
        os.link(tmp_path / "state.jsonl", tmp_path / "other")
    with pytest.raises(OSError, match="removed or linked"):
        log.write(b"x\n")
    os.close(log._fd)
    with pytest.raises(OSError):
        log.close()
    with closing(LogFile(tmp_path)) as other:  # nothing holds the lock any more
        log.close()
        other.sync()


def test_nothing_is_written_after_a_failed_write() -> None:
    written: list[bytes] = []
    tried: list[bytes] = []  # later there is room again

    class Full:
        def write(self, line: bytes) -> None:
            if len(written) == 1 and not tried:
                tried.append(line)
                raise OSError(28, "No space left on device")
            written.append(line)

        def sync(self) -> None: ...

    journal = Journal(file=Full())
    journal.append(Waited(at="1.m1.w"))
    for _ in range(2):
        with pytest.raises(OSError):
            journal.append(Waited(at="1.m2.w"))
    assert len(written) == len(journal.lines) == 1


def test_a_damaged_middle_or_a_line_too_many_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    task, folder = recorded(tmp_path / "p", "call")
    partial = folder.rename(partial_of(folder))
    whole = (partial / "state.jsonl").read_bytes()
    longer = log_of(*(line.text for line in read_log(whole)), STEPS[3])
    for data, error in ((whole.replace(b"echo", b"ECHO"), RecordError), (longer, Diverged)):
        (partial / "state.jsonl").write_bytes(data)
        with pytest.raises(error):
            resume(task, folder, {})
        assert (partial / "state.jsonl").read_bytes() == data
