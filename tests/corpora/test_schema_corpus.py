"""The JSON Schema test suite (Draft 2020-12) against our validators, the loader of tools, and the gate.

The plain library is asked twice: with the suite's other documents at hand, and without. We never have them: a
`$ref` to another document is no fetch here but an error, and the loader refuses the schema before any call.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from tachograph.fail.errors import ToolError
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.schema.validator import SchemaValidator
from tachograph.runtime.tools.contract import Tool

SECONDS = 60  # for a whole test; each takes a few
CLOSED = {"type": "object", "additionalProperties": False}
RAISES = "raises"
ELSEWHERE = "refers to another document"
REFUSED = "refused"
UNREAD = "a pattern that is refused"
PATTERN = "a pattern that ECMA-262 and Python read differently"
# how the loader refuses: words of its complaint
REFUSALS = {
    "must be an object schema": "INPUT_SCHEMA must be an object schema with additionalProperties: false",
    "outside the subset": "is not supported in an input schema",
    "undeclared properties": "lets undeclared properties through",
    "undeclared resource": "looks like a resource and declares none",
    "does not exist": "does not exist",
    "gate cannot follow": "cannot be followed",
    "undeclared items": "lets undeclared items through",
    "pattern": "is not usable",
    "turns back": "leads back to itself",
    "another dialect": "is not Draft 2020-12",
    "not valid": "is not a valid schema at",
    "no JSON of ours": "is not JSON:",
}


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Interrupt what does not end in time; without it a hang would be one of the tests."""

    def ring(_signal: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of schemas is not at hand")
    return Path(root)


@cache
def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _rows() -> list[dict[str, Any]]:
    return _read(_corpus() / "3-schema" / "jsonschema_cases.jsonl")


def _kind(row: dict[str, Any]) -> str:
    return "format" if row["format"] else "optional" if row["optional"] else "required"


def _with_documents() -> Registry:
    text = (_corpus() / "common" / "3-schema" / "jsonschema_remotes.json").read_text(encoding="utf-8")
    found = json.loads(text).items()
    pairs = [(uri, Resource.from_contents(doc, default_specification=DRAFT202012)) for uri, doc in found]
    return Registry().with_resources(pairs)


def _judged(schema: Any, data: Any) -> bool | str:
    """The verdict of our validator."""
    try:
        return SchemaValidator(_as_object(schema)).accepts(data)
    except ValueError:
        return REFUSED


def _verdict(asked: Any, data: Any) -> bool | str:
    try:
        return not any(True for _ in asked.iter_errors(data))
    except (Unresolvable, re.error):
        return RAISES


def _as_object(schema: Any) -> dict[str, Any]:
    """`true` and `false` as a schema that is an object, which is what a tool has."""
    return schema if isinstance(schema, dict) else {"allOf": [schema]}


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(part)


def _patterns(schema: Any) -> Iterator[str]:
    for part in _parts(schema):
        named = part.get("patternProperties", ())
        yield from (p for p in (part.get("pattern"), *named) if isinstance(p, str))


def _print(first: str, columns: tuple[str, ...], table: dict[str, Counter[str]]) -> None:
    print("\n" + f"{first:20}" + "".join(f"{column:>{len(column) + 3}}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:20}" + "".join(f"{count[column]:>{len(column) + 3}}" for column in columns))


def _difference(row: dict[str, Any], ours: bool | str, alone: bool | str) -> str | None:
    """Why our verdict is not the library's, as far as that is known."""
    if ours == alone == RAISES and row["remote"]:
        return ELSEWHERE
    if ours == REFUSED:
        return ELSEWHERE if row["remote"] else UNREAD
    if row["file"].endswith("dependencies-compatibility") and ours == row["valid"]:
        return "an old keyword that is still judged"
    told_apart = any(re.search(r"\\[dDwWsSbBc]|\$|\.", pattern) for pattern in _patterns(row["schema"]))
    return PATTERN if told_apart and ours == row["valid"] else None


# ---- the validators ----------------------------------------------------------------------------------------


def test_as_many_rows_as_the_library() -> None:
    """Wrong allows are the library's too: `format` is an annotation, `dependencies` no keyword any more."""
    documents, table, reasons, unexplained = _with_documents(), {}, {}, []
    with within(SECONDS):
        for row in _rows():
            count = table.setdefault(f"{_kind(row)}, {'remote' if row['remote'] else 'local'}", Counter())
            schema, data, valid = row["schema"], row["data"], row["valid"]
            theirs = _verdict(Draft202012Validator(schema, registry=documents), data)
            alone = _verdict(Draft202012Validator(schema, registry=Registry()), data)
            ours = _judged(schema, data)
            count.update(
                {"rows": 1, "ours": ours == valid, "library": theirs == valid, "alone": alone == valid}
            )
            count.update({"raises": ours == RAISES, "wrong allows": ours is True and not valid})
            if ours not in (theirs, alone) or ours != theirs:
                reason = _difference(row, ours, alone)
                reasons.setdefault(f"{_kind(row)}: {reason}", Counter())[row["class"]] += 1
                unexplained += [] if reason else [(row["id"], ours, theirs)]
    _print("rows right", ("rows", "ours", "library", "alone", "raises", "wrong allows"), table)
    for reason, where in sorted(reasons.items()):
        print(f"{reason}: {sum(where.values())} rows ({', '.join(f'{k} {n}' for k, n in where.items())})")
    assert not unexplained
    assert all(count["ours"] >= count["alone"] for count in table.values())
    # patterns are read as ECMA-262 wants them, which the library leaves to Python
    assert table["optional, local"]["ours"] > table["optional, local"]["library"]
    local, remote = table["required, local"], table["required, remote"]
    assert local["rows"] > 700 and local["ours"] == local["library"] == local["rows"]
    # of the rows about other documents we lack those that cannot be judged without one, and no other
    needs = sum(reasons[f"required: {ELSEWHERE}"].values())
    assert needs > 20 and remote["ours"] + needs == remote["library"]


# ---- the loader and the gate -------------------------------------------------------------------------------


def _tool(schema: dict[str, Any]) -> Tool:
    return Tool("t", "", schema, CLOSED, "read", True, lambda args, io: {})


def _moved(schema: Any) -> Any:
    """A schema that stands at `#/$defs/v` instead of `#`, its references moved with it."""
    if isinstance(schema, list):
        return [_moved(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        refers = key == "$ref" and isinstance(value, str) and re.match(r"#(/(?!\$defs/)|\Z)", value)
        keeps = key in ("enum", "const", "default", "examples")
        out[key] = f"#/$defs/v{value[1:]}" if refers else value if keeps else _moved(value)
    return out


def _below(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as that of one property; what it calls a URI or a host is said to be no resource."""
    inner = {key: value for key, value in _moved(schema).items() if key not in ("$schema", "$defs")}
    named = {"v": {**inner, "x-resource": "none"}, **_moved(schema.get("$defs", {}))}
    return {**CLOSED, "properties": {"v": {"$ref": "#/$defs/v"}}, "$defs": named}


FORMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "as it stands": lambda schema: schema,
    "closed": lambda schema: {**schema, **CLOSED},
    "of a property": _below,
}


@cache
def _policy(enforcement: str) -> Policy:
    return Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["t"]},
            "arg_schema_enforcement": enforcement,
            "loop_budget": {"max_tool_calls": 1, "max_result_bytes": 1},
            "cycle_detection": {"max_repeats": 1},
        }
    )


def _decide(tool: Tool, data: Any, enforcement: str = "strict") -> Decision:
    call = read_call("tc_1_0", "t", json.dumps(data), Redactor([]))
    return Gate(_policy(enforcement), {"t": tool}).decide(call, Counters())


@cache
def _loaded() -> list[tuple[str, dict[str, Any], Any, Tool | str]]:
    """(form, row, data in that form, tool or refusal) of every row in every form."""
    out: list[tuple[str, dict[str, Any], Any, Tool | str]] = []
    for row, (form, shaped) in itertools.product(_rows(), FORMS.items()):
        data = {"v": row["data"]} if shaped is _below else row["data"]
        try:
            out.append((form, row, data, _tool(shaped(_as_object(row["schema"])))))
        except ToolError as error:
            out.append((form, row, data, str(error)))
    return out


def test_a_schema_is_refused_at_load_or_decides_as_the_library_does() -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    with within(SECONDS):
        for form, row, data, tool in _loaded():
            count = table.setdefault(form, Counter())
            count["rows"] += 1
            if isinstance(tool, str):
                name = next((name for name, words in REFUSALS.items() if words in tool), None)
                count[name or "otherwise"] += 1
                continue
            asked = Draft202012Validator(tool.input_schema, registry=Registry())
            valid, found = _verdict(asked, data), _decide(tool, data)
            count[found.decision] += 1
            count[found.rule_id] += found.rule_id == "gate_error"
            allowed = found.decision == "allow"
            right = allowed == (isinstance(data, dict) and valid)
            if form == "of a property" and _kind(row) == "required" and not row["remote"]:
                right = right and allowed == row["valid"]
            if found.facts.get("keyword") == "json" and isinstance(data, dict):
                count["not read"] += 1  # an integer beyond 2^53: no argument of ours
            elif found.rule_id == "gate_error" or not (right or _difference(row, allowed, valid)):
                misses.append((form, row["id"], found.reason))
    _print("input schema", ("rows", "allow", "deny", "not read", "gate_error"), table)
    _print("refused at load", (*REFUSALS, "otherwise"), table)
    assert not misses
    assert min(table["of a property"][decision] for decision in ("allow", "deny")) > 150
    assert not any(count["otherwise"] for count in table.values())


def test_what_cannot_be_judged_is_never_loaded() -> None:
    """Our validator raises on references to other documents; no such schema gets as far as a call."""
    needs = {row["id"] for row in _rows() if _judged(row["schema"], row["data"]) in (RAISES, REFUSED)}
    refused = Counter(row["id"] for _, row, _, tool in _loaded() if isinstance(tool, str))
    assert len(needs) > 20
    assert {refused[name] for name in needs} == {len(FORMS)}


def test_without_limits_on_values_no_call_is_denied_that_was_allowed() -> None:
    strict = [entry for entry in _loaded() if isinstance(entry[3], Tool)]
    allowed = [entry for entry in strict if _decide(entry[3], entry[2]).decision == "allow"]
    assert len(allowed) > 400
    denied = {row["id"] for _, row, data, tool in allowed if _decide(tool, data, "shape").decision != "allow"}
    assert not denied


UNUSABLE = {
    "a reference below an $id": {"v": {"$id": "urn:x", "$ref": "#/$defs/n"}, "n": {"type": "string"}},
    "a reference to itself": {"v": {"$ref": "#/$defs/n"}, "n": {"$ref": "#/$defs/n"}},
    "a reference to itself, aside": {"v": {"$ref": "#/$defs/n"}, "n": {"allOf": [{"$ref": "#/$defs/n"}]}},
    "a percent sign": {"v": {"$ref": "#/$defs/n%25"}, "n%25": {"type": "string"}},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_no_validator_can_apply_allows_nothing(name: str) -> None:
    """What the suite does not hold: refused at load, or a denial at every call."""
    parts = dict(UNUSABLE[name])
    try:
        tool = _tool({**CLOSED, "properties": {"v": parts.pop("v")}, "$defs": parts})
    except ToolError:
        return
    with within(SECONDS):
        found = {_decide(tool, {"v": "x"}, enforcement).rule_id for enforcement in ("strict", "shape")}
    assert found == {"gate_error"}
