"""What the commands share: exit codes, what they print, and how they find a project and its runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..fail.errors import InputError

if TYPE_CHECKING:
    from ..evidence.project import Project
    from ..runtime.log.events import Event

_MOST = 4_000  # characters of a line
OK, FAILED, BAD_INPUT, SUSPENDED, INTERRUPTED = 0, 1, 2, 3, 130


def say(text: str, *, err: bool = False) -> None:
    """Print a line; text of models, tools and files is harmless in it."""
    from ..runtime.formats.escape import escape_build_log

    click.echo(escape_build_log(text, _MOST), err=err)


def project_at(start: Path) -> Project:
    """Return the project that a folder lies in. Raises InputError."""
    from ..evidence.project import Project  # the command starts without what it does not need

    return Project(start)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names_of(project: Project, runs: tuple[str, ...]) -> list[str]:
    """Return the names of recorded runs, of all if none is given. Raises InputError."""
    names = [project.run_name(run) for run in runs] if runs else project.run_names()
    if not names:
        raise InputError("holds no recorded run", file="runs", remedy="record one with `tachograph run TASK`")
    return names


def exporting(endpoint: str | None) -> AbstractContextManager[Callable[[Event], None] | None]:
    """Return what sends the spans of one run to a receiver; None without one."""
    if endpoint is None:
        return nullcontext()
    from ..tracing.live_export import LiveExport

    return LiveExport(endpoint)
