"""One run under way: what it is made with, and what it has come to."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from ...fail.catalog import Classification, FailureMode, GaveUp, Happening, classify
from ..driver import Driver
from ..log.events import Decided, Event
from ..log.values import Call, ModelChoice, ToolOffer, Usage
from ..models.types import Message
from ..policy.gate import Gate
from ..policy.leaf import Question, Verdict
from ..policy.prices import Price, key_of
from ..policy.rules.loop_budget import Need
from ..redaction.redactor import Redactor
from ..schema.answer_type import AnswerType
from ..tools.contract import Tool
from ..tools.identity import call_key
from .window import Window

_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND


class RunSpec(Struct, frozen=True):
    """What a run is made with.

    Attributes:
        run_id: Its name.
        question: What is asked.
        gate: The gate.
        offers: The tools as the model is offered them.
        models: The model, and its fallbacks.
        instructions: The system message.
        seed: Of the jitter of waits.
        history: The messages before the question.
        hooks: What is asked at points of the run, see `hooks.py`.
        output: The type of the final answer; None where any text is one.
        output_retries: How often the model is asked again for an answer that does not fit.
        redactor: Of this run alone; it learns what the placeholders of the run stand for.
        deadline_s: Seconds after which the run is stopped; 0 for never.
    """

    run_id: str
    question: str
    gate: Gate
    offers: tuple[ToolOffer, ...]
    models: Sequence[ModelChoice]
    instructions: str = ""
    seed: int = 0
    history: Sequence[Message] = ()
    hooks: Sequence[Any] = ()
    output: AnswerType | None = None
    output_retries: int = 0
    redactor: Redactor = field(default_factory=lambda: Redactor((), {}, b""))
    deadline_s: int = 0


class RunState:
    """A run under way.

    Attributes:
        window: What the model sees.
        used: What is used up of the budgets, by the name of the budget without `max_`.
        refused: The calls that were refused, by identity, with the rule.
        mode: The failure mode of the step.
        cost: What the reply of the step cost, in millionths of a US dollar.
    """

    def __init__(self, spec: RunSpec, driver: Driver) -> None:
        self.spec, self.driver = spec, driver
        self.gate = spec.gate
        self.window = Window()
        self.used: defaultdict[str, int] = defaultdict(int)
        self.refused: dict[str, str] = {}
        self.mode: FailureMode | None = None
        self.cost = 0
        self._key: tuple[Call, str] | None = None  # the last one that was asked for
        self._times: defaultdict[str, list[int]] = defaultdict(list)
        self._repeats: defaultdict[str, int] = defaultdict(int)
        self._decisions: defaultdict[str, int] = defaultdict(int)
        self._counted: set[str] = set()
        self._results: defaultdict[tuple[str, str], int] = defaultdict(int)

    def at(self, key: str) -> str:
        """Return an address in the step that is under way."""
        return f"{self.driver.step}.{key}"

    def note(self, event: Event) -> None:
        """Write a line."""
        self.driver.journal.append(event)

    def note_verdict(self, at: str, verdict: Verdict) -> Decided:
        """Write what the gate said."""
        decision, rule, place, reason = verdict
        decided = Decided(at=at, decision=decision, rule=rule, place=place, reason=reason)
        self.note(decided)
        return decided

    def note_decision(self, key: str, verdict: Verdict) -> Decided:
        """Write the next decision on a call, given the call's place in the step."""
        at = self.at(f"{key}.d")
        self._decisions[at] += 1
        number = self._decisions[at]
        return self.note_verdict(at if number == 1 else f"{at}{number}", verdict)

    def count_hook(self, prefix: str) -> int:
        """Return the number of the next hook that is asked about a step or a call."""
        self._decisions[prefix] += 1
        return self._decisions[prefix]

    def has_time(self, wait: int = 0) -> bool:
        """Return whether the time of the run is not up, also after a wait of some nanoseconds."""
        seconds = (self.driver.now + wait) // _SECOND
        return self.gate.policy.limits.allows(Need("max_wall_clock_s", seconds, 1))

    def ask_gate(self, about: Any, tool: str = "") -> Verdict:
        """Ask the gate about what is no line of the log where it is allowed."""
        self.used["wall_clock_s"] = self.driver.now // _SECOND
        return self.gate.ask(Question(about, tool, self.used), explains=False)

    def ask_about(self, key: str, call: Call) -> Verdict:
        """Ask the gate about a proposed call, given its place in the step; one that it allowed before counts anew."""
        at = self.at(key)
        if at in self._counted:
            self._counted.remove(at)
            self.used["tool_calls"] -= 1
            self._times[call.name].pop()
        times, minute = self._times[call.name], self.driver.now - _MINUTE
        self.used["wall_clock_s"] = self.driver.now // _SECOND
        used = {**self.used, "calls": len(times), "per_minute": len(times) - bisect_right(times, minute)}
        return self.gate.ask(Question(call, call.name, used, self._repeats[self.key_of(call)]))

    def _price(self, number: int) -> Price | None:
        return self.gate.policy.prices.get(key_of(self.spec.models[number].name))

    def tokens_left(self, number: int) -> int:
        """Return how many tokens one of the models may reply with, so that neither tokens nor money are overdrawn."""
        limits, price = self.gate.policy.limits.limits, self._price(number)
        left = limits["max_tokens"] - self.used["tokens"]
        if "max_cost" in limits and price is not None:
            left = min(left, price.most_output(limits["max_cost"] - self.used["cost"]))
        return max(left, 0)

    def count_reply(self, number: int, usage: Usage) -> None:
        """Note what a reply of one of the models took: tokens, and money where the policy says what they cost."""
        price = self._price(number)
        self.used["tokens"] += usage.input_tokens + usage.output_tokens
        self.cost = 0 if price is None else price.cost(usage)
        self.used["cost"] += self.cost

    def count_call(self, key: str, call: Call) -> None:
        """Note that a call is made."""
        self._counted.add(self.at(key))
        self.used["tool_calls"] += 1
        self._times[call.name].append(self.driver.now)

    def retry_after_ms(self, call: Call) -> int | None:
        """Return after what time the limits of its tool let a denied call through; None where no time does."""
        leaf, times = self.gate.policy.tool_rules(call.name).limits, self._times[call.name]
        most = leaf.limits.get("per_minute", 0)
        if not 0 < most <= len(times) or not leaf.allows(Need("calls", len(times), 1)):
            return None
        return -(-(times[-most] + _MINUTE - self.driver.now) // 1_000_000)

    def tool_of(self, call: Call) -> Tool | None:
        """Return the tool of a call, None where the run has none of that name."""
        return self.gate.tools.get(call.name)

    def key_of(self, call: Call) -> str:
        """Return the identity of a call."""
        if self._key is None or self._key[0] is not call:
            self._key = call, call_key(call, self.tool_of(call))
        return self._key[1]

    def count_result(self, call: Call, result: str) -> None:
        """Note that a call gave a result, of which the digest is given."""
        key = self.key_of(call)
        self._results[key, result] += 1
        self._repeats[key] = max(self._repeats[key], self._results[key, result])

    def give_up(self, mode: FailureMode, tool: str = "") -> Classification:
        """Return what follows from a failure of a tool, or of the model for "": the policy says if the run goes on."""
        word = self.gate.policy.on_failure(tool, self.used["failures"])
        found = classify(GaveUp(mode), self.gate.policy.on_deny, word)
        self.used["failures"] += found.ending is None
        self.mode = mode
        return found

    def classify(self, happening: Happening, on_failure: str = "terminate") -> Classification:
        """Return what follows from a happening, and note its mode."""
        found = classify(happening, self.gate.policy.on_deny, on_failure)
        self.mode = found.mode or self.mode  # what ends the run comes last
        return found
