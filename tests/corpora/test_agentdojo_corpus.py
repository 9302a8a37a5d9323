"""AgentDojo's ground-truth calls under static policies.

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
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tests.corpora.agentdojo_policies import SUITES
from tests.corpora.agentdojo_replay import arguments_of, count, gate_of, replay, table


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


@pytest.mark.parametrize("suite", SUITES)
def test_the_policy_knows_every_tool_once(suite: str) -> None:
    known = SUITES[suite]
    assert sorted(known.names) == sorted(_described()[suite])
    places = {f"{tool}.{key}" for tool in known.names for key in _properties(suite, tool)}
    assert {*known.limits, *known.resources, *known.values} <= places


def _properties(suite: str, tool: str) -> list[str]:
    return [*_described()[suite][tool]["parameters"]["properties"]]


@pytest.mark.parametrize("suite", SUITES)
def test_every_benign_call_is_allowed(suite: str) -> None:
    gate = gate_of(suite, _described()[suite], lists=False)
    tasks = _tasks(suite, "benign")
    assert len(tasks) > 5
    refused = [
        (row["id"], found.decision, found.reason)
        for rows in tasks.values()
        for row, found in zip(rows, replay(gate, suite, rows), strict=True)
        if found.decision != "allow"
    ]
    assert not refused


def test_how_many_injected_tasks_are_stopped() -> None:
    """Where lists stop a task more, it is a condition on arguments that does."""
    plain, lists = _counted(lists=False), _counted(lists=True)
    print("\n" + table(plain, lists))
    for counts in (plain, lists):
        found = sum(counts.values(), Counter())
        assert found["benign calls"] == found["allowed"] + found["denied"] > 0
        assert found["injected tasks"] > found["stopped"] > 0
    for suite, known in SUITES.items():
        assert 0 <= lists[suite]["stopped"] - plain[suite]["stopped"] <= lists[suite]["arguments"]
        assert bool(lists[suite]["denied"]) <= bool(known.values)


def _counted(*, lists: bool) -> dict[str, Counter[str]]:
    out = {}
    for suite in SUITES:
        benign, injected = (_tasks(suite, kind).values() for kind in ("benign", "injection"))
        out[suite] = count(gate_of(suite, _described()[suite], lists=lists), suite, benign, injected)
    return out


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
    known, gate = SUITES[suite], gate_of(suite, _described()[suite], lists=False)
    asked = 0
    for row in (row for rows in _tasks(suite, "benign").values() for row in rows):
        args = arguments_of(suite, row)
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
        found = [
            decision for rows in _tasks(suite, "benign").values() for decision in replay(bare, suite, rows)
        ]
        assert {(decision.decision, decision.rule_id) for decision in found} == {("deny", "tool_registry")}
