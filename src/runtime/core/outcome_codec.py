"""Outcomes as plain data and back: what a journal writes of an effect, and what a cassette gives again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any

from ...fail.catalog import StopReason
from ...fail.errors import Cancelled, DeadlineExceeded, Interrupted
from ...light_dataclasses import replace
from ..formats import canonical_json
from ..formats.canonical_json import Fragment
from .effects import Answer, Call, Fault, Outcome, Reply
from .lines import OutputEntry

Data = dict[str, Any]


def outcome_to_dict(outcome: Outcome | Cancelled) -> Data:
    """Return an outcome as JSON data, without empty fields."""
    if isinstance(outcome, Cancelled):
        return {"stopped": stop_reason(outcome).value}
    out: Data = {}
    if outcome.reply is not None:
        out["reply"] = _reply_data(outcome.reply)
    if outcome.result is not None:
        out["result"] = outcome.result
    if outcome.answer is not None:
        said = outcome.answer
        out["answer"] = {"answer": str(said.answer), "by": said.by, "why": said.why, "digest": said.digest}
        if said.signature is not None:
            out["answer"]["signature"] = said.signature
    if outcome.fault is not None:
        out["fault"] = outcome.fault.to_dict()
    for name in ("invalid", "returned_bytes"):
        if getattr(outcome, name) is not None:
            out[name] = getattr(outcome, name)
    if outcome.result_lost:
        out["unseen"] = True
    if outcome.cancelled:
        out["cancelled"] = True
    if outcome.checks:
        out["checks"] = list(outcome.checks)
    for name in ("reads", "writes"):
        if getattr(outcome, name):
            out[name] = [list(pair) for pair in getattr(outcome, name)]
    return out


def outcome_from_dict(data: Mapping[str, Any]) -> Outcome | Cancelled:
    """Return the outcome that `outcome_to_dict` wrote. Raises KeyError, TypeError or ValueError for other data."""
    if "stopped" in data:
        return stop_from_reason(data["stopped"])
    return Outcome(
        reply=_reply_of(data["reply"]) if "reply" in data else None,
        result=canonical_json.freeze(data["result"]) if "result" in data else None,
        answer=answer_from_dict(data["answer"]) if "answer" in data else None,
        fault=fault_from_dict(data["fault"]) if "fault" in data else None,
        invalid=data.get("invalid"),
        returned_bytes=data.get("returned_bytes"),
        result_lost=data.get("unseen", False),
        cancelled=data.get("cancelled", False),
        checks=tuple(data.get("checks", ())),
        reads=pairs_from_dict(data, "reads"),
        writes=pairs_from_dict(data, "writes"),
    )


def map_texts(outcome: Outcome, change: Callable[[str], str]) -> Outcome:
    """Return a tool's outcome with every text of it changed that came from outside."""
    fault = outcome.fault
    result = outcome.result
    if result is not None and change(result.text) != result.text:
        result = canonical_json.freeze(canonical_json.map_strings(result.value(), change))
    return replace(
        outcome,
        result=result,
        fault=fault and replace(fault, exception=change(fault.exception)),
        checks=tuple(
            {key: change(item) if isinstance(item, str) else item for key, item in check.items()}
            for check in outcome.checks
        ),
        reads=tuple((change(path), digest) for path, digest in outcome.reads),
        writes=tuple((change(path), digest) for path, digest in outcome.writes),
    )


# ---- what stops a run ------------------------------------------------------------------------------------


def stop_reason(stop: Cancelled) -> StopReason:
    """Return what stopped a run, in the ledger's word."""
    if isinstance(stop, DeadlineExceeded):
        return StopReason.DEADLINE
    return StopReason.INTERRUPTED if isinstance(stop, Interrupted) else StopReason.CANCELLED


def stop_from_reason(word: str) -> Cancelled:
    """Return what `stop_reason` gave `word` for."""
    if word == StopReason.DEADLINE:
        return DeadlineExceeded("as recorded")
    return Interrupted(signal.SIGINT) if word == StopReason.INTERRUPTED else Cancelled("as recorded")


# ---- parts -----------------------------------------------------------------------------------------------


def fault_from_dict(data: Mapping[str, Any]) -> Fault:
    """Return the fault that a record describes."""
    return Fault(
        data["exception"],
        data["kind"],
        data.get("nothing_happened", False),
        data.get("retry_after_ms"),
        data.get("undeclared"),
        data.get("status"),
        data.get("text"),
    )


def answer_from_dict(data: Mapping[str, Any]) -> Answer:
    """Return the person's answer that a record holds; without the digest of its question it fits no question."""
    return Answer(data["answer"], data["by"], data["why"], data.get("digest", ""), data.get("signature"))


def call_from_dict(data: Mapping[str, Any]) -> Call:
    """Return the call that a record describes."""
    arguments = data["arguments"]
    frozen: Fragment | None = canonical_json.freeze(arguments) if arguments is not None else None
    return Call(data["id"], data["name"], frozen, data.get("arguments_text"), data.get("problem"))


def reply_from_dict(said: Mapping[str, Any], calls: list[Mapping[str, Any]]) -> Reply:
    """Return the reply that a ledger's `llm_output` and `intended_tool_calls` describe."""
    usage = said["usage"]
    return Reply(
        text=said["text"],
        calls=tuple(call_from_dict(call) for call in calls),
        final_answer=said["final_answer"],
        finish_reason=said["finish_reason"],
        model=said["model"],
        usage=(usage[0], usage[1]) if usage is not None else None,
        raw=canonical_json.freeze(said["raw"]) if said["raw"] is not None else None,
        problem=said["problem"],
    )


def pairs_from_dict(data: Mapping[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    """Return the (path, digest) pairs under `name`, none if it is absent.

    A ledger names files that were read without digests, which stand in the manifest: theirs are empty.
    """
    entries = data.get(name, ())
    return tuple((item, "") if isinstance(item, str) else (item[0], item[1]) for item in entries)


def reply_to_dict(reply: Reply) -> OutputEntry:
    """Return a reply as a ledger's `llm_output`: without its calls."""
    return {
        "text": reply.text,
        "final_answer": reply.final_answer,
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": list(reply.usage) if reply.usage is not None else None,
        "raw": reply.raw,
        "problem": reply.problem,
    }


def _reply_data(reply: Reply) -> Data:
    return {**reply_to_dict(reply), "calls": [call.to_dict() for call in reply.calls]}


def _reply_of(data: Mapping[str, Any]) -> Reply:
    return reply_from_dict(data, data["calls"])
