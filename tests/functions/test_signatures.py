"""A table of signatures and their schemas, and of functions that are refused, each with all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import annotated_types
import msgspec
import pydantic.dataclasses
import pytest
from msgspec import Meta
from typing_extensions import TypeAliasType

from tachograph.fail.errors import ToolError
from tachograph.runtime.schema.answer_type import AnswerType
from tachograph.runtime.schema.python_types import ReadPath, Url
from tachograph.runtime.tools.functions import Context, tool
from tests.functions.kit import Options, Order, Person, Unit

TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
FILES = {"anyOf": [{"type": "array", "items": {**TEXT, "x-resource": "path:read"}}, NULL], "default": None}
PERSON = {"properties": {"name": TEXT, "title": TEXT}, "required": ["name"]}
CLOSED = {"type": "object", "additionalProperties": False}
Day = TypeAliasType("Day", Annotated[str, "in English"])  # as `type Day = ...` of Python 3.12
Some = TypeAliasType("Some", Annotated[int, annotated_types.Gt(0)])
Within = msgspec.defstruct("Within", [("some", Some)])


def text(day: Day = "Monday") -> None: ...
def url(page: Annotated[Url, "where"], files: list[ReadPath] | None = None): ...
def named(*, kind: Literal["a", 2] = 2, io: Any, context: Context[int]) -> dict[str, int]: ...
def unit(unit: Unit = Unit.KM) -> list[Unit]: ...
def person(person: Person) -> Person: ...


@pytest.mark.parametrize(
    ("function", "properties", "returned", "definitions"),
    [
        (text, {"day": {**TEXT, "description": "in English", "default": "Monday"}}, {"result": NULL}, {}),
        (url, {"page": {**TEXT, "x-resource": "url", "description": "where"}, "files": FILES}, {"result": {}}, {}),
        (named, {"kind": {"enum": [2, "a"], "default": 2}}, {"result": {**CLOSED, "additionalProperties": WHOLE}}, {}),
        (unit, {"unit": {"$ref": "#/$defs/Unit", "default": "km"}},
         {"result": {"type": "array", "items": {"$ref": "#/$defs/Unit"}}}, {"Unit": {"enum": ["km", "miles"]}}),
        (person, {"person": {"$ref": "#/$defs/Person"}}, PERSON["properties"], {"Person": {**CLOSED, **PERSON}}),
    ],
)  # fmt: skip
def test_signatures(function: Any, properties: Any, returned: Any, definitions: Any) -> None:
    made = tool(function, description="Do it.", effect="pure")
    required = [name for name, part in properties.items() if "default" not in part]
    schema = {**CLOSED, "properties": properties, "required": required}
    assert made.input_schema == schema | ({"$defs": definitions} if definitions else {})
    assert made.output_schema["properties"] == returned


def test_bare_is_external_and_the_docstring_is_what_the_model_reads() -> None:
    @tool
    def bare(text: str) -> None:
        """Say it."""

    assert (bare.effect, bare.name, bare.description) == ("external", "bare", "Say it.")


def test_the_docstring_of_a_class_is_told_alike_by_each_python() -> None:
    assert AnswerType(Options).schema["description"] == "How to look.\n\nEach Python tells it alike."


def test_what_is_no_function_is_no_tool() -> None:
    for wrong in ("pure", Loose, len):
        with pytest.raises(ToolError, match=r"is not a function; .*effect="):
            tool(wrong)  # type: ignore[call-overload]
    with pytest.raises(ToolError, match="'effect'"):
        tool(whole, efect="pure")  # type: ignore[call-overload]


def test_a_list_of_exceptions_is_one_too() -> None:
    assert tool(whole, description="D.", transient=[OSError]).transient == (OSError,)


def test_local_classes_and_methods() -> None:
    @dataclass
    class Local:
        tags: list[str] = field(default_factory=list)

    class Depot:
        def open(self, local: Local, io: Any, context: Context[Local]) -> list[Any]:
            """Say it."""
            return [type(local) is Local, local.tags, io.deps, context.deps]

    method = tool(Depot().open, effect="pure")
    assert method.run({"local": {"tags": ["a"]}}, SimpleNamespace(deps=7)) == {"result": [True, ["a"], 7, 7]}
    assert method(Local(["b"]), SimpleNamespace(deps=1), context=Context(2)) == [True, ["b"], 1, 2]


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", {1: object()}, iter([]), {object()}])
def test_what_is_no_json_is_left_to_who_judges_results(value: Any) -> None:
    assert tool(lambda: value, name="x", description="D.").run({}, None)["result"] is value


@pytest.mark.parametrize("value", ["1", 1.5, True, None])
def test_conversion_alone_does_not_widen_either(value: Any) -> None:
    with pytest.raises(ValueError, match="Expected"):
        tool(whole, description="D.").run({"value": value}, None)


def whole(value: int): ...
def untyped(a, b=1): ...
def in_class(self, a: int): ...
def starred(a: int, /, *args: int, **named: str): ...
def unknown_names(a: Nowhere, b: int, c: list[Missing]) -> Gone: ...  # noqa: F821
def unsupported(a: object, b: Callable[[], int], c: complex, d: list[type]) -> Iterator[int]: ...
def unions(a: Options | Person, b: list[int] | set[int], c: Order | int, d: dict[Unit, int]): ...
def loose(a: bytes, b: timedelta, c: msgspec.Raw, d: Annotated[datetime, Meta(tz=False)]): ...
def in_classes(a: Loose, b: Made, c: Checked, d: Unresolved, e: Annotated[int, pydantic.Field(gt=0)]): ...
def aliases(a: Some, b: list[Some], c: Within): ...
def twice(a: Context[int], b: Context[str], c: Context[int] | None = None): ...
def defaults(a: int = "x", b: str = None, c: Any = object(), d: Unit = "yard"): ...  # noqa: B008, RUF013


@dataclass
class Loose:
    when: datetime


@dataclass
class Made:
    stamp: int = field(default_factory=lambda: 3)


@pydantic.dataclasses.dataclass
class Checked:
    whole: int


@dataclass
class Unresolved:
    there: Nowhere  # noqa: F821


def generator(a: int):
    yield a


async def several(a: int):
    yield a


BAD = {
    "name": "9x",
    "effect": "some",
    "timeout_s": 0,
    "transient": (ToolError,),
    "probe": 3,
    "description": " ",
}


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (untyped, {}, "'a' 'b'"),
        (in_class, {}, "'self' tool(...)(obj.method)"),
        (starred, {}, "'a' 'args' 'named'"),
        (unknown_names, {}, "'a' Nowhere 'c' Missing 'return' Gone"),
        (unsupported, {}, "'a' 'b' 'c' 'd' 'result'"),
        (loose, {}, "'a' 'b' 'c' 'd'"),
        (in_classes, {}, "'a' 'b' 'c' 'd' Nowhere 'e'"),
        (aliases, {}, "'a' 'b' 'c'"),
        (unions, {}, "'a' 'b' 'c' 'd'"),
        (twice, {}, "'a' 'b' 'c'"),
        (defaults, {}, "'a' 'b' INPUT_SCHEMA 'd'"),
        (untyped, BAD, "'a' 'b' docstring '9x' EFFECT TIMEOUT_S TRANSIENT probe"),
        (whole, {"transient": OSError}, "TRANSIENT"), (whole, {"transient": [OSError, 5]}, "TRANSIENT"),
        (whole, {"description": 3}, "docstring"),
        (generator, {}, "yields"), (several, {}, "yields"),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_told_at_once(function: Any, options: Any, told: str) -> None:
    with pytest.raises(ToolError) as refused:
        tool(function, **{"description": "Do it.", "effect": "pure", **options})
    message = str(refused.value)
    assert "\n" not in message
    assert [word for word in told.split() if word not in message] == []
