"""What happened in a run, as typed events: each comes of a line of the ledger, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..light_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something that happened in a run.

    Attributes:
        what: `run_started`, `call_proposed`, `decision`, `attempt`, `result`, `step` or `ended`.
        step: The number of the step, None outside one.
        call: The call's id, None where there is none.
        data: The entry of the ledger that says it: the whole line for `run_started`, `step` and `ended`.
    """

    what: str
    step: int | None
    call: str | None
    data: Mapping[str, Any]


def events_of(lines: Iterable[Mapping[str, Any]]) -> Iterator[AgentEvent]:
    """Yield the events that lines of a ledger tell of, in order.

    Within a step they are: the calls that were proposed; then call by call its decisions, its attempts and its
    result; then the step as a whole.
    """
    for line in lines:
        if line["type"] == "step":
            yield from _events_of_step(line)
        else:
            yield AgentEvent("run_started" if line["type"] == "run" else "ended", None, None, line)


def _events_of_step(line: Mapping[str, Any]) -> Iterator[AgentEvent]:
    step = line["step_index"]
    for attempt in line["llm_attempts"]:
        yield AgentEvent("attempt", step, None, attempt)
    for call in line["intended_tool_calls"]:
        yield AgentEvent("call_proposed", step, call["id"], call)
    results = {result["id"]: result for result in line["tool_results"]}
    for call in (None, *results):
        for decision in line["policy_decisions"]:
            if decision["id"] == call:
                yield AgentEvent("decision", step, call, decision)
        if call is not None:
            for attempt in results[call]["attempts"]:
                yield AgentEvent("attempt", step, call, attempt)
            yield AgentEvent("result", step, call, results[call])
    yield AgentEvent("step", step, None, line)
