"""Ask the hooks of a run: functions of the project that may tighten what the gate allows, and never widen it.

    before_model    before the model is asked; may end the run
    before_call     after the gate, before a person: may deny, escalate, or give other arguments, which the gate then
                    decides from its first rule
    after_call      after a call that succeeded: may deny the result, or give another
    on_stop         at the final answer: may send the agent back with a message

Each hook is asked by an effect, `AskHook`, and its answer stands in the step's line. An answer is null, which says
nothing, or an object with one key; anything else denies, as does a hook that raises or is late.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from ...fail.catalog import CONTINUE, Answered, Classification, Rule, StoppedByHook
from ...light_dataclasses import dataclass, replace
from ..core.effects import AskHook, Call, Decided, Decision, DecisionKind, Effect, Event, FaultKind, Outcome
from ..core.lines import Phase
from ..formats import canonical_json
from ..formats.canonical_json import Fragment
from ..formats.escape import quote_untrusted
from ..models.types import Message
from .state import HookSpec, StepGenerator
from .step_builder import StepBuilder

# the answers that a hook may give at each event, with the type of their value; `result` is any object
ANSWERS: Final[Mapping[str, Mapping[str, type]]] = {
    "before_model": {"stop": str},
    "before_call": {"deny": str, "escalate": str, "arguments": dict},
    "after_call": {"deny": str, "result": dict},
    "on_stop": {"send_back": str},
}
EVENTS: Final = tuple(ANSWERS)
MAX_REPLACED: Final = 3  # times that hooks may give other arguments for a call
MAX_SENT_BACK: Final = 3  # times that hooks may send the agent back in a run
_TIMEOUT_S: Final = 300  # how long a person is waited for where the policy asks none

Asking = Generator[Effect | Event, Outcome, "Said"]


@dataclass(frozen=True, slots=True)
class Said:
    """A hook's answer once it was read: `key` is None where it said nothing.

    `problem` says why there is no answer to use; `facts` are what a decision on it rests on.
    """

    spec: HookSpec
    event: str
    key: str | None = None
    value: Any = None
    problem: str | None = None
    facts: Mapping[str, Any] | None = None

    def decision(self, kind: DecisionKind, reason: str, **facts: Any) -> Decision:
        """Return a decision of this hook."""
        known = {"hook": self.spec.name, "event": self.event, **(self.facts or {}), **facts}
        at = f"{self.spec.file or f'<hooks {self.spec.name}>'}#/{self.event}"
        return Decision(kind, Rule.HOOK, f"hook {self.spec.name} {reason}", at, known)

    def denial(self) -> Decision | None:
        """Return the denial for an answer that denies or is none to use, None for any other."""
        if self.problem is not None:
            return self.decision(DecisionKind.DENY, self.problem)
        if self.key in ("deny", "stop"):
            return self.decision(DecisionKind.DENY, f"denies: {quote_untrusted(self.value)}")
        return None


def read_answer(spec: HookSpec, event: str, outcome: Outcome) -> Said:
    """Read strictly what came of asking a hook."""
    if outcome.fault is not None:
        late = outcome.fault.kind == FaultKind.TIMEOUT
        problem = "was late" if late else "raised an exception"
        return Said(spec, event, problem=problem, facts={"exception": outcome.fault.exception})
    garbage = Said(spec, event, problem="gave no answer that can be used")
    if outcome.result is None:
        return garbage
    answer = outcome.result.value()
    if answer is None:
        return Said(spec, event)
    if not isinstance(answer, dict) or len(answer) != 1:
        return garbage
    ((key, value),) = answer.items()
    wanted = ANSWERS[event].get(key)
    if wanted is None or not isinstance(value, wanted):
        return garbage
    return Said(spec, event, key, value)


def _ask(step: StepBuilder, spec: HookSpec, event: str, index: int | None, data: Mapping[str, Any]) -> Asking:
    """Ask one hook and record its answer. Yields AskHook."""
    where = {"before_model": "m", "on_stop": "s"}.get(event, str(index))
    state = step.state
    given = {"event": event, "run_id": state.run.run_id, "step": step.index, **data}
    effect = AskHook(step.index, index, step.next_hook(where), event, spec.name, given)
    outcome = yield effect
    step.add_hook(effect, outcome)
    return read_answer(spec, event, outcome)


def _asked_at(step: StepBuilder, event: str) -> tuple[HookSpec, ...]:
    return tuple(spec for spec in step.state.run.hooks if event in spec.events)


# ---- around a step -----------------------------------------------------------------------------------------


def before_model(step: StepBuilder) -> StepGenerator:
    """Ask the hooks before the model is asked. Returns what follows: the first that objects ends the run."""
    for spec in _asked_at(step, "before_model"):
        messages = [dict(message) for message in step.state.history.window()]
        said = yield from _ask(step, spec, "before_model", None, {"messages": messages})
        denial = said.denial()
        if denial is not None:
            return (yield from _end_run(step, denial))
    return CONTINUE


def on_stop(step: StepBuilder) -> StepGenerator:
    """Ask the hooks about the final answer. Returns what follows: the first that sends the agent back does.

    Once they have sent it back `MAX_SENT_BACK` times they are not asked any more, and the answer stands.
    """
    state = step.state
    ended = state.classify(Answered())
    if state.sent_back >= MAX_SENT_BACK:
        return ended
    for spec in _asked_at(step, "on_stop"):
        answer = "".join(state.partial_answers)
        said = yield from _ask(step, spec, "on_stop", None, {"answer": answer})
        denial = said.denial()
        if denial is not None:
            return (yield from _end_run(step, denial))
        if said.key is not None:
            state.sent_back += 1
            state.partial_answers, state.cut_offs, state.is_paused = [], 0, False
            state.history.add(sent_back_message(said.value))
            return CONTINUE
    return ended


def sent_back_message(text: str) -> Message:
    """Return the message with which a hook sends the agent back."""
    return {"role": "user", "content": text}


def _end_run(step: StepBuilder, denial: Decision) -> Generator[Effect | Event, Outcome, Classification]:
    """Record the decision with which a hook ends the run. Yields Decided."""
    event = Decided(step.index, None, None, denial)
    step.add_decision(event.position, Phase.STEP, None, denial)
    yield event
    return step.state.classify(StoppedByHook())


# ---- around a call -----------------------------------------------------------------------------------------


def before_call(
    step: StepBuilder, index: int, call: Call
) -> Generator[Effect | Event, Outcome, Call | Decision | None]:
    """Ask the hooks about a call that the gate does not deny.

    Returns the decision of the first that denies, else the call with other arguments of the first that gives some,
    else the decision of the first that escalates, else None. The arguments that a call has already are none to decide
    again.
    """
    escalation: Decision | None = None
    for spec in _asked_at(step, "before_call"):
        said = yield from _ask(step, spec, "before_call", index, {"call": _call_data(call)})
        denial = said.denial()
        if denial is not None:
            return denial
        if said.key == "escalate" and escalation is None:
            timeout_s = step.state.run.gate.policy.approval_timeout_s or _TIMEOUT_S
            reason = f"asks for a person: {quote_untrusted(said.value)}"
            escalation = said.decision(DecisionKind.ESCALATE, reason, timeout_s=timeout_s)
        if said.key == "arguments":
            arguments = canonical_json.freeze(said.value)
            if call.arguments is not None and arguments.text == call.arguments.text:
                continue
            step.replaced[index] = step.replaced.get(index, 0) + 1
            if step.replaced[index] > MAX_REPLACED:
                reason = f"gave other arguments once more after {MAX_REPLACED} times"
                return said.decision(DecisionKind.DENY, reason)
            return replace(call, arguments=arguments)
    return escalation


def after_call(
    step: StepBuilder, index: int, call: Call, result: Fragment
) -> Generator[Effect | Event, Outcome, tuple[Fragment, Decision | None]]:
    """Ask the hooks about the result of a call that succeeded.

    Returns the result that the model is to read, and the decision that denies it, None where none does. A result that
    a hook gives has to fit the output schema and the byte budget as the tool's own.
    """
    gate = step.state.run.gate
    for spec in _asked_at(step, "after_call"):
        data = {"call": _call_data(call), "result": result.value()}
        said = yield from _ask(step, spec, "after_call", index, data)
        denial = said.denial()
        if denial is not None:
            return result, denial
        if said.key != "result":
            continue
        given = canonical_json.freeze(said.value)
        if not _fits(step, call, given):
            reason = "gave a result that does not fit the tool's output schema"
            return result, said.decision(DecisionKind.DENY, reason)
        oversized = gate.decide_result(size_of(given), step.state.counters)
        if oversized is not None:
            return result, oversized
        if given.text != result.text:
            result = given
    return result, None


def size_of(result: Fragment) -> int:
    """Return the size of a result in bytes."""
    return len(result.text) if result.text.isascii() else len(result.text.encode("utf-8"))


def _fits(step: StepBuilder, call: Call, result: Fragment) -> bool:
    try:
        return step.state.run.gate.tools[call.name].output_validator.mismatch_of_result(result) is None
    except Exception:  # noqa: BLE001 - a schema that cannot be applied accepts nothing
        return False


def _call_data(call: Call) -> dict[str, Any]:
    arguments = None if call.arguments is None else call.arguments.value()
    return {"id": call.id, "name": call.name, "arguments": arguments}
