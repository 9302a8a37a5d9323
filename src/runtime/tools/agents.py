"""Agents as tools: what a call starts that lives as the agent of the run does, one level down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from ...fail.errors import ToolError
from .contract import StartsAgent, Tool

# what the loop itself answers, see `loop/team.py`
EXIT_PLAN: Final = "exit_plan"
TEAM_NAMES: Final = ("send_message", "list_agents", "stop_agent", EXIT_PLAN)
_INPUT: Final = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "minLength": 1, "description": "What it is to do."},
        "background": {
            "type": "boolean",
            "default": False,
            "description": "Whether to go on at once; its answer then comes as a message.",
        },
    },
    "required": ["task"],
    "additionalProperties": False,
}
_WHY: Final = {
    "type": "object",
    "properties": {"why": {"type": "string", "description": "Why that one goes on."}},
    "additionalProperties": False,
}
_OUTPUT: Final = {
    "type": "object",
    "properties": {
        "ending": {"type": "string"},
        "answer": {"type": ["string", "null"]},
        "agent": {"type": "string"},
        "state": {"type": "string"},
    },
    "additionalProperties": False,
}


def agent_tool(name: str, description: str, agent: StartsAgent, *, hands_over: bool = False) -> Tool:
    """Return the tool whose calls start an agent; its result is how that ended, and its answer.

    A call with `background` returns at once which agent it is: the address of the call. With `hands_over` the agent
    goes on in the place of the one that calls, with all that was said so far.

    Args:
        name: As of Tool.
        description: What a model reads about it.
        agent: The agent.
        hands_over: See above.

    Raises:
        ToolError: The name is none of a tool.
    """
    takes, effect = (_WHY, "write") if hands_over else (_INPUT, "pure")  # nothing goes beside a hand-off
    rest: Any = {"idempotent": True, "agent": agent, "hands_over": hands_over}
    return Tool(name, description, takes, _OUTPUT, effect, not_run, **rest)


def not_run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Stand for the function of a tool whose calls the loop itself carries out."""
    raise AssertionError("the loop carries out calls of this tool")


def with_those_below(tools: Iterable[Tool]) -> list[Tool]:
    """Return some tools with those of all agents that they may start.

    Raises:
        ToolError: Two different tools have the same name.
    """
    found: dict[str, Tool] = {}
    waiting = deque(tools)
    while waiting:
        tool = waiting.popleft()
        other = found.setdefault(tool.name, tool)
        if other is tool:
            waiting += [it for it in (tool.agent.tools if tool.agent else ()) if found.get(it.name) is not it]
        elif not _is_same(tool, other):
            raise ToolError(
                f"two tools are called {tool.name!r}", remedy="give one of them another name, also in agents"
            )
    return [*found.values()]


def _is_same(tool: Tool, other: Tool) -> bool:
    """Return whether two tools of a name are one: read from the same file, or made of the same agent."""
    if tool.agent is not None:
        return tool.agent is other.agent and tool.offer() == other.offer()
    return bool(tool.digest) and (tool.digest, tool.file) == (other.digest, other.file)
