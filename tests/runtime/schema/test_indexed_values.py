"""Long lists and `uniqueItems` are judged by an index: what is accepted, and what is said of it, stays the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tachograph.runtime.schema import indexed_values
from tachograph.runtime.schema.indexed_values import MAX_SHOWN, MIN_INDEXED, value_key
from tachograph.runtime.schema.validator import Mismatch, SchemaValidator
from tachograph.runtime.schema.work import is_indexed

ATOMS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**53 - 1, 0.0, -0.0, 1.0, 0.5, 1e-300, 5e-324, 1e300, 7.0),
    *("", "a", "1", "true", "\u00e9", "\U0001f600", "a" * 300),
)
FILLING = [*range(MAX_SHOWN), "x"]


def value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.randrange(6 if depth else 4)
    if kind == 4:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 5:
        return {name: value(chance, depth - 1) for name in chance.sample("abc", chance.randrange(4))}
    return chance.choice(ATOMS)


def test_values_are_equal_as_the_library_finds_them_equal() -> None:
    chance = random.Random(5)
    found = set()
    for _ in range(4_000):
        one, other = value(chance), value(chance)
        same = Draft202012Validator({"const": one}).is_valid(other)
        assert (value_key(one) == value_key(other)) is same, (one, other)
        assert not same or hash(value_key(one)) == hash(value_key(other))
        found.add(same)
    assert found == {True, False}


def test_an_index_accepts_what_the_library_accepts() -> None:
    chance = random.Random(6)
    seen = set()
    for _ in range(400):
        listed = [value(chance) for _ in range(chance.randrange(1, 9))] + FILLING
        many = [value(chance) for _ in range(chance.randrange(6))]
        for schema, data in (
            ({"enum": listed}, chance.choice([*listed, value(chance)])),
            ({"const": listed}, chance.choice([listed, [*listed, 1], listed[0]])),
            ({"uniqueItems": True}, chance.choice([many, value(chance)])),
            ({"not": {"enum": listed}}, value(chance)),
            ({"items": {"anyOf": [{"enum": listed}, {"type": "null"}]}}, many),
        ):
            accepted = Draft202012Validator(schema).is_valid(data)
            validator = SchemaValidator(schema)
            assert validator.accepts(data) is accepted is (validator.first_mismatch(data) is None)
            seen.add((next(iter(schema)), accepted))
    assert len(seen) == 10


@pytest.mark.parametrize(
    ("schema", "keyword", "found"),
    [
        ({"enum": ["a", "b"]}, "enum", False),
        ({"enum": [*range(MAX_SHOWN)]}, "enum", False),
        ({"enum": [*range(MAX_SHOWN + 1)]}, "enum", True),
        ({"enum": ["a" * 40_000]}, "enum", True),
        ({"enum": ["a", *range(9)]}, "enum", False),
        ({"enum": ["a", *range(20)]}, "enum", True),
        ({"enum": [0.5]}, "enum", True),
        ({"const": "a"}, "const", False),
        ({"const": {f"k{i}": i for i in range(40)}}, "const", True),
        ({"uniqueItems": True}, "uniqueItems", True),
        ({"uniqueItems": False}, "uniqueItems", False),
    ],
)
def test_what_is_short_is_left_to_the_library(schema: dict[str, Any], keyword: str, found: bool) -> None:
    assert is_indexed(schema, keyword) is found
    assert MIN_INDEXED > 20 * 9


def test_a_mismatch_names_the_keyword_of_the_schema_and_what_it_allows() -> None:
    listed = [*range(100)]
    schema = {
        "properties": {"a": {"items": {"enum": listed}}, "b": {"uniqueItems": True}, "c": {"const": [0.5]}}
    }
    named = SchemaValidator(schema).first_mismatch
    limit = ",".join(map(str, range(10)))
    assert named({"a": [1, 100]}) == Mismatch("/a/1", "enum", limit, "/properties/a/items/enum")
    assert named({"b": [1, 1.0]}) == Mismatch("/b", "uniqueItems", "true", "/properties/b/uniqueItems")
    assert named({"c": [1]}) == Mismatch("/c", "const", "", "/properties/c/const")


def test_a_mismatch_below_a_pattern_that_is_written_anew_is_named() -> None:
    found = SchemaValidator({"patternProperties": {"^\\x61$": {"enum": FILLING}}}).first_mismatch({"a": "y"})
    assert found is not None and (found.pointer, found.keyword, found.limit) == ("/a", "enum", "")


def test_our_names_in_a_schema_mean_nothing() -> None:
    assert SchemaValidator({"tachograph:enum": [1], "tachograph:uniqueItems": True}).accepts([2, 2])
    assert SchemaValidator({"default": {"enum": FILLING}, "enum": [{"uniqueItems": True}]}).accepts(
        {"uniqueItems": True}
    )


def test_a_failure_of_ours_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would take it for a value that is not listed, which `not` accepts."""
    validator = SchemaValidator({"not": {"enum": FILLING}})

    def fails(value: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(indexed_values, "value_key", fails)
    for ask in (validator.accepts, validator.first_mismatch):
        with pytest.raises(MemoryError):
            ask("y")
    monkeypatch.undo()
    assert validator.accepts("y") and not validator.accepts("x")


def test_many_errors_about_a_long_list_are_named_without_copies_of_it() -> None:
    """The library copies a list into each of its errors."""
    listed = [str(i) for i in range(5_000)]
    validator = SchemaValidator({"items": {"enum": listed}})
    errors = list(validator._library.iter_errors(["x"] * 10))
    assert len(errors) == 10 and not any(hasattr(error.kind, "options") for error in errors)
    assert validator.first_mismatch(["x"] * 900) == Mismatch(
        "/0", "enum", "0,1,2,3,4,5,6,7,8,9", "/items/enum"
    )
