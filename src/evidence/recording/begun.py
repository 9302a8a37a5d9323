"""What an unfinished run was begun with, asked before it is resumed."""

from __future__ import annotations

from pathlib import Path

from ..tasks.place import refuse_foreign
from ..tasks.task import load_task
from .resume import base_of, task_begun


def has_code_agent(out: Path, root: Path | None) -> bool:
    """Return whether the task of the unfinished run in the place of `out` names an agent in code."""
    out = out.with_name(out.name.removesuffix(".partial"))
    path = task_begun(out) if out.with_name(f"{out.name}.partial").is_dir() else None
    if path is None:
        return False
    base = base_of(out, {"task": {"path": path}}, root)
    return (base / path).is_file() and load_task(base / path, root=base).agent is not None


def check_model(out: Path, root: Path | None, model: str) -> None:
    """Raise InputError if the task of an unfinished run does not provide for a model in the place of that run."""
    out = out.with_name(out.name.removesuffix(".partial"))
    path = task_begun(out)
    if path is None:
        return
    base = base_of(out, {"task": {"path": path}}, root)
    task = load_task(base / path, root=base)
    refuse_foreign(task, out, base, model=model, asks=False, deadline=False)
