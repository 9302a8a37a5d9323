"""Argument texts of the outside corpus against the gate.

The corpus's tools declare no resources, so `url` and `path` are declared here; its sandbox is the mount `box`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import ToolError
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

RESOURCES = {
    "fetch": {"url": "url"},
    "read": {"path": "path:read"},
    "write": {"path": "path:write"},
    "search": {},
}
CLOSED = {"type": "object", "additionalProperties": False}
POLICY = Policy.from_dict(
    {
        "schema": "policy/v1",
        "tool_registry": {"allowed": [*RESOURCES]},
        "url_allowlist": ["http://fixtures.local", "https://fixtures.local"],
        "sandbox": {"mounts": {"box": "write"}},
        "loop_budget": {"max_tool_calls": 1, "max_result_bytes": 1},
        "cycle_detection": {"max_repeats": 1},
    }
)


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of arguments is not at hand")
    return Path(root)


def _rows() -> list[dict[str, Any]]:
    text = (_corpus() / "3-schema" / "args_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _text(row: dict[str, Any]) -> Any:
    made = row.get("gen")
    if made is None:
        text = row["args_text"]
    elif made["kind"] == "bigkey":
        text = '{"' + "k" * made["n"] + '": 1}'
    else:
        assert made["kind"] == "bigstr"
        text = made["pre"] + "x" * made["n"] + made["post"]
    return text.replace("{SBX}", "box") if isinstance(text, str) else text


def _tool(name: str, schema: dict[str, Any]) -> Tool:
    return Tool(name, "", schema, CLOSED, "read", True, lambda args, io: {})


def _gate() -> Gate:
    schemas = json.loads((_corpus() / "common" / "3-schema" / "args_tools.json").read_text(encoding="utf-8"))
    for name, places in RESOURCES.items():
        for key, kind in places.items():
            schemas[name]["properties"][key]["x-resource"] = kind
    return Gate(POLICY, {name: _tool(name, schemas[name]) for name in RESOURCES})


def test_shared_corpus() -> None:
    gate = _gate()
    table: dict[str, Counter[str]] = {}
    misses = []
    for row in _rows():
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        try:
            call = read_call("tc_1_0", row["tool"], _text(row), Redactor([]))
            found = gate.decide(call, Counters())
            encode([found.to_dict(), call.to_dict() if isinstance(call.name, str) else None])
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
            continue
        allowed = found.decision == "allow"
        count["allowed" if allowed else "denied"] += 1
        wanted = "arg_schema" if row["rule"] == "arg_parse" else row["rule"]
        if allowed and row["expect"] == "deny":
            count["wrong allows"] += 1
            misses.append((row["id"], "allowed"))
        elif not allowed and row["expect"] == "allow":
            count["wrong denies"] += 1
            misses.append((row["id"], found.reason))
        elif not allowed and found.rule_id != wanted:
            count["another rule"] += 1
        if found.rule_id == "gate_error":
            misses.append((row["id"], found.reason))
    columns = ("rows", "allowed", "denied", "another rule", "wrong allows", "wrong denies", "raises")
    print("\n" + f"{'class':24}" + "".join(f"{column:>14}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>14}" for column in columns))
    assert sum(count["rows"] for count in table.values()) > 100
    assert not misses


def _schema_of(value: Any) -> dict[str, Any]:
    """A schema as somebody would write it who never heard of resources."""
    if isinstance(value, dict):
        return {**CLOSED, "properties": {key: _schema_of(item) for key, item in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _schema_of(value[0])}
    return {"type": "string"}


def test_a_tool_that_declares_no_resource_does_not_even_load() -> None:
    """Rows about resources under other names: none of those tools gets as far as a call."""
    rows = [row for row in _rows() if row["class"] == "rule-binding-name"]
    assert len(rows) > 10
    for row in rows:
        with pytest.raises(ToolError):
            _tool(row["tool"], _schema_of(json.loads(row["args_text"])))
