"""A record as a cassette: the outcome of every effect, read back from step lines and given again by position.

Whoever answers a run from a cassette gets the same run. An effect that the cassette does not hold, or that asks for
something else than was asked then, is a ReplayError that names the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...fail.errors import Cancelled, ReplayError
from ...light_dataclasses import dataclass, field, replace
from ..core.branches import BRANCH
from ..core.clock import Clock
from ..core.effects import AskHook, AskHuman, AskModel, Effect, Invoke, Outcome, Wait
from ..core.lines import Line
from ..core.outcome_codec import (
    answer_from_dict,
    fault_from_dict,
    pairs_from_dict,
    reply_from_dict,
    stop_from_reason,
)
from ..driver.ports import Stamps
from ..formats import canonical_json
from .recorded_clock import call_index, grouped_calls


@dataclass
class CassetteStep:
    """What a cassette holds of one step: outcomes by position, the model's input, decisions within attempts."""

    outcomes: dict[str, Outcome | Cancelled] = field(default_factory=dict)
    input: Line | None = None
    late: dict[str, int] = field(default_factory=dict)


class Cassette:
    """The outcomes of a run by (step, position), each to be taken once and in order.

    `counterfactual` says that the run goes under another policy: of a model's input messages and instructions are
    compared, not the tools that are offered, the options and how much the model may say; and what a person said
    under the recorded policy is taken for an answer. Without `parts` tools, options and instructions are not
    compared: whoever asks then compares the ledgers instead.
    """

    def __init__(
        self, steps: Mapping[int, CassetteStep], *, counterfactual: bool = False, parts: bool = True
    ) -> None:
        self._steps = dict(steps)
        self._counterfactual = counterfactual
        rest = () if counterfactual else ("max_output_tokens",)
        self._compared = (*_MESSAGES, *(_PARTS[: 1 if counterfactual else None] if parts else ()), *rest)
        self._now = CassetteStep()
        self._index = 0

    @classmethod
    def of(cls, lines: Iterable[Line], *, counterfactual: bool = False, parts: bool = True) -> Cassette:
        """Return the cassette of a ledger's step lines."""
        return cls(
            {
                line["step_index"]: CassetteStep(
                    outcomes_of(line), line["llm_input"], late_of(line["stamps"])
                )
                for line in lines
            },
            counterfactual=counterfactual,
            parts=parts,
        )

    def look(self, effect: Effect) -> Outcome | Cancelled | None:
        """Return what the cassette holds for an effect, or None."""
        self._turn(effect.step)
        return self._now.outcomes.get(effect.position)

    def take(self, effect: Effect) -> Outcome:
        """Return the recorded outcome of an effect.

        Raises ReplayError if the effect was not asked for, Cancelled if it was cancelled.
        """
        self._turn(effect.step)
        self._compare(effect)
        outcome = self._now.outcomes.pop(effect.position, None)
        if outcome is None:
            raise ReplayError(effect.step, f"{_words(effect)} is not in the record", effect.position)
        if isinstance(outcome, Cancelled):
            raise outcome
        if self._counterfactual and isinstance(effect, AskHuman) and outcome.answer is not None:
            return replace(outcome, answer=replace(outcome.answer, digest=effect.digest))
        return outcome

    def drop(self, effect: Effect) -> None:
        """Forget what the cassette holds for an effect."""
        self._turn(effect.step)
        self._now.outcomes.pop(effect.position, None)

    def late_decisions(self, effect: Effect) -> int:
        """How many decisions were stamped within an attempt."""
        self._turn(effect.step)
        return self._now.late.get(effect.position, 0)

    def unused(self) -> str | None:
        """Return in words the first position that was not asked for, or None if all were.

        Asked for a call of a group, it leaves out the other calls of the step, which have their own order.
        """
        branch = BRANCH.get()
        own = [at for at in self._now.outcomes if branch is None or call_index(at) == branch[1]]
        if own:
            return f"step {self._index}: {min(own)}"
        later = [index for index, step in self._steps.items() if index > self._index and step.outcomes]
        return f"step {min(later)}" if later else None

    def _turn(self, step: int) -> None:
        if step == self._index:
            return
        if self._now.outcomes:
            first = min(self._now.outcomes)
            raise ReplayError(self._index, f"recorded {first} of step {self._index} was not asked for")
        self._index = step
        self._now = self._steps.get(step, CassetteStep())

    def _compare(self, effect: Effect) -> None:
        """Compare a request with the recorded one."""
        then = self._now.input
        if then is None or not isinstance(effect, AskModel):
            return
        now: Line = effect.to_dict()
        for key in self._compared:
            if key in _PARTS and "tools" not in then:
                continue  # such a record does not say with which tools and options the model was asked
            if then.get(key) != now.get(key):
                raise ReplayError(effect.step, f"input differs at step {effect.step}: {_DIFFERS[key]}", key)


# keys of a step's `llm_input`; another policy leaves the messages and the first of the parts as they are
_MESSAGES: Final = ("messages", "digest")
_PARTS: Final = ("instructions", "tools", "options")
_DIFFERS: Final = {
    "messages": "the number of messages differs",
    "digest": "the messages differ",
    "instructions": "the instructions differ",
    "tools": "the tools that the model is offered differ",
    "options": "the model's options differ",
    "max_output_tokens": "max_output_tokens differs",
}


def _words(effect: Effect) -> str:
    if isinstance(effect, AskModel):
        return f"attempt {effect.attempt} of the model"
    if isinstance(effect, Invoke):
        return f"attempt {effect.attempt} of call {effect.index} ({effect.call.name})"
    if isinstance(effect, Wait):
        return f"a wait of {effect.ms} ms"
    if isinstance(effect, AskHook):
        return f"the answer of hook {effect.hook} to {effect.event}"
    return f"a person's answer to call {effect.index}"


class ReplayExecutor:
    """Performs nothing: every outcome comes from the cassette."""

    def __init__(self, cassette: Cassette, clock: Clock) -> None:
        self._cassette = cassette
        self._clock = clock

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Answer an effect from the record; see `Executor`."""
        for number in range(self._cassette.late_decisions(effect)):
            stamps[f"{effect.position}.c{number}"] = [self._clock.stamp(), self._clock.stamp()]
        return self._cassette.take(effect)


# ---- a step line as outcomes -----------------------------------------------------------------------------


def outcomes_of(step: Line) -> dict[str, Outcome | Cancelled]:
    """Return the outcome of every effect of a step by position; where the run was stopped, a Cancelled."""
    found: dict[str, Outcome | Cancelled] = {}
    for entry in step["llm_attempts"]:
        found[f"m.{entry['attempt']}"] = _of_model(step, entry)
        if "backoff_ms" in entry:
            found[f"wm.{entry['attempt']}"] = Outcome()
    for index, result in enumerate(step["tool_results"]):
        for entry in result["attempts"]:
            found[f"i{index}.{entry['attempt']}"] = _of_tool(result, entry)
            if "backoff_ms" in entry:
                found[f"w{index}.{entry['attempt']}"] = Outcome()
        if result["status"] == "cancelled" and "told" in result and result["attempts"]:
            last = result["attempts"][-1]  # the call was cancelled on its own, and the run went on
            at = f"w{index}.{last['attempt']}" if "backoff_ms" in last else f"i{index}.{last['attempt']}"
            found[at] = replace(_outcome_at(found, at), cancelled=True)
    for decision in step["policy_decisions"]:
        if "approval" in decision:
            answer = answer_from_dict(decision["approval"])
            answer = replace(answer, digest=answer.digest or "")  # null fits no question either
            found[f"h{decision['position'][1:].partition('.')[0]}"] = Outcome(answer=answer)
    for entry in step.get("hooks", ()):
        found[entry["position"]] = outcome_of_hook(entry)
    if "stopped" in step:
        # the effect during which it was stopped is the last that was begun
        effects = {at: pair[0] for at, pair in step["stamps"].items() if at[0] in "miwhk" and ".c" not in at}
        grouped = grouped_calls(step)
        results = step["tool_results"]
        stopped = [n for n in grouped if results[n]["status"] == "cancelled" and "told" not in results[n]]
        # each call has its own last one: an attempt, a wait, or a hook that was asked about its result
        own = [[at for at in effects if call_index(at) == n or at.startswith(f"k{n}.")] for n in stopped]
        for begun in own or [list(effects)]:
            found[max(begun, key=lambda at: effects[at])] = stop_from_reason(step["stopped"])
    return found


def _outcome_at(found: Mapping[str, Outcome | Cancelled], position: str) -> Outcome:
    outcome = found[position]
    assert isinstance(outcome, Outcome)
    return outcome


def late_of(stamps: Iterable[str]) -> dict[str, int]:
    """Attempt position -> how many decisions were stamped within it."""
    counts: dict[str, int] = {}
    for position in stamps:
        attempt, mark, number = position.rpartition(".c")
        if mark and number.isdecimal():
            counts[attempt] = counts.get(attempt, 0) + 1
    return counts


def _of_model(step: Line, entry: Line) -> Outcome:
    if "fault" in entry:
        return Outcome(fault=fault_from_dict(entry["fault"]))
    said = step["llm_output"]
    return Outcome() if said is None else Outcome(reply=reply_from_dict(said, step["intended_tool_calls"]))


def outcome_of_hook(entry: Line) -> Outcome:
    """Return what came of asking a hook, as an entry of `hooks` has it."""
    return Outcome(
        result=canonical_json.freeze(entry["answer"]) if "answer" in entry else None,
        fault=fault_from_dict(entry["fault"]) if "fault" in entry else None,
        invalid=entry.get("invalid"),
    )


def _of_tool(result: Line, entry: Line) -> Outcome:
    given = None
    if "returned" in entry:
        given = canonical_json.freeze(entry["returned"])
    elif result["status"] == "ok" and entry is result["attempts"][-1] and "unseen" not in entry:
        given = canonical_json.freeze(result["result"])
    return Outcome(
        result=given,
        fault=fault_from_dict(entry["fault"]) if "fault" in entry else None,
        invalid=entry.get("invalid"),
        returned_bytes=entry.get("returned_bytes"),
        result_lost=entry.get("unseen", False),
        checks=tuple(entry.get("checks", ())),
        reads=pairs_from_dict(entry, "reads"),
        writes=pairs_from_dict(entry, "writes"),
    )
