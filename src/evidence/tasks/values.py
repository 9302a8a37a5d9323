"""Check what the JSON Schema of tasks cannot express, and what a task says of live models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...fail.catalog import ENDINGS
from ...runtime.core.clock import DEFAULT_START, epoch_ns
from ...runtime.formats.escape import quote_literal
from ...runtime.resources.mount_path import parse_path
from ...runtime.resources.url import Malformed
from ...runtime.schema.schema_errors import did_you_mean

if TYPE_CHECKING:
    from .task import Task

# of what an agent consists; a task that names no agent in code has at least the first two
_PARTS: Final = (
    *("policy", "tools", "mounts", "hosts", "hooks", "llm", "instructions"),
    *("output_schema", "output_retries"),
)


def check_values(task: Task) -> None:
    """Check what the JSON Schema cannot express."""
    start = task.data.get("clock", {}).get("start", DEFAULT_START)
    try:
        epoch_ns(start)
    except ValueError:
        raise task.error("/clock/start", "is not a time in UTC", 'write "2026-01-01T00:00:00Z"') from None
    _check_agent(task)
    _check_endings(task, task.expected, "/expected")
    for key, part in (("live", task.live), ("people", task.people)):
        _check_endings(task, (part or {}).get("expected", {}), f"/{key}/expected")
    if "output_retries" in task.data and "output_schema" not in task.data:
        raise task.error(
            "/output_retries", "there is no output_schema to try again for", "add one, or remove it"
        )
    turns = task.data["llm"]["stub"]["turns"] if "llm" in task.data else ()
    for i, turn in enumerate(turns):
        for j, call in enumerate(turn.get("calls", ())):
            if "arguments" in call and "arguments_text" in call:
                raise task.error(
                    f"/llm/stub/turns/{i}/calls/{j}", "both arguments and arguments_text", "give one of them"
                )
    for i, item in enumerate(task.data.get("setup", ())):
        try:
            mount = parse_path(item["path"]).mount
        except Malformed as error:
            raise task.error(
                f"/setup/{i}/path", f"is not a usable path: {error.reason}", "write mount/file"
            ) from None
        if mount in task.data.get("mounts", {}):
            raise task.error(
                f"/setup/{i}/path",
                f"mount {quote_literal(mount)} is a folder of the project",
                "set up files in a private mount only, one that the task binds to no folder",
            )


def _check_agent(task: Task) -> None:
    """Check that a task either names an agent in code or says what its agent consists of."""
    if task.agent is None:
        for key in _PARTS[:2]:
            if key not in task.data:
                raise task.error("", f"lacks {key!r}", "add it, or name an agent in code")
        return
    for key in _PARTS:
        if key in task.data:
            raise task.error(
                f"/{key}", f"{key!r} stands beside an agent in code, which has its own", "remove one of them"
            )


def _check_endings(task: Task, expected: Mapping[str, Any], pointer: str) -> None:
    endings = [(f"{pointer}/endings/{i}", ending) for i, ending in enumerate(expected.get("endings", ()))]
    for place, ending in [(f"{pointer}/ending", expected.get("ending")), *endings]:
        if ending is not None and ending not in ENDINGS:
            raise task.error(
                place,
                f"{quote_literal(ending)} is not an ending",
                did_you_mean(ending, ENDINGS) or f"one of {', '.join(ENDINGS)}",
            )


def live_problem(task: Task, identity: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong, and what to do, if the model of an agent in code is none that its task provides for.

    Args:
        task: The task.
        identity: What the agent says of its model.
    """
    name = ":".join((identity["provider"], identity["name"]))
    if identity["execution_path"] == "stub":
        if task.is_scripted:
            return None
        return "the model of the agent is a script, but the task is for a live one", "remove `live:`"
    problem = not_live(task, name)
    if problem is None:
        return None
    return f"the model of the agent is {name[:200]}, but the task {problem}", (
        f"let it say `live: {{models: [{name[:200]!r}]}}`"
    )


def not_live(task: Task, model: str) -> str | None:
    """Return why a task does not allow a live model, `PROVIDER:MODEL`, or None if it does."""
    if task.live is None:
        scripted = "has a script and " if "llm" in task.data else ""
        return f"{scripted}does not say `live: {{models: [...]}}`"
    for pattern in task.live["models"]:
        if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), model, re.DOTALL):
            return None
    return f"allows {', '.join(task.live['models'])[:200]} in live.models"
