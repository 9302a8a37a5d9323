"""Tools that are defined in code: those of the agents that tasks of a project name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ....fail.errors import InputError
from ....runtime.tools.contract import Tool

# what to do about a name that no tool of the project has
REMEDY: Final = (
    "add the tool to tools/, name the agent that has it in a task (`agent: module:name`), or remove the name"
)


def with_tools_in_code(tools: Mapping[str, Tool], names: Iterable[str], root: Path) -> dict[str, Tool]:
    """Return tools with those in code added, if one of the names is not among them.

    Agents in code are loaded only then, since that executes their modules.

    Args:
        tools: The tools of the project's folder, or the shipped ones. They come first.
        names: The tools that are needed.
        root: The project.

    Raises:
        InputError: A task that names an agent in code cannot be read, or its agent cannot be loaded.
    """
    return dict(tools) if tools.keys() >= set(names) else {**_tools_in_code(root), **tools}


def _tools_in_code(root: Path) -> dict[str, Tool]:
    """Return the tools of all agents that tasks of a project name in code; of two with one name, the first."""
    # imported here, since few names need it: with the agents come the loop and the driver
    from ..task import load_task
    from .agent import load_code_agent

    found: dict[str, Tool] = {}
    loaded = set()
    for path in sorted((root / "tasks").glob("*/*.yaml")):
        task = load_task(path, root=root)
        if task.agent is None or task.agent in loaded:
            continue
        loaded.add(task.agent)

        def error(message: str, remedy: str, file: str = task.file) -> InputError:
            return InputError(message, file=file, remedy=remedy)

        agent = load_code_agent(task.agent, root, error).agent
        found = {**agent.gate.tools, **found}
    return found
