"""What a gate was asked in a recorded run, and what the run had used by then, read from its ledger lines alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...evidence.files.manifest import STATE
from ...evidence.recording.recorded import Recorded
from ...runtime.core.effects import Call
from ...runtime.core.lines import Line
from ...runtime.core.outcome_codec import call_from_dict
from ...runtime.journal import ledger
from ...runtime.journal.decided_calls import decided_calls, proposals_of, results_of_hooks
from ...runtime.journal.ledger import text_of
from ...runtime.policy.gate import Decision, Gate
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.tools.contract import Tool


@dataclass(frozen=True)
class GateQuestion:
    """What a gate may be asked: a call, a step, a fact met while a tool ran, or the size of a result.

    A call has `call` and `counters`, a fact `check` and the tool that met it, a result `size` and `counters`, a step
    `counters` alone.
    """

    call: Call | None = None
    counters: Counters | None = None
    check: Mapping[str, Any] | None = None
    size: int | None = None
    tool: str = ""

    def put(self, gate: Gate) -> Decision | None:
        """Return what a gate decides: None for a step or a result within the budgets."""
        if self.check is not None:
            return gate.decide_late(self.check, self.tool)
        assert self.counters is not None
        if self.size is not None:
            return gate.decide_result(self.size, self.counters)
        return gate.decide_step(self.counters) if self.call is None else gate.decide(self.call, self.counters)


@dataclass(frozen=True)
class RecordedQuestion:
    """A question in a run: where, about which call, and the recorded answer (None if nothing was recorded).

    `call` is set for facts and results too, whose question holds none. `is_overruled` says that a hook decided on the
    call after this answer: nothing came of an escalation, or the call has other arguments since.
    """

    step: int
    position: str
    question: GateQuestion
    call: Call | None
    entry: Line | None
    is_overruled: bool = False

    @property
    def refused(self) -> bool:
        """Whether the rules refused it then; the refusal of a person or of a hook does not count."""
        return (
            self.entry is not None
            and self.entry["decision"] == "deny"
            and self.entry["rule_id"] not in ("approval", "hook")
        )


@dataclass(frozen=True)
class HookDenial:
    """A denial that a hook gave or caused, which no policy takes back: where, on which call, in one line."""

    step: int
    position: str
    call: Call | None
    why: str


def questions(recorded: Recorded, tools: Mapping[str, Tool]) -> list[RecordedQuestion]:
    """Return every question of a recorded run. Raises RecordError if its lines have another shape."""
    try:
        return list(questions_in(recorded.lines[1:-1], tools, recorded.run.get("principal")))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error


def hook_denials(steps: Sequence[Line]) -> list[HookDenial]:
    """Return the denials of a run that its hooks decided, and repetitions of them."""
    found = []
    for line in steps:
        calls = {call["id"]: call_from_dict(call) for call in decided_calls(line)}
        for entry in line["policy_decisions"]:
            if entry["rule_id"] != "hook" or entry["decision"] != "deny":
                continue
            why = _REFUSED_BY_PERSON if "approval" in entry else _DENIED_BY_HOOK
            call = calls.get(entry["id"])
            found.append(HookDenial(line["step_index"], entry["position"], call, why))
    return found


_DENIED_BY_HOOK: Final = "a hook denied it, and no policy allows what a hook denies"
_REFUSED_BY_PERSON: Final = "a person refused it, whom a hook asked"


def questions_in(
    steps: Sequence[Line], tools: Mapping[str, Tool], principal: str | None = None
) -> Iterator[RecordedQuestion]:
    """Yield every question of a run in the order it was asked, from its step lines.

    `tools` tell when two calls are the same call; `principal` is on whose behalf the run acted.
    """
    used = Counters(principal=principal)
    gate = Gate(_NOTHING, tools)  # a call's identity does not depend on a policy
    for line in steps:
        entries = {entry["position"]: entry for entry in line["policy_decisions"]}
        index = line["step_index"]
        yield RecordedQuestion(
            index, "d", GateQuestion(counters=_now(used)), None, _of_gate(entries.get("d"))
        )
        if line["llm_input"] is None:
            continue
        used.iterations += 1
        used.tokens += line["usage"]["input_tokens"] + line["usage"]["output_tokens"]
        for together in _decided_together(line, entries):
            for number in together:
                for item in proposals_of(line, number):
                    if not item.by_hook:
                        call = call_from_dict(item.call)
                        used.now = _time_of(line, item.entry["position"])
                        at = f"t{item.entry['position'][1:]}"
                        used.local_times = line.get("local_times", {}).get(at, {})
                        question = GateQuestion(call, _now(used, gate.key_of(call), call.name))
                        place = item.entry["position"]
                        yield RecordedQuestion(index, place, question, call, item.entry, not item.is_last)
                if line["tool_results"][number]["attempts"]:
                    used.count_call(line["tool_results"][number]["name"], timed=True)
                used.attempts += len(line["tool_results"][number]["attempts"])
            calls = decided_calls(line)
            for number in together:
                yield from _of_execution(line, number, call_from_dict(calls[number]), entries, used, gate)


def _decided_together(step: Line, entries: Mapping[str, Line]) -> Iterator[list[int]]:
    """Yield the numbers of the decided calls of a step, cut where one was decided after an earlier one had begun."""
    together: list[int] = []
    begun: list[int] = []
    for number in range(len(step["intended_tool_calls"])):
        if f"d{number}" not in entries:
            break
        if begun and min(begun) < step["stamps"][f"d{number}"][0]:
            yield together
            together, begun = [], []
        together.append(number)
        begun += [step["stamps"][key][0] for key in (f"i{number}.1",) if key in step["stamps"]]
    if together:
        yield together


def _of_gate(entry: Line | None) -> Line | None:
    """Return an entry of the gate, None for one of a hook at the same place."""
    return None if entry is None or entry["rule_id"] == "hook" else entry


def _of_execution(
    line: Line, number: int, call: Call, entries: Mapping[str, Line], used: Counters, gate: Gate
) -> Iterator[RecordedQuestion]:
    """Yield the questions of one call after its proposal: the facts met while it ran, its result."""
    step, result = line["step_index"], line["tool_results"][number]
    if not result["attempts"]:
        return
    for attempt in result["attempts"]:
        for i, check in enumerate(attempt.get("checks", ())):
            position = f"i{number}.{attempt['attempt']}.c{i}"
            if position in entries:
                yield RecordedQuestion(
                    step, position, GateQuestion(check=check, tool=call.name), call, entries[position]
                )
    position = f"d{number}.r"
    denial = _of_gate(entries.get(position))
    sizes = _sizes(line, number)
    for i, size in enumerate(sizes, start=1):
        question = GateQuestion(counters=_now(used), size=size)
        yield RecordedQuestion(step, position, question, call, denial if i == len(sizes) else None)
    if result["status"] == "ok" and "unseen" not in result["attempts"][-1]:
        used.result_bytes += _size(result["result"])
        used.count_result(call, text_of(result["result"]), gate.key_of(call))


def _sizes(line: Line, number: int) -> list[int]:
    """Return the sizes that the gate was asked about: of what the tool returned, and of each result of a hook."""
    result = line["tool_results"][number]
    last = result["attempts"][-1]
    if "returned_bytes" in last:
        return [last["returned_bytes"]]
    is_done = result["status"] == "ok" and "unseen" not in last
    if "returned" not in last and not is_done:
        return []
    sizes = [_size(last["returned"] if "returned" in last else result["result"])]
    return sizes + [_size(given) for given in results_of_hooks(line, number)]


_NOTHING: Final = Policy.from_dict({"schema": "policy/v1"})


def _now(used: Counters, key: bytes | None = None, name: str = "") -> Counters:
    """Return a copy of the counters with what one call needs of the rest: all of it would take quadratic space."""
    repeats = {} if key is None else {key: used.repeats.get(key, 0)}
    counts = (used.iterations, used.tokens, used.tool_calls, used.result_bytes)
    return Counters(
        *counts,
        repeats,
        attempts=used.attempts,
        calls_of={name: used.calls_of.get(name, 0)},
        now=used.now,
        times_of={name: used.lately(name)},
        principal=used.principal,
        local_times=used.local_times,
    )


def _time_of(line: Line, position: str) -> int:
    """Return the time at which a call was decided: as it was read, else as the decision was stamped."""
    stamps = line["stamps"]
    return int(stamps.get(f"t{position[1:]}", stamps[position])[0])


def _size(result: Any) -> int:
    return len(text_of(result).encode("utf-8"))
