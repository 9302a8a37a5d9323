"""Tools by which agents of a run deal with each other. The loop answers their calls; no message leaves the run."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from ..log.addresses import place_of
from ..log.values import Message
from ..tools.agents import EXIT_PLAN, not_run
from ..tools.contract import Tool
from .state import RunState

_CLOSED: Final = {"type": "object", "additionalProperties": False}
_WHICH: Final = "The agent: what the call that started it returned as `agent`."
_SAID: Final[dict[str, tuple[str, dict[str, str], dict[str, Any]]]] = {
    "send_message": (
        "Send a message to another agent at work. It reads the message at its next step.",
        {"to": f"{_WHICH} Or `parent` for the agent that started this one.", "text": "What to say."},
        {"sent": {"type": "boolean"}},
    ),
    "list_agents": (
        "List the agents below this one that are at work.",
        {},
        {"agents": {"type": "array", "items": {"type": "string"}}},
    ),
    "stop_agent": (
        "Stop an agent below this one, and all agents that it started.",
        {"agent": _WHICH},
        {"stopped": {"type": "boolean"}},
    ),
    EXIT_PLAN: (
        "Show a person your plan. Until somebody has allowed one you can only look around; then carry it out.",
        {"plan": "What you are going to do, step by step."},
        {"planning": {"type": "boolean"}},
    ),
}


@lru_cache
def team_tool(name: str) -> Tool:
    """Return one of the tools, given one of TEAM_NAMES."""
    description, arguments, results = _SAID[name]
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    takes = {**_CLOSED, "properties": properties, "required": [*arguments]}
    gives = {**_CLOSED, "properties": results, "required": [*results]}
    answers = (_send_message, _list_agents, _stop_agent, _exit_plan)
    answer = dict(zip(_SAID, answers, strict=True))[name]
    return Tool(name, description, takes, gives, "write", not_run, idempotent=True, answer=answer)


def _send_message(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    to = arguments["to"]
    place = place_of(run.place[:-1]) if to == "parent" and run.place else f"{to}/"
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


def _exit_plan(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    run.leave_plan()  # a person has allowed it, see `calls.py`
    return {"planning": False}
