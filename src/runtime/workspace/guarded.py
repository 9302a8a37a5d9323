"""Name what no folder that a run writes may hold: what decides the run, and where its questions are answered."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType

from .mount_isolation import is_project
from .mounts import Mount

# what a person writes to decide the runs of a project
_DECIDING = ("policy", "tools", "tasks")


def guarded_of(
    sources: Mapping[str, Path],
    code: Mapping[str, object],
    approve: object,
    mounts: Iterable[Mount],
) -> dict[str, Path]:
    """Return what no folder that a run writes may hold, by what messages call it.

    Args:
        sources: The files of the policy.
        code: Functions that the run calls, by what messages call them; the files that define them are guarded.
        approve: What answers calls that need a person; where it has `guarded`, paths by name, those are guarded too.
        mounts: The mounts of the run. Where none of them is a folder for writing, nothing is looked for.
    """
    if not any(mount.mode == "write" and mount.source is not None for mount in mounts):
        return {}
    found = dict(sources)
    for name, function in code.items():
        for number, file in enumerate(dict.fromkeys(_files_of(function)), start=1):
            found[name if number == 1 else f"{name} ({number})"] = file
    project = _project_around(Path.cwd())
    if project is not None:
        found |= {f"the project's {name}/": project / name for name in _DECIDING if (project / name).exists()}
    for one in _layers(approve):
        for reader in (one, getattr(one, "__self__", None)):
            answers = getattr(reader, "guarded", None)
            if isinstance(answers, Mapping):
                found.update(answers)
    return found


def _layers(function: object) -> Iterator[object]:
    """Yield a function, and what it wraps or binds."""
    seen: list[object] = []
    while function is not None and not any(function is other for other in seen):
        seen.append(function)
        yield function
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            function = getattr(function, "__wrapped__", None)


def _files_of(function: object) -> Iterator[Path]:
    """Yield the files that define a function, and those that define what it wraps or binds."""
    for one in _layers(function):
        if isinstance(one, FunctionType):
            file = one.__globals__.get("__file__")
        else:
            module = sys.modules.get(str(getattr(one, "__module__", None)))
            file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield Path(file).absolute()


def _project_around(folder: Path) -> Path | None:
    """Return the nearest project at or above a folder, None where there is none."""
    for place in (folder, *folder.parents):
        try:
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if is_project(fd):
                return place
        finally:
            os.close(fd)
    return None
