"""Tools by which agents of a run deal with each other. The loop answers their calls; no message leaves the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from ..log.values import Message
from ..tools.agents import EXIT_PLAN
from ..tools.contract import CLOSED, Tool, not_run
from .state import RunState

_TEXT: Final = {"type": "string"}
_TYPES: Final = {"after?": {"type": "array", "items": _TEXT}}
_WHICH: Final = "The agent: what the call that started it returned as `agent`."
_TODO: Final = "The name of what is to be done."
_BEFORE: Final = "The names of what has to be done before; also of what comes later."
_Answer = Callable[[RunState, dict[str, Any]], dict[str, Any]]


def _send_message(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    to = arguments["to"]
    place = run.above.place if to == "parent" and run.above is not None else _place_of(run, to)
    return {"sent": run.driver.post(place, Message(run.name, arguments["text"]))}


def _list_agents(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    known = {child.place: child for child in _background(run)}
    below = [it for it in run.driver.agents_in(run.place) if run.driver.stop_of(it) is None]
    agents = [known[place].name if place in known else place[:-1] for place in below]
    resting = [known[place].name for place in below if place in known and known[place].is_resting]
    return {"agents": agents} | ({"resting": resting} if resting else {})


def _stop_agent(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    place = _place_of(run, arguments["agent"])
    is_below = place in run.driver.agents_in(run.place)
    if is_below:
        run.driver.stop(place, "cancelled")
    return {"stopped": is_below}


def _exit_plan(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    run.leave_plan()  # a person has allowed it, see `calls.py`
    return {"planning": False}


def _create_todo(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    why = run.board.create(arguments["todo"], arguments["title"], arguments.get("after", ()))
    return {"created": not why} | ({"why": why} if why else {})


def _claim_todo(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get("todo") or next(iter(run.board.free()), "")
    why = run.board.claim(name, run.place)
    return {"claimed": not why} | ({"why": why} if why else {"todo": name})


def _complete_todo(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    why, freed = run.board.complete(arguments["todo"], run.place)
    for name, places in freed.items():
        for place in places:
            run.driver.post(place, Message(run.name, f"{name} is free now"))
    return {"completed": not why} | ({"why": why} if why else {"free": [*freed]})


def _list_todos(run: RunState, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"todos": run.board.listed()}


# what a model reads of each tool, its arguments, of which those with ? may be left out, and what answers
_SAID: Final[dict[str, tuple[str, dict[str, str], _Answer]]] = {
    "send_message": (
        "Send a message to another agent at work. It reads the message at its next step.",
        {"to": f"{_WHICH} Or `parent` for the agent that started this one.", "text": "What to say."},
        _send_message,
    ),
    "list_agents": ("List the agents below this one that are at work.", {}, _list_agents),
    "stop_agent": (
        "Stop an agent below this one, and all agents that it started.",
        {"agent": _WHICH},
        _stop_agent,
    ),
    EXIT_PLAN: (
        "Show a person your plan. Until somebody has allowed one you can only look around; then carry it out.",
        {"plan": "What you are going to do, step by step."},
        _exit_plan,
    ),
    "create_todo": (
        "Put something to do on the board that all agents of the run share.",
        {"todo": "A short name for it.", "title": "What is to be done.", "after?": _BEFORE},
        _create_todo,
    ),
    "claim_todo": (
        "Take something from the board to do it yourself. What waits for something else cannot be claimed yet.",
        {"todo?": f"{_TODO} Without it, the first that is free."},
        _claim_todo,
    ),
    "complete_todo": (
        "Say that you have done what you claimed. What waited for it alone becomes free.",
        {"todo": _TODO},
        _complete_todo,
    ),
    "list_todos": (
        "List what stands on the board: free, claimed, done, or waiting for something else.",
        {},
        _list_todos,
    ),
}
_GIVEN: Final = "sent agents resting stopped planning created claimed completed free todo todos why".split()
_GIVES: Final = {**CLOSED, "properties": {name: {} for name in _GIVEN}}


@lru_cache
def team_tool(name: str) -> Tool:
    """Return one of the tools, given one of TEAM_NAMES."""
    description, arguments, answer = _SAID[name]
    takes = {key.rstrip("?"): {**_TYPES.get(key, _TEXT), "description": it} for key, it in arguments.items()}
    needed = [key for key in arguments if key[-1] != "?"]
    given = {**CLOSED, "properties": takes, "required": needed}
    return Tool(name, description, given, _GIVES, "write", not_run, idempotent=True, answer=answer)


def _place_of(run: RunState, name: str) -> str:
    """Return the place of an agent: of a team mate by its name, of this agent or of one above it."""
    at: RunState | None = run
    while at is not None:
        for mate in at.mates(name):
            return mate.place
        at = at.above
    return f"{name}/"


def _background(run: RunState) -> Iterator[RunState]:
    for child in run.children.values():
        yield child
        yield from _background(child)
