"""The ledger's JSON Schema against its types, its closed sets, and every committed line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.files.manifest import STATE
from tachograph.fail.catalog import Ending, Rule, StopReason
from tachograph.runtime.core import lines
from tachograph.runtime.core.effects import ApprovalAnswer, DecisionKind, FaultKind
from tachograph.runtime.core.lines import AttemptStatus, Phase, ResultStatus
from tachograph.runtime.journal import ledger
from tachograph.runtime.models.types import NOTICES
from tests.support import LINES, ROOT, misfits

DEFS = LINES["$defs"]
TYPES = {name: made for name, made in vars(lines).items() if hasattr(made, "__required_keys__")}
RUNS = sorted((ROOT / "runs").glob("*/*/state.jsonl"))


@pytest.mark.parametrize("name", sorted(TYPES))
def test_schema_and_type_have_the_same_keys(name: str) -> None:
    schema = DEFS[name]
    assert set(schema["properties"]) == TYPES[name].__required_keys__ | TYPES[name].__optional_keys__
    assert set(schema["required"]) == TYPES[name].__required_keys__
    assert schema["additionalProperties"] is False


def test_every_definition_is_a_type_and_every_key_is_described() -> None:
    assert set(DEFS) == {*TYPES, "File"}
    for name in TYPES:
        assert DEFS[name]["description"]
        for key, schema in DEFS[name]["properties"].items():
            assert schema.get("description") or "const" in schema, (name, key)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (("EndLine", "terminal_reason"), Ending),
        (("StepLine", "stopped"), StopReason),
        (("StepLine", "notice"), NOTICES),
        (("DecisionEntry", "decision"), DecisionKind),
        (("DecisionEntry", "phase"), Phase),
        (("DecisionEntry", "rule_id"), Rule),
        (("ApprovalEntry", "answer"), ApprovalAnswer),
        (("AttemptEntry", "outcome"), AttemptStatus),
        (("ToolResultEntry", "status"), ResultStatus),
        (("FaultEntry", "kind"), FaultKind),
        (("ErrorEntry", "kind"), FaultKind),
    ],
    ids=str,
)
def test_the_closed_sets_are_those_of_the_code(place: tuple[str, str], words: Any) -> None:
    assert DEFS[place[0]]["properties"][place[1]]["enum"] == list(words)


@pytest.mark.parametrize("state", RUNS, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_every_committed_line_fits(state: Path) -> None:
    read = list(ledger.read(state.read_bytes(), STATE))
    assert len(read) >= 3 and misfits(read) == []


RESERVED = {
    "RunLine": {"follows", "parent", "blobs"},
    "StepLine": {"blobs"},
    "EndLine": {"cost"},
    "OutputEntry": {"usage_parts"},
    "DecisionEntry": {"denial"},
    "UsageEntry": {"cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost"},
}


def test_reserved_keys_are_named_and_optional() -> None:
    found = {
        name: {key for key, part in DEFS[name]["properties"].items() if _is_reserved(part)} for name in TYPES
    }
    assert {name: keys for name, keys in found.items() if keys} == RESERVED
    for name, keys in RESERVED.items():
        assert keys <= TYPES[name].__optional_keys__, name


def _is_reserved(part: dict[str, Any]) -> bool:
    return str(part.get("description", "")).startswith("Reserved: ")


@pytest.mark.parametrize("state", RUNS, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_a_run_that_does_not_use_them_has_no_reserved_key(state: Path) -> None:
    lines = list(ledger.read(state.read_bytes(), STATE))
    assert lines[0]["schema"] == "ledger/v2"
    assert _reserved_in(lines) == set()


def test_a_reserved_key_in_a_line_would_be_found() -> None:
    lines: list[Any] = list(ledger.read((ROOT / "runs/canonical/v1/state.jsonl").read_bytes(), STATE))
    lines[0]["parent"] = {}
    lines[1]["usage"]["cost"] = {"millionths": 1, "currency": "EUR"}
    lines[1]["blobs"] = []
    assert misfits(lines) == []
    assert _reserved_in(lines) == {"RunLine.parent", "UsageEntry.cost", "StepLine.blobs"}


def _reserved_in(lines: list[Any]) -> set[str]:
    """Return `TYPE.KEY` of each reserved key in lines: wherever an entry of that type can stand."""
    found = set()
    for line in lines:
        entries: list[tuple[str, Any]] = [
            ({"run": "RunLine", "step": "StepLine", "end": "EndLine"}[line["type"]], line)
        ]
        while entries:
            name, entry = entries.pop()
            for key, value in entry.items():
                part = DEFS[name]["properties"][key]
                if _is_reserved(part):
                    found.add(f"{name}.{key}")
                kind = _type_of(part)
                if kind in TYPES and value is not None:
                    entries += [(kind, item) for item in (value if isinstance(value, list) else [value])]
    return found


def _type_of(part: dict[str, Any]) -> str:
    """Return the entry type that a key holds, one or many of it; empty where it holds none."""
    for place in (part, part.get("items", {}), *part.get("anyOf", ())):
        if "$ref" in place:
            return str(place["$ref"]).rpartition("/")[2]
    return ""


def test_a_line_with_another_key_or_word_does_not_fit() -> None:
    run, step, *_, end = ledger.read((ROOT / "runs/canonical/v1/state.jsonl").read_bytes(), STATE)
    assert misfits([run, step, end]) == []
    for line, key, value in ((run, "more", 1), (step, "failure_mode", 1), (end, "terminal_reason", "done")):
        changed = copy.deepcopy(dict(line))
        changed[key] = value
        assert misfits([changed]) != [], key
