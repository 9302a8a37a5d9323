"""tau-bench: ground-truth calls and the calls of live runs, replayed under the shipped policy's rules.

No benign call may be denied by the argument rule, the cycle rule or a budget at the shipped defaults. The
benchmark's schemas leave every object open; here the arguments are closed, as those of every tool of ours are.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.core.effects import Call
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Decision, Gate, call_key
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

CLOSED = {"type": "object", "additionalProperties": False}
FILES = ("taubench_ground_truth", "taubench_gpt4o_calls")
# an airport; nothing else sounds like a URL or a path, and nothing is one
NO_RESOURCE = "destination"
# The ground truth records no results. The same text each time is the assumption that denies most.
NO_RESULT = "{}"


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of tau-bench is not at hand")
    return Path(root)


def _runs(name: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The calls of each task or live run, in order."""
    text = (_corpus() / "5-agents" / f"{name}.jsonl").read_text(encoding="utf-8")
    out: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in map(json.loads, text.splitlines()):
        out.setdefault((row["domain"], row.get("run"), row["group"]), []).append(row)
    return {key: sorted(rows, key=lambda row: row["step"]) for key, rows in out.items()}


def _adapted(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema closed at the top; objects in lists stay open, and are said to hold no resource."""
    out = {**schema, **CLOSED, "properties": {}}
    for name, sub in schema["properties"].items():
        if sub["type"] == "array" and sub["items"]["type"] == "object":
            sub = {**sub, "items": {**sub["items"], "x-resource": "none"}}
        out["properties"][name] = {**sub, "x-resource": "none"} if name == NO_RESOURCE else sub
    return out


@cache
def _gate(domain: str) -> Gate:
    text = (_corpus() / "common" / "5-agents" / "taubench_tools.json").read_text(encoding="utf-8")
    tools = {
        name: Tool(name, "", _adapted(schema), CLOSED, "write", False, lambda args, io: {})
        for name, schema in json.loads(text)[domain].items()
    }
    assert not [tool.name for tool in tools.values() if tool.resources]
    return Gate(
        Policy.from_dict({**Policy.shipped().data, "tool_registry": {"allowed": [*tools], "denied": []}}),
        tools,
    )


def _call(row: dict[str, Any], args: Any = None) -> Call:
    text = json.dumps(args) if args is not None else row.get("args_text") or json.dumps(row["args"])
    return read_call(f"tc_{row['step']}_0", row["tool"], text, Redactor([]))


def _replay(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Call, Decision, Counters]]:
    """Each call with its decision and the counters it was decided with; what is allowed counts afterwards."""
    gate, counters = _gate(rows[0]["domain"]), Counters()
    for row in rows:
        call = _call(row)
        found = gate.decide(call, counters)
        yield row, call, found, counters
        if found.decision == "allow":
            result = json.dumps(row.get("result", NO_RESULT))
            counters.tool_calls += 1
            counters.result_bytes += len(result.encode("utf-8"))
            counters.count_result(call, result)


def test_benign_calls_pass_the_shipped_defaults() -> None:
    columns = ("runs", "rows", "allowed", "invalid denied", "wrong allows", "wrong denies", "most repeats")
    table: dict[str, Counter[str]] = {}
    misses = []
    for name in FILES:
        for (domain, _, _), rows in _runs(name).items():
            count = table.setdefault(f"{name} {domain}", Counter())
            count["runs"] += 1
            for row, _, found, counters in _replay(rows):
                allowed = found.decision == "allow"
                count["rows"] += 1
                count["allowed"] += allowed
                count["invalid denied"] += not row["valid"] and found.rule_id == "arg_schema"
                if allowed != row["valid"] or not (allowed or found.rule_id == "arg_schema"):
                    count["wrong allows" if allowed else "wrong denies"] += 1
                    misses.append((row["id"], found.rule_id, found.reason))
                count["most repeats"] = max(count["most repeats"], 1, *counters.repeats.values())
    print("\n" + f"{'calls':32}" + "".join(f"{column:>{len(column) + 3}}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:32}" + "".join(f"{count[column]:>{len(column) + 3}}" for column in columns))
    assert all(count["rows"] > 50 for count in table.values()) and len(table) > 2
    assert not misses


def test_one_more_round_of_the_same_is_a_cycle() -> None:
    """The rule is awake in these runs: each of their calls is denied once it brought its result too often."""
    limit = Policy.shipped().max_repeats
    near = 0
    for rows in _runs("taubench_gpt4o_calls").values():
        gate, counters = _gate(rows[0]["domain"]), Counters()
        for _row, call, _found, counters in _replay(rows):
            near += counters.repeats.get(call_key(call), 0) == limit - 1
        for row in rows:
            call = _call(row)
            for _ in range(counters.repeats.get(call_key(call), 0), limit):
                assert gate.decide(call, counters).decision == "allow"
                counters.count_result(call, json.dumps(row["result"]))
            found = gate.decide(call, counters)
            assert (found.decision, found.rule_id, found.facts) == (
                "deny",
                "cycle_detection",
                {"used": limit, "limit": limit},
            )
    print(f"\n{near} calls of live runs were the last that the cycle rule allows")
    assert near > 0


def _spoilt(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Arguments that the schema cannot take: one too few, one too many, one of no type."""
    args = _call(row).arguments
    assert args is not None
    good = args.value()
    yield {**good, "undeclared": "x"}
    for name in _gate(row["domain"]).tools[row["tool"]].input_schema["required"]:
        yield {key: value for key, value in good.items() if key != name}
        yield {**good, name: None}


def test_spoilt_arguments_are_denied() -> None:
    rows = [row for name in FILES for found in _runs(name).values() for row in found]
    spoilt = [(row, args) for row in rows for args in _spoilt(row)]
    found = Counter(
        (decision.decision, decision.rule_id)
        for decision in (_gate(row["domain"]).decide(_call(row, args), Counters()) for row, args in spoilt)
    )
    assert found == {("deny", "arg_schema"): len(spoilt)} and len(spoilt) > 1000
