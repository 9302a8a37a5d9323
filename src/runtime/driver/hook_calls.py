"""Ask a hook for real: its function under its deadline, with a copy of the data."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from ...fail.errors import Cancelled
from ...light_dataclasses import replace
from ..core.effects import AskHook, Fault, FaultKind, Outcome
from ..core.redaction import Redactor
from ..formats import canonical_json
from ..formats.canonical_json import NotJson
from ..loop.retry import fault_from_error
from ..tools.hooks import Hooks
from .interrupts import ForceQuit


def ask_hook(hooks: Sequence[Hooks], effect: AskHook, redact: Redactor) -> Outcome:
    """Return what a hook answers, redacted; where it raises or is late, its fault without its text."""
    try:
        asked = next(item for item in hooks if item.name == effect.hook)
        data = copy.deepcopy(dict(effect.data))
        if asked.timeout_s is None:
            said = asked.ask(effect.event, data)
        else:
            from ..tools.deadline import deadline

            with deadline(asked.timeout_s, ForceQuit):
                said = asked.ask(effect.event, data)
    except (KeyboardInterrupt, Cancelled, ForceQuit):
        raise
    except BaseException as error:
        import logging  # slow to import, and most hooks do not raise

        logging.getLogger("tachograph").info("hook %s raised", effect.hook, exc_info=error)
        fault = fault_from_error(error)
        kind = fault.kind if fault.kind == FaultKind.TIMEOUT else FaultKind.OTHER
        return Outcome(fault=replace(Fault(fault.exception, kind), exception=redact(fault.exception)))
    try:
        return Outcome(result=redact.data(canonical_json.freeze(said)))
    except NotJson as error:
        return Outcome(invalid=error.reason)
