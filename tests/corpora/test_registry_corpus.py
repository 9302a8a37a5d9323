"""Which agent may call which tool: Agent Security Bench's registry, and InjecAgent's direct-harm tools.

Attack tools are offered in the same run as the normal ones; the only thing between is the policy's registry. A
tool that a run does need is not held back by it: that is measured too, not hidden.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

CLOSED = {"type": "object", "additionalProperties": False}
DENIED = ("deny", "tool_registry")
ALLOWED = ("allow", "tool_registry")


@cache
def _rows(name: str) -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of tool registries is not at hand")
    text = (Path(root) / "5-agents" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@cache
def _tool(name: str) -> Tool:
    return Tool(name, "", CLOSED, CLOSED, "write", False, lambda args, io: {})


def _gate(
    allowed: Iterable[str], offered: Iterable[str], denied: Iterable[str] = (), asks: Iterable[str] = ()
) -> Gate:
    sections = {
        "tool_registry": {"allowed": sorted(allowed), "denied": sorted(denied)},
        "approval": {"required_for": sorted(asks), "timeout_s": 300},
    }
    return Gate(
        Policy.from_dict({**Policy.shipped().data, **sections}), {name: _tool(name) for name in offered}
    )


def _decide(gate: Gate, name: str) -> Decision:
    return gate.decide(read_call("tc_1_0", name, "{}", Redactor([])), Counters())


def _verdict(gate: Gate, name: str) -> tuple[str, str]:
    found = _decide(gate, name)
    return found.decision, found.rule_id


def _normal(agent: str) -> set[str]:
    rows = _rows("asb_tool_registry")
    return {row["tool"] for row in rows if row["agent"] == agent and row["class"] == "asb-normal"}


def test_each_agent_calls_its_own_tools_and_no_other() -> None:
    columns = (
        "rows",
        "allowed",
        "denied",
        "wrong allows",
        "wrong denies",
        "other rules",
        "of others, denied",
    )
    table: dict[str, Counter[str]] = {}
    everything = {row["tool"] for row in _rows("asb_tool_registry")}
    gates = {
        agent: _gate(_normal(agent), everything)
        for agent in {row["agent"] for row in _rows("asb_tool_registry")}
    }
    for row in _rows("asb_tool_registry"):
        gate, count = gates[row["agent"]], table.setdefault(row["agent"], Counter())
        decision, rule = _verdict(gate, row["tool"])
        count["rows"] += 1
        count["allowed" if decision == "allow" else "denied"] += 1
        if decision != row["expect"]:
            count["wrong allows" if decision == "allow" else "wrong denies"] += 1
        count["other rules"] += rule != "tool_registry"
    for agent, gate in gates.items():
        others = {name for other in gates if other != agent for name in _normal(other)} - _normal(agent)
        table[agent]["of others, denied"] = sum(_verdict(gate, name) == DENIED for name in others)
        assert table[agent]["of others, denied"] == len(others)
    print("\n" + f"{'agent':32}" + "".join(f"{column:>{len(column) + 3}}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:32}" + "".join(f"{count[column]:>{len(column) + 3}}" for column in columns))
    for bad in ("wrong allows", "wrong denies", "other rules"):
        assert not [name for name, count in table.items() if count[bad]]
    assert sum(count["allowed"] for count in table.values()) > 5
    assert sum(count["denied"] for count in table.values()) > 100


def _lookalikes(name: str) -> Iterable[str]:
    """Names that a careless comparison would take for `name`."""
    yield from (
        name.swapcase(),
        f"{name} ",
        f" {name}",
        f"{name}\n",
        f"{name}\0",
        f"{name}.{name}",
        name[:-1],
    )
    yield from (
        name.replace("_", "-"),
        f"{name}\u200b",
        name.replace("a", "\u0430"),
        f"functions.{name}",
        f"{name}*",
    )


def test_no_lookalike_of_an_allowed_tool_is_allowed() -> None:
    rows = [row for row in _rows("asb_tool_registry") if row["class"] == "asb-normal"]
    asked = 0
    for row in rows:
        gate = _gate([row["tool"]], [row["tool"]])
        assert _verdict(gate, row["tool"]) == ALLOWED
        for name in set(_lookalikes(row["tool"])) - {row["tool"]}:
            assert _verdict(gate, name) == DENIED, name
            asked += 1
    assert asked > 100


def test_direct_harm_is_denied_unless_the_run_has_the_tool() -> None:
    """Registered, the call is allowed; then only approval puts a person before it."""
    rows = _rows("injecagent_dh")
    harmful = {name for row in rows for name in row["tools"]}
    working = {"FeedReader", "CalendarLookup"}
    count: Counter[str] = Counter()
    for row in rows:
        for name in row["tools"]:
            count["calls"] += 1
            count["denied, not in the registry"] += (
                _verdict(_gate(working, working | harmful), name) == DENIED
            )
            listed = _decide(_gate(working, working | harmful, denied=harmful), name)
            count["denied by name"] += listed.decision == "deny" and "/denied/" in listed.at
            count["denied, not part of the run"] += _verdict(_gate({name}, working), name) == DENIED
            registered = working | {name}
            count["allowed once registered"] += _verdict(_gate(registered, harmful), name) == ALLOWED
            asked = _verdict(_gate(registered, harmful, asks=[name]), name)
            count["asked once for approval"] += asked == ("escalate", "approval")
    for what, number in count.items():
        print(f"{what:32}{number:>6}")
    assert len(rows) > 10 and len(set(count.values())) == 1
