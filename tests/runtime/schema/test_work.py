"""The work of judging data is counted from sizes: never less than what is there, and told apart by properties."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.fail.errors import ToolError
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.schema.dialect import check_input
from tachograph.runtime.schema.validator import MAX_ERRORS, SchemaValidator
from tachograph.runtime.schema.work import MAX_WORK, Sizes, sizes_by_name, sizes_of, work_of

TEXT = {"type": "string"}
OBJECTS = [{"a": i, "b": "x"} for i in range(2000)]
SEARCHED = {"enum": ["a", *range(8)]}  # short enough for the library to compare with each value


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def steps(schema: dict[str, Any], data: dict[str, Any]) -> int:
    return work_of(schema).steps(sizes_by_name(data))


@pytest.mark.parametrize(
    ("data", "sizes"),
    [
        (1, (1, 0, 0, 0)),
        (0.5, (1, 0, 1, 0)),
        (5e-324, (1, 0, 150, 0)),
        ("abc", (1, 0, 0, 3)),
        ([1, "a", 0.5, [True]], (6, 0, 1, 1)),
        ({"ab": {"c": None}}, (3, 2, 0, 3)),
    ],
)
def test_sizes_count_values_names_fractions_and_characters(
    data: Any, sizes: tuple[int, int, int, int]
) -> None:
    assert sizes_of(data) == Sizes(*sizes)


COSTLY = [
    ({"items": {"enum": OBJECTS}}, [OBJECTS[-1]] * 20_000),
    ({"items": SEARCHED}, [1] * 50_000),
    ({"items": SEARCHED}, [0.5] * 2_000),
    ({"items": SEARCHED}, [5e-324] * 20),
    ({"items": {"const": 7}}, [7] * 200_000),
    ({"items": {"enum": [i / 2 for i in range(2000)]}}, [0.5] * 20_000, False),
    ({"enum": [i / 2 for i in range(20_000)]}, 5e-324, False),
    ({"enum": [i * 1e-300 for i in range(2000)]}, 1, False),
    ({"items": {"enum": [*range(2000)]}}, [1] * 20_000, False),
    ({"items": {"enum": [*map(str, range(2000))]}}, ["1"] * 20_000, False),
    ({"items": {"enum": ["a", *range(20_000)]}}, [1] * 20_000, False),
    ({"items": {"enum": [[i, 7] for i in range(20)]}}, [[0.5, 0.5]] * 2_000, False),
    ({"items": {"const": [*range(20_000)]}}, [[*range(100)]] * 100, False),
    ({"uniqueItems": True, "items": {"items": {"type": "number"}}}, [[0.5] * 2_000] * 15, False),
    ({"uniqueItems": True}, [*range(100_000)]),
    ({"uniqueItems": True, "items": TEXT}, ["a"] * 20_000, False),
    ({"items": {"multipleOf": 1e-300}}, [0.5] * 5_000),
    ({"items": {"multipleOf": 7}}, [7] * 50_000, False),
    ({"items": {"multipleOf": 7}}, [7.5] * 50_000),
    ({"items": {"minimum": 0.5, "maximum": 1e9}}, [7] * 50_000),
    ({"items": {"minimum": 1, "maximum": 9}}, [7] * 50_000, False),
    ({"items": {"required": [f"k{i}" for i in range(2_000)]}}, [{}] * 2_000),
    ({"anyOf": [{"items": {"const": i}} for i in range(1_000)]}, [1] * 20_000),
    ({"oneOf": [{"items": {"const": i}} for i in range(1_000)]}, [1] * 20_000),
    ({"type": "string", "pattern": "^.{1,2000}$"}, "x" * 20_000),
    ({"type": "string", "pattern": "^(?:a?a?a?a?a?a?a?){0,7}c"}, "a" * 200_000),
    ({"type": "string", "pattern": "(a{0,7}){0,7}(a{0,7}){0,7}c"}, "a" * 200_000),
    ({"items": {"pattern": "^.{0,2000}$"}}, [""] * 20_000),
    ({"type": "string", "pattern": "^[a-z]+$"}, "x" * 200_000, False),
    ({"type": "string", "maxLength": 2_000_000}, "x" * 2_000_000, False),
]


@pytest.mark.parametrize(("schema", "value", "costly"), [(*row, True)[:3] for row in COSTLY])
def test_what_takes_the_library_long_is_counted_as_too_much(schema: Any, value: Any, costly: bool) -> None:
    assert (steps(closed(a=schema, b=TEXT), {"a": value, "b": "x"}) > MAX_WORK) is costly
    # under a name of its own, in a choice, behind a reference, and below other keywords
    assert (steps(closed(a={"anyOf": [schema, {"type": "null"}]}), {"a": value}) > MAX_WORK) >= costly
    referring = {**closed(a={"$ref": "#/$defs/d"}), "$defs": {"d": schema}}
    assert (steps(referring, {"a": value}) > MAX_WORK) is costly
    assert (steps({"additionalProperties": schema}, {"a": value}) > MAX_WORK) is costly
    assert (steps({"allOf": [closed(a=schema)]}, {"a": value}) > MAX_WORK) is costly
    assert (steps(closed(a={"prefixItems": [schema]}), {"a": [value]}) > MAX_WORK) >= costly


def test_data_under_one_property_is_not_held_against_the_schemas_of_another() -> None:
    schema = closed(a=SEARCHED, b={"type": "array", "items": TEXT})
    data = {"a": 1, "b": ["x"] * 30_000}
    assert steps(schema, data) < MAX_WORK < steps(schema, {"a": data["b"], "b": data["a"]})


def test_the_bound_for_a_character_holds_for_all_data() -> None:
    work = work_of(closed(a={"items": {"enum": OBJECTS[:20]}}, b={"pattern": "^.{1,200}$"}))
    for data in ({"a": [1] * 500}, {"b": "x" * 1000}, {"c": [0.5] * 300}, {"a": OBJECTS[:9], "b": [[], {}]}):
        size = sizes_by_name(data)
        characters = len(str(data).replace(" ", ""))
        assert work.steps(size) <= work.densest() * (characters + 1)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string", "pattern": "^.{1,2000}$"}] * 70},
        {"oneOf": [{"type": "string", "pattern": "^.{1,1000}$"}] * 140},
    ],
)
def test_a_tool_is_refused_whose_calls_could_never_be_judged(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match=r"judging one value may take [0-9,]+ steps"):
        check_input(closed(a=schema), "tool.py")


@pytest.mark.parametrize(
    ("schema", "data", "named"),
    [
        # with all its errors; with the first that the library finds; with none, since that one holds all others
        (closed(a={"items": TEXT}), {"a": [1] * 1000}, "type"),
        (closed(a={"items": {"anyOf": [TEXT] * 9}}), {"a": [1] * 1000}, "anyOf"),
        (closed(a={"anyOf": [{"items": TEXT}] * 1000}), {"a": [1] * 100}, "schema"),
        (closed(a={"anyOf": [{"const": i} for i in range(MAX_ERRORS + 1)]}), {"a": -1}, "schema"),
        ({"items": {"anyOf": [{"items": TEXT}] * 90}}, [[1]] * 100, "schema"),
        (closed(a={"additionalProperties": TEXT}), {"a": {str(i): 1 for i in range(500)}}, "type"),
        ({"items": TEXT}, [1] * 1000, "type"),
        (closed(a={"items": {"anyOf": [{"items": {"enum": OBJECTS}}] * 2}}), {"a": [[1]] * 40}, "anyOf"),
        (closed(a={"items": SEARCHED}), {"a": [0.5] * 100}, "enum"),
        (closed(a={"items": SEARCHED}), {"a": [0.5] * 500}, "schema"),
        ({"anyOf": [{"items": {"required": [f"k{i}" for i in range(2000)]}}] * 2}, [{}] * 9, "schema"),
    ],
)
def test_as_much_is_explained_as_is_cheap(schema: dict[str, Any], data: Any, named: str) -> None:
    asked: list[str] = []
    validator = SchemaValidator(schema)
    real = validator._library

    class Library:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(real, name)

    validator._library = Library()
    found = validator.first_mismatch(data)
    assert found is not None and found.keyword == named
    assert {"iter_errors", "validate"}.isdisjoint(asked) is (named == "schema")
    assert ("iter_errors" in asked) <= (validator._explaining(data)[1] <= MAX_ERRORS)
    assert not validator.accepts(data)


def test_a_result_that_takes_too_many_steps_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a result is, steps that its size is a reason for are taken; those of a hostile schema are not."""
    hostile = SchemaValidator({"items": {"multipleOf": 0.1}})
    judge = hostile.mismatch_of_result
    assert judge(freeze([0.1] * 100)) is None
    assert judge(freeze([1] * 3_000)) is None
    plain = SchemaValidator({"items": {"type": "object", "properties": {"n": {"type": "integer"}}}})
    assert plain.mismatch_of_result(freeze([{"n": 1}] * 150_000)) is None
    monkeypatch.setattr(SchemaValidator, "first_mismatch", lambda self, data: pytest.fail("it was judged"))
    found = judge(freeze([1] * 20_000))
    assert found is not None and (found.pointer, found.keyword) == ("", "schema")
    assert found.limit == f"at most {MAX_WORK} steps to judge it"
