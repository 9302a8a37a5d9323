"""Faults from a task file, injected exactly where the model, the tool or its I/O would have been called."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...fail.errors import Cancelled, Interrupted, TransientModelError
from ...runtime.core.clock import Clock
from ...runtime.core.effects import AskModel, Effect, Invoke
from ...runtime.driver.ports import Inject
from ...runtime.workspace.tool_io import IO

SIGINT = 2


def faults_of(
    faults: Sequence[Mapping[str, Any]], error: Callable[[str, str, str], Exception], clock: Clock
) -> Inject | None:
    """Return what stands between effects and the world in a task, or None where it has no faults.

    `error` makes the complaint about the place of a JSON Pointer in the task, with a remedy.

    A fault without `attempt` meets every attempt; `returns` replaces a tool's result; `delays_ms` is a part
    of the run's time.
    """
    table = []
    for i, fault in enumerate(faults):
        raises = fault.get("raises")
        if raises is not None and exception_named(raises) is None:
            raise error(
                f"/faults/{i}/raises",
                f"{raises!r} is no builtin exception that can be raised without arguments",
                "name one such as ConnectionError",
            )
        if fault["target"] != "model" and "call" not in fault:
            raise error(f"/faults/{i}", f"a fault of a {fault['target']} needs call", "count calls from 0")
        if fault["target"] == "io" and ("raises" not in fault or "returns" in fault):
            raise error(f"/faults/{i}", "a fault of io raises and returns nothing", "give raises")
        table.append(fault)
    if not table:
        return None

    def inject(effect: Effect, io: IO | None, real: Callable[[], Any]) -> Any:
        fault = next((fault for fault in table if _meets(fault, effect)), None)
        return real() if fault is None else _perform(fault, io, real, clock)

    return inject


def exception_named(name: str) -> type[BaseException] | None:
    """The builtin exception of that name (or TransientModelError) that needs no arguments, else None."""
    if name == "TransientModelError":
        return TransientModelError
    found = getattr(builtins, name, None)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    try:
        found()
    except TypeError:
        return None
    return found


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
    """Let every operation of one attempt's way out raise; what the tool makes of it is the tool's."""

    def fail(*_arguments: object) -> None:
        raise kind()

    for name in ("read", "write", "list", "get"):
        setattr(io, name, fail)
