"""Arguments made up for witnesses: they fit the schema and name what they are to; where none is found, it is said."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import ToolError
from tachograph.review.compare import reachability
from tachograph.review.compare.pattern_samples import pattern_samples
from tachograph.review.compare.policy_compare import WIDENING, Comparison, compare_policies
from tachograph.review.compare.reachability import Reachable, ToolReach
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.schema.ecma_patterns import linear_pattern
from tachograph.runtime.schema.validator import SchemaValidator
from tachograph.runtime.tools.contract import Tool
from tests.support import OUTPUT

Data = dict[str, Any]
URL = {"type": "string", "x-resource": "url"}
READ = {"type": "string", "x-resource": "path:read"}
WRITE = {"type": "string", "x-resource": "path:write"}
NULL = {"type": "null"}


def tool(properties: Data, required: list[str] | None = None, effect: str = "pure", **more: Any) -> Tool:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(properties) if required is None else required,
        **more,
    }
    return Tool("t", "a tool", schema, OUTPUT, effect, True, lambda args, io: {})


def policy(**sections: Any) -> Policy:
    data = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["t"]},
        "url_allowlist": ["https://good.test/", "https://deep.test/a/b"],
        "sandbox": {"mounts": {"books": "read", "box": "write"}},
        "loop_budget": {
            "max_iterations": 9,
            "max_tokens": 9,
            "max_tool_calls": 9,
            "max_result_bytes": 99,
        },
        "cycle_detection": {"max_repeats": 2},
        **sections,
    }
    return Policy.from_dict({name: value for name, value in data.items() if value is not None})


def caller(made: Tool, **sections: Any) -> ToolReach:
    return ToolReach(made, [Gate(policy(**sections), {"t": made})])


def compare(made: Tool, old: Policy, new: Policy) -> Comparison:
    return compare_policies(old, new, {"t": made})


def obj(properties: Data, **more: Any) -> Data:
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


# ---- arguments that fit --------------------------------------------------------------------------------

NODE = obj({"n": {"type": "integer"}, "next": {"$ref": "#/$defs/last"}}, required=["n"])
CALLABLE: dict[str, Tool] = {
    "nothing": tool({}),
    "types": tool({
        "a": {"type": "integer"}, "b": {"type": "boolean"}, "c": NULL, "d": {"type": ["number", "string"]},
    }),
    "bounds": tool({
        "a": {"type": "integer", "minimum": 17, "exclusiveMaximum": 19, "multipleOf": 2},
        "b": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "c": {"type": "number", "minimum": 0.3, "multipleOf": 0.25},
        "d": {"type": "integer", "maximum": -5},
    }),
    "texts": tool({
        "a": {"type": "string", "minLength": 7, "maxLength": 7, "pattern": "^[a-c]+$"},
        "b": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "c": {"type": "string", "maxLength": 0},
        "d": {"type": "string", "pattern": "^(north|south)(?: of .+)?$", "minLength": 6},
    }),
    "lists of values": tool({
        "a": {"enum": [None, "x"]}, "b": {"const": {"k": [1]}}, "c": {"type": "string", "enum": ["u"]},
    }),
    "arrays": tool({
        "a": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    }),
    "objects": tool({
        "a": obj({"x": {"type": "integer"}, "y": {"type": "integer"}}, minProperties=1),
        "b": obj({"o": obj({"k": {"type": "string"}}, required=["k"])}, required=["o"]),
        "c": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    }),
    "choices": tool({
        "a": {"anyOf": [{"type": "integer", "minimum": 4}, NULL]},
        "b": {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 2}]},
    }),
    "references": tool({"a": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": NODE, "last": NULL}}),
    "resources": tool({"u": URL, "r": READ, "w": WRITE}),
    "resources below": tool({
        "a": {"type": "array", "items": URL, "minItems": 2},
        "o": obj({"file": READ, "to": {"type": "string", "x-resource": "path:write"}}, required=["file", "to"]),
    }),
    "a resource or null": tool({"u": {"anyOf": [URL, NULL]}, "v": {"type": ["string", "null"], "x-resource": "url"}}),
    "a long resource": tool({"u": {**URL, "minLength": 90}, "r": {**READ, "minLength": 600}}),
    "a short resource": tool({"u": {**URL, "maxLength": 17}, "r": {**READ, "maxLength": 5}}),
    "a listed resource": tool({"u": {**URL, "enum": ["https://bad.test/", "https://good.test/x"]}}),
    "a resource with a pattern": tool({"u": {**URL, "pattern": r"/items/\d+$"}, "r": {**READ, "pattern": r"\.md$"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLABLE)
def test_arguments_are_found_that_fit_and_that_the_gate_lets_pass(name: str) -> None:
    made = CALLABLE[name]
    for mode in ("strict", "shape"):
        found = caller(made, arg_schema_enforcement=mode)
        assert found.callable == Reachable.YES and found.arguments is not None
        assert made.input_validator.first_mismatch(found.arguments) is None


NEVER: dict[str, tuple[Tool, Data]] = {
    "no URL": (tool({"u": URL}), {"url_allowlist": []}),
    "no URL in a list": (tool({"a": {"type": "array", "items": URL, "minItems": 1}}), {"url_allowlist": []}),
    "no URL below": (tool({"o": obj({"u": URL}, required=["u"])}), {"url_allowlist": None}),
    "no mount": (tool({"r": READ}), {"sandbox": None}),
    "no mount to write": (tool({"w": WRITE}), {"sandbox": {"mounts": {"books": "read"}}}),
    "none of the listed": (tool({"u": {**URL, "enum": ["https://bad.test/", "x"]}}), {}),
    "none so short": (tool({"u": {**URL, "maxLength": 12}}), {}),
    "none so long": (tool({"r": {**READ, "minLength": 2000}}), {}),
}


@pytest.mark.parametrize("name", NEVER)
def test_a_tool_that_no_arguments_can_open_is_known_to_be_one(name: str) -> None:
    made, sections = NEVER[name]
    assert caller(made, **sections).callable == Reachable.NO
    none = policy(**{**sections, "tool_registry": {"allowed": []}})
    assert compare(made, none, policy(**sections)).equal


# ---- what could not be found ---------------------------------------------------------------------------

BLIND = tool({"s": {"type": "string", "pattern": r"^\p{Lu}{9}$"}, "u": URL}, effect="network")


def test_where_no_arguments_are_found_it_is_said_and_only_where_it_matters() -> None:
    assert caller(BLIND).callable == Reachable.UNKNOWN
    assert compare(BLIND, policy(), policy()).equal
    assert compare(BLIND, policy(url_allowlist=[]), policy(url_allowlist=[])).equal
    some = policy(url_allowlist=["https://good.test/", "https://deep.test/a/b", "https://more.test/"])
    for old, new, what in (
        (policy(), some, "url_allowlist gives it"),
        (some, policy(), "url_allowlist takes from it"),
    ):
        comparison = compare(BLIND, old, new)
        assert comparison.changes == () and not comparison.equal
        (untold,) = comparison.undecided
        assert untold.startswith("t: no arguments were found") and what in untold


def test_a_schema_that_the_library_cannot_model_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "canonical", lambda schema: None)
    made = tool({"n": {"type": "integer", "maximum": 3}})
    assert caller(made).callable == Reachable.UNKNOWN
    comparison = compare(made, policy(), policy(arg_schema_enforcement="shape"))
    assert comparison.changes == () and len(comparison.undecided) == 1


def test_a_pattern_that_no_made_up_url_fits_is_said() -> None:
    made = tool({"u": {**URL, "pattern": "^https://[a-z.]+/v[0-9]x$|^https://good.test/$"}})
    comparison = compare(
        made,
        policy(),
        policy(url_allowlist=["https://good.test/", "https://deep.test/a/b", "https://x.test/"]),
    )
    assert comparison.changes == () and len(comparison.undecided) == 1


def test_a_text_that_only_its_list_lets_pass_opens_no_other_entry() -> None:
    made = tool({"u": {**URL, "enum": ["https://good.test/x", "https://x.test/a/b"]}})
    old = policy(url_allowlist=["https://good.test/"])
    comparison = compare(made, old, policy(url_allowlist=["https://good.test/", "https://y.test/"]))
    assert comparison.equal
    (change,) = compare(made, old, policy(url_allowlist=["https://good.test/", "https://x.test/a"])).changes
    assert change.witness.arguments == {"u": "https://x.test/a/b"}


@pytest.mark.parametrize(("pattern", "url"), [
    (r"/items/[0-9]+$", "https://x.test/a/items/0"), (r"^https://x\.", "https://x.test/a"), (r"\?q=\w+$", "https://x.test/a?q="),
])  # fmt: skip
def test_an_entry_is_shown_by_a_url_that_the_pattern_asks_for(pattern: str, url: str) -> None:
    made = tool({"u": {**URL, "pattern": pattern}})
    found = compare(made, policy(url_allowlist=[]), policy(url_allowlist=["https://x.test/a"]))
    assert [change.rule for change in found.changes] == ["url_allowlist"]
    arguments = found.changes[0].witness.arguments
    assert arguments is not None and arguments["u"].startswith(url)


# ---- beyond the limits of a schema ---------------------------------------------------------------------

LIMITED: dict[str, Data] = {
    "minimum": {"type": "integer", "minimum": 0},
    "maximum": {"type": "integer", "maximum": 9},
    "exclusiveMinimum": {"type": "number", "exclusiveMinimum": 0},
    "exclusiveMaximum": {"type": "number", "exclusiveMaximum": 0.5},
    "multipleOf": {"type": "integer", "multipleOf": 5},
    "minLength": {"type": "string", "minLength": 1},
    "maxLength": {"type": "string", "maxLength": 400},
    "pattern": {"type": "string", "pattern": "^x+$"},
    "minItems": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    "maxItems": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    "uniqueItems": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "minProperties": obj({"a": {"type": "integer"}}, minProperties=1),
    "maxProperties": obj({"a": {"type": "integer"}, "b": {"type": "integer"}}, maxProperties=1),
    "below": {"type": "array", "items": obj({"n": {"type": "integer", "maximum": 3}})},
    "under any key": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 3}},
    "in a choice": {"anyOf": [{"type": "integer", "maximum": 3}, NULL]},
    "in a reference": {"$ref": "#/$defs/few"},
    "one of": {"oneOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 6}]},
    "a long path": {**READ, "maxLength": 512},
    "a long URL": {**URL, "maxLength": 4000},
    "a URL with a pattern": {**URL, "pattern": "x$"},
}
BOUNDLESS: dict[str, Data] = {
    "no limit": {"type": "integer"},
    "a list": {"enum": [1, 2, "x"]},
    "a format": {"type": "string", "format": "date"},
    "a limit that is none": {"type": "string", "minLength": 0, "pattern": ""},
    "a limit of another type": {"type": "integer", "minLength": 3},
    "a limit that the list keeps": {"enum": ["a", "bc"], "maxLength": 2},
    "whole numbers": {"type": "integer", "multipleOf": 1},
    "as many as there can be": obj({"a": {"type": "integer"}}, maxProperties=1),
    "as long as a URL may be": {**URL, "minLength": 1, "maxLength": 8192},
    "as long as a path may be": {**READ, "minLength": 3, "maxLength": 1024},
    "a choice without limits": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
}


@pytest.mark.parametrize("name", LIMITED)
def test_each_limit_can_be_gone_beyond_in_shape_and_in_nothing_else(name: str) -> None:
    made = tool({"v": LIMITED[name]}, **{"$defs": {"few": {"type": "integer", "maximum": 3}}})
    comparison = compare(made, policy(), policy(arg_schema_enforcement="shape"))
    (change,) = comparison.changes
    assert (change.kind, change.rule, comparison.undecided) == (WIDENING, "arg_schema", ())
    assert made.input_validator.first_mismatch(change.witness.arguments) is not None
    assert made.shape_validator.first_mismatch(change.witness.arguments) is None


@pytest.mark.parametrize("name", BOUNDLESS)
def test_where_nothing_is_limited_shape_opens_nothing(name: str) -> None:
    made = tool({"v": BOUNDLESS[name]})
    assert compare(made, policy(), policy(arg_schema_enforcement="shape")).equal


def test_limits_that_no_sample_breaks_are_said() -> None:
    huge = {"type": "string", "maxLength": 5_000_000}
    comparison = compare(tool({"v": huge}), policy(), policy(arg_schema_enforcement="shape"))
    assert comparison.changes == () and "break a limit of its schema" in comparison.undecided[0]


def test_limits_of_a_schema_too_wide_to_subtract_are_said() -> None:
    made = tool({f"p{i}": {"type": "integer", "maximum": 9} for i in range(65)})
    comparison = compare(made, policy(), policy(arg_schema_enforcement="shape"))
    assert comparison.changes == () and "break a limit of its schema" in comparison.undecided[0]


# ---- patterns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    ["^[a-z]{3,}$", r"^\d+\.\d+$", "a|b", "^(?:x|yy)*z$", r"^\S+ \S+$", "^[^x]$", "^.{3}$", r"\u00e9"],
)
def test_texts_of_a_pattern_match_it(pattern: str) -> None:
    found = pattern_samples(linear_pattern(pattern))
    assert found and all(SchemaValidator({"pattern": pattern}).accepts(text) for text in found)


def test_texts_of_what_is_no_pattern() -> None:
    assert pattern_samples("(") == [] and pattern_samples("x{5000}") == []


# ---- the official suite --------------------------------------------------------------------------------


def suite() -> dict[tuple[str, str], list[Data]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the JSON Schema test suite is not at hand")
    groups: dict[tuple[str, str], list[Data]] = {}
    for line in (Path(root) / "3-schema" / "jsonschema_cases.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if isinstance(row["schema"], dict):
            groups.setdefault((row["file"], row["suite"]), []).append(row)
    return groups


def below(schema: Data) -> Tool:
    """The schema as that of a tool's only argument. Raises ToolError where the loader refuses it."""
    kept = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$defs")}
    return tool({"v": {**kept, "x-resource": "none"}}, **{"$defs": schema.get("$defs", {})})


def test_no_schema_of_the_suite_is_passed_over_in_silence() -> None:
    """Arguments are found wherever the suite has some; what shape alone lets pass is found, or said to be untold."""
    count: Counter[str] = Counter()
    ruled_out, silent = [], []
    for key, rows in suite().items():
        try:
            made = below(rows[0]["schema"])
        except ToolError:
            continue
        strict, shaped = policy(), policy(arg_schema_enforcement="shape")
        fits = [made.input_validator.first_mismatch({"v": row["data"]}) is None for row in rows]
        fits_shape = [made.shape_validator.first_mismatch({"v": row["data"]}) is None for row in rows]
        comparison = compare(made, strict, shaped)
        count["loaded"] += 1
        if any(fits):
            count["with arguments"] += 1
            count["callable"] += caller(made).callable == Reachable.YES
            if caller(made).callable == Reachable.NO:
                ruled_out.append(key)
        if any(shape and not whole for whole, shape in zip(fits, fits_shape, strict=True)):
            count["wider in shape"] += 1
            count["shown"] += bool(comparison.changes)
            if comparison.equal:
                silent.append(key)
    print(dict(count))
    assert (ruled_out, silent) == ([], [])
    assert count["callable"] >= 0.97 * count["with arguments"] > 120 and count["wider in shape"] > 30
    assert count["shown"] >= 0.9 * count["wider in shape"]
