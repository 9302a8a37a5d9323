"""Agents as tools: what a call starts that lives as the agent of the run does, one level down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from ...fail.errors import ToolError, listed
from .contract import CLOSED, StartsAgent, Tool, not_run

DELEGATE: Final = "delegate"
EXIT_PLAN: Final = "exit_plan"
# what the loop itself answers, see `loop/team.py`
TEAM_NAMES: Final = (
    *("send_message", "list_agents", "stop_agent", EXIT_PLAN),
    *("create_todo", "claim_todo", "complete_todo", "list_todos"),
)
_INPUT: Final[dict[str, Any]] = {
    **CLOSED,
    "properties": {
        "task": {"type": "string", "minLength": 1, "description": "What it is to do."},
        "background": {
            "type": "boolean",
            "default": False,
            "description": "Whether to go on at once; its answer then comes as a message.",
        },
    },
    "required": ["task"],
}
TASK: Final = {**_INPUT, "properties": {"task": _INPUT["properties"]["task"]}}
_WHY: Final = {
    **CLOSED,
    "properties": {"why": {"type": "string", "description": "Why that one goes on."}},
}
_TOLD: Final = {"description": "What it is about, in a few words.", "prompt": "What it is to do."}
_TEXTS: Final = {name: {"type": "string"} for name in ("ending", "mode", "agent", "state")}
ENDED: Final = {**CLOSED, "properties": {"answer": {"type": ["string", "null"]}, **_TEXTS}}


def agent_tool(
    name: str, description: str, agent: StartsAgent, *, hands_over: bool = False, stays: bool = False
) -> Tool:
    """Return the tool whose calls start an agent; its result is how that ended, and its answer.

    A call with `background` returns at once which agent it is: the address of the call. With `hands_over` the agent
    goes on in the place of the one that calls, with all that was said so far. With `stays` it is a team mate of that
    name: it works in the background, its answers come as messages, and after each it waits for what it is told next,
    by another call or by a message.

    Args:
        name: As of Tool.
        description: What a model reads about it.
        agent: The agent.
        hands_over: See above.
        stays: Likewise.

    Raises:
        ToolError: The name is none of a tool, or it does both.
    """
    if hands_over and stays:
        raise ToolError("an agent hands over or stays", file=f"tool {name!r}", remedy="leave one of them out")
    takes = _WHY if hands_over else TASK if stays else _INPUT
    effect = "write" if hands_over or stays else "pure"  # nothing goes beside these
    rest: Any = {"idempotent": True, "agent": agent, "hands_over": hands_over, "stays": stays}
    return Tool(name, description, takes, ENDED, effect, not_run, **rest)


def delegate(tools: Iterable[Tool]) -> Tool:
    """Return one tool in the place of several that start agents: the model names the type of agent that it wants.

    Args:
        tools: The tools; their names are the types.

    Raises:
        ToolError: There is none, or one of them starts no agent.
    """
    given = listed(tools, "the tools")
    if not given or any(getattr(it, "agent", None) is None or it.hands_over or it.stays for it in given):
        raise ToolError(f"{DELEGATE} is for tools that start agents", remedy="give it one, or name a profile")
    types = AgentsByName([*{tool.name: tool for tool in given}.values()])
    said = {name: {"type": "string", "minLength": 1, "description": text} for name, text in _TOLD.items()}
    about = "\n".join(f"{tool.name}: {tool.description}" for tool in types.tools)
    background = _INPUT["properties"]["background"]
    names = [it.name for it in types.tools]
    asked = {**said, "type": {"enum": names, "description": about}, "background": background}
    takes = {**_INPUT, "properties": asked, "required": [*_TOLD, "type"]}
    what = "Have another agent do a part of the work, which knows nothing of what was said so far."
    return Tool(DELEGATE, what, takes, ENDED, "pure", not_run, idempotent=True, agent=types)


class AgentsByName(Struct, frozen=True):
    """Agents, which a call names as the tools that start them are called.

    Attributes:
        tools: The tools.
    """

    tools: list[Tool]

    def start(self, place: str, arguments: dict[str, Any]) -> Any:
        """Return what the agent is made with that the argument `type` names, as of StartsAgent."""
        agent = next(it for it in self.tools if it.name == arguments["type"]).agent
        assert agent is not None
        return agent.start(place, {"task": arguments["prompt"]})


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
            below = (*tool.inner.values(), *(tool.agent.tools if tool.agent else ()))
            waiting += [it for it in below if found.get(it.name) is not it]
        elif not _is_same(tool, other):
            remedy = "give one of them another name, also in agents"
            raise ToolError(f"two tools are called {tool.name!r}", remedy=remedy)
    return [*found.values()]


def _is_same(tool: Tool, other: Tool) -> bool:
    """Return whether two tools of a name are one: read from the same file, or made of the same agent."""
    if tool.agent is not None:
        return tool.agent == other.agent and tool.offer() == other.offer()
    same = (tool.digest, tool.file, tool.inner.keys()) == (other.digest, other.file, other.inner.keys())
    return bool(tool.digest) and same
