"""Make a run again from its log alone: no model, no tool and no file is touched."""

from __future__ import annotations

from pathlib import Path

from ..runtime.run import RunMade, make_run
from ..runtime.world.virtual import run_now
from .record_files import recorded_log
from .run_source import RunSource


def replay(source: RunSource, folder: Path, name: str) -> RunMade:
    """Replay a run under today's policy and code.

    Raises:
        RecordError: The record cannot be read.
        Diverged: A line would be another one today.
    """
    return run_now(make_run(source.run_spec(), source.head(), None, recorded_log(folder, name)))
