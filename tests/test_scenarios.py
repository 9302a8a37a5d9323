"""Each scenario, through the public door, proved many ways: see the functions for what each way shows."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tachograph.evidence.check import check, replay
from tachograph.evidence.folder import partial_of
from tachograph.evidence.record import record, resume
from tachograph.evidence.record_files import NAMES, events_in, read_files
from tachograph.evidence.show import line_of
from tachograph.evidence.verify import verify
from tachograph.fail.errors import ExpectationError
from tachograph.review.explain import explain
from tachograph.runtime.driver import InDoubt, Word
from tachograph.runtime.log.events import AgentStarted, Decided, RunStarted
from tachograph.runtime.log.file import LogFile
from tachograph.runtime.log.lines import read_log
from tachograph.runtime.run import make_run
from tachograph.tracing.spans import spans_of
from tests.project import PLANTED, SCENARIOS, folder_of_row, make_project, task_of_row

NAMES_OF_ROWS = [row["name"] for row in SCENARIOS]


def compared(root: Path, name: str) -> dict[str, bytes]:
    """The files of a run, without the one part that is not compared."""
    files = read_files(folder_of_row(root, name), name)
    files["manifest.json"] = files["manifest.json"].partition(b'"made"')[0]
    return files


def test_rows_have_names_of_their_own() -> None:
    assert len(set(NAMES_OF_ROWS)) == len(SCENARIOS)


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_the_record_holds(project: Path, name: str) -> None:
    task, folder = task_of_row(project, name), folder_of_row(project, name)
    assert check(task, folder, name) == []  # which begins with what `verify` finds
    replay(task, folder, name)


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_people_are_told_what_the_gate_said(project: Path, name: str) -> None:
    """Each decision stands in `explain`, in order and with what it rests on, and each line of the log in `show`."""
    events = [line.event for line in read_log(compared(project, name)["state.jsonl"])]
    told = explain(task_of_row(project, name), folder_of_row(project, name), name)
    assert not any("no edit" in it and "is allowed but not part" in it for it in told)
    rest = iter(told)
    for event in (it for it in events if isinstance(it, Decided)):
        head = next((line for line in rest if line.startswith(f"{event.at} ")), "")
        assert re.search(rf"{event.decision} by {event.rule}\b", head), event
        reason = f" {event.reason} ({event.place})"
        assert head.endswith(reason) or any(line.endswith(reason) for line in rest), event
    lines = [line_of(event) for event in events_in(folder_of_row(project, name), name)]
    assert [line.split()[0] for line in lines] == [event.at for event in events]
    assert not any(re.search(r"ended: (\w+), \1$| 1 (?:results|messages) ", line) for line in lines)


def test_a_span_names_the_policy_that_decided(project: Path) -> None:
    for name in NAMES_OF_ROWS:
        events = [line.event for line in read_log(compared(project, name)["state.jsonl"])]
        heads = [event for event in events if isinstance(event, RunStarted | AgentStarted)]
        policies = [it for head in heads for it in (head.policy, head.plan) if it is not None]
        versions = {it.file: it.version for it in policies}
        checks = [span.attributes for span in spans_of(events) if span.name == "policy_check"]
        assert checks or not any(isinstance(event, Decided) for event in events)
        for told in checks:
            file = str(told["agent.policy.at"]).partition("#")[0]
            assert told["agent.policy.version"] == versions.get(file, told["agent.policy.version"]), name


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_an_event_loop_changes_nothing(project: Path, name: str) -> None:
    made = task_of_row(project, name)
    with made.workspace(lambda path, sha256: None) as workspace:
        made.set_up(workspace)
        journal = asyncio.run(make_run(made.run_spec(), made.head(), made.world(workspace))).journal
    assert journal.data == compared(project, name)["state.jsonl"]


def test_another_process_and_place_change_nothing(project: Path, tmp_path: Path) -> None:
    root = make_project(tmp_path / "ano ther\u00e9", SCENARIOS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OTEL_SERVICE_NAME": "x"}
    environment |= {"PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    code = "import os; os.umask(0o077); from tachograph.cli.main import main; main(['run'])"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=root, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for name in NAMES_OF_ROWS:
        assert compared(root, name) == compared(project, name), name


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_a_run_that_died_goes_on_to_the_same_bytes(
    project: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compared(project, name)
    lines = whole["state.jsonl"].split(b"\n")[:-1]
    begun = [number for number, line in enumerate(lines, 1) if b'"tool_started"' in line]
    deaths = sorted({*begun, *range(0, len(lines), max(1, len(lines) // 3))})
    made, place = task_of_row(project, name), folder_of_row(tmp_path, name)
    with monkeypatch.context() as patch:
        _keep_after(deaths, place, tmp_path, patch)
        record(made, place)
    for number, word in [(n, word) for n in deaths for word in (get_args(Word) if n in begun else (None,))]:
        shutil.rmtree(place.parent)
        shutil.copytree(tmp_path / f"{number}", partial_of(place), symlinks=True)
        doubts: dict[str, Word] = {}
        if word is not None:
            with pytest.raises(InDoubt) as raised:
                resume(made, place, {})
            doubts = dict.fromkeys(raised.value.places, word)
        try:
            if number:
                resume(made, place, doubts)
            else:  # without a line nothing was done, and it is recorded
                record(made, place)
            kept = place
        except ExpectationError:
            assert word == "done"  # the result is lost, so the run may come to something else
            kept = made.rejected
        assert not partial_of(place).exists()
        if doubts:
            assert verify(kept, name) == []
            replay(made, kept, name)
        else:  # and of these bytes it is shown above that they hold
            assert compared(tmp_path, name) == whole, f"died after line {number}"


def _keep_after(numbers: list[int], place: Path, kept: Path, patch: pytest.MonkeyPatch) -> None:
    """Keep what a process leaves that dies in the write behind so many lines, half of which reaches the disk."""
    written, write = itertools.count(), LogFile.write

    def counted(self: LogFile, line: bytes) -> None:
        if (number := next(written)) in numbers:
            end = os.fstat(self._fd).st_size
            os.write(self._fd, line[: len(line) // 2])
            shutil.copytree(partial_of(place), kept / f"{number}", symlinks=True)
            os.ftruncate(self._fd, end)
        write(self, line)

    patch.setattr(LogFile, "write", counted)


def test_no_record_holds_what_must_not_be_there(project: Path) -> None:
    foreign = *PLANTED, str(project).encode(), b"root:", os.uname().nodename.encode()
    for name in NAMES_OF_ROWS:
        files = compared(project, name)
        found = [(file, it) for file, content in files.items() for it in foreign if it in content]
        assert (found, {*files}) == ([], {*NAMES}), name
