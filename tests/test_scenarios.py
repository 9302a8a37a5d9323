"""Each scenario, through the public door, proved many ways: see the functions for what each way shows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.check import check
from tachograph.evidence.folder import partial_of
from tachograph.evidence.record import record, resume
from tachograph.evidence.record_files import NAMES, read_files
from tachograph.evidence.replay import replay
from tachograph.evidence.tasks import Task, load_task
from tachograph.evidence.verify import verify
from tachograph.runtime.driver import InDoubt
from tachograph.runtime.log.file import LogFile
from tachograph.runtime.run import make_run
from tests.project import make_project, scenarios

ROWS = scenarios()
NAMES_OF_ROWS = [row["name"] for row in ROWS]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project in which every scenario is recorded; the run is what each expects, or `record` had raised."""
    root = make_project(tmp_path_factory.mktemp("one place"), ROWS)
    for name in NAMES_OF_ROWS:
        record(task(root, name), folder(root, name))
    yield root


def task(root: Path, name: str) -> Task:
    return load_task(root / "tasks" / "s" / f"{name}.yaml")


def folder(root: Path, name: str) -> Path:
    return root / "runs" / "s" / name


def compared(root: Path, name: str) -> dict[str, bytes]:
    """The files of a run, without the one part that is not compared."""
    files = read_files(folder(root, name), name)
    files["manifest.json"] = files["manifest.json"].partition(b'"made"')[0]
    return files


def test_rows_have_names_of_their_own() -> None:
    assert len(set(NAMES_OF_ROWS)) == len(ROWS)


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_the_record_holds(project: Path, name: str) -> None:
    assert verify(folder(project, name), name) == []
    assert check(task(project, name), folder(project, name), name) == []
    replay(task(project, name), folder(project, name), name)


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_an_event_loop_changes_nothing(project: Path, name: str) -> None:
    made = task(project, name)
    with made.workspace(lambda path, sha256: None) as workspace:
        made.set_up(workspace)
        _, journal, _ = asyncio.run(make_run(made.run_spec(), made.head(), made.world(workspace)))
    assert journal.data == compared(project, name)["state.jsonl"]


def test_another_process_and_place_change_nothing(project: Path, tmp_path: Path) -> None:
    root = make_project(tmp_path / "ano ther\u00e9", ROWS)
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4711",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "OTEL_SERVICE_NAME": "x",
    }
    here = str(Path(__file__).parent.parent)
    run = [
        sys.executable,
        "-c",
        "import os; os.umask(0o077); from tachograph.cli.main import main; main(['run'])",
    ]
    done = subprocess.run(
        run, cwd=root, env={**environment, "PYTHONPATH": here}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    for name in NAMES_OF_ROWS:
        assert compared(root, name) == compared(project, name), name


class Died(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_a_run_that_died_goes_on_to_the_same_bytes(
    project: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compared(project, name)
    lines = whole["state.jsonl"].split(b"\n")[:-1]
    for number in range(0, len(lines), max(1, len(lines) // 4)):
        root = make_project(tmp_path / str(number), [row for row in ROWS if row["name"] == name])
        with monkeypatch.context() as patch:
            _die_after(number, patch)
            with pytest.raises(Died):
                record(task(root, name), folder(root, name))
        doubts: dict[str, Any] = {}
        if b'"tool_started"' in (lines[number - 1] if number else b""):
            with pytest.raises(InDoubt) as raised:
                resume(task(root, name), folder(root, name), {})
            doubts = dict.fromkeys(raised.value.places, "not_done")
        if number:
            resume(task(root, name), folder(root, name), doubts)
        else:  # without a line nothing was done, and it is recorded
            record(task(root, name), folder(root, name))
        assert verify(folder(root, name), name) == []
        assert not partial_of(folder(root, name)).exists()
        if not doubts:
            assert compared(root, name) == whole, f"died after line {number}"


def _die_after(number: int, patch: pytest.MonkeyPatch) -> None:
    """Let the process die in the write behind so many lines, half of which reaches the disk."""
    written = 0
    write = LogFile.write

    def counted(self: LogFile, line: bytes) -> None:
        nonlocal written
        if written == number:
            os.write(self._fd, line[: len(line) // 2])
            raise Died
        written += 1
        write(self, line)

    patch.setattr(LogFile, "write", counted)


@pytest.mark.parametrize("name", NAMES_OF_ROWS)
def test_no_record_holds_what_must_not_be_there(project: Path, name: str) -> None:
    for file, content in compared(project, name).items():
        for foreign in (
            b"the text of an exception",
            b"someone@mail.test",  # planted in scenarios with redaction
            b"a1B2a1B2a1B2",
            str(project).encode(),
            b"root:",
            os.uname().nodename.encode(),
        ):
            assert foreign not in content, file
    assert set(compared(project, name)) == set(NAMES)


def test_what_a_tool_makes_of_a_denial_is_not_kept(project: Path) -> None:
    for name in ("late_denial_swallowed", "late_denial_told"):
        assert b"swallowed" not in compared(project, name)["state.jsonl"].replace(
            b"late_denial_swallowed", b""
        )
