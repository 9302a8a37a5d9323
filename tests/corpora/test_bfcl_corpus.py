"""Tool schemas and calls of the Berkeley Function-Calling Leaderboard under the shipped policy's rules.

Single calls with good and with spoilt arguments, each against its own schema, and ground-truth conversations,
replayed call by call. What sounds like a URL or a path is declared `none` in all of these tools: they act on a
simulated world, whose files have a current directory, and the rules asked here are those of arguments, cycles and
budgets. The dots in the names of tools become underscores, since no name of ours holds a dot.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.schema.resource_names import is_called_resource, looks_like_resource
from tachograph.runtime.tools.contract import Tool

CLOSED = {"type": "object", "additionalProperties": False}
# Conversations whose recorded truth breaks the schema of its own tool: a ticket's number is an integer there.
BROKEN_TRUTH = {("close_ticket", "ticket_id", "type")}
# No results are recorded. The same text each time is the assumption under which most is denied as a cycle.
NO_RESULT = "{}"


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of BFCL is not at hand")
    return Path(root)


@cache
def _rows(name: str) -> list[dict[str, Any]]:
    text = (_corpus() / "5-agents" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _declared(schema: Any, name: str = "") -> Any:
    """A schema in which whatever sounds like a resource, or could hold one unseen, says that it is none."""
    if not isinstance(schema, dict):
        return schema
    out = {key: _declared(value, name) if key == "items" else value for key, value in schema.items()}
    if "properties" in schema:
        out["properties"] = {key: _declared(sub, key) for key, sub in schema["properties"].items()}
    # an object that says no keys, or a value that says no type
    opens = schema.get("type", "object") == "object" and schema.get("additionalProperties") is not False
    looks = looks_like_resource(name) or is_called_resource(name, [schema])
    return {**out, "x-resource": "none"} if opens or looks else out


def _name(row: dict[str, Any]) -> str:
    return str(row["tool"]).replace(".", "_")


def _tool(name: str, schema: dict[str, Any]) -> Tool:
    return Tool(name, "", _declared(schema), CLOSED, "write", False, lambda args, io: {})


def _policy(names: set[str]) -> Policy:
    return Policy.from_dict(
        {**Policy.shipped().data, "tool_registry": {"allowed": sorted(names), "denied": []}}
    )


def _print(columns: tuple[str, ...], table: dict[str, Counter[str]]) -> None:
    print("\n" + f"{'class':28}" + "".join(f"{column:>{len(column) + 3}}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:28}" + "".join(f"{count[column]:>{len(column) + 3}}" for column in columns))


def test_single_calls() -> None:
    """What fits its schema is allowed, what does not is denied by the argument rule and by no other."""
    policy = _policy({_name(row) for row in _rows("bfcl_args")})
    gates: dict[str, Gate] = {}
    table: dict[str, Counter[str]] = {}
    misses = []
    for row in _rows("bfcl_args"):
        name, key = _name(row), json.dumps([row["tool"], row["schema"]])
        if key not in gates:
            gates[key] = Gate(policy, {name: _tool(name, row["schema"])})
        call = read_call("tc_1_0", name, json.dumps(row["args"]), Redactor([]))
        found = gates[key].decide(call, Counters())
        allowed = found.decision == "allow"
        count = table.setdefault(row["class"], Counter())
        count.update(("rows", "allowed" if allowed else "denied"))
        if allowed != row["valid"] or not (allowed or found.rule_id == "arg_schema"):
            count["wrong allows" if allowed else "wrong denies"] += 1
            misses.append((row["id"], found.rule_id, found.reason))
    _print(("rows", "allowed", "denied", "wrong allows", "wrong denies"), table)
    assert sum(count["allowed"] for count in table.values()) > 1000
    assert sum(count["denied"] for count in table.values()) > 1000
    assert not misses


@cache
def _world() -> dict[str, Tool]:
    """The tools of the conversations by name; the three memories share names and take part in none."""
    text = (_corpus() / "common" / "5-agents" / "bfcl_multiturn_tools.json").read_text(encoding="utf-8")
    return {
        tool["name"]: _tool(tool["name"], tool["parameters"])
        for place, tools in json.loads(text).items()
        for tool in tools
        if not place.startswith("memory")
    }


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name: what the truth gives by position goes by the order in the schema."""
    names = [*_world()[row["tool"]].input_schema["properties"]]
    return {**dict(zip(names, row["positional"], strict=False)), **row["args"]}


def _conversations() -> dict[tuple[str, str], list[dict[str, Any]]]:
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows("bfcl_multiturn"):
        out.setdefault((row["class"], row["group"]), []).append(row)
    return {key: sorted(rows, key=lambda row: (row["turn"], row["step"])) for key, rows in out.items()}


def test_conversations_pass_the_shipped_defaults() -> None:
    gate = Gate(_policy(set(_world())), _world())
    table: dict[str, Counter[str]] = {}
    denied, misses = Counter[tuple[str, str, str]](), []
    for (name, _), rows in _conversations().items():
        count, counters = table.setdefault(name, Counter()), Counters()
        count["runs"] += 1
        for row in rows:
            call = read_call("tc_1_0", row["tool"], json.dumps(_arguments(row)), Redactor([]))
            found = gate.decide(call, counters)
            count.update(("rows", found.decision))
            if found.decision == "allow":
                counters.tool_calls += 1
                counters.count_result(call, NO_RESULT)
                continue
            place = (row["tool"], found.facts["pointer"].strip("/"), found.facts["keyword"])
            denied[place] += 1
            plain = Draft202012Validator({**_world()[row["tool"]].input_schema})
            if found.rule_id != "arg_schema" or plain.is_valid(_arguments(row)):
                misses.append((row["id"], found.rule_id, found.reason))
        count["most repeats"] = max(count["most repeats"], *counters.repeats.values(), 0)
    _print(("runs", "rows", "allow", "deny", "most repeats"), table)
    for place, times in denied.items():
        print(f"denied {times} times, and no valid call: {place}")
    assert sum(count["allow"] for count in table.values()) > 1000
    assert not misses and set(denied) <= BROKEN_TRUTH


def test_repeats_and_calls_beyond_the_defaults_are_denied() -> None:
    """The rules are awake here: a fourth round of a conversation's calls is a cycle, and so is a long run."""
    policy = _policy(set(_world()))
    gate = Gate(policy, _world())
    found: Counter[str] = Counter()
    for rows in _conversations().values():
        counters = Counters()
        for row in rows * (policy.max_repeats + 1):
            call = read_call("tc_1_0", row["tool"], json.dumps(_arguments(row)), Redactor([]))
            decision = gate.decide(call, counters)
            found[decision.rule_id] += 1
            if decision.decision == "allow":
                counters.tool_calls += 1
                counters.count_result(call, NO_RESULT)
    assert found["cycle_detection"] > 1000 and found["loop_budget"] > 0
