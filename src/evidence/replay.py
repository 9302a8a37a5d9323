"""Make a run again from its log alone: no model, no tool and no file is touched."""

from __future__ import annotations

from pathlib import Path

from ..runtime.run import make_run
from ..runtime.world.virtual import run_now
from .record_files import STATE, read_files, whole_log
from .tasks import Task


def replay(task: Task, folder: Path, name: str) -> int:
    """Replay a run under today's policy and code, and return how many lines it has.

    Raises:
        RecordError: The record cannot be read.
        Diverged: A line would be another one today.
    """
    files = read_files(folder, name)
    lines = whole_log(files.get(STATE, b""), f"{name}/{STATE}")
    _, journal = run_now(make_run(task.run_spec(), task.head(), None, lines))
    return len(journal.lines)
