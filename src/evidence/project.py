"""A project: the folder that holds `policy/`, with its tasks and runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..fail.errors import InputError, RecordError, TaskError, did_you_mean
from ..runtime.formats.documents import read_plain
from ..runtime.formats.durable_write import write_durably
from ..runtime.io.safe_open import closing
from .folder import made_in_code, not_ended, partial_of, where_it_lies
from .record_files import MOST_BYTES, is_from_code
from .run_source import RunSource
from .tasks import Task, load_task, root_around

LIST: Final = "LIST"
NO_RECORDS: Final = (".partial", ".old")  # how names end of what is not a record


class Project:
    """A project.

    Args:
        start: A folder in it.

    Attributes:
        root: Its folder.

    Raises:
        InputError: No folder at or above `start` holds `policy/`.
    """

    def __init__(self, start: Path) -> None:
        found = root_around(start)
        if found is None:
            what = "no folder at or above it holds policy/"
            raise InputError(what, file=str(start), remedy="change into a project")
        self.root = found
        self._loaded: dict[Any, Any] = {}  # policies and tools, which many tasks have in common

    def run_name(self, run: str) -> str:
        """Return the name `KIND/NAME` of a run, given as that, as `runs/KIND/NAME` or as a path. Raises RecordError."""
        runs = self.root / "runs"
        for path in (runs / run, Path(run)):
            resolved = Path(os.path.realpath(path))  # of links that go round, too
            if resolved.parent.parent == runs.resolve():
                name = resolved.relative_to(runs.resolve()).as_posix().removesuffix(".partial")
                if (runs / name).is_dir() or (runs / f"{name}.partial").is_dir():
                    return name
        if is_from_code(where_it_lies(Path(run))):
            raise made_in_code(run)
        remedy = did_you_mean(run, self.run_names(), "`tachograph ls` lists them")
        raise RecordError("there is no such run", file=run, remedy=remedy)

    def task_file(self, given: Path, others: Iterable[str] = ()) -> Path:
        """Return the file of a task, given as that or by its name; `others` may be meant too. Raises TaskError."""
        named = self.root / "tasks" / f"{given}.yaml"
        if not named.is_file() and not given.is_file():
            known = [*others, *self.task_names()]
            remedy = did_you_mean(str(given), known, "name a file, or KIND/NAME in tasks/")
            raise TaskError("there is no such task", file=str(given), remedy=remedy)
        return named if named.is_file() else given

    def run_names(self) -> list[str]:
        """Return the names of all recorded runs, sorted. Raises OSError for a folder that cannot be read."""
        found = in_kinds(self.root / "runs")
        return [f"{kind}/{it.name}" for kind, it in found if it.is_dir() and it.suffix not in NO_RECORDS]

    def open_names(self) -> list[str]:
        """Return the names of the runs that have not ended, sorted. Raises OSError likewise."""
        found = in_kinds(self.root / "runs")
        return [f"{kind}/{entry.stem}" for kind, entry in found if entry.suffix == ".partial"]

    def task_names(self) -> list[str]:
        """Return the names of all tasks, sorted. Raises OSError for a folder that cannot be read."""
        found = in_kinds(self.root / "tasks")
        return [f"{kind}/{it.stem}" for kind, it in found if it.suffix == ".yaml" and it.is_file()]

    def policy_names(self) -> list[str]:
        """Return the policies in `policy/`, however deep, each as its path from there, sorted."""
        folder = self.root / "policy"
        return sorted(filter(is_policy, (it.relative_to(folder).as_posix() for it in folder.rglob("*.y*ml"))))

    def label(self, name: str) -> str:
        """Return what messages call a run."""
        return f"runs/{name}"

    def folder(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.root / "runs" / name

    def task_of(self, name: str) -> Task:
        """Return the task of a run: its place decides, never its record. Raises TaskError."""
        file = self.root / "tasks" / f"{name}.yaml"
        if not file.is_file():
            remedy = "restore it; a run of an agent in code is made again in Python"
            raise TaskError(f"is not there for runs/{name}", file=f"tasks/{name}.yaml", remedy=remedy)
        return load_task(file)

    def source_of(self, name: str) -> RunSource:
        """Return what a recorded run is made again from: its task, with what its record says of a live model.

        Raises:
            TaskError: It has no task.
            RecordError: The task is for live models, and the run is none of one.
        """
        task = self.task_of(name)
        if not task.is_scripted:
            from .live_tasks import LiveRun  # needs an event loop

            task = LiveRun.of(task, where_it_lies(self.folder(name)))
        task.share(self._loaded)
        return task

    def is_from_code(self, name: str) -> bool:
        """Return whether a recorded run has no task, since an agent in code made it."""
        if (self.root / "tasks" / f"{name}.yaml").is_file():
            return False
        return is_from_code(where_it_lies(self.folder(name)))

    def problems(self) -> list[str]:
        """Return how tasks, runs and `runs/LIST` disagree, one line each."""
        listed = self._listed()
        tasks, recorded = self.task_names(), self.run_names()
        runs = [name for name in recorded if not self.is_from_code(name)]
        is_open = [name for name in self.open_names() if name not in runs]
        found = [str(not_ended(f"runs/{name}", partial_of(self.folder(name)))) for name in is_open]
        remedy = "record the runs anew and commit the list"
        for names, others, what in (
            (tasks, runs + is_open, "tasks/{}.yaml: has no run; record it"),
            (runs, tasks, "runs/{}: has no task; restore it, or remove the run"),
            (runs, listed, f"runs/{LIST}: lacks {{}}; {remedy}"),
            (listed, recorded, f"runs/{LIST}: names {{}}, which is not there; restore it, or {remedy}"),
        ):
            found += [what.format(name) for name in names if name not in others]
        return found

    def _listed(self) -> list[str]:
        try:
            text = os.fsdecode(read_plain(self.root / "runs" / LIST, MOST_BYTES))
            return [*filter(None, text.split("\n"))]
        except OSError:
            return []

    def write_list(self) -> None:
        """Write the names of all runs, so that a task and its run cannot go together unnoticed."""
        runs = self.root / "runs"
        runs.mkdir(exist_ok=True)
        with closing(os.open(runs, os.O_RDONLY | os.O_CLOEXEC)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)  # what another command has listed before does not replace this
            text = "".join(f"{name}\n" for name in self.run_names())
            write_durably(runs / LIST, os.fsencode(text))


def is_policy(name: str) -> bool:
    """Return whether a file is a policy, given its path from `policy/`: each is that is YAML and no test."""
    return name.endswith((".yaml", ".yml")) and not name.startswith("tests/")


def in_kinds(folder: Path) -> list[tuple[str, Path]]:
    """Return what lies in the folders of a folder, each with the name of its folder, sorted.

    A pattern would skip what may not be read.
    """
    kinds = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    return [(kind, entry) for kind in kinds for entry in sorted((folder / kind).iterdir())]
