"""Perform a run that is kept in a journal in a process of its own, and write its record if that vanishes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from ..evidence.files.folder import is_unfinished
from ..evidence.files.manifest import MANIFEST
from ..evidence.recording import index
from ..evidence.recording.record import result_in
from ..evidence.recording.recorded import RecordedModel, project_of
from ..evidence.recording.resume import resume_folder
from ..fail.errors import OutputError, Suspended
from ..runtime.setup.run_config import RunResult
from .supervise import Vanished, supervise


def in_own_process(
    options: argparse.Namespace,
    out: Path,
    root: Path | None,
    perform: Callable[[], int],
    say: Callable[[RunResult], int],
) -> int:
    """Perform a kept run in a child process and return its exit code.

    Args:
        options: The options of the command.
        out: The folder of the run.
        root: The project, unless it is the one around the folder.
        perform: Performs the run and returns the exit code.
        say: Says how a run ended whose record was written here, and returns the exit code.
    """
    before = _manifest(out)

    def vanished(end: Vanished) -> int:
        if not end.by_itself:
            _tell_suspended(out, end)
            return 3
        return say(_recorded(out, root, end, before))

    return supervise(lambda: int(options.attended(perform)), vanished)


def _manifest(out: Path) -> bytes | None:
    try:
        return (out / MANIFEST).read_bytes()
    except OSError:
        return None


def _tell_suspended(out: Path, end: Vanished) -> None:
    if is_unfinished(out):
        words = f"suspended: {end.words} ended the run's process; go on with `tachograph resume {out}`"
    else:
        words = f"{end.words} ended the run's process"
    print(f"tachograph: {words}", file=sys.stderr)


def _recorded(out: Path, root: Path | None, end: Vanished, before: bytes | None) -> RunResult:
    """Return how a run ended whose process ended itself; write its record, unless that was done."""
    what = f"the run's process ended itself ({end.words})"
    if is_unfinished(out):
        print(f"tachograph: {what}; its record is written from its journal", file=sys.stderr)
        try:
            result = resume_folder(
                out, resolutions={}, rebase=False, root=root, open_model=RecordedModel, concludes=True
            )
        except Suspended as error:
            raise Suspended(f"{what}; {error}") from error
    elif _manifest(out) not in (None, before):
        result = result_in(out)
        print(f"tachograph: {what} after its record was written", file=sys.stderr)
    else:
        raise OutputError(f"{out}: {what} before anything was done; nothing was recorded, run it again")
    index.update_for(project_of(out, root), out)
    return result
