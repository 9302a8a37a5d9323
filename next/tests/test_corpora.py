"""The outside corpora, through the public door: cases whose answers nobody on the project wrote by hand."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tachograph.testing import Refused, decide, parse


def corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpora are not at hand")
    return Path(root)


def rows(name: str) -> Iterator[dict[str, Any]]:
    with open(corpus() / f"{name}.jsonl", encoding="utf-8") as file:
        yield from map(json.loads, file)


def builder(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, corpus() / "common" / "builders" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_read(kind: str, text: str | bytes) -> bool:
    try:
        parse(kind, text)
    except Refused:
        return False
    return True


ROOM = {"loop_budget": {"max_tool_calls": 1, "max_result_bytes": 1}, "cycle_detection": {"max_repeats": 1}}


def closed(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


GET = {
    "name": "get",
    "effect": "network",
    "input_schema": closed(url={"type": "string", "x-resource": "url"}),
}


def test_urls() -> None:
    """The corpus allows a host on http and https at their default ports."""
    wrong, count = [], 0
    for row in rows("1-url/url_cases"):
        entries = [f"{scheme}://{host}" for host in row["allowlist"] for scheme in ("http", "https")]
        entries = [entry for entry in entries if is_read("url_entry", entry)]
        policy = {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["get"]},
            "url_allowlist": entries,
            **ROOM,
        }
        found = decide(policy, [GET], [{"name": "get", "arguments": {"url": row["url"]}}])[0]
        count += 1
        if row["expect"] in ("allow", "deny") and found.decision != row["expect"]:
            # a text with a lone surrogate is no JSON, which is a matter of `arg_schema`
            wrong.append((row["id"], found))
        if found.rule_id == "gate_error":
            wrong.append((row["id"], found))
    assert count > 1000
    assert wrong == []


def test_json_texts() -> None:
    # valid JSON that two programs could read differently
    narrower = {
        "y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json", "y_number_real_capital_e.json",
        "y_number_real_exponent.json", "y_number_real_fraction_exponent.json", "y_object_extreme_numbers.json",
    }  # fmt: skip
    wrong, count = [], 0
    for row in rows("3-schema/json_text_cases"):
        data = base64.b64decode(row["bytes_b64"])
        try:
            found = is_read("json", data.decode())
        except UnicodeDecodeError:
            found = False
        count += 1
        expected = {
            "accept": row["id"].removeprefix("jts-") not in narrower,
            "reject": False,
            "either": found,
        }
        if found != expected[row["expect"]]:
            wrong.append((row["id"], found))
    assert count > 200
    assert wrong == []


RESOURCES = {
    "fetch": {"url": "url"}, "read": {"path": "path:read"}, "write": {"path": "path:write"}, "search": {},
}  # fmt: skip


def test_arguments() -> None:
    schemas = json.loads((corpus() / "common" / "3-schema" / "args_tools.json").read_text(encoding="utf-8"))
    for name, places in RESOURCES.items():
        for key, kind in places.items():
            schemas[name]["properties"][key]["x-resource"] = kind
    tools = [{"name": name, "input_schema": schemas[name]} for name in RESOURCES]
    policy = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": [*RESOURCES]},
        "url_allowlist": ["http://fixtures.local", "https://fixtures.local"],
        "sandbox": {"mounts": {"box": "write"}},
        **ROOM,
    }
    wrong, count = [], 0
    for row in rows("3-schema/args_cases"):
        made = row.get("gen")
        if made is None:
            text = row["args_text"]
        elif made["kind"] == "bigkey":
            text = '{"' + "k" * made["n"] + '": 1}'
        else:
            text = made["pre"] + "x" * made["n"] + made["post"]
        text = text.replace("{SBX}", "box") if isinstance(text, str) else text
        found = decide(policy, tools, [{"name": row["tool"], "arguments": text}])[0]
        count += 1
        if row["expect"] not in ("either", found.decision) or found.rule_id == "gate_error":
            wrong.append((row["id"], row["class"], found))
    assert count > 100
    assert wrong == []


def test_policies() -> None:
    """Policy files, of which only what a reader of YAML can see is asked; sections have other names in the corpus."""
    made = builder("yamlgen")
    wrong, count = [], 0
    for row in rows("4-yaml/yaml_cases"):
        if "gen" in row and row["gen"]["kind"] == "file":
            continue
        data = made.gen(row["gen"]) if "gen" in row else base64.b64decode(row["b64"])
        count += 1
        try:
            read = parse("yaml", data)
        except Refused:
            if row["expect"] == "accept":
                wrong.append((row["id"], "refused"))
            continue
        if row["expect"] == "accept" and read != row.get("accept_as", read):
            wrong.append((row["id"], "read as something else"))
        if row["expect"] == "reject" and is_read("policy", data):
            wrong.append((row["id"], "accepted"))
    assert count > 300
    assert wrong == []
