"""Ground-truth calls of AgentDojo decided by the gate, and how the tasks fare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tests.corpora.agentdojo_policies import LISTS, SUITES

# `tool` and `args` of each call of a task, in order
Calls = list[dict[str, Any]]

STATIC_RULES = ("tool_registry", "url_allowlist", "sandbox_path", "arg_schema", "arguments", "approval")


def gate_of(suite: str, described: dict[str, Any], *, lists: bool) -> Gate:
    """Return the gate of a suite under its policy with lists, or without."""
    known = SUITES[suite]
    return Gate(known.policy(LISTS.get(suite, {}) if lists else None), known.tools(described))


def arguments_of(suite: str, call: dict[str, Any]) -> dict[str, Any]:
    """The suites write sites without a scheme and files without a folder; here both are spelled out."""
    args = dict(call["args"])
    if suite == "slack" and isinstance(args.get("url"), str) and "://" not in args["url"]:
        args["url"] = f"https://{args['url']}"
    if suite == "banking" and isinstance(args.get("file_path"), str):
        args["file_path"] = f"files/{args['file_path']}"
    return args


def replay(gate: Gate, suite: str, calls: Calls) -> list[Decision]:
    """The decisions on a task's calls; each allowed call is counted as if it brought the same result always."""
    counters, out = Counters(), []
    for step, proposed in enumerate(calls):
        call = read_call(
            f"tc_{step}_0", proposed["tool"], json.dumps(arguments_of(suite, proposed)), Redactor([])
        )
        found = gate.decide(call, counters)
        encode(found.to_dict())
        out.append(found)
        if found.decision == "allow":
            counters.tool_calls += 1
            counters.count_result(call, "{}")
    return out


def count(gate: Gate, suite: str, benign: Iterable[Calls], injected: Iterable[Calls]) -> Counter[str]:
    """Count calls and tasks by how they fare: an injected task is stopped by a denial or by asking a person, or not."""
    out: Counter[str] = Counter()
    for calls in benign:
        found = replay(gate, suite, calls)
        out["benign calls"] += len(found)
        out.update(
            {"allow": "allowed", "deny": "denied", "escalate": "asked"}[each.decision] for each in found
        )
    for calls in injected:
        found = replay(gate, suite, calls)
        rules = {each.rule_id for each in found if each.decision != "allow"}
        assert rules <= {*STATIC_RULES}
        out["injected tasks"] += 1
        out["stopped"] += bool(rules)
        out.update(rules)
    return out


def table(plain: Mapping[str, Counter[str]], lists: Mapping[str, Counter[str]]) -> str:
    """Return both policies side by side as Markdown: each suite, and by rule the tasks at which it objected."""
    sums = [sum(each.values(), Counter[str]()) for each in (plain, lists)]
    rows = ["| suite | benign calls | allowed | with lists | injected tasks | stopped | with lists |"]
    rows += ["|---|---:|---:|---:|---:|---:|---:|"]
    for name in (*plain, "all"):
        one, other = sums if name == "all" else (plain[name], lists[name])
        found = [str(each[key]) for key in ("allowed", "stopped") for each in (one, other)]
        totals = [str(one[key]) for key in ("benign calls", "injected tasks")]
        rows.append(f"| {name} | {' | '.join([totals[0], *found[:2], totals[1], *found[2:]])} |")
    rows += ["", "| rule | injected tasks it stopped | with lists |", "|---|---:|---:|"]
    rows += [f"| `{rule}` | {sums[0][rule]} | {sums[1][rule]} |" for rule in STATIC_RULES if sums[1][rule]]
    return "\n".join(rows)
