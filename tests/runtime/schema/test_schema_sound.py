"""Schemas that no call should meet are refused when they are loaded."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tachograph.fail.errors import ToolError
from tachograph.runtime.schema import schema_sound
from tachograph.runtime.schema.schema_sound import DIALECT, check_sound
from tachograph.runtime.tools.contract import SHIPPED, Tool
from tachograph.runtime.tools.loader import load_named

TEXT = {"type": "string"}
CLOSED = {"type": "object", "additionalProperties": False}


def closed(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": properties}


def refused(schema: dict[str, Any]) -> ToolError:
    with pytest.raises(ToolError) as found:
        check_sound(schema, "t")
    assert found.value.file == "t" and found.value.remedy
    return found.value


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_tools_are_sound(name: str) -> None:
    tool = load_named(name)
    check_sound(dict(tool.input_schema), "t")
    check_sound(dict(tool.output_schema), "t")


# ---- keywords that change what a schema means --------------------------------------------------------------


@pytest.mark.parametrize(
    "keyword",
    "$schema $id $vocabulary $anchor $dynamicAnchor $dynamicRef $recursiveRef $recursiveAnchor".split(),
)
def test_nothing_below_the_root_changes_the_dialect_or_the_base(keyword: str) -> None:
    values = {"$schema": DIALECT, "$vocabulary": {}, "$recursiveAnchor": True}
    part = {**TEXT, keyword: values.get(keyword, "#a")}
    for schema in (
        closed(a=part),
        {**closed(a=TEXT), "$defs": {"t": part}},
        closed(a={"anyOf": [part]}),
        closed(a={"not": part}),
    ):
        assert keyword in refused(schema).message
    if keyword not in ("$schema", "$id"):
        assert keyword in refused({**closed(), keyword: values.get(keyword, "#a")}).message
    check_sound(closed(**{keyword: TEXT}), "t")  # a property of that name
    check_sound(
        closed(a={**TEXT, "default": {keyword: 1}, "x-more": {keyword: 1}, "example": {keyword: 1}}), "t"
    )


def test_the_root_may_name_itself_and_the_dialect_that_we_read() -> None:
    check_sound(
        {
            **closed(a={"$ref": "#/$defs/t"}),
            "$schema": DIALECT,
            "$id": "https://x.test/t",
            "$defs": {"t": TEXT},
        },
        "t",
    )
    check_sound({**closed(), "$schema": f"{DIALECT}#"}, "t")
    for other in (
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "",
    ):
        assert "Draft 2020-12" in refused({**closed(), "$schema": other}).message


@pytest.mark.parametrize(
    "key",
    [
        "x-ressource",
        "x_resource",
        "X-Resource",
        "x-resources",
        "xResource",
        "x-resourse",
        "x resource",
        "x-Resource",
    ],
)
def test_a_misspelt_keyword_of_ours_is_refused(key: str) -> None:
    for schema in (
        closed(a={**TEXT, key: "url"}),
        {**closed(), key: "none"},
        closed(a={"anyOf": [{key: "url"}]}),
    ):
        found = refused(schema)
        assert repr(key) in found.message and "'x-resource'" in str(found.remedy)
    check_sound(closed(**{key: TEXT}), "t")
    check_sound(closed(a={"default": {key: 1}}), "t")


@pytest.mark.parametrize("key", ["x-source", "x-note", "x-order", "x-enum-varnames", "resource", "X-Rate"])
def test_other_extensions_are_none_of_our_business(key: str) -> None:
    check_sound(closed(a={**TEXT, key: "url"}), "t")


@pytest.mark.parametrize(
    "said", [None, "path", "URL", "urls", "", 1, True, ["url"], {"kind": "url"}, "path:rw"]
)
def test_an_unknown_kind_of_resource_is_refused(said: Any) -> None:
    assert "x-resource" in refused(closed(a={**TEXT, "x-resource": said})).message
    if said == "urls":
        assert refused(closed(a={"x-resource": said})).remedy == "did you mean 'url'?"


# ---- references --------------------------------------------------------------------------------------------

HIDDEN = {"properties": {"url": TEXT}}


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/none", "#/definitions/t", "#/$defs/", "#/$defs/t/type", "#/$defs/t/default",
        "#/$defs/t/x-more", "#/$defs/t/examples/0", "#/$defs/t/enum/0", "#/$defs/t/zzz", "#/properties/a",
        "#/$defs", "#a", "a", "other.json", "http://example.test/s.json", "#/$defs/a%20b", "#/%24defs/t", "",
        "##", "#/", "/$defs/t", "#/$defs/t\n", "#\n", "https://x.test/t#/$defs/t",
    ],
)  # fmt: skip
def test_a_reference_leads_to_a_named_schema_or_the_whole(reference: str) -> None:
    target = {
        "type": "integer",
        "default": HIDDEN,
        "x-more": HIDDEN,
        "examples": [HIDDEN],
        "enum": [HIDDEN],
        "zzz": HIDDEN,
    }
    whole = {"$defs": {"t": target, "a b": TEXT, "a%20b": TEXT}, "$id": "https://x.test/t"}
    for part in ({"$ref": reference}, {"anyOf": [{"$ref": reference}]}, {"not": {"$ref": reference}}):
        assert "$ref" in refused({**closed(x=part), **whole}).message


def test_references_that_are_followed() -> None:
    names = {"t": TEXT, "a/b": {"items": {"$ref": "#/$defs/a~1b"}}, "m~n": True, "": TEXT, "ü": TEXT}
    for reference in (
        "#/$defs/t",
        "#/$defs/a~1b",
        "#/$defs/m~0n",
        "#/$defs/",
        "#/$defs/ü",
        "#/definitions/d",
    ):
        check_sound({**closed(x={"$ref": reference}), "$defs": names, "definitions": {"d": TEXT}}, "t")
    check_sound(closed(next={"$ref": "#"}), "t")


@pytest.mark.parametrize(
    "schema",
    [
        {**closed(a={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {**closed(), "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}},
        {**closed(), "allOf": [{"$ref": "#"}]}, {**closed(), "anyOf": [TEXT, {"$ref": "#"}]},
        {**closed(), "if": {"$ref": "#"}}, {**closed(), "dependentSchemas": {"a": {"$ref": "#"}}},
        {**closed(a=TEXT), "oneOf": [{"then": {"$ref": "#"}}]},
    ],
)  # fmt: skip
def test_a_reference_that_comes_back_without_a_step_down_is_refused(schema: dict[str, Any]) -> None:
    assert "back to itself" in refused(schema).message


# ---- patterns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"pattern": "("}, "not closed"), ({"patternProperties": {"[": TEXT}}, "ends too early"),
        ({"items": {"anyOf": [{"pattern": "a{2,1}"}]}}, "downwards"),
        ({"pattern": r"^\p{L}+$"}, r"\p{L} is not supported"), ({"pattern": "^(?P<y>a)$"}, "(?P<y>"),
        ({"pattern": "^(a+)+$"}, "for ever"), ({"patternProperties": {"(?i)^b": TEXT}}, "(?i)"),
    ],
)  # fmt: skip
def test_a_pattern_that_is_not_usable_is_refused_with_its_place(part: dict[str, Any], said: str) -> None:
    found = refused(closed(x=part))
    assert said in found.message and "at /properties/x" in found.message


def test_what_only_looks_like_a_pattern_or_a_reference_is_data() -> None:
    data = {"$ref": "nowhere", "pattern": "(", "$id": 3, "x_resource": 1}
    holds = {
        "enum": [data],
        "default": data,
        "examples": [data],
        "example": data,
        "x-note": data,
        "unknown": data,
    }
    check_sound(closed(x=holds, pattern=TEXT, **{"$ref": TEXT}), "t")


# ---- how much may meet -------------------------------------------------------------------------------------


def _doubling(steps: int, keyword: str = "anyOf") -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(steps)
    }
    return {**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**defs, f"d{steps}": {"type": "integer"}}}


def _itself(node: dict[str, Any]) -> dict[str, Any]:
    return {**closed(a={"$ref": "#/$defs/t"}), "$defs": {"t": node}}


AGAIN = {"$ref": "#/$defs/t"}
ARRAY = {"type": "array", "items": AGAIN}


@pytest.mark.parametrize(
    "schema",
    [
        _doubling(14), _doubling(60), _doubling(14, "allOf"), _doubling(14, "oneOf"),
        _itself({"anyOf": [ARRAY, {**ARRAY, "minItems": 1}]}), _itself({"allOf": [ARRAY, ARRAY]}),
        _itself({"oneOf": [closed(op={"const": "and"}, of=ARRAY), closed(op={"const": "or"}, of=ARRAY)]}),
        _itself({"type": "object", "patternProperties": {"^a": AGAIN, "a$": AGAIN}, "additionalProperties": False}),
        _itself({"type": "object", "additionalProperties": AGAIN, "unevaluatedProperties": False}),
        _itself({"type": "array", "contains": AGAIN, "items": AGAIN}),
    ],
    ids=lambda schema: str(schema)[-60:],
)  # fmt: skip
def test_a_schema_whose_parts_meet_too_often_is_refused(schema: dict[str, Any]) -> None:
    before = time.process_time()
    assert "10,000" in refused(schema).message
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "schema",
    [
        _doubling(8),
        closed(left={"$ref": "#"}, right={"$ref": "#"}, any={"type": "array", "items": {"$ref": "#"}}),
        _itself({"anyOf": [{"type": "integer"}, ARRAY]}),
        _itself({"oneOf": [closed(all=ARRAY), closed(any=ARRAY), closed(no=AGAIN)]}),
        _itself({"type": "object", "properties": {"kids": ARRAY}, "unevaluatedProperties": False}),
        _itself({"type": "object", "properties": {"a": AGAIN}, "additionalProperties": AGAIN}),
        _itself({"type": "array", "prefixItems": [AGAIN, AGAIN], "items": AGAIN}),
        closed(**{f"p{i}": {"oneOf": [{"const": n} for n in range(50)]} for i in range(50)}),
    ],
    ids=lambda schema: str(schema)[-60:],
)  # fmt: skip
def test_a_schema_that_holds_itself_once_a_step_is_fine(schema: dict[str, Any]) -> None:
    check_sound(schema, "t")


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(1500):
        deep = {"items": deep}
    refused(closed(a=deep))
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(600)}
    refused({**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**chain, "d600": TEXT}})


def test_what_the_library_cannot_apply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        rounds = False

        def iter_errors(self, data: Any) -> Any:
            if isinstance(data.get("a"), list):
                raise ZeroDivisionError
            return iter(())

    monkeypatch.setattr(schema_sound, "validator", lambda schema: Failing())
    check_sound(closed(b=TEXT), "t")
    assert "ZeroDivisionError" in refused(closed(a=TEXT)).message


def test_an_output_schema_is_held_to_the_same() -> None:
    for output in (
        {**CLOSED, "allOf": [{"$ref": "#"}]},
        closed(a={"$id": "x"}),
        _doubling(20),
    ):
        with pytest.raises(ToolError) as found:
            Tool("t", "", CLOSED, output, "read", True, lambda args, io: {})
        assert "OUTPUT_SCHEMA" in str(found.value)
    # where nothing has to be declared, since the model says none of it
    assert Tool("t", "", CLOSED, closed(url=TEXT, any={}), "read", True, lambda args, io: {}).resources == ()
