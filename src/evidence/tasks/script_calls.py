"""Calls of a task's script that name no tool of the task: allowed, since a policy may be tested by them, and told."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.formats.escape import quote_literal
from ...runtime.schema.schema_errors import did_you_mean
from .task import Task

_DENIED = "deny:tool_registry"


def calls_of_no_tool(task: Task, tools: Iterable[str]) -> list[str]:
    """Return a line for each call of the script that none of the tools answers; none where the task expects that."""
    known = list(tools)
    if "llm" not in task.data or _DENIED in task.data.get("expected", {}).get("decisions", ()):
        return []
    found: dict[str, str] = {}
    for i, turn in enumerate(task.data["llm"]["stub"]["turns"]):
        for j, call in enumerate(turn.get("calls", ())):
            name = call["tool"]
            if name not in known and name not in found:
                remedy = did_you_mean(name, known) or f"the task has {', '.join(known) or 'no tools'}"
                pointer = f"/llm/stub/turns/{i}/calls/{j}/tool"
                problem = f"the script calls {quote_literal(name)}, which is no tool of the task"
                found[name] = str(task.error(pointer, problem, remedy))
    return list(found.values())
