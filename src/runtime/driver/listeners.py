"""Listeners: who watches a run hears of every ledger line, decision and effect, and cannot disturb it."""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from collections.abc import Iterable
from typing import Any

from ...fail.errors import InputError
from ...light_dataclasses import replace
from ..core.effects import Decided, Effect, Event, Outcome
from .interrupts import Interrupts
from .ports import Listener, RunEvent


def listener_list(given: Iterable[Listener]) -> list[Listener]:
    """Return the listeners that a caller gives. Raises InputError for what is no list of functions."""
    listeners: list[Any] = list(given) if isinstance(given, Iterable) else [None]
    if not all(map(callable, listeners)):
        raise InputError(
            "listeners must be a list of functions", remedy="give [listener]; each gets a RunEvent"
        )
    return listeners


class ListenerHub:
    """Passes notices on. A listener that fails is dropped with a warning: watching a run cannot break it."""

    def __init__(self, listeners: Iterable[Listener], interrupts: Interrupts) -> None:
        self._listeners = listener_list(listeners)
        self._interrupts = interrupts

    def _send(self, notice: RunEvent) -> None:
        for listener in list(self._listeners):
            try:
                listener(notice)
            except KeyboardInterrupt:
                self._interrupts.defer()
            except Exception as error:  # noqa: BLE001 - foreign code
                self._listeners.remove(listener)
                # not even where warnings are errors does watching break the run
                with contextlib.suppress(Warning):
                    warnings.warn(f"a listener raised {type(error).__name__} and was dropped", stacklevel=2)

    def on_line(self, text: str) -> None:
        """Pass on a ledger line; the listeners share a decoded copy."""
        if self._listeners:
            self._send(RunEvent("line", line=json.loads(text), text=text))

    def on_event(self, item: Effect | Event, outcome: Outcome | None) -> None:
        """Pass on a decision, or an effect with its outcome, with copies of all that could be changed."""
        if not self._listeners:
            return
        if isinstance(item, Decided):
            item = replace(item, decision=copy.deepcopy(item.decision))
        if outcome is not None and outcome.checks:
            outcome = replace(outcome, checks=copy.deepcopy(outcome.checks))
        self._send(RunEvent("decided" if outcome is None else "performed", item=item, outcome=outcome))
