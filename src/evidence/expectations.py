"""What a task expects of its run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from ..runtime.log.events import Answered, Decided, Event, RunEnded, StepEnded
from ..tracing.spans import spans_of
from .task_file import Expected


def missed_expectations(expected: Expected, events: Sequence[Event]) -> list[str]:
    """Return how a run misses what its task expects, one line each."""
    spans = Counter(span.name for span in spans_of(events)) if expected.spans else Counter[str]()
    decisions = [it for it in events if type(it) is Decided] if expected.decisions is not None else []
    answers = {event.at: event.answer for event in events if type(event) is Answered}
    end = events[-1]
    found: dict[str, Any] = {
        "ending": end.ending if isinstance(end, RunEnded) else "",
        "decisions": [_verdict(decided, answers) for decided in decisions],
        "modes": [event.mode for event in events if type(event) is StepEnded and event.mode],
        "spans": {name: spans[name] for name in expected.spans or ()},
    }
    pairs = [(name, wanted, found[name]) for name, wanted in to_builtins(expected).items()]
    return [f"{name}: expected {wanted}, found {it}" for name, wanted, it in pairs if wanted != it]


def _verdict(decided: Decided, answers: Mapping[str, str]) -> str:
    """Return a decision as a task names it: `allow`, or `deny:RULE`; where a person was asked, by the answer."""
    answer = answers.get(f"{decided.at.rpartition('.d')[0]}.p")
    is_allowed = decided.decision == "allow" or (decided.decision == "escalate" and answer == "allow")
    return "allow" if is_allowed else f"deny:{decided.rule}"
