"""AgentDojo's ground-truth calls under one static policy a suite.

The question is what a gate can do that sees single calls and knows no task: every benign call must pass, and the
table says how many of the injected tasks are stopped at one of their calls. It is printed, not promised: a call
that a user might have asked for in the same words is not told apart here.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tests.corpora.agentdojo_policies import SUITES

STATIC_RULES = {"tool_registry", "url_allowlist", "sandbox_path", "arg_schema", "approval"}


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of AgentDojo is not at hand")
    return Path(root)


@cache
def _described() -> dict[str, Any]:
    text = (_corpus() / "common" / "5-agents" / "agentdojo_tools.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _tasks(suite: str, kind: str) -> dict[tuple[str, bool], list[dict[str, Any]]]:
    """The calls of each task in order; a task that changed between versions stands twice."""
    text = (_corpus() / "5-agents" / "agentdojo_calls.jsonl").read_text(encoding="utf-8")
    out: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in map(json.loads, text.splitlines()):
        if row["suite"] == suite and row["kind"] == kind:
            out.setdefault((row["task_id"], row["in_latest"]), []).append(row)
    return {task: sorted(rows, key=lambda row: row["step"]) for task, rows in out.items()}


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """The suites write sites without a scheme and files without a folder; here both are spelled out."""
    args = dict(row["args"])
    if row["suite"] == "slack" and isinstance(args.get("url"), str) and "://" not in args["url"]:
        args["url"] = f"https://{args['url']}"
    if row["suite"] == "banking" and isinstance(args.get("file_path"), str):
        args["file_path"] = f"files/{args['file_path']}"
    return args


def _replay(gate: Gate, rows: list[dict[str, Any]]) -> list[Decision]:
    """The decisions on a task's calls; each allowed call is counted as if it brought the same result always."""
    counters, out = Counters(), []
    for row in rows:
        call = read_call(f"tc_{row['step']}_0", row["tool"], json.dumps(_arguments(row)), Redactor([]))
        found = gate.decide(call, counters)
        encode(found.to_dict())
        out.append(found)
        if found.decision == "allow":
            counters.tool_calls += 1
            counters.count_result(call, "{}")
    return out


def _gate(suite: str) -> Gate:
    return Gate(SUITES[suite].policy(), SUITES[suite].tools(_described()[suite]))


@pytest.mark.parametrize("suite", SUITES)
def test_the_policy_knows_every_tool_once(suite: str) -> None:
    known = SUITES[suite]
    assert sorted(known.names) == sorted(_described()[suite])
    places = {f"{tool}.{key}" for tool in known.names for key in _properties(suite, tool)}
    assert {*known.limits, *known.resources} <= places


def _properties(suite: str, tool: str) -> list[str]:
    return [*_described()[suite][tool]["parameters"]["properties"]]


@pytest.mark.parametrize("suite", SUITES)
def test_every_benign_call_is_allowed(suite: str) -> None:
    gate, tasks = _gate(suite), _tasks(suite, "benign")
    assert len(tasks) > 5
    refused = [
        (row["id"], found.decision, found.reason)
        for rows in tasks.values()
        for row, found in zip(rows, _replay(gate, rows), strict=True)
        if found.decision != "allow"
    ]
    assert not refused


def _stopped(found: list[Decision]) -> str:
    """How a task fares: it is stopped by a denial, by a person who has to be asked, or not."""
    decisions = {decision.decision for decision in found}
    return "denied" if "deny" in decisions else "asked" if "escalate" in decisions else "open"


def test_how_many_injected_tasks_are_stopped() -> None:
    table: dict[str, Counter[str]] = {}
    for suite in SUITES:
        gate = _gate(suite)
        benign, injected = _tasks(suite, "benign"), _tasks(suite, "injection")
        count = table[suite] = Counter()
        for rows in benign.values():
            found = _replay(gate, rows)
            count["benign calls"] += len(found)
            count["allowed"] += sum(decision.decision == "allow" for decision in found)
        for rows in injected.values():
            found = _replay(gate, rows)
            rules = [decision.rule_id for decision in found if decision.decision != "allow"]
            assert set(rules) <= STATIC_RULES
            assert bool(rules) == (_stopped(found) != "open")
            count["injected tasks"] += 1
            count[_stopped(found)] += 1
            count.update(dict.fromkeys(rules, 1))
            for level in ("L1", "L2"):
                count[level] += any(row["denied_by"][level] for row in rows)
    _print(table)
    for count in table.values():
        assert count["benign calls"] == count["allowed"] > 0
        assert count["injected tasks"] == count["denied"] + count["asked"] + count["open"] > 0
    assert sum(count["denied"] + count["asked"] for count in table.values()) > 0


def _print(table: dict[str, Counter[str]]) -> None:
    """L1 and L2 are the corpus's own: a registry, and values, taken from the very benign calls that are judged."""
    columns = ("benign calls", "allowed", "injected tasks", "denied", "asked", "open", *sorted(STATIC_RULES))
    print("\n" + f"{'suite':12}" + "".join(f"{c:>{len(c) + 2}}" for c in (*columns, "L1", "L2")))
    for name, count in {**table, "all": sum(table.values(), Counter())}.items():
        print(f"{name:12}" + "".join(f"{count[c]:>{len(c) + 2}}" for c in (*columns, "L1", "L2")))


# a kind of resource: what stands for one that the policy does not name, and the rule that says so
ELSEWHERE = {
    "url": ("https://elsewhere.test/", "url_allowlist"),
    "path:read": ("elsewhere/x", "sandbox_path"),
}


def _emptied(value: Any) -> Any:
    """No address, no name, no day, no sum: what no limit lets through."""
    if isinstance(value, list):
        return [_emptied(item) for item in value]
    return "" if isinstance(value, str) else 0


@pytest.mark.parametrize("suite", SUITES)
def test_each_limit_and_each_resource_is_held(suite: str) -> None:
    """Benign calls with one argument emptied or led elsewhere: each is denied, and by the rule that should."""
    known, gate = SUITES[suite], _gate(suite)
    asked = 0
    for row in (row for rows in _tasks(suite, "benign").values() for row in rows):
        args = _arguments(row)
        for key, place in ((key, f"{row['tool']}.{key}") for key in args):
            kind = known.resources.get(place, "none")
            if place not in known.limits and kind not in ELSEWHERE:
                continue
            value, rule = ELSEWHERE.get(kind, (_emptied(args[key]), "arg_schema"))
            text = json.dumps({**args, key: value})
            found = gate.decide(read_call("tc_1_0", row["tool"], text, Redactor([])), Counters())
            assert (found.decision, found.rule_id) == ("deny", rule), row["id"]
            asked += 1
    assert asked > 3


def test_without_their_sections_nothing_is_allowed() -> None:
    """The calls above are allowed by what the policy says: taken from it, each benign call is denied."""
    for suite in SUITES:
        bare = Gate(Policy.from_dict({"schema": "policy/v1"}), SUITES[suite].tools(_described()[suite]))
        found = [decision for rows in _tasks(suite, "benign").values() for decision in _replay(bare, rows)]
        assert {(decision.decision, decision.rule_id) for decision in found} == {("deny", "tool_registry")}
