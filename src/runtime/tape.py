"""A record as a tape: the outcome of every effect, read back from step lines and given again by position.

Whoever answers a run from a tape gets the same run. An effect that the tape does not hold, or that asks for
something else than was asked then, is a ReplayError that names the place.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..fail.errors import Cancelled, Interrupted, ReplayError
from . import canonical_json
from .driver import Stamps
from .effects import Answer, AskModel, Call, Effect, Fault, Invoke, Outcome, Reply, Wait

Line = Mapping[str, Any]

_STOPPED: Final = ("cancelled", "interrupted")


class RecordedClock:
    """The stamps of a record, given again in their order; past their end one nanosecond after another."""

    def __init__(self, lines: Sequence[Line]) -> None:
        run, end = lines[0], lines[-1]
        self.kind: str = run["clock"]["kind"]
        self.start: str = run["clock"]["start"]
        stamps = [at for line in lines[1:] for pair in line.get("stamps", {}).values() for at in pair]
        if end["type"] == "end":
            stamps.append(end["stamp"])
        self._stamps = sorted(stamps, reverse=True)
        self._last = -1

    def stamp(self) -> int:
        self._last = self._stamps.pop() if self._stamps else self._last + 1
        return self._last

    def spend(self, what: str, extra_ms: int = 0) -> None:
        """Time passed when the record was made."""

    def sleep(self, ms: int) -> None:
        """Time passed when the record was made."""


class Tape:
    """The outcomes of a run by (step, position), each to be taken once and in order."""

    def __init__(self, steps: Iterable[Line]) -> None:
        self._steps = {step["step_index"]: step for step in steps}
        self._index = 0
        self._outcomes: dict[str, Outcome | Cancelled] = {}
        self._late: dict[str, int] = {}

    def look(self, effect: Effect) -> Outcome | Cancelled | None:
        """What the tape holds for an effect; None for nothing."""
        self._turn(effect.step)
        return self._outcomes.get(effect.position)

    def take(self, effect: Effect) -> Outcome:
        """The recorded outcome. Raises ReplayError for an effect that was not asked, Cancelled where one was."""
        self._turn(effect.step)
        self._compare(effect)
        outcome = self._outcomes.pop(effect.position, None)
        if outcome is None:
            raise ReplayError(effect.step, f"{_words(effect)} is not in the record", effect.position)
        if isinstance(outcome, Cancelled):
            raise outcome
        return outcome

    def late_decisions(self, effect: Effect) -> int:
        """How many decisions were stamped within an attempt."""
        self._turn(effect.step)
        return self._late.get(effect.position, 0)

    def left(self) -> str | None:
        """What nobody asked for: a position in words, or None where all was used."""
        if self._outcomes:
            return f"step {self._index}: {min(self._outcomes)}"
        later = [index for index in self._steps if index > self._index and outcomes_of(self._steps[index])]
        return f"step {min(later)}" if later else None

    def _turn(self, step: int) -> None:
        if step == self._index:
            return
        if self._outcomes:
            raise ReplayError(self._index, f"recorded {min(self._outcomes)} was not asked for", None)
        self._index = step
        line = self._steps.get(step)
        self._outcomes = outcomes_of(line) if line is not None else {}
        self._late = late_of(line) if line is not None else {}

    def _compare(self, effect: Effect) -> None:
        """What is asked against what was asked then."""
        line = self._steps.get(effect.step)
        if line is None or not isinstance(effect, AskModel) or line["llm_input"] is None:
            return
        then, now = line["llm_input"], effect.record()
        for key in ("messages", "digest", "max_output_tokens"):
            if then[key] != now[key]:
                what = {"digest": "the messages differ", "messages": "the number of messages differs"}.get(
                    key, f"{key} differs"
                )
                raise ReplayError(effect.step, f"input differs at step {effect.step}: {what}", key)


def _words(effect: Effect) -> str:
    if isinstance(effect, AskModel):
        return f"attempt {effect.attempt} of the model"
    if isinstance(effect, Invoke):
        return f"attempt {effect.attempt} of call {effect.index} ({effect.call.name})"
    if isinstance(effect, Wait):
        return f"a wait of {effect.ms} ms"
    return f"a person's answer to call {effect.index}"


class RecordedWorld:
    """Performs nothing: every outcome comes from the tape."""

    def __init__(self, tape: Tape, clock: RecordedClock) -> None:
        self._tape = tape
        self._clock = clock

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        for number in range(self._tape.late_decisions(effect)):
            stamps[f"{effect.position}.c{number}"] = [self._clock.stamp(), self._clock.stamp()]
        return self._tape.take(effect)


# ---- a step line as outcomes -----------------------------------------------------------------------------


def outcomes_of(step: Line) -> dict[str, Outcome | Cancelled]:
    """The outcome of every effect of a step by position; where the run was stopped, a Cancelled."""
    found: dict[str, Outcome | Cancelled] = {}
    for entry in step["llm_attempts"]:
        found[f"m.{entry['attempt']}"] = _of_model(step, entry)
        if "backoff_ms" in entry:
            found[f"wm.{entry['attempt']}"] = Outcome()
    results = {result["id"]: (i, result) for i, result in enumerate(step["tool_results"])}
    for index, result in results.values():
        for entry in result["attempts"]:
            found[f"i{index}.{entry['attempt']}"] = _of_tool(result, entry)
            if "backoff_ms" in entry:
                found[f"w{index}.{entry['attempt']}"] = Outcome()
    for decision in step["policy_decisions"]:
        if "approval" in decision:
            said = decision["approval"]
            answer = Answer(said["answer"], said["by"], said["why"])
            found[f"h{decision['position'][1:]}"] = Outcome(answer=answer)
    stopped = _stopped_at(step)
    if stopped is not None:
        interrupted = step["failure_mode"] == "interrupted"
        found[stopped] = Interrupted(signal.SIGINT) if interrupted else Cancelled("as recorded")
    return found


def late_of(step: Line) -> dict[str, int]:
    """Attempt position -> how many decisions were stamped within it."""
    counts: dict[str, int] = {}
    for position in step.get("stamps", ()):
        attempt, mark, number = position.rpartition(".c")
        if mark and number.isdecimal():
            counts[attempt] = counts.get(attempt, 0) + 1
    return counts


def _stopped_at(step: Line) -> str | None:
    """The effect during which a run was stopped: the last that a stopped step has stamps of."""
    if step["failure_mode"] not in _STOPPED:
        return None
    effects = {at: pair for at, pair in step["stamps"].items() if at[0] in "miwh" and ".c" not in at}
    return max(effects, key=lambda at: effects[at][0]) if effects else None


def _of_model(step: Line, entry: Line) -> Outcome:
    if "fault" in entry:
        return Outcome(fault=_fault(entry["fault"]))
    said = step["llm_output"]
    if said is None:
        return Outcome()
    usage = said["usage"]
    reply = Reply(
        text=said["text"],
        calls=tuple(_call(call) for call in step["intended_tool_calls"]),
        final_answer=said["final_answer"],
        finish_reason=said["finish_reason"],
        model=said["model"],
        usage=(usage[0], usage[1]) if usage is not None else None,
        raw=canonical_json.freeze(said["raw"]) if said["raw"] is not None else None,
        problem=said["problem"],
    )
    return Outcome(reply=reply)


def _of_tool(result: Line, entry: Line) -> Outcome:
    given = None
    if "returned" in entry:
        given = canonical_json.freeze(entry["returned"])
    elif result["status"] == "ok" and entry is result["attempts"][-1]:
        given = canonical_json.freeze(result["result"])
    return Outcome(
        result=given,
        fault=_fault(entry["fault"]) if "fault" in entry else None,
        invalid=entry.get("invalid"),
        returned_bytes=entry.get("returned_bytes"),
        checks=tuple(entry.get("checks", ())),
        reads=tuple((path, digest) for path, digest in entry.get("reads", ())),
        writes=tuple((path, digest) for path, digest in entry.get("writes", ())),
    )


def _fault(data: Line) -> Fault:
    return Fault(
        data["exception"], data["kind"], data.get("nothing_happened", False), data.get("retry_after_ms")
    )


def _call(data: Line) -> Call:
    arguments = data["arguments"]
    frozen = canonical_json.freeze(arguments) if arguments is not None else None
    return Call(data["id"], data["name"], frozen, data.get("arguments_text"), data.get("problem"))
