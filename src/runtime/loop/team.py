"""Tools by which agents of a run deal with each other. The loop answers their calls; no message leaves the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..log.addresses import place_of
from ..log.values import Message
from ..tools.agents import TEAM_NAMES
from ..tools.contract import Tool
from .state import RunState

PARENT: Final = "parent"


def _tool(
    name: str,
    description: str,
    arguments: dict[str, str],
    results: dict[str, Any],
    answer: Callable[[Any, dict[str, Any]], dict[str, Any]],
) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    closed = {"type": "object", "additionalProperties": False}
    return Tool(
        name,
        description,
        {**closed, "properties": properties, "required": [*arguments]},
        {**closed, "properties": results, "required": [*results]},
        "write",
        _not_run,
        idempotent=True,
        answer=answer,
    )


def _not_run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    raise AssertionError("the loop answers calls of this tool")


def _send_message(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    to = arguments["to"]
    place = place_of(run.place[:-1]) if to == PARENT and run.place else f"{to}/"
    return {"sent": run.driver.post(place, Message(run.place[:-1], arguments["text"]))}


def _list_agents(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    below = run.driver.agents_in(run.place)
    return {"agents": [place[:-1] for place in below if run.driver.stop_of(place) is None]}


def _stop_agent(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    place = f"{arguments['agent']}/"
    is_below = place in run.driver.agents_in(run.place)
    if is_below:
        run.driver.stop(place, "cancelled")
    return {"stopped": is_below}


_WHICH: Final = "The agent: what the call that started it returned as `agent`."
TEAM_TOOLS: Final = {
    tool.name: tool
    for tool in (
        _tool(
            TEAM_NAMES[0],
            "Send a message to another agent at work. It reads the message at its next step.",
            {"to": f"{_WHICH} Or `{PARENT}` for the agent that started this one.", "text": "What to say."},
            {"sent": {"type": "boolean"}},
            _send_message,
        ),
        _tool(
            TEAM_NAMES[1],
            "List the agents below this one that are at work.",
            {},
            {"agents": {"type": "array", "items": {"type": "string"}}},
            _list_agents,
        ),
        _tool(
            TEAM_NAMES[2],
            "Stop an agent below this one, and all agents that it started.",
            {"agent": _WHICH},
            {"stopped": {"type": "boolean"}},
            _stop_agent,
        ),
    )
}
