"""Ask a hook for real: its function under its deadline, with a copy of the data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...fail.errors import Cancelled
from ...light_dataclasses import replace
from ..core.effects import AskHook, Fault, FaultKind, Outcome
from ..core.redaction import Redactor
from ..formats import canonical_json
from ..formats.canonical_json import NotJson
from ..loop.retry import fault_from_error
from ..tools.coroutines import is_async
from ..tools.hooks import Hooks
from .foreign_calls import Attempt, ForeignCalls, Manner, log_failure
from .stopping.interrupts import ForceQuit


async def ask_hook(
    hooks: Sequence[Hooks], effect: AskHook, redact: Redactor, calls: ForeignCalls, attempt: Attempt
) -> Outcome:
    """Return what a hook answers, redacted; where it raises or is late, its fault without its text.

    Beside an event loop an `async` hook is awaited in that loop, and ends with its run; any other waits in a thread.
    """
    asked = next(item for item in hooks if item.name == effect.hook)
    function = getattr(asked, effect.event)
    if calls.is_async and is_async(function):
        said, failed = await calls.call(
            lambda: function(_copy_of(effect)), Manner.AWAITED, attempt, asked.timeout_s
        )
    else:
        said, failed = await calls.call(lambda: _asked_here(asked, effect), Manner.THREAD, attempt)
    if failed is not None:
        return _fault_of(effect, failed, redact)
    try:
        return Outcome(result=redact.data(canonical_json.freeze(said)))
    except NotJson as error:
        return Outcome(invalid=error.reason)


def _copy_of(effect: AskHook) -> dict[str, Any]:
    return copy.deepcopy(dict(effect.data))


def _asked_here(asked: Hooks, effect: AskHook) -> Any:
    """Return what a hook says, in this thread. Raises what it raises, and TimeoutError where it is late."""
    if asked.timeout_s is None:
        return asked.ask(effect.event, _copy_of(effect))
    from ..tools.deadline import deadline

    with deadline(asked.timeout_s, ForceQuit):
        return asked.ask(effect.event, _copy_of(effect))


def _fault_of(effect: AskHook, error: BaseException, redact: Redactor) -> Outcome:
    """Return what a hook raised as a fault. Raises what is no failure of the hook."""
    if isinstance(error, KeyboardInterrupt | Cancelled | ForceQuit):
        raise error
    log_failure("hook %s raised", effect.hook, error=error, redact=redact)
    fault = fault_from_error(error)
    kind = fault.kind if fault.kind == FaultKind.TIMEOUT else FaultKind.OTHER
    return Outcome(fault=replace(Fault(fault.exception, kind), exception=redact(fault.exception)))
