"""Processes that are killed: what is on the disk goes on to the same bytes, or what is in doubt is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tachograph.evidence.record import record, resume
from tachograph.evidence.tasks import load_task
from tachograph.evidence.verify import verify
from tachograph.runtime.driver import InDoubt
from tests.project import make_project, scenarios

ROWS = {row["name"]: row for row in scenarios()}
# kills the process in the n-th write, half of which reaches the disk, and tells each mail that is sent
KILLED = """
import os, signal, sys
from tachograph.runtime.log.file import LogFile
left = int(sys.argv[1])
write = LogFile.write
def counted(self, line):
    global left
    if left == 0:
        os.write(self._fd, line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    write(self, line)
LogFile.write = counted
from tachograph.cli.main import main
main(["run", sys.argv[2]])
"""


@pytest.mark.parametrize(
    ("name", "writes"),
    [("call", 0), ("call", 3), ("writes_in_order", 7), ("sent_once", 3), ("sent_once", 4), ("recovers", 4)],
)
def test_a_killed_process(tmp_path: Path, name: str, writes: int) -> None:
    whole = make_project(tmp_path / "whole", [ROWS[name]])
    record(load_task(whole / f"tasks/s/{name}.yaml"), whole / "runs/s" / name)
    root = make_project(tmp_path / "killed", [ROWS[name]])
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", KILLED, str(writes), f"tasks/s/{name}.yaml"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    task, folder = load_task(root / f"tasks/s/{name}.yaml"), root / "runs/s" / name
    assert not folder.exists()
    try:
        resume(task, folder, {})
    except InDoubt as doubt:
        assert (name, writes) == ("sent_once", 4)
        assert doubt.places == ["1.c0.i1"]
        resume(task, folder, {"1.c0.i1": "done"})
    else:
        assert (folder / "state.jsonl").read_bytes() == (whole / "runs/s" / name / "state.jsonl").read_bytes()
    assert verify(folder, name) == []
