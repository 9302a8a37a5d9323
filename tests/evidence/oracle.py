"""Decides the decisions of a ledger again, by the gate and with counters of its own: no loop, no driver."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tachograph import Policy
from tachograph.fail.catalog import ApprovalRefused, Denied, Happening, classify
from tachograph.runtime.core.outcome_codec import call_from_dict, fault_from_dict
from tachograph.runtime.formats.canonical_json import encode, freeze
from tachograph.runtime.loop.retry import may_repeat
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.tools.loader import load_named
from tests.support import ROOT

Line = dict[str, Any]
TOOLS = {name: load_named(name, ROOT / "tools") for name in ("search", "fetch", "read", "write", "summarize")}


class Oracle:
    """Decides a ledger's decisions again, one by one, with counters of its own."""

    def __init__(self, lines: list[Line], policy: Policy) -> None:
        self.run, self.steps = lines[0], lines[1:-1]
        self.policy = policy
        self.gate = Gate(policy, TOOLS)
        self.used = Counters()
        self.seen: dict[tuple[bytes, str], int] = {}
        self.same = 0
        self.left_over = False

    def first(self) -> tuple[Any, ...] | None:
        """(kind, step, position) of the first flip, ("leaves",) where the run parts without one, or None."""
        for found in self._walk():
            if found is None:
                self.same += 1
            else:
                return found
        return None

    def _walk(self) -> Iterator[tuple[Any, ...] | None]:
        for step in self.steps:
            index = step["step_index"]
            entries = {entry["position"]: entry for entry in step["policy_decisions"]}
            yield from self._one(index, "d", entries, self.gate.decide_step(self.used))
            if "d" in entries:
                return
            if self._notice(step) != step.get("notice") or self._retries_otherwise(
                step["llm_attempts"], True
            ):
                yield ("leaves",)
            self.used.iterations += 1
            self.used.tokens += step["usage"]["input_tokens"] + step["usage"]["output_tokens"]
            for batch in self._batches(step, entries):
                for number in batch:
                    yield from self._proposal(step, number, entries)
                for number in batch:
                    if _proposals(step, number)[-1]["decision"] != "deny":
                        yield from self._execution(step, number, entries)
            if self.left_over:
                yield ("leaves",)

    @staticmethod
    def _batches(step: Line, entries: dict[str, Line]) -> list[list[int]]:
        """The decided calls, cut where one was decided after an earlier one had been executed."""
        batches: list[list[int]] = []
        executed = -1
        for number in range(len(step["intended_tool_calls"])):
            if f"d{number}" not in entries:
                break
            first = step["stamps"].get(f"i{number}.1")
            if not batches or (0 <= executed < step["stamps"][f"d{number}"][0]):
                batches.append([])
                executed = -1
            batches[-1].append(number)
            if first is not None:
                executed = first[0] if executed < 0 else min(first[0], executed)
        return batches

    def _proposal(
        self, step: Line, number: int, entries: dict[str, Line]
    ) -> Iterator[tuple[Any, ...] | None]:
        index, call = step["step_index"], call_from_dict(step["intended_tool_calls"][number])
        made = _proposals(step, number)
        given = _given_by_hooks(step, number)
        for recorded in made:
            asked = f"h{number}" in step["stamps"] and recorded is made[-1]
            if recorded["rule_id"] == "hook":
                # what a hook said of a call stays said of it
                now = SimpleNamespace(
                    decision="escalate" if asked else recorded["decision"],
                    rule_id=recorded["rule_id"],
                    reason=recorded["reason"],
                )
            else:
                now = self.gate.decide(call, self.used)
                call = replace(call, arguments=freeze(given.pop(0))) if given else call
            yield from self._one(index, recorded["position"], entries, now, asked)
        if recorded["decision"] == "deny":
            if self._ends_otherwise(
                ApprovalRefused() if asked else Denied(recorded["rule_id"]),
                ApprovalRefused() if asked else Denied(now.rule_id),
            ):
                yield ("leaves",)
            # the model was told the reason, and asked again
            told = index < len(self.steps) and not asked
            if told and (now.rule_id, now.reason) != (recorded["rule_id"], recorded["reason"]):
                yield ("leaves",)
            return
        self.used.tool_calls += 1

    def _execution(
        self, step: Line, number: int, entries: dict[str, Line]
    ) -> Iterator[tuple[Any, ...] | None]:
        index, result = step["step_index"], step["tool_results"][number]
        call = call_from_dict(step["intended_tool_calls"][number])
        for arguments in _given_by_hooks(step, number):
            call = replace(call, arguments=freeze(arguments))
        for attempt in result["attempts"]:
            for place, check in enumerate(attempt.get("checks", ())):
                position = f"i{number}.{attempt['attempt']}.c{place}"
                yield from self._one(index, position, entries, self.gate.decide_late(check))
                late = entries[position]
                if late["decision"] == "deny" and self._ends_otherwise(*[Denied(late["rule_id"])] * 2):
                    yield ("leaves",)
        if self._retries_otherwise(result["attempts"], TOOLS[call.name].idempotent):
            fewer = len(result["attempts"]) > 1 + self.policy.section("retry").get("max_retries", 0)
            word = self.policy.on_failure_of.get(call.name, self.policy.on_failure)
            if not fewer or word == "terminate":
                yield ("leaves",)
            # the model is told sooner: the step goes on, and recorded attempts are left over at its end
            self.left_over = True
        size = self._size(result)
        if size is not None:
            yield from self._one(index, f"d{number}.r", entries, self.gate.decide_result(size, self.used))
        if result["status"] == "ok":
            text = encode(result["result"])
            self.used.result_bytes += len(text.encode())
            key = self.gate.key_of(call)
            pair = (key, hashlib.sha256(text.encode()).hexdigest())
            self.seen[pair] = self.seen.get(pair, 0) + 1
            self.used.repeats[key] = max(self.used.repeats.get(key, 0), self.seen[pair])

    @staticmethod
    def _size(result: Line) -> int | None:
        last = result["attempts"][-1]
        if "returned_bytes" in last:
            return int(last["returned_bytes"])
        given = last.get("returned", result["result"] if result["status"] == "ok" else None)
        return None if given is None else len(encode(given).encode())

    def _one(
        self, step: int, position: str, entries: dict[str, Line], now: Any, asked: bool = False
    ) -> Iterator[tuple[Any, ...] | None]:
        then = "escalate" if asked else entries[position]["decision"] if position in entries else "allow"
        said = "allow" if now is None else now.decision
        rank = {"allow": 0, "escalate": 1, "deny": 2}
        if said == then:
            if position in entries:
                yield None
        elif (said, then) == ("escalate", "allow"):
            yield ("needs approval", step, position)
        else:
            yield ("widening" if rank[said] < rank[then] else "tightening", step, position)

    def _ends_otherwise(self, then: Happening, now: Happening) -> bool:
        return classify(now, self.policy.on_deny) != classify(then, self.run["policy"]["on_deny"])

    def _retries_otherwise(self, attempts: list[Line], steady: bool) -> bool:
        most = self.policy.section("retry").get("max_retries", 0)
        again = [item["attempt"] for item in attempts if "backoff_ms" in item]
        last = attempts[-1] if attempts else {}
        given_up = (
            "fault" in last
            and "backoff_ms" not in last
            and may_repeat(fault_from_dict(last["fault"]), steady)
        )
        return any(number > most for number in again) or (given_up and last["attempt"] <= most)

    def _notice(self, step: Line) -> str | None:
        limit = self.policy.limits["max_iterations"]
        left = limit - self.used.iterations
        if left == 1 and self.policy.wrap_up:
            return "last"
        if step.get("notice") == "go_on":
            return "go_on"
        return "two_left" if left == 2 < limit else None


def _proposals(step: Line, number: int) -> list[Line]:
    """What was decided on a proposed call, in order."""
    return [
        entry
        for entry in step["policy_decisions"]
        if entry["phase"] == "proposal" and entry["id"] == step["intended_tool_calls"][number]["id"]
    ]


def _given_by_hooks(step: Line, number: int) -> list[Any]:
    """The arguments that hooks gave for a call; in the recorded runs each time others than it had."""
    return [
        entry["answer"]["arguments"]
        for entry in step.get("hooks", ())
        if entry["position"].startswith(f"k{number}.") and "arguments" in (entry.get("answer") or {})
    ]
