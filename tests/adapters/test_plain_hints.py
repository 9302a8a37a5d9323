"""Plain annotations are read without pydantic, to what pydantic reads them to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tachograph import ToolError, tool
from tachograph.adapters.annotations import Argument, output_schema_by_pydantic
from tachograph.adapters.plain_hints import NotPlain, output_schema, plain_argument
from tachograph.adapters.schemas import resource
from tests.support import ROOT


@dataclass
class Part:
    number: int
    big_tags: list[str] = field(default_factory=list)
    note: str | None = None
    weight: float = 2


@dataclass
class Box:
    """A box.

    More of it.
    """

    part: Part
    spare: Part | None = None


class Note(TypedDict):
    """A note."""

    text: str
    by: NotRequired[str]


class Total(TypedDict, total=False):
    count: Required[int]
    parts: list[Part]


@dataclass
class Tree:
    inner: list[Tree]


@dataclass
class Made:
    seed: InitVar[int]
    number: int = 0


PLAIN = st.sampled_from(
    [
        *(str, int, float, bool, None, Any, list, dict, Part, Box, Note, Total),
        *(Literal["a", "b"], Literal["a"], Literal[1, 2]),
    ]
)
ANNOTATIONS = st.recursive(
    PLAIN,
    lambda inner: (
        inner.map(lambda one: list[one])  # type: ignore[valid-type]
        | inner.map(lambda one: dict[str, one])  # type: ignore[valid-type]
        | inner.filter(lambda one: one not in (None, Any)).map(lambda one: Optional[one])  # noqa: UP045 - any type
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "x", "1", 1.5]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.fixed_dictionaries({"number": st.integers(0, 3)}, optional={"note": inner, "weight": inner})
        | st.dictionaries(
            st.sampled_from(["text", "by", "number", "part", "count", "parts"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from([{}, {"description": "Words."}, {"default": None}, {"default": 1.0}])


@settings(max_examples=300, deadline=None)
@given(ANNOTATIONS, FIELDS, st.lists(VALUES, max_size=6))
def test_it_is_what_pydantic_makes_of_it(annotation: Any, said: dict[str, Any], values: list[Any]) -> None:
    try:
        plain = plain_argument(annotation, said)
    except NotPlain:  # an optional optional
        return
    known = Argument(annotation, "t", "x", said)
    assert plain.schema == known.schema
    assert output_schema(annotation) == output_schema_by_pydantic(annotation)
    validator = Draft202012Validator(plain.schema)
    for value in values:
        if validator.is_valid(value):
            mine, theirs = plain.read(value), known.read(value)
            assert mine == theirs and type(mine) is type(theirs), (annotation, value)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, "What it is."],
        Annotated[str, resource("url")],
        list[Annotated[str, resource("url"), "Where it is."]],
        Annotated[str | None, resource("none"), "Why."],
    ],
    ids=str,
)
@pytest.mark.parametrize("said", [{}, {"description": "Words.", "default": None}])
def test_what_stands_beside_it_is_what_pydantic_takes(annotation: Any, said: dict[str, Any]) -> None:
    assert plain_argument(annotation, said).schema == Argument(annotation, "t", "x", said).schema


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "1"),
        (int, True),
        (int, 1.5),
        (str, 1),
        (bool, 1),
        (float, "1"),
        (Literal["a"], "b"),
        (Literal[1], True),
        (list[int], ["1"]),
        (dict[str, int], {"a": None}),
        (Part, {"number": "1"}),
        (Part, {}),
        (Part, {"number": 1, "other": 2}),
        (Note, {"by": "me"}),
    ],
    ids=str,
)
def test_other_data_is_not_converted(annotation: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="value"):
        plain_argument(annotation, {}).read(value)


@pytest.mark.parametrize(
    "annotation",
    [int | str, set[int], tuple[int, int], dict[int, str], Literal["a", 1], Tree, Made, bytes, object],
    ids=str,
)
def test_what_is_not_certain_is_left_to_pydantic(annotation: Any) -> None:
    with pytest.raises(NotPlain):
        plain_argument(annotation, {})


WITHOUT = """
import sys
sys.modules["pydantic"] = sys.modules["pydantic_core"] = sys.modules["annotated_types"] = None
from dataclasses import dataclass
from typing import Literal
from tachograph import Agent, InputError, Stub, tool

@dataclass
class Place:
    name: str
    rooms: int = 0

@tool(effect="read")
def depot(code: str, depth: Literal["short", "long"] = "short", near: Place | None = None) -> Place:
    "Find a depot."
    return Place(code + depth + near.name, 3)

@tool(effect="pure")
async def later(number: int) -> int:
    "Wait."
    return number + 1

script = [
    {"calls": [{"tool": "depot", "arguments": {"code": "OB", "near": {"name": "N"}}}]},
    {"calls": [{"tool": "later", "arguments": {"number": 1}}]},
    {"answer": {"$result": 0, "at": "/result/name"}},
]
result = Agent(Stub(script), [depot, later]).run("Where?")
print(result.answer, result.steps[1].calls[0]["result"])
try:
    @tool(effect="read")
    def vague(code: int | str) -> str:
        "Find it."
        return ""
except InputError as error:
    print(error)
"""


def test_without_pydantic_plain_functions_are_tools() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    assert done.stderr == "" and done.stdout.splitlines() == [
        "OBshortN {'result': 2}",
        "the package 'pydantic' is not installed; run: pip install 'tachograph[functions]'",
    ]


def test_a_tool_without_an_effect_is_refused_with_the_line_to_write() -> None:
    with pytest.raises(ToolError) as caught:

        @tool
        def lookup(code: str) -> str:
            """Look it up."""
            return code

    assert "what effect lookup has" in str(caught.value) and '@tool(effect="read")' in str(caught.value)
    with pytest.raises(ToolError, match="what effect the function has"):
        tool(idempotent=True)
