"""The ledger line of the step under way: the only code that writes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...fail.catalog import (
    CallStopped,
    Classification,
    Denied,
    FailureMode,
    Happening,
    ResultLost,
    StopReason,
    Succeeded,
)
from ..core.effects import (
    Answer,
    AskHook,
    AskModel,
    Call,
    Decision,
    DecisionKind,
    Fault,
    Outcome,
    Reply,
    StepProgress,
)
from ..core.lines import (
    AttemptEntry,
    AttemptStatus,
    DecisionEntry,
    HookEntry,
    Phase,
    RequestPartsEntry,
    ResultStatus,
    StepLine,
    ToolResultEntry,
)
from ..core.outcome_codec import fault_from_dict, reply_to_dict
from ..formats import canonical_json
from .state import RunState


class StepBuilder:
    """Builds one step's line, without stamps, from what happens in it.

    `state` is the run's, `index` the step's number from 1. `last_decision` is what the gate, or a person in its
    place, said last. `reply_problem` says why the reply cannot be used, `reply_place` where an answer does not fit.
    `replaced` counts, by call, how often hooks gave other arguments.
    """

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.index = state.index
        self.last_decision: Decision | None = None
        self.reply_problem: str | None = None
        self.reply_place: dict[str, str] = {}
        self.replaced: dict[int, int] = {}
        self._unreached: list[Call] = []
        self._told_unreached: dict[str, Any] | None = None
        self._mode: FailureMode | None = None
        self._line: StepLine = {
            "type": "step",
            "run_id": state.run.run_id,
            "step_index": state.index,
            "llm_input": None,
            "llm_attempts": [],
            "llm_output": None,
            "intended_tool_calls": [],
            "policy_decisions": [],
            "tool_results": [],
            "errors": [],
            "failure_mode": None,
            "usage": {"input_tokens": 0, "output_tokens": 0, "estimated": False},
        }
        self._progress = StepProgress(self.index, self._line, 0)

    # ---- the model --------------------------------------------------------------------------------------

    def add_input(self, effect: AskModel, notice: str | None, new_parts: RequestPartsEntry | None) -> None:
        """Record what the model is asked, the notice of ours that it read, and parts that the ledger lacks."""
        self._line["llm_input"] = effect.to_dict()
        if notice is not None:
            self._line["notice"] = notice
        if new_parts is not None:
            self._line["request_parts"] = new_parts

    def add_reply(self, reply: Reply, used: tuple[int, int], estimated: bool) -> None:
        """Record what the model said; its calls count as not reached until each is begun."""
        self._line["usage"] = {"input_tokens": used[0], "output_tokens": used[1], "estimated": estimated}
        self._line["llm_output"] = reply_to_dict(reply)
        self._line["intended_tool_calls"] = [call.to_dict() for call in reply.calls]
        self._unreached = list(reply.calls)

    def add_reply_problem(self, problem: str | None, **place: str) -> None:
        """Record why the reply cannot be used; `place` says where an answer does not fit its schema."""
        self.reply_problem, self.reply_place = problem, place
        self.add_error("m", problem=problem, **place)

    def tell_of_reply(self, told: dict[str, Any]) -> None:
        """Record what the model reads of its reply that cannot be used: in the place of each call's result, if any."""
        if self._unreached:
            self._told_unreached = told
        else:
            self._line["told"] = told

    def add_group(self, calls: Sequence[Call]) -> None:
        """Record which calls were performed together."""
        self._line.setdefault("groups", []).append([call.id for call in calls])

    def add_local_times(self, position: str, times: Mapping[str, str]) -> None:
        """Record the local times that a decision rests on, where some were asked for."""
        if times:
            self._line.setdefault("local_times", {})[position] = dict(times)

    # ---- decisions --------------------------------------------------------------------------------------

    def add_decision(self, position: str, phase: Phase, call: Call | None, decision: Decision) -> None:
        """Record what the gate said at a position of the step."""
        self.last_decision = decision
        self._line["policy_decisions"].append(
            {
                "position": position,
                "phase": str(phase),
                "id": None if call is None else call.id,
                "decision": str(decision.decision),
                "rule_id": str(decision.rule_id),
                "reason": decision.reason,
                "at": decision.at,
                "facts": decision.facts,
            }
        )

    def settle_escalation(self, decision: Decision, answer: Answer, digest: str, signer: str | None) -> None:
        """Put a person's answer, given to the question with `digest`, in the place of the escalation.

        `signer` is whose signature it has, None or empty where it has none; then none is recorded.
        """
        self.last_decision = decision
        entry = self._last_entry()
        entry["decision"], entry["rule_id"] = str(decision.decision), str(decision.rule_id)
        entry["reason"], entry["at"], entry["facts"] = decision.reason, decision.at, decision.facts
        entry["approval"] = {
            "answer": str(answer.answer),
            "by": answer.by,
            "why": answer.why,
            "digest": digest,
        }
        if signer and answer.signature is not None:
            entry["approval"] |= {"signature": answer.signature, "signer": signer}

    def deny_escalation(self) -> None:
        """Record that nobody allowed an escalated call before the run was stopped."""
        self._last_entry()["decision"] = str(DecisionKind.DENY)

    def _last_entry(self) -> DecisionEntry:
        return self._line["policy_decisions"][-1]

    # ---- hooks ------------------------------------------------------------------------------------------

    def add_hook(self, effect: AskHook, outcome: Outcome) -> None:
        """Record what a hook answered."""
        entry: HookEntry = {"position": effect.position, "hook": effect.hook, "event": effect.event}
        if outcome.fault is not None:
            entry["fault"] = outcome.fault.to_dict()
        elif outcome.result is not None:
            # None itself, as what reads the record finds it there
            entry["answer"] = None if outcome.result.text == "null" else outcome.result
        else:
            entry["invalid"] = outcome.invalid or "no answer"
        self._line.setdefault("hooks", []).append(entry)

    def next_hook(self, where: str) -> int:
        """Return the number of the next question to a hook at a place: a call's index, `m` or `s`."""
        return 1 + sum(entry["position"].startswith(f"k{where}.") for entry in self._line.get("hooks", ()))

    def next_decision(self, index: int) -> int:
        """Return the number of the next decision on a proposed call."""
        own = (f"d{index}", f"d{index}.")
        return 1 + sum(
            entry["position"] == own[0] or entry["position"].startswith(own[1])
            for entry in self._line["policy_decisions"]
        )

    def keep_returned(self, outcome: Outcome) -> None:
        """Record what a tool returned beside the result that the model reads, which hooks changed or denied."""
        self._last_result()["attempts"][-1]["returned"] = outcome.result

    # ---- calls and attempts -----------------------------------------------------------------------------

    def begin_call(self, call: Call) -> None:
        """Record that a call has its decision; it counts as denied until it is executed."""
        self._unreached.pop(0)
        self._line["tool_results"].append(
            {
                "id": call.id,
                "name": call.name,
                "status": str(ResultStatus.DENIED),
                "result": None,
                "attempts": [],
            }
        )

    def begin_execution(self) -> None:
        """Record that the call is executed; it counts as cancelled until it ends."""
        self._last_result()["status"] = str(ResultStatus.CANCELLED)

    def add_attempt(
        self,
        index: int | None,
        attempt: int,
        status: AttemptStatus,
        outcome: Outcome | None = None,
        backoff_ms: int | None = None,
    ) -> None:
        """Record an attempt of the model (`index` None) or of the call under way, and the wait that follows."""
        entry: AttemptEntry = {"attempt": attempt, "outcome": str(status)}
        if outcome is not None:
            self._describe(entry, outcome)
        if backoff_ms is not None:
            entry["backoff_ms"] = backoff_ms
        (self._line["llm_attempts"] if index is None else self._last_result()["attempts"]).append(entry)

    def _describe(self, entry: AttemptEntry, outcome: Outcome) -> None:
        """Add what a replay needs of an outcome; an input file that the run read before is not named again."""
        if outcome.fault is not None:
            entry["fault"] = outcome.fault.to_dict()
        if outcome.invalid is not None:
            entry["invalid"] = outcome.invalid
        if outcome.checks:
            entry["checks"] = list(outcome.checks)
        reads = [path for path, _ in outcome.reads if path not in self.state.known_inputs]
        if reads:
            self.state.known_inputs.update(reads)
            entry["reads"] = list(dict.fromkeys(reads))
        if outcome.writes:
            entry["writes"] = [list(pair) for pair in outcome.writes]

    def end_execution(
        self,
        happening: Happening,
        outcome: Outcome,
        *,
        result: canonical_json.Fragment | None = None,
        told: Any = None,
        refused_bytes: int | None = None,
    ) -> None:
        """Record what came of the call: its result, or why there is none.

        Args:
            happening: What the execution amounts to.
            outcome: The outcome of the last attempt.
            result: The result that the model reads, where there is one.
            told: What the model reads in place of a result that was lost.
            refused_bytes: The size of a result that did not fit the byte budget.
        """
        entry = self._last_result()
        attempt = entry["attempts"][-1]
        if isinstance(happening, Succeeded):
            entry["status"], entry["result"] = str(ResultStatus.OK), result
        elif isinstance(happening, ResultLost):
            entry["status"], entry["told"] = str(ResultStatus.OK), told
            attempt["unseen"] = True
        elif not isinstance(happening, CallStopped):  # which it counts as already
            denied = isinstance(happening, Denied)
            entry["status"] = str(ResultStatus.DENIED if denied else ResultStatus.FAILED)
            if refused_bytes is not None:
                attempt["returned_bytes"] = refused_bytes
            elif not denied and outcome.result is not None:
                attempt["returned"] = outcome.result

    def add_told(self, told: dict[str, Any]) -> None:
        """Record what the model reads of a call that was refused or failed."""
        self._last_result()["told"] = told

    def note_modes(self, happening: Happening, mode: FailureMode | None) -> None:
        """Record every failure mode of the call that has ended, where the policy lets the model read of failures.

        An attempt may have failed before another one brought what the call ended in.
        """
        result = self._last_result()
        if mode is None or not self.state.run.gate.policy.informs_of_failures:
            return
        recovered = len(result["attempts"]) > 1 and mode == FailureMode.TOOL_OUTPUT_INVALID
        result["modes"] = [str(FailureMode.TOOL_CALL_FAILURE)] * recovered + [str(mode)]

    @property
    def last_fault(self) -> Fault | None:
        """The exception in which the last attempt of the last call ended."""
        entry = self._last_result()["attempts"][-1].get("fault")
        return None if entry is None else fault_from_dict(entry)

    def _last_result(self) -> ToolResultEntry:
        return self._line["tool_results"][-1]

    def conclude(self) -> StepProgress:
        """Say that the result of the last call stands; returns the event that tells so."""
        self._progress.results += 1
        return self._progress

    def progress(self) -> StepProgress:
        """Return the event that tells of all that is recorded, up to the result of a call that is not concluded."""
        return self._progress

    # ---- the whole --------------------------------------------------------------------------------------

    def add_error(self, position: str, **facts: Any) -> None:
        """Record what went wrong at a position."""
        self._line["errors"].append({"position": position, **facts})  # type: ignore[typeddict-item]

    def note_mode(self, mode: FailureMode | None) -> None:
        """Remember what failed in a call that the step went on from."""
        self._mode = mode or self._mode

    def stop(self, reason: StopReason) -> None:
        """Record that the run was stopped in this step."""
        self._line["stopped"] = str(reason)

    def finish(self, classification: Classification) -> StepLine:
        """Return the whole line; calls that were not begun are in it as `not_reached`."""
        for call in self._unreached:
            entry: ToolResultEntry = {
                "id": call.id,
                "name": call.name,
                "status": str(ResultStatus.NOT_REACHED),
                "result": None,
                "attempts": [],
            }
            if self._told_unreached is not None:
                entry["told"] = self._told_unreached
            self._line["tool_results"].append(entry)
        mode = classification.mode or self._mode
        self._line["failure_mode"] = None if mode is None else str(mode)
        return self._line
