"""What happened in a run, as typed events: read from its ledger, or heard while it happens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ..light_dataclasses import dataclass
from .core.effects import AskModel, Attempted, StepProgress
from .formats import canonical_json


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something that happened in a run.

    Attributes:
        what: `run_started`, `text_delta`, `call_proposed`, `decision`, `attempt_started`, `attempt_ended`, `attempt`,
            `result`, `step` or `ended`.
        step: The number of the step, None outside one.
        call: The call's id, None where there is none: an attempt without one is the model's.
        data: The entry of the ledger that says it: the whole line for `run_started`, `step` and `ended`. For
            `attempt_started` and `attempt_ended` it holds the number of the `attempt`. For a `text_delta`, which no
            ledger holds, it holds that number and the `text`.
    """

    what: str
    step: int | None
    call: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EventListener:
    """A listener that hears of a run as `AgentEvent`s, each when it happens.

    Attributes:
        hear: Is called with each event, in the thread that the run is in.

    Example:
        >>> from tachograph import Agent, EventListener, Policy, Stub
        >>> agent = Agent(Stub([{"answer": "At the depot."}]), ["search"], Policy.shipped())
        >>> heard = []
        >>> result = agent.run("Where?", listeners=[EventListener(lambda event: heard.append(event.what))])
        >>> heard
        ['run_started', 'attempt_started', 'attempt_ended', 'attempt', 'step', 'ended']
    """

    hear: Callable[[AgentEvent], object]


def events_of(lines: Iterable[Mapping[str, Any]]) -> Iterator[AgentEvent]:
    """Yield the events that lines of a ledger tell of: all but the pieces of text.

    Within a step they are: the attempts of the model; the calls that it proposed; then call by call its decisions, its
    attempts and its result; then the step as a whole. A run tells of them in the same order, except that calls which
    run together are all decided first, and their attempts start and end as they do. What came of them (`attempt`, a
    late `decision`, `result`) is told in the order of the ledger: of a call as soon as the calls before it are over.
    """
    for line in lines:
        if line["type"] == "step":
            yield from _events_of_step(line, len(line["tool_results"]))
            yield AgentEvent("step", line["step_index"], None, line)
        else:
            yield AgentEvent("run_started" if line["type"] == "run" else "ended", None, None, line)


def _events_of_step(line: Mapping[str, Any], concluded: int) -> Iterator[AgentEvent]:
    """Yield the events within a step; of its results only those of the calls that are concluded."""
    step = line["step_index"]
    yield from _attempts(step, None, line["llm_attempts"], ())
    for call in line["intended_tool_calls"]:
        yield AgentEvent("call_proposed", step, call["id"], call)
    results = {result["id"]: (number, result) for number, result in enumerate(line["tool_results"])}
    for call in (None, *(call["id"] for call in line["intended_tool_calls"])):
        decisions = [decision for decision in line["policy_decisions"] if decision["id"] == call]
        for decision in decisions:
            if decision["phase"] != _EXECUTION:
                yield AgentEvent("decision", step, call, decision)
        late = [decision for decision in decisions if decision["phase"] == _EXECUTION]
        if call not in results:
            continue
        number, result = results[call]
        yield from _attempts(step, call, result["attempts"], late)
        for decision in late:
            if not decision["position"].startswith("i"):  # on the result, after the last attempt
                yield AgentEvent("decision", step, call, decision)
        if number < concluded:
            yield AgentEvent("result", step, call, result)


def _attempts(
    step: int, call: str | None, attempts: Iterable[Mapping[str, Any]], late: Iterable[Mapping[str, Any]]
) -> Iterator[AgentEvent]:
    """Yield the events of the attempts of the model or of a call, with the decisions on what each of them met."""
    for attempt in attempts:
        number = {"attempt": attempt["attempt"]}
        yield AgentEvent("attempt_started", step, call, number)
        yield AgentEvent("attempt_ended", step, call, number)
        for decision in late:
            position = decision["position"].split(".")
            if position[0].startswith("i") and position[1] == str(attempt["attempt"]):
                yield AgentEvent("decision", step, call, decision)
        yield AgentEvent("attempt", step, call, attempt)


_EXECUTION: Final = "execution"


class EventFeed:
    """Tells of a run under way as events, each once.

    Args:
        tell: Gets each event.
    """

    def __init__(self, tell: Callable[[AgentEvent], None]) -> None:
        self._tell = tell
        self._told: Counter[tuple[str, str | None]] = Counter()  # in the step under way

    def on_line(self, line: Mapping[str, Any]) -> None:
        """Tell of a line of the ledger, and before that of what was not told of its step."""
        *within, whole = events_of([line])
        self._tell_new(within)
        self._told.clear()
        self._tell(whole)

    def on_progress(self, progress: StepProgress) -> None:
        """Tell of what is new in the step under way."""
        self._tell_new(_events_of_step(progress.line, progress.results))

    def on_attempt(self, attempted: Attempted) -> None:
        """Tell that an attempt begins or is over."""
        effect = attempted.effect
        call = None if isinstance(effect, AskModel) else effect.call.id
        what = "attempt_ended" if attempted.is_over else "attempt_started"
        self._told[what, call] += 1
        self._tell(AgentEvent(what, effect.step, call, {"attempt": effect.attempt}))

    def on_text(self, effect: AskModel, text: str) -> None:
        """Tell of a piece of text of a reply."""
        data = {"attempt": effect.attempt, "text": text}
        self._tell(AgentEvent("text_delta", effect.step, None, data))

    def _tell_new(self, events: Iterable[AgentEvent]) -> None:
        """Tell of those events that were not told yet: of each kind and call they only become more."""
        counts: Counter[tuple[str, str | None]] = Counter()
        for event in events:
            key = (event.what, event.call)
            counts[key] += 1
            if counts[key] > self._told[key]:
                self._told[key] = counts[key]
                # as the ledger has it, and a copy of the listeners' own
                data = json.loads(canonical_json.encode(event.data))
                self._tell(AgentEvent(event.what, event.step, event.call, data))
