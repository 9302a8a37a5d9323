"""What an unfinished run was begun with, asked before it is resumed."""

from __future__ import annotations

from pathlib import Path

from ..tasks.place import refuse_foreign
from ..tasks.task import load_task
from .resume import base_of, task_begun


def brings_its_model(out: Path, root: Path | None, model: str | None) -> bool:
    """Return whether an unfinished run has an agent in code, which brings the model.

    Args:
        out: The folder of the run.
        root: The project, unless it is the one around the folder.
        model: The model that a person named, None for that of the run.

    Raises:
        InputError: The task does not provide for the model that was named.
    """
    if model is not None:
        _check_model(out, root, model)
    return model is None and _has_code_agent(out, root)


def _has_code_agent(out: Path, root: Path | None) -> bool:
    """Return whether the task of the unfinished run in the place of `out` names an agent in code."""
    out = out.with_name(out.name.removesuffix(".partial"))
    path = task_begun(out) if out.with_name(f"{out.name}.partial").is_dir() else None
    if path is None:
        return False
    base = base_of(out, {"task": {"path": path}}, root)
    return (base / path).is_file() and load_task(base / path, root=base).agent is not None


def _check_model(out: Path, root: Path | None, model: str) -> None:
    """Raise InputError if the task of an unfinished run does not provide for a model in the place of that run."""
    out = out.with_name(out.name.removesuffix(".partial"))
    path = task_begun(out)
    if path is None:
        return
    base = base_of(out, {"task": {"path": path}}, root)
    task = load_task(base / path, root=base)
    refuse_foreign(task, out, base, model=model, asks=False, deadline=False)
