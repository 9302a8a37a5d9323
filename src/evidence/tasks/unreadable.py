"""The error for a task file that cannot be read: the task that was probably meant, or the system's reason."""

from __future__ import annotations

from pathlib import Path

from ...fail.errors import TaskError, system_reason
from ...runtime.formats.shipped_files import project_root
from ...runtime.schema.schema_errors import did_you_mean


def unreadable(path: Path, error: OSError) -> TaskError:
    """Return the error for a task file that is not there, or that the system does not let us read."""
    if not isinstance(error, FileNotFoundError):
        return TaskError(
            f"cannot be read ({system_reason(error)})",
            file=str(path),
            remedy="check the file's kind and permission",
        )
    return _other(path, "no such task file")


def not_a_file(path: Path) -> TaskError:
    """Return the error for a task that is a folder, such as that of a run, a device or a pipe."""
    return _other(path, "is not a regular file")


def _other(path: Path, problem: str) -> TaskError:
    tasks = _tasks(path)
    example = next(iter(tasks), "tasks/canonical/v1.yaml")
    remedy = did_you_mean(path.as_posix(), tasks) or f"name a file such as {example}"
    return TaskError(problem, file=str(path), remedy=remedy)


def _tasks(path: Path) -> list[str]:
    """Return the other tasks of the project around a path, named as the path is."""
    folder = path.parent
    while not folder.is_dir():
        folder = folder.parent
    root = project_root(folder.resolve())
    if root is None:
        return []
    found = [file.relative_to(root).as_posix() for file in (root / "tasks").glob("*/*.yaml")]
    start = path.as_posix().find("tasks/")
    named = (f"{path.as_posix()[: max(start, 0)]}{name}" for name in sorted(found))
    return [name for name in named if name != path.as_posix()]
