"""Inject faults from a task file at the place where the model, the tool or its I/O would be called."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...fail.errors import CallCancelled, Cancelled, Interrupted, TransientModelError
from ...runtime.core.clock import Clock
from ...runtime.core.effects import AskModel, Effect, Invoke
from ...runtime.driver.ports import Inject
from ...runtime.workspace.tool_io import IO

SIGINT = 2


def fault_injector(
    faults: Sequence[Mapping[str, Any]], error: Callable[[str, str, str], Exception], clock: Clock
) -> Inject | None:
    """Return the function that injects a task's faults, or None if it has none.

    A fault without `attempt` applies to every attempt; `returns` replaces a tool's result; `delays_ms` passes on
    the run's clock.

    Args:
        faults: The faults as in the task file.
        error: Makes an exception from a JSON Pointer into the task, a message and a remedy.
        clock: The run's clock.

    Raises:
        TaskError: A fault cannot be injected.
    """
    table = []
    for i, fault in enumerate(faults):
        raises = fault.get("raises")
        if raises is not None and exception_named(raises) is None:
            raise error(
                f"/faults/{i}/raises",
                f"{raises!r} is not a builtin exception that can be raised without arguments",
                "name one such as ConnectionError",
            )
        if fault["target"] != "model" and "call" not in fault:
            raise error(f"/faults/{i}", f"a fault of a {fault['target']} needs call", "count calls from 0")
        if fault["target"] == "io" and ("raises" not in fault or "returns" in fault):
            raise error(f"/faults/{i}", "a fault of io must raise, and cannot return", "give raises")
        table.append(fault)
    if not table:
        return None

    def inject(effect: Effect, io: IO | None, real: Callable[[], Any]) -> Any:
        fault = next((fault for fault in table if _meets(fault, effect)), None)
        return real() if fault is None else _perform(fault, io, real, clock)

    return inject


def exception_named(name: str) -> type[BaseException] | None:
    """Return the builtin exception of that name, or TransientModelError, if it needs no arguments; else None."""
    if name == "TransientModelError":
        return TransientModelError
    exception = getattr(builtins, name, None)
    if not isinstance(exception, type) or not issubclass(exception, BaseException):
        return None
    try:
        exception()
    except TypeError:
        return None
    return exception


def _meets(fault: Mapping[str, Any], effect: Effect) -> bool:
    if isinstance(effect, AskModel):
        same = fault["target"] == "model"
    elif isinstance(effect, Invoke):
        same = fault["target"] in ("tool", "io") and fault["call"] == effect.index
    else:
        return False
    attempt = fault.get("attempt", effect.attempt)
    return bool(same and fault["step"] == effect.step and attempt == effect.attempt)


def _perform(fault: Mapping[str, Any], io: IO | None, real: Callable[[], Any], clock: Clock) -> Any:
    clock.sleep(fault.get("delays_ms", 0))
    if fault.get("cancels") == "call":
        raise CallCancelled("by the task")
    if "cancels" in fault:
        raise Interrupted(SIGINT) if fault["cancels"] == "interrupted" else Cancelled("by the task")
    if "raises" in fault:
        kind = exception_named(fault["raises"])
        assert kind is not None  # checked when the task was loaded
        if fault["target"] == "io" and io is not None:
            _break(io, kind)
            return real()
        raise kind()
    return fault["returns"] if "returns" in fault else real()


def _break(io: IO, kind: type[BaseException]) -> None:
    """Make every I/O operation of an attempt raise; the tool may handle that as it likes."""

    def fail(*_arguments: object) -> None:
        raise kind()

    for name in ("read", "write", "list", "get", "request"):
        setattr(io, name, fail)
