"""Answers of a type: what is read, what is refused, where and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pydantic
import pytest

from tachograph.fail.errors import InputError
from tachograph.runtime.schema.answer_type import AnswerMismatch, AnswerType
from tests.functions.kit import Options, Order, Person, Unit


@dataclass
class Even:
    """Refuses by code what its schema accepts."""

    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("told by the type")


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SCHEMA, '{"a": 1, "b": [2]}', {"a": 1, "b": [2]}),
        (Options, '{"limit": 3}', Options(3)),
        (Order, '{"no": 1, "unit": "miles"}', Order(no=1, unit=Unit.MILES)),
        (list[Options], '{"result": [{}, {"limit": 2}]}', [Options(), Options(2)]),
        (Literal["yes", "no"], '{"result": "yes"}', "yes"),
        (str, '\n```json\n{"result": "```"}\n```\n', "```"),
    ],
)
def test_answers(kind: Any, text: str, value: Any) -> None:
    answers = AnswerType(kind)
    assert answers.read(text) == value
    assert type(answers.read(text)) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "pointer", "word"),
    [
        (SCHEMA, '{"a": 4}', "/a", "maximum 3"),
        (SCHEMA, '{"a": 1, "a": 2}', "", "duplicate key"),
        (SCHEMA, '{"a": 1} and more', "", "not JSON"),
        (SCHEMA, '{"b":[]}{"a": 1}\n```', "", "not JSON"),
        (SCHEMA, '```\n{"a": 1}\n```', "", "not JSON"),
        (SCHEMA, '```json\n```json\n{"a": 1}\n```\n```', "", "not JSON"),
        (SCHEMA, "[" * 100_000, "", "deep"),
        (Options, '{"limit": 3, "more": 1}', "", "additionalProperties"),
        (list[Options], '{"result": [{}, {"limit": 0}]}', "/result/1/limit", "minimum 1"),
        (list[Options], "[{}]", "", "type"),
        (Order, '{"no": 1, "day": "2023-02-29"}', "/day", "anyOf"),
        (Even, '{"number": 1}', "", "told by the type"),
    ],
)
def test_mismatches(kind: Any, text: str, pointer: str, word: str) -> None:
    with pytest.raises(AnswerMismatch) as refused:
        AnswerType(kind).read(text)
    assert refused.value.pointer == pointer
    assert word in refused.value.reason


@pytest.mark.parametrize(
    "kind",
    [{}, {"type": "string"}, {"type": "object", "properties": 3}, {"type": "object", "x": float("nan")},
     {"type": "object", "$ref": "https://far.test/s"}, object, bytes, dict[int, str], Options | Person, lambda: 1,
     list[pydantic.PositiveInt], NamedTuple("Pair", [("a", pydantic.PositiveInt)])],
)  # fmt: skip
def test_what_is_no_type_of_an_answer(kind: Any) -> None:
    with pytest.raises(InputError):
        AnswerType(kind)
