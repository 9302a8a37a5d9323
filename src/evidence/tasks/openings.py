"""What a task's run opens with, and values of variables that are given beside the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...fail.errors import InputError
from ...runtime.agent import Agent
from ...runtime.core.lines import Line
from ...runtime.core.redaction import MARK
from ...runtime.formats.escape import quote_literal
from ...runtime.setup.opening import opening_of, variables_in

if TYPE_CHECKING:
    from .task import Task


def opening_from(task: Task, agent: Agent, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables and the history that a run of a task opens with.

    Args:
        task: The task.
        agent: Its agent.
        given: Values that stand in place of the task's. Those that the instructions do not name are left out.

    Raises:
        TaskError: What the task says does not fit the instructions.
    """
    named = variables_in(agent.instructions)
    own, history = task.data.get("variables"), task.data.get("history")
    beside = {name: value for name, value in given.items() if name in named}
    variables = {**(own or {}), **beside} if beside else own
    for key, template, *values in (
        ("variables", agent.instructions, variables, None),
        ("history", None, None, history),
    ):
        try:
            opening_of(template, *values)
        except InputError as error:
            place = key if key in task.data else "instructions" if "instructions" in task.data else "agent"
            raise task.error(f"/{place}", error.message, error.remedy) from None
    return {"variables": variables, "history": history}


def refuse_given(task: Task, agent: Agent, given: Mapping[str, str]) -> None:
    """Raise InputError for values that a person gave beside the task, and that its run cannot be made again with."""
    unknown = sorted(given.keys() - variables_in(agent.instructions))
    if unknown:
        raise InputError(
            f"the instructions do not name the variable {quote_literal(unknown[0])}",
            file=task.file,
            remedy=f"write {{{unknown[0]}}} where its value belongs, or leave out --variable {unknown[0]}",
        )
    redact = agent.redactor()
    for name, value in given.items():
        if redact(value) != value:
            raise InputError(
                f"--variable {name} holds a secret, or what looks like a placeholder for one",
                remedy="leave it out of the instructions: every program on this machine can read a command line",
            )


def given_beside(run: Line) -> dict[str, Any]:
    """Return what a run may have been given beside its task, as `build` takes it: values of variables, a principal."""
    return {"variables": recorded_variables(run), "principal": run.get("principal")}


def recorded_variables(run: Line) -> dict[str, str]:
    """Return the values of variables in a run line, none where it is of another shape.

    A value with a placeholder was never given beside the task, and is left to the task.
    """
    source = run.get("instructions")
    values = source.get("variables") if isinstance(source, dict) else None
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, str) and MARK not in value}


def refuse_other(
    run: Line, name: str, variables: Iterable[tuple[str, str]], principal: str | None = None
) -> None:
    """Raise InputError where values or a principal are given that an unfinished run was not begun with.

    Args:
        run: The run line of the unfinished run.
        name: Its folder, as in messages.
        variables: Names and values that are given now.
        principal: On whose behalf the run is to act now, None where nobody says so.
    """
    other, begun = "name another --out, or give --discard", recorded_variables(run)
    if principal not in (None, run.get("principal")):
        raise InputError(f"{name} was begun for another principal", remedy=f"leave out --principal, {other}")
    for variable, value in variables:
        if begun.get(variable) != value:
            raise InputError(
                f"{name} was begun with another value of the variable {variable!r}",
                remedy=f"leave out --variable, {other}",
            )
