"""Write a new project from the files in `template/`, and record its runs."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from ..evidence.project import Project
from ..evidence.record import record
from ..fail.errors import InputError
from ..runtime.formats.durable_write import write_durably

_TEMPLATE: Final = Path(__file__).parent / "template"


def new_project(folder: Path) -> list[str]:
    """Write a project into a folder that is new or empty.

    Args:
        folder: The folder. Nothing is written outside of it.

    Returns:
        The names of the recorded runs.

    Raises:
        InputError: The folder holds something, or cannot be one. Then nothing is written.
        OSError: A file cannot be written. Then nothing is left behind.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError("is not a folder", file=str(folder), remedy="name a new folder")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    if not made and any(folder.iterdir()):
        raise InputError("is not empty", file=str(folder), remedy="name a new or empty folder")
    try:
        files = (path for path in _TEMPLATE.rglob("*") if path.is_file() and path.suffix != ".pyc")
        for source in sorted(files):
            target = folder / source.relative_to(_TEMPLATE).as_posix().replace("dot-", ".")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_durably(target, source.read_bytes().replace(b"@VERSION@", _pin().encode()))
        project = Project(folder)
        names = project.task_names()
        for name in names:
            record(project.task_of(name), project.folder(name))
        project.write_list()
    except BaseException as error:
        vars(error).pop("__notes__", None)  # of a run to go on with, which is removed with the rest
        for path in folder.iterdir() if folder.is_dir() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in made:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
    return names


def _pin() -> str:
    """Return what pins this version in a requirement; "" where it is not installed."""
    try:
        return f"=={version('tachograph')}"
    except PackageNotFoundError:
        return ""
