"""Derive again what followed from the answers of hooks: which hook was asked next, and what was decided.

A hook's answer, what the gate said and what a person said are taken from the record. What follows from them is what the
loop itself makes of them, whose very functions are run on these answers: nothing else is run, and no hook is called.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from ...fail.catalog import CONTINUE, Classification, Rule
from ...fail.errors import Cancelled, PolicyError
from ...light_dataclasses import replace
from ...runtime.core.effects import (
    Answer,
    AskHook,
    AskHuman,
    Decision,
    DecisionKind,
    Effect,
    Event,
    Group,
    Outcome,
)
from ...runtime.core.lines import Line
from ...runtime.core.outcome_codec import answer_from_dict, call_from_dict
from ...runtime.formats import canonical_json
from ...runtime.journal.cassette import outcome_of_hook
from ...runtime.journal.decided_calls import decided_calls, proposals_of, results_of_hooks
from ...runtime.loop.hooks import after_call, before_model, on_stop
from ...runtime.loop.retry import Schedule
from ...runtime.loop.state import HookSpec, RunSpec, RunState
from ...runtime.loop.step_builder import StepBuilder
from ...runtime.loop.tool_calls import REPEATED, decide_call
from ...runtime.models.failure_messages import denied_call
from ...runtime.policy.gate import Counters, Gate, GateRequest
from ...runtime.policy.per_tool.tool_limits import RETRY_AFTER
from ...runtime.policy.policy import Policy
from .differences.drift import shorten

_UNFINISHED: Final = ("refusal", "length", "pause")  # ways in which a reply is no final answer


def hook_problems(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """Yield what does not follow from the answers of the hooks of a run: number of the line, and what is wrong.

    Raises KeyError, TypeError, ValueError, AttributeError or IndexError for lines of an unknown shape.
    """
    run, steps = lines[0], lines[1:-1]
    specs = HookSpec.of(run)
    gate = _RecordedGate(run)
    state = RunState(RunSpec(run["run_id"], run["question"], run["seed"], gate, Schedule(), (), hooks=specs))
    for number, line in enumerate(steps, start=2):
        if not specs and "hooks" not in line and not _by_hooks(line):
            continue
        step = _Step(state, gate, line, is_last=number == len(lines) - 1)
        try:
            step.derive()
        except _Underivable as problem:
            yield number, str(problem)


class _Underivable(Exception):
    """Something in a step does not follow from what was answered."""


def _by_hooks(line: Line) -> list[Line]:
    return [entry for entry in line["policy_decisions"] if entry["rule_id"] == "hook"]


class _RecordedGate(Gate):
    """Says of calls and results what the record says that the gate said."""

    def __init__(self, run: Line) -> None:
        policy = run["policy"]
        data: dict[str, Any] = {"schema": "policy/v1", "on_deny": policy["on_deny"]}
        try:
            super().__init__(Policy.from_dict(data), {})
        except PolicyError as error:
            raise ValueError("no policy answers a denial so") from error
        self._on_deny = policy["on_deny"]
        self._wants_signatures = bool(policy.get("signers"))
        self.said: list[Decision] = []  # of the call under way, in the order of the questions
        self.late: list[Decision | None] = []  # of the results that hooks gave for it

    def wait_for_person(self, timeout_s: Any) -> None:
        """Let a person have as long as the record says; the policy that says so is not in the record."""
        data: dict[str, Any] = {"schema": "policy/v1", "on_deny": self._on_deny}
        if type(timeout_s) is int and timeout_s > 0:
            data["approval"] = {"required_for": [], "timeout_s": timeout_s}
        try:
            self.policy = Policy.from_dict(data)
        except PolicyError as error:
            raise _Underivable(f"no policy lets a person have {timeout_s} s") from error

    def signer_of(self, answer: Answer, digest: str) -> str | None:
        """Return whether a recorded answer has a signature, where the run wants one: whose is checked elsewhere."""
        return answer.signature if self._wants_signatures else ""

    def decide_request(self, request: GateRequest) -> Decision:
        """Return the next recorded decision on the call under way."""
        if not self.said:
            raise _Underivable(f"{request.call.id}: the gate did not decide the arguments that a hook gave")
        return self.said.pop(0)

    def decide_result(self, size: int, counters: Counters) -> Decision | None:
        """Return what the record says of the next result that a hook gave."""
        return self.late.pop(0) if self.late else None


class _Step:
    """One step line, derived from its answers.

    A problem is raised: what follows a wrong place cannot be told.
    """

    def __init__(self, state: RunState, gate: _RecordedGate, line: Line, *, is_last: bool) -> None:
        state.index = line["step_index"]
        self._state, self._gate, self._line = state, gate, line
        self._is_last = is_last
        self._builder = StepBuilder(state)
        self._left = list(line.get("hooks", ()))

    def derive(self) -> None:
        """Run what the loop does with hooks in this step. Raises _Underivable at the first difference."""
        line = self._line
        if not any(
            entry["position"] == "d" and entry["rule_id"] != "hook" for entry in line["policy_decisions"]
        ):
            self._check_ending(self._drive(before_model(self._builder)))
        if line["llm_input"] is not None and self._is_answer():
            self._check_ending(self._drive(on_stop(self._builder)), is_end=True)
        for index in range(len(line["intended_tool_calls"])):
            if proposals_of(line, index):
                self._call(index)
        if self._left:
            raise _Underivable(f"{self._left[0]['position']}: no hook was to be asked there")
        self._compare()

    def _check_ending(self, classification: Classification | None, *, is_end: bool = False) -> None:
        """Compare where the run ends with what hooks let follow; `is_end` where it ends if they say nothing."""
        if classification is None:
            return
        ended = classification.ending is not None
        if ended and not is_end and self._line["llm_input"] is not None:
            raise _Underivable("the model was asked, though a hook had ended the run")
        if ended != self._is_last and (ended or is_end):
            raise _Underivable(
                f"the run {'ends' if self._is_last else 'goes on'} here, and hooks said otherwise"
            )

    def _is_answer(self) -> bool:
        output = self._line["llm_output"]
        return (
            output is not None
            and output["final_answer"] is not None
            and output["problem"] is None
            and output["finish_reason"] not in _UNFINISHED
            and not any(error["position"] == "m" and "problem" in error for error in self._line["errors"])
        )

    # ---- a call -----------------------------------------------------------------------------------------

    def _call(self, index: int) -> None:
        line, gate = self._line, self._gate
        made = proposals_of(line, index)
        gate.said = [self._of_gate(item.entry) for item in made if not item.by_hook]
        gate.wait_for_person(made[-1].entry["facts"].get("timeout_s"))
        call = call_from_dict(line["intended_tool_calls"][index])
        decided = self._drive(decide_call(self._builder, index, gate.request_for(call, Counters())))
        if gate.said:
            raise _Underivable(f"{made[-1].entry['position']}: nothing was to be decided again there")
        if decided is None:
            return
        result = line["tool_results"][index]
        refusal, _ = decided
        if refusal is not None:
            self._check_denied(index, made[-1].entry, executed=False)
            if result["attempts"]:
                raise _Underivable(f"{call.id}: was performed, though it was denied")
        elif self._has_succeeded(index):
            self._result(index)

    def _of_gate(self, entry: Line) -> Decision:
        """Return a recorded decision as the gate gave it, before a person answered or the run was stopped."""
        kind, reason = DecisionKind(entry["decision"]), str(entry["reason"])
        if "approval" in entry:
            kind, reason = DecisionKind.ESCALATE, reason.rpartition(": ")[0]
        elif "stopped" in self._line and entry["rule_id"] == "approval" and reason != REPEATED:
            kind = DecisionKind.ESCALATE
        return Decision(kind, Rule(entry["rule_id"]), reason, entry["at"], entry["facts"])

    def _has_succeeded(self, index: int) -> bool:
        """Return whether a call gave a result that hooks were asked about."""
        result = self._line["tool_results"][index]
        if not result["attempts"]:
            return False
        last = result["attempts"][-1]
        if result["status"] == "ok":
            return "unseen" not in last
        return "returned" in last and result["status"] in ("denied", "cancelled")

    def _result(self, index: int) -> None:
        line = self._line
        result, last = line["tool_results"][index], line["tool_results"][index]["attempts"][-1]
        entry = next((item for item in line["policy_decisions"] if item["position"] == f"d{index}.r"), None)
        given = results_of_hooks(line, index)
        self._gate.late = [None] * len(given)
        if entry is not None and entry["rule_id"] != "hook" and given:
            kind = DecisionKind(entry["decision"])
            rule = Rule(entry["rule_id"])
            self._gate.late[-1] = Decision(kind, rule, entry["reason"], entry["at"], entry["facts"])
        call = call_from_dict(decided_calls(line)[index])
        self._gate.tools = {call.name: _Fitting(len(given))}  # type: ignore[dict-item]
        returned = canonical_json.freeze(last["returned"] if "returned" in last else result["result"])
        brought = self._drive(after_call(self._builder, index, call, returned))
        if brought is None:
            return
        read, late = brought
        at = f"d{index}.r"
        made = None if late is None else {"phase": "execution", "id": call.id, **late.to_dict()}
        self._same(at, None if entry is None else _plain(entry), made)
        if late is not None:
            self._check_denied(index, entry, executed=True)
        elif result["result"] is None or canonical_json.encode(result["result"]) != read.text:
            raise _Underivable(f"{call.id}: its result is not the one that hooks left")
        if ("returned" in last) != (late is not None or read.text != returned.text):
            raise _Underivable(f"{call.id}: what its tool returned is not recorded as hooks changed it")

    def _check_denied(self, index: int, entry: Line | None, *, executed: bool) -> None:
        """Compare what the model was told of a denial with the decision."""
        result = self._line["tool_results"][index]
        if result["status"] != "denied":
            raise _Underivable(f"{result['id']}: is {result['status']}, though it was denied")
        if entry is None or "told" not in result:
            return
        retryable = entry["rule_id"] == "tool_limits" and RETRY_AFTER in entry["facts"]
        told = denied_call(entry["rule_id"], entry["reason"], executed=executed, retryable=retryable)
        if result["told"] != told:
            raise _Underivable(f"{result['id']}: the model was told of another denial than was decided")

    # ---- answers ----------------------------------------------------------------------------------------

    def _drive(self, generator: Generator[Effect | Group | Event, Outcome, Any]) -> Any:
        """Run a part of the loop on the recorded answers; return None where the run was stopped in it."""
        try:
            item = next(generator)
            while True:
                outcome = self._answer(item)
                item = generator.throw(outcome) if isinstance(outcome, Cancelled) else generator.send(outcome)
        except StopIteration as done:
            return done.value
        except Cancelled:
            return None

    def _answer(self, item: Effect | Group | Event) -> Outcome | Cancelled:
        if isinstance(item, AskHook):
            return self._of_hook(item)
        if isinstance(item, AskHuman):
            return self._of_person(item)
        return Outcome()  # an event

    def _of_hook(self, effect: AskHook) -> Outcome | Cancelled:
        entry = self._left[0] if self._left else None
        asked = (effect.position, effect.hook, effect.event)
        if entry is not None and (entry["position"], entry["hook"], entry["event"]) == asked:
            if len(entry) != 4 or len(entry.keys() & {"answer", "fault", "invalid"}) != 1:
                raise _Underivable(
                    f"{effect.position}: has one of answer, fault and invalid, and nothing else"
                )
            if entry.get("fault", {"kind": "other"})["kind"] not in ("other", "timeout"):
                raise _Underivable(
                    f"{effect.position}: a hook raises or is late, and does not fail otherwise"
                )
            return outcome_of_hook(self._left.pop(0))
        if "stopped" in self._line and all(item["position"] != effect.position for item in self._left):
            return Cancelled()
        raise _Underivable(f"{effect.position}: the hook {effect.hook} was to be asked at {effect.event}")

    def _of_person(self, effect: AskHuman) -> Outcome | Cancelled:
        entry = proposals_of(self._line, effect.index)[-1].entry
        if "approval" in entry:
            # whether the answer belongs to this question is checked with the approvals
            return Outcome(answer=replace(answer_from_dict(entry["approval"]), digest=effect.digest))
        if "stopped" in self._line:
            return Cancelled()
        raise _Underivable(f"{effect.position}: a person was to be asked")

    # ---- decisions --------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Compare the decisions on steps and proposed calls with those that were derived."""
        derived = {entry["position"]: entry for entry in self._builder.finish(CONTINUE)["policy_decisions"]}
        recorded = {
            entry["position"]: entry
            for entry in self._line["policy_decisions"]
            if entry["phase"] == "proposal" or (entry["rule_id"] == "hook" and entry["phase"] != "execution")
        }
        for position in {**recorded, **derived}:
            entry, made = recorded.get(position), derived.get(position)
            self._same(
                position, None if entry is None else _plain(entry), None if made is None else _plain(made)
            )

    @staticmethod
    def _same(position: str, recorded: Line | None, derived: Line | None) -> None:
        if recorded is None or derived is None:
            if recorded is not derived:
                if recorded is None:
                    raise _Underivable(
                        f"{position}: the decision that follows from what hooks answered is missing"
                    )
                raise _Underivable(f"{position}: the decision does not follow from what hooks answered")
            return
        for key in sorted(derived.keys() | recorded.keys()):
            a, b = (side.get(key, "nothing") for side in (recorded, derived))
            if a != b:
                raise _Underivable(
                    f"{position}: {key} is {shorten(a)}, what hooks answered gives {shorten(b)}"
                )


class _Fitting:
    """A tool whose output schema the first results of hooks fit, and no other."""

    def __init__(self, fitting: int) -> None:
        self._fitting = fitting
        self.output_validator = self

    def mismatch_of_result(self, _result: Any) -> str | None:
        """Return None for a result that fits."""
        self._fitting -= 1
        return None if self._fitting >= 0 else "does not fit"


def _plain(entry: Any) -> Line:
    """Return what of an entry follows from answers; which question was answered is checked with the approvals."""
    plain = {key: value for key, value in entry.items() if key not in ("position", "approval")}
    if "approval" in entry:
        elsewhere = ("digest", "signature", "signer")
        plain["approval"] = {key: value for key, value in entry["approval"].items() if key not in elsewhere}
    return plain
