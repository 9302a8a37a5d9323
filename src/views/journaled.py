"""What a journal says of a run under way, in the shape of ledger lines.

A journal holds outcomes alone: the gate is pure and decides again when the run is gone on with, so that such lines
have no decisions, and no stamps of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..evidence.files.words.how_to_resume import how_to_resume
from ..fail.errors import RecordError
from ..runtime.core.lines import Line
from ..runtime.core.outcome_codec import outcome_to_dict
from ..runtime.formats import canonical_json
from ..runtime.journal.journal import read_journal


def lines_of_journal(data: bytes, file: str, name: str) -> tuple[list[Line], list[str]]:
    """Return the run line with a line for each step, and in words what is left open. Raises RecordError.

    `file` names the journal, `name` the run.
    """
    journal = read_journal(data, file)
    if journal is None:
        raise RecordError("holds nothing: the run died before it began", file=file, remedy="run it again")
    unfinished = []
    if journal.torn:
        unfinished.append(f"{journal.torn} bytes at the journal's end are an incomplete entry")
    unfinished += [
        f"call {intent['call']} of {intent['tool']} is in doubt: it began, and nobody knows its end"
        for intent in journal.intents.values()
    ]
    run = journal.begin["run"]
    unfinished.append(f"go on with {how_to_resume(name.removesuffix('.partial'), run)}")
    lines = [run]
    for index, step in sorted(journal.steps.items()):
        outcomes = {at: _plain(outcome_to_dict(outcome)) for at, outcome in step.outcomes.items()}
        lines.append(_step(index, step.input, outcomes))
    return lines, unfinished


def _plain(outcome: Line) -> Line:
    """Return an outcome as plain, mutable data."""
    plain: Line = json.loads(canonical_json.encode(outcome))
    return plain


def _step(index: int, llm_input: Mapping[str, Any] | None, outcomes: dict[str, Line]) -> Line:
    model = [outcome for at, outcome in outcomes.items() if at.startswith("m.")]
    reply = next((outcome["reply"] for outcome in model if "reply" in outcome), None)
    calls = reply["calls"] if reply is not None else []
    usage = (reply["usage"] if reply is not None else None) or (0, 0)
    llm_output = None if reply is None else {key: value for key, value in reply.items() if key != "calls"}
    return {
        "type": "step",
        "step_index": index,
        "llm_input": llm_input,
        "llm_attempts": [_attempt(number, outcome) for number, outcome in enumerate(model, start=1)],
        "llm_output": llm_output,
        "intended_tool_calls": calls,
        "policy_decisions": [],
        "tool_results": [_result(number, call, outcomes) for number, call in enumerate(calls)],
        "errors": [],
        "failure_mode": None,
        "usage": {"input_tokens": usage[0], "output_tokens": usage[1], "estimated": False},
        "stamps": {},
    }


def _result(number: int, call: Line, outcomes: dict[str, Line]) -> Line:
    tried = [outcome for at, outcome in outcomes.items() if at.startswith(f"i{number}.")]
    result = next((outcome["result"] for outcome in tried if "result" in outcome), None)
    attempts = [_attempt(n, outcome) for n, outcome in enumerate(tried, start=1)]
    status = "not_reached" if not tried else "ok" if result is not None else "unfinished"
    return {"id": call["id"], "name": call["name"], "status": status, "result": result, "attempts": attempts}


def _attempt(number: int, outcome: Line) -> Line:
    good = "reply" in outcome or "result" in outcome
    word = "cancelled" if "stopped" in outcome or "cancelled" in outcome else "success" if good else "failed"
    attempt: dict[str, Any] = {"attempt": number, "outcome": word}
    for key in ("fault", "reads", "writes", "checks"):
        if key in outcome:
            attempt[key] = outcome[key]
    return attempt
