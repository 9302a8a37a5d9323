"""Effects in doubt: a person's word counts first, then what the probe of the tool says, and nothing is guessed."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.check import check
from tachograph.evidence.folder import partial_of
from tachograph.evidence.manifest import InputLog
from tachograph.evidence.record import record, resume
from tachograph.evidence.record_files import read_files
from tachograph.evidence.tasks import Task, load_task
from tachograph.evidence.verify import verify
from tachograph.fail.errors import ExpectationError
from tachograph.runtime.driver import InDoubt, Word
from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.log.events import Settled, StopAsked, ToolReturned
from tachograph.runtime.log.lines import LineWriter, read_log
from tests.project import ROWS, cut, make_project

ROW = ROWS["sent_once"]
PROBES = {
    "none": "",
    "done": "def probe(args, io):\n    return 'done'\n",
    "not_done": "def probe(args, io):\n    return 'not_done'\n",
    "unknown": "def probe(args, io):\n    return 'unknown'\n",
    "odd": "def probe(args, io):\n    return True\n",
    "fails": "def probe(args, io):\n    raise SystemExit\n",
    "denied": "def probe(args, io):\n    try:\n        io.read('no/x')\n    except OSError:\n        return 'done'\n",
    "swallows": "def probe(args, io):\n  try: io.read('book/a.txt')\n  except OSError: return 'done'\n",
    "knows": "def probe(args, io):\n    return 'done' if 'someone@mail.test' in args['text'] else 'not_done'\n",
    "looks": "def probe(args, io):\n    return 'done' if io.read('book/a.txt') == 'alpha' else 'not_done'\n",
}


def died(root: Path, probe: str, row: dict[str, Any] = ROW) -> tuple[Task, Path]:
    """Leave a run that died after its mail had begun, and return its task and where its record would lie."""
    make_project(root, [row])
    with open(root / "tools/mail.py", "a", encoding="utf-8") as file:
        file.write(f"\n\n{PROBES[probe]}")
    folder = root / "runs/s/sent_once"
    record(load_task(root / "tasks/s/sent_once.yaml"), folder)
    before = (folder / "state.jsonl").read_bytes().partition(b'{"event":"tool_started"')[0]
    cut(folder, before.count(b"\n") + 1)
    shutil.rmtree(folder)
    return load_task(root / "tasks/s/sent_once.yaml"), folder


@pytest.mark.parametrize(
    ("probe", "word", "happened"),
    [
        ("none", None, None), ("unknown", None, None), ("odd", None, None), ("fails", None, None),
        ("denied", None, None), ("done", None, True), ("looks", None, True), ("not_done", None, False),
        ("none", "done", True), ("not_done", "done", True), ("done", "not_done", False),
    ],
)  # fmt: skip
def test_who_knows(tmp_path: Path, probe: str, word: Word | None, happened: bool | None) -> None:
    task, folder = died(tmp_path, probe)
    settled: dict[str, Word] = {} if word is None else {"1.c0.i1": word}
    if happened is None:
        with pytest.raises(InDoubt):
            resume(task, folder, settled)
        return
    resume(task, folder, settled)
    events = [line.event for line in read_log(read_files(folder, "run")["state.jsonl"])]
    assert [event.happened for event in events if isinstance(event, Settled)] == [happened]
    first = next(event for event in events if isinstance(event, ToolReturned))
    assert (first.result is None) == happened  # what happened is not repeated, and its result is lost
    assert verify(folder, "run") == []


def test_a_word_on_a_file_stands_in_a_check(tmp_path: Path) -> None:
    """The write is not made again, so what may read the file is answered by the record too."""
    turns = [[["log", {"path": "box/a.txt", "text": "x"}]], [["look", {"path": "box/a.txt"}]], "done"]
    task, folder = died(tmp_path, "none", {"name": "sent_once", "turns": turns, "expect": {}})
    box = partial_of(folder) / "mounts/box"
    box.mkdir(parents=True)
    (box / "a.txt").write_text("x")
    made = resume(task, folder, {"1.c0.i1": "done"})
    assert made.ended.ending == "final_answer" and check(task, folder, "run") == []


def test_a_probe_whose_reads_cannot_be_noted_knows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, folder = died(tmp_path, "swallows")

    def full(log: InputLog, path: str, sha256: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(InputLog, "add", full)
    with pytest.raises(InDoubt):
        resume(task, folder, {})


SENDS = {"calls": [{"tool": "mail", "arguments": {"path": "boss", "text": {"$result": 0, "at": "/text"}}}]}
SECRET: dict[str, Any] = {
    "name": "sent_once",
    "policy": {"redact": {"kinds": ["email"], "reveal_to": {"mail": ["email"]}}},
    "setup": [{"path": "box/a.txt", "text": "someone@mail.test"}],
    "turns": [[["look", {"path": "box/a.txt"}]], SENDS, "done"],
    "expect": {},
}


@pytest.mark.parametrize("question", ["Mail someone@mail.test.", "Mail."])
def test_a_probe_is_given_the_secrets_of_its_tool(tmp_path: Path, question: str) -> None:
    """What only the result said before the process died nobody knows any more: the probe is not asked."""
    task, folder = died(tmp_path, "knows", {**SECRET, "question": question})
    if question == "Mail.":
        with pytest.raises(InDoubt):
            resume(task, folder, {})
        return
    resume(task, folder, {})
    assert b'"happened":true' in read_files(folder, "run")["state.jsonl"]


def test_a_stop_leaves_a_doubt_a_doubt(tmp_path: Path) -> None:
    """Somebody stopped the run while a mail was under way, and the process died: nobody knows whether it was sent."""
    task, folder = died(tmp_path, "none")
    log = tmp_path / "runs/s/sent_once.partial/state.jsonl"
    writer, stop = LineWriter(), StopAsked(at="1.a1", t=200_000_000, scope="", why="cancelled")
    texts = [line.text for line in read_log(log.read_bytes())]
    log.write_bytes(b"".join(map(writer.line, [*texts, canonical(stop)])))
    with pytest.raises(InDoubt):
        resume(task, folder, {})
    with pytest.raises(ExpectationError):
        resume(task, folder, {"1.c0.i1": "done"})
    lines = read_log(read_files(task.rejected, "run")["state.jsonl"])
    assert [type(line.event) for line in lines[5:7]] == [Settled, ToolReturned]
    assert '"ending":"cancelled"' in lines[-1].text.decode()
