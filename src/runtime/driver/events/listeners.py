"""Listeners: who watches a run hears of every ledger line, decision and effect, and cannot disturb it."""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ....fail.errors import InputError
from ....light_dataclasses import replace
from ...core.effects import AskModel, Attempted, Decided, Effect, Event, Outcome, StepProgress
from ...events import AgentEvent, EventFeed, EventListener
from ..ports import Listener, RunEvent
from ..stopping.interrupts import Interrupts


def listener_list(given: Iterable[Listener]) -> list[Listener]:
    """Return the listeners that a caller gives. Raises InputError for what is no list of listeners."""
    listeners: list[Any] = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, EventListener) or callable(each) for each in listeners):
        raise InputError(
            "listeners must be a list of functions", remedy="give [listener]; each gets a RunEvent"
        )
    return listeners


class ListenerHub:
    """Passes notices on. A listener that fails is dropped with a warning: watching a run cannot break it."""

    def __init__(self, listeners: Iterable[Listener], interrupts: Interrupts) -> None:
        self._plain: list[Callable[[RunEvent], object]] = []
        self._typed: list[Callable[[AgentEvent], object]] = []
        for listener in listener_list(listeners):
            if isinstance(listener, EventListener):
                self._typed.append(listener.hear)
            else:
                self._plain.append(listener)
        self._feed = EventFeed(lambda event: self._send(self._typed, event))
        self._interrupts = interrupts

    @property
    def hears_events(self) -> bool:
        """Whether somebody hears of events, and so of the pieces of a reply's text."""
        return bool(self._typed)

    def _send(self, listeners: list[Callable[[Any], object]], notice: RunEvent | AgentEvent) -> None:
        for listener in list(listeners):
            try:
                listener(notice)
            except KeyboardInterrupt:
                self._interrupts.defer()
            except Exception as error:  # noqa: BLE001 - foreign code
                listeners.remove(listener)
                # not even where warnings are errors does watching break the run
                with contextlib.suppress(Warning):
                    warnings.warn(f"a listener raised {type(error).__name__} and was dropped", stacklevel=2)

    def on_line(self, text: str) -> None:
        """Pass on a ledger line; the listeners share a decoded copy."""
        if self._plain:
            self._send(self._plain, RunEvent("line", line=json.loads(text), text=text))
        if self._typed:
            self._feed.on_line(json.loads(text))

    def on_text(self, effect: AskModel, text: str) -> None:
        """Pass on a piece of the text of a reply."""
        self._feed.on_text(effect, text)

    def on_notice(self, notice: StepProgress | Attempted) -> None:
        """Pass on what is new in the step under way, or that an attempt begins or is over."""
        if isinstance(notice, StepProgress):
            self._feed.on_progress(notice)
        else:
            self._feed.on_attempt(notice)

    def on_event(self, item: Effect | Event, outcome: Outcome | None) -> None:
        """Pass on a decision, or an effect with its outcome, with copies of all that could be changed."""
        if not self._plain:
            return
        if isinstance(item, Decided):
            item = replace(item, decision=copy.deepcopy(item.decision))
        if outcome is not None and outcome.checks:
            outcome = replace(outcome, checks=copy.deepcopy(outcome.checks))
        self._send(
            self._plain, RunEvent("decided" if outcome is None else "performed", item=item, outcome=outcome)
        )
