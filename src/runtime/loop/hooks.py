"""Hooks: functions of the caller that are asked at four points of a run. They may tighten what the gate allows.

    before_model   before the model is asked       {"stop": REASON} ends the run
    before_call    after the gate, before a person {"deny": REASON}, {"escalate": REASON}, {"arguments": {...}}
    after_call     about a result                  {"deny": REASON}, {"result": {...}}
    on_stop        about the final answer          {"send_back": MESSAGE}

None and {} say nothing. Any other answer denies, and so does a hook that raises or takes too long. Several are asked in
order, and the first that denies decides. What a hook said is a line of the log, so a replay asks none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from ...fail.catalog import CONTINUE, Classification, Rule, StoppedByHook
from ..effects import AskHook
from ..formats.escape import quote_untrusted
from ..formats.strict_json import canonical
from ..log.events import Decided, HookAnswered, Stopped
from ..log.values import Call
from ..models.types import clean_text, read_call
from ..policy.leaf import Verdict
from .authority import Ruling
from .state import RunState

# how often hooks may give a call other arguments, and send back what answers a run or turn
MAX_CHANGES: Final = 3
_MAY_SAY: Final[dict[str, dict[str, type]]] = {
    "before_model": {"stop": str},
    "before_call": {"deny": str, "escalate": str, "arguments": dict},
    "after_call": {"deny": str, "result": dict},
    "on_stop": {"send_back": str},
}
HOOKS: Final = tuple(_MAY_SAY)
Hook = Callable[[dict[str, Any]], Any]


class Hooks(Struct, frozen=True):
    """Functions that are asked in a run; each gets a dict with `event`, `run_id`, `step` and what it is about.

    Attributes:
        name: What records call them.
        before_model: Gets `messages`.
        before_call: Gets `call`, with `name` and `arguments`.
        after_call: Gets `call` and `result`.
        on_stop: Gets `answer`.
        timeout_s: Seconds that each may take in a live run.
    """

    name: str = "hooks"
    before_model: Hook | None = None
    before_call: Hook | None = None
    after_call: Hook | None = None
    on_stop: Hook | None = None
    timeout_s: float = 30


class _Said(Struct, frozen=True):
    """What a hook said: one of the words of its event with its value, `deny` for a hook that failed, "" for nothing."""

    word: str
    value: Any
    by: str

    def ruling(self, decision: Literal["deny", "escalate"]) -> Ruling:
        """Return it as a decision."""
        return Ruling(Verdict(decision, Rule.HOOK, clean_text(f"hooks/{self.by}"), self.value))


async def before_model(run: RunState) -> Classification | None:
    """Ask before the model is asked. Returns what ends the run, or None."""
    for hooks in asked(run, "before_model"):
        said = await _ask(run, "", hooks, "before_model", {"messages": [*run.window.messages()]})
        if (ended := _ended(run, said)) is not None:
            return ended
    return None


async def on_stop(run: RunState, answer: str) -> Classification | None:
    """Ask about the final answer. Returns what follows, or None if it stands."""
    for hooks in asked(run, "on_stop") if run.changes["sent_back"] < MAX_CHANGES else ():
        said = await _ask(run, "", hooks, "on_stop", {"answer": answer})
        if isinstance(said, _Said) and said.word == "send_back":
            run.changes["sent_back"] += 1
            run.window.add({"role": "user", "content": said.value})
            return CONTINUE
        if (ended := _ended(run, said)) is not None:
            return ended
    return None


async def before_call(
    run: RunState, key: str, call: Call, decided: Decided, decide: Callable[[Call], Decided]
) -> tuple[Call, Decided | Stopped]:
    """Ask about a call, unless the gate denied it. Returns the call as it is to be made, and what was decided.

    After other arguments the gate decides anew, and all hooks are asked again.
    """
    if decided.decision == "deny":
        return call, decided
    for _ in range(MAX_CHANGES + 1):
        changed = False
        for hooks in asked(run, "before_call"):
            said = await _ask(run, f"{key}.", hooks, "before_call", {"call": _plain(call)})
            if isinstance(said, Stopped):
                return call, said
            if said.word == "deny":
                return call, run.note_decision(key, said.ruling("deny"))
            if said.word == "escalate" and decided.decision == "allow":
                decided = run.note_decision(key, said.ruling("escalate"))
            if said.word == "arguments" and canonical(said.value) != canonical(call.arguments):
                call = read_call(call.id, call.name, said.value)
                decided, changed = decide(call), True
                break
        if not changed or decided.decision == "deny":
            return call, decided
    reason = f"hooks gave it other arguments more than {MAX_CHANGES} times"
    return call, run.note_decision(key, Ruling(Verdict("deny", Rule.HOOK, "hooks", reason)))


async def after_call(
    run: RunState, key: str, call: Call, result: dict[str, Any]
) -> dict[str, Any] | Ruling | Stopped:
    """Ask about a result. Returns the result as the model reads it, or an objection."""
    for hooks in asked(run, "after_call"):
        about = {"call": _plain(call), "result": result}
        said = await _ask(run, f"{key}.", hooks, "after_call", about)
        if isinstance(said, Stopped):
            return said
        if said.word == "result":
            if run.gate.tools[call.name].output_validator.first_mismatch(said.value) is None:
                result = said.value
                continue
            said = _Said("deny", "its result does not fit the tool's output schema", said.by)
        if said.word == "deny":
            return said.ruling("deny")
    return result


def _plain(call: Call) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments}


def _ended(run: RunState, said: _Said | Stopped) -> Classification | None:
    if isinstance(said, Stopped):
        return run.stopped_by(said.why)
    if not said.word:
        return None
    run.note_ruling(run.at("d"), said.ruling("deny"))
    return run.classify(StoppedByHook())


def asked(run: RunState, event: str) -> list[Hooks]:
    """Return the hooks that are asked at a point."""
    own: Sequence[Hooks] = run.spec.hooks
    is_of_call = event in ("before_call", "after_call")
    if is_of_call and (run.guards or run.above is not None):  # they guard what is below too
        own = [*own, *run.guards, *(() if run.above is None else asked(run.above, event))]
    return [hooks for hooks in own if getattr(hooks, event) is not None] if own else []


async def _ask(
    run: RunState, prefix: str, hooks: Hooks, event: str, about: dict[str, Any]
) -> _Said | Stopped:
    """Ask one hook; `prefix` is "" for the step, or that of a call."""
    data = {"event": event, "run_id": run.spec.run_id, "step": run.step, **about}
    at = run.at(f"{prefix}k{run.next_number(run.at(prefix))}")
    effect = AskHook(getattr(hooks, event), data, hooks.timeout_s, run.spec.redactor)
    outcome = await run.driver.perform(at, effect)
    return outcome if isinstance(outcome, Stopped) else _read(outcome, event, hooks.name)


def _read(outcome: Any, event: str, name: str) -> _Said:
    if not isinstance(outcome, HookAnswered):
        what = "gave an answer of the type" if outcome.kind == "invalid" else "failed:"
        return _Said("deny", f"the hook {event} {what} {outcome.error}", name)
    if not outcome.answer:
        return _Said("", None, name)
    if len(outcome.answer) == 1:
        ((word, value),) = outcome.answer.items()
        kind = _MAY_SAY[event].get(word)
        if kind is dict and isinstance(value, dict):
            return _Said(word, value, name)
        if kind is str and isinstance(value, str):
            return _Said(word, value if word == "send_back" else quote_untrusted(value), name)
    return _Said("deny", f"the hook {event} gave an answer that it may not give", name)
