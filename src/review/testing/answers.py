"""What a policy answers to one question of a policy test, as gate, loop and redactor say themselves.

A *question* is plain data with one key of KINDS, and `used` where that is asked for: a proposed `call`, perhaps on
behalf of a `principal` and at a `time`, a fact met `late`, the size of a result, the next `step`, a failed attempt
(`retry`), a `failure` for good of a tool or of the model, a `text` that enters a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...evidence.queries.decide import USED_BEFORE, call_of, counters_at, counters_of
from ...fail.catalog import ApprovalRefused, Denied, FailureMode, GaveUp, classify
from ...runtime.core.effects import Fault, FaultKind, Outcome, StepProgress, Wait
from ...runtime.core.lines import Line
from ...runtime.formats.canonical_json import encode
from ...runtime.loop.attempts import with_retries
from ...runtime.loop.retry import Schedule
from ...runtime.loop.state import RunSpec, RunState
from ...runtime.loop.step_builder import StepBuilder
from ...runtime.models.types import ToolSpec
from ...runtime.policy.gate import ALLOW, ESCALATE, Counters, Decision, Gate

Question = Mapping[str, Any]

ENDS: Final = "ends"
GOES_ON: Final = "goes_on"
RETRY: Final = "retry"
GIVE_UP: Final = "give_up"

# kind of question: what may be expected of it besides `expect`
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "call": ("rule", "at", "then", "timeout_s"),
    "late": ("rule", "at", "then"),
    "result_bytes": ("rule", "at", "then"),
    "step": ("rule", "at", "then", "tools"),
    "retry": ("at", "wait_ms"),
    "failure": ("at",),
    "text": ("at",),
}
# kind of question: what `used` may hold
USED: Final[Mapping[str, tuple[str, ...]]] = {
    "call": USED_BEFORE,
    "result_bytes": ("result_bytes",),
    "step": ("iterations", "tokens"),
    "failure": ("failures",),
}
# kind of question: the answers there are; a text's is any text
ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "call": ("allow", "deny", "escalate"),
    "late": ("allow", "deny"),
    "result_bytes": ("allow", "deny"),
    "step": ("allow", "deny"),
    "retry": (RETRY, GIVE_UP),
    "failure": (GOES_ON, ENDS),
}

# identities whose jitter is the least and the most that there is
_LEAST, _MOST = "216", "615"


@dataclass(frozen=True)
class Answer:
    """An answer: `expect` and what else may be expected (`rule`, `then`, ...).

    `at` is the line of the policy behind it, or the rule of a tool's schema.
    """

    expect: str
    at: str
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Line:
        """Return the answer as JSON data."""
        return {"expect": self.expect, "at": self.at, **self.more}

    def differs(self, expected: Mapping[str, Any]) -> bool:
        """Return whether the answer differs in anything that a test expects."""
        data = self.to_dict()
        return any(not _same(key, data.get(key), value) for key, value in expected.items())


def _same(key: str, actual: object, expected: object) -> bool:
    if key == "at" and type(expected) is int:
        return str(actual).rpartition(":")[2] == str(expected)
    return actual == expected


def kind_of(question: Question) -> str:
    """Return the kind of a question."""
    return next(kind for kind in KINDS if kind in question)


def answer(question: Question, gate: Gate) -> Answer:
    """Return what the policy of a gate answers to a question."""
    kind, policy = kind_of(question), gate.policy
    if kind == "retry":
        return _of_retry(question["retry"], gate)
    if kind == "text":
        return Answer(policy.redactor()(question["text"]), policy.at("/redact"))
    used = question.get("used", {})
    if kind == "failure":
        return _of_failure(question["failure"].get("tool"), used.get("failures", 0), gate)
    if kind == "call":
        call = call_of(question["call"]["tool"], question["call"]["arguments"], policy)
        counters = counters_of(used, gate.key_of(call), call.name, question.get("principal"))
        if "time" in question:
            counters = counters_at(counters, question["time"], policy, call.name)
        return _of_decision(gate.decide(call, counters), gate)
    if kind == "late":
        rule = "url_allowlist" if "target" in question["late"] else "sandbox_path"
        fact = {"rule": rule, **question["late"]}
        return _of_decision(gate.decide_late(_judged(fact, gate), question["late"].get("tool", "")), gate)
    counters = counters_of(used, b"")
    if kind == "result_bytes":
        return _of_budget(gate.decide_result(question["result_bytes"], counters), "max_result_bytes", gate)
    return _of_step(counters, gate)


def _judged(fact: dict[str, Any], gate: Gate) -> dict[str, Any]:
    """Return a fact as a running tool meets it: with what the rules on its requests say of headers and body."""
    asked = {key: value for key, value in fact.items() if key not in ("tool", "headers", "body")}
    if "tool" not in fact or "method" not in fact:
        return asked
    body = fact.get("body")
    text = body if body is None or isinstance(body, str) else encode(body)
    headers = tuple(fact.get("headers", {}).items())
    sent = None if text is None else text.encode("utf-8")
    refused = gate.request_rules.refusal(fact["tool"], fact["method"], headers, sent)
    return asked if refused is None else {**asked, "refused": refused}


def _of_decision(decision: Decision, gate: Gate) -> Answer:
    """Return a decision and how the run goes on after it; after an escalation, if the person refuses."""
    more: dict[str, Any] = {"rule": decision.rule_id}
    if decision.decision != ALLOW:
        asks = decision.decision == ESCALATE
        happening = ApprovalRefused() if asks else Denied(decision.rule_id)
        more["then"] = GOES_ON if classify(happening, gate.policy.on_deny).ending is None else ENDS
        if asks:
            more["timeout_s"] = decision.facts["timeout_s"]
    return Answer(decision.decision, gate.policy.shown(decision.at), more)


def _of_budget(denial: Decision | None, limit: str, gate: Gate) -> Answer:
    if denial is not None:
        return _of_decision(denial, gate)
    return Answer(ALLOW, gate.policy.at(f"/loop_budget/{limit}"), {"rule": "loop_budget"})


def _of_step(counters: Counters, gate: Gate) -> Answer:
    """Return whether there is another step, and whether the model is offered tools in it."""
    result = _of_budget(gate.decide_step(counters), "max_iterations", gate)
    if result.expect != ALLOW:
        return result
    state = _state(gate)
    state.counters = counters
    _, offered = state.notice_and_tools()
    return Answer(result.expect, result.at, {**result.more, "tools": bool(offered)})


def _state(gate: Gate) -> RunState:
    """Return the state of a run with one tool that has not begun."""
    schedule = Schedule.of(gate.policy.section("retry"))
    return RunState(RunSpec("test", "", 0, gate, schedule, (ToolSpec("tool", "", "{}"),)))


def _of_failure(tool: str | None, told: int, gate: Gate) -> Answer:
    """Return whether a run goes on after a tool, or without one the model's reply, failed for good."""
    policy = gate.policy
    state = _state(gate)
    state.told_failures = told
    mode = FailureMode.LLM_INVALID_OUTPUT if tool is None else FailureMode.TOOL_OUTPUT_INVALID
    ending = state.classify(GaveUp(mode), tool).ending
    key = "default" if tool is None or tool not in policy.on_failure_of else f"tools/{tool}"
    if ending is not None and told >= policy.max_failures:
        key = "max_failures"
    return Answer(GOES_ON if ending is None else ENDS, policy.at(f"/on_failure/{key}"))


def _of_retry(failure: Mapping[str, int], gate: Gate) -> Answer:
    """Return what follows the n-th failure of something that may be repeated."""
    attempt, after = failure["attempt"], failure.get("retry_after_ms")
    state = _state(gate)
    fault = Fault("ConnectionError", FaultKind.TRANSIENT, retry_after_ms=after)
    performed = with_retries(
        StepBuilder(state),
        lambda number: Wait(1, None, number, 0),
        lambda _: fault,
        index=None,
        idempotent=True,
    )
    schedule = state.run.schedule
    at = gate.policy.at("/retry/max_retries")
    try:
        next(performed)
        for outcome in (
            Outcome(fault=fault),
            *(Outcome(), Outcome(fault=fault)) * (attempt - 1),
        ):  # waits, fails
            item = performed.send(outcome)
            while isinstance(item, StepProgress):  # an event, which is answered by nothing
                item = next(performed)
    except StopIteration:
        return Answer(GIVE_UP, at)
    waits = [schedule.backoff_ms(attempt, identity, after) for identity in (_LEAST, _MOST)]
    return Answer(RETRY, at, {"wait_ms": waits})
