"""A plain typed function becomes a governed tool, or is refused with one line."""

from __future__ import annotations

import datetime
import enum
import hashlib
import inspect
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AnyUrl, BaseModel, Field, ValidationError

from tachograph.adapters import resource, tool_from_function
from tachograph.adapters.annotations import Argument, to_data
from tachograph.runtime.tools.contract import Tool
from tests.adapters.kit import IO, refused


class Depth(enum.Enum):
    SHALLOW = "shallow"
    DEEP = "deep"


@dataclass
class Part:
    number: int
    tags: list[str] = field(default_factory=list)
    depth: Depth = Depth.DEEP
    shared: ClassVar[int] = 3


class Note(TypedDict):
    text: str
    by: NotRequired[str]


def made(function: Any, **more: Any) -> Tool:
    return tool_from_function(function, **{"effect": "pure", "idempotent": True, "name": "probe", **more})


# ---- what is taken over --------------------------------------------------------------------------------


def weigh(
    parts: list[Part],
    by_name: Annotated[dict[str, int], resource("none")],
    mode: Literal["net", "gross"] = "net",
    note: Note | None = None,
    *,
    scale: float = 1.5,
    at: Annotated[str | None, resource("url"), "Where the prices are."] = None,
) -> int:
    """Weigh some parts,
    all of them.

    More of that.

    Args:
        parts: What to weigh,
            piece by piece.
        mode (str): With or without packing.

    Returns:
        note: of no argument.
    """
    assert all(isinstance(part, Part) and isinstance(part.depth, Depth) for part in parts)
    return sum(part.number for part in parts)


def test_annotations_are_the_schema_and_the_docstring_says_what_it_does() -> None:
    tool = tool_from_function(weigh, effect="network", idempotent=False, transient=[OSError], timeout_s=3)
    assert tool.name == "weigh" and tool.description == "Weigh some parts, all of them."
    assert (tool.effect, tool.idempotent, tool.transient, tool.timeout_s) == ("network", False, (OSError,), 3)
    depth = {"type": "string", "title": "Depth", "enum": ["shallow", "deep"], "default": "deep"}
    part = {
        "type": "object",
        "title": "Part",
        "additionalProperties": False,
        "properties": {
            "number": {"type": "integer", "title": "Number"},
            "tags": {"type": "array", "title": "Tags", "items": {"type": "string"}},
            "depth": depth,
        },
        "required": ["number"],
    }
    note = {
        "type": "object",
        "title": "Note",
        "additionalProperties": False,
        "properties": {"text": {"type": "string", "title": "Text"}, "by": {"type": "string", "title": "By"}},
        "required": ["text"],
    }
    assert tool.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["parts", "by_name"],
        "properties": {
            "parts": {"type": "array", "items": part, "description": "What to weigh, piece by piece."},
            "by_name": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "x-resource": "none",
            },
            "mode": {
                "type": "string",
                "enum": ["net", "gross"],
                "default": "net",
                "description": "With or without packing.",
            },
            "note": {"anyOf": [note, {"type": "null"}], "default": None},
            "scale": {"type": "number", "default": 1.5},
            "at": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "x-resource": "url",
                "description": "Where the prices are.",
                "default": None,
            },
        },
    }
    assert [(found.path, found.kind) for found in tool.resources] == [(("at",), "url")]
    assert tool.output_schema["properties"]["result"] == {"type": "integer"}
    assert tool.digest == hashlib.sha256(inspect.getsource(weigh).encode()).hexdigest()
    assert tool.run({"parts": [{"number": 2}, {"number": 3, "depth": "shallow"}], "by_name": {}}, IO) == {
        "result": 5
    }


def test_arguments_become_what_the_annotations_promise() -> None:
    got: list[Any] = []

    def take(
        one: Part, many: dict[str, list[Depth]], either: Part | Literal[1, "x"] | None, note: Note
    ) -> None:
        """Take."""
        got[:] = [one, many, either, note]

    tool = made(take, resources={"many": "none", "/many/*": "none"})
    part = {"number": 1, "tags": ["a"]}
    given = {"one": part, "many": {"a": ["deep"]}, "either": part, "note": {"text": "t"}}
    assert tool.run(given, IO) == {"result": None}
    assert got == [Part(1, ["a"]), {"a": [Depth.DEEP]}, Part(1, ["a"]), {"text": "t"}]
    tool.run(given | {"either": "x"}, IO)
    assert got[2] == "x"
    tool.run(given | {"either": None}, IO)
    assert got[2] is None


def test_a_resource_may_stand_deep_within() -> None:
    @dataclass
    class Page:
        url: str
        label: str = ""

    def crawl(pages: list[Page], spare: Page | None = None) -> int:
        """Crawl."""
        return len(pages)

    crawl.__annotations__ = {"pages": list[Page], "spare": Page | None, "return": int}
    places = {"/pages/*/url": "url", "/spare/url": "url"}
    tool = made(crawl, resources=places)
    assert {found.path for found in tool.resources} == {("pages", "*", "url"), ("spare", "url")}
    line = refused(lambda: made(crawl, resources={"/pages/*/url": "url"}))
    assert "/spare/url looks like a resource" in line and "resources={'/spare/url': " in line


# ---- what is refused -----------------------------------------------------------------------------------


def _url(url: str) -> str:
    """Get."""
    return url


def _place(place: str, path: str) -> str:
    """Get."""
    return path


def _keys(tags: dict[str, str]) -> str:
    """Get."""
    return ""


def _any(x: Any) -> str:
    """Get."""
    return ""


def _bare(x) -> str:  # type: ignore[no-untyped-def]
    """Get."""
    return ""


def _positional(x: int, /) -> str:
    """Get."""
    return ""


def _many(*x: int) -> str:
    """Get."""
    return ""


def _rest(**x: int) -> str:
    """Get."""
    return ""


def _dict(x: dict) -> str:  # type: ignore[type-arg]
    """Get."""
    return ""


def _limited(x: Annotated[int, range(3)]) -> str:
    """Get."""
    return ""


class Opaque:
    pass


def _raw(x: Opaque) -> str:
    """Get."""
    return ""


def _partly(x: int | Callable[[], int]) -> str:
    """Get."""
    return ""


def _field(x: int = Field(gt=1)) -> str:
    """Get."""
    return ""


@dataclass
class Described:
    at: Annotated[str, "The URL to get."]


def _nested(x: Described) -> str:
    """Get."""
    return ""


@dataclass
class Limited:
    at: Annotated[int, range(3)]


def _nested_limit(x: list[Limited]) -> str:
    """Get."""
    return ""


@dataclass
class Node:
    below: list[Node]


def _node(x: Node) -> str:
    """Get."""
    return ""


def _address(of: AnyUrl) -> str:
    """Get."""
    return ""


def _place_on_disk(of: Path) -> str:
    """Get."""
    return ""


def _unknown(x: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Get."""
    return ""


def _items(x: int) -> Iterator[int]:
    """Get."""
    yield x


def _silent(x: int) -> int:
    return x


def _default(source: str = "https://a.test/") -> str:
    """Get."""
    return source


def _vague(source: str) -> str:
    """Get.

    Args:
        source: The URL to get.
    """
    return source


def _marked(url: Annotated[str, resource("url")]) -> str:
    """Get."""
    return url


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (_url, {}, "/url looks like a resource and declares none; say what it is: resources={'url': "),
    (_place, {}, "/path looks like a resource"),
    (_default, {}, "/source looks like a resource"),
    (_vague, {}, "/source looks like a resource"),
    (_keys, {}, "/tags/* is any text under any key; say what it is: resources={'/tags/*': "),
    (_any, {}, "/x lets undeclared properties through; say what it is: resources={'x': "),
    (_raw, {}, "x has no JSON Schema (PydanticSchemaGenerationError); use str,"),
    (_partly, {}, "x has no JSON Schema (PydanticInvalidForJsonSchema)"),
    (_field, {}, "x has Field(...) as its default; write Annotated"),
    (_nested, {}, "at in x has an annotation that pydantic does not read within a class"),
    (_nested_limit, {}, "at in x is Annotated with range, which would be ignored"),
    (_node, {}, "refers to itself; use a type that does not contain itself"),
    (_address, {}, "/of looks like a resource"),
    (_place_on_disk, {}, "/of looks like a resource"),
    (_bare, {}, "x has no annotation"),
    (_positional, {}, "cannot be given by its name"),
    (_many, {}, "*x: 'int' cannot be given by its name"),
    (_rest, {}, "**x: 'int' cannot be given by its name"),
    (_dict, {}, "/x lets undeclared properties through"),
    (_limited, {}, "Annotated with range, which would be ignored"),
    (_unknown, {}, "cannot be resolved (NameError)"),
    (_items, {}, "yields its results"),
    (_silent, {}, "has no description; write a docstring, or give description="),
    (_marked, {"resources": {"url": "none"}}, "says 'none' of 'url', and its annotation 'url'"),
    (
        _url,
        {"resources": {"ulr": "url"}},
        "names 'ulr', where the schema has nothing to declare; did you mean",
    ),
    (_url, {"resources": {"/url/x": "url"}}, "names '/url/x', where"),
    (_url, {"resources": {"url": "uri"}}, "x-resource 'uri' at /properties/url is not valid"),
    (
        _url,
        {"resources": {"url": "path:read"}},
        "/url is a path in a mount, and this tool opens files by itself",
    ),
    (_url, {"resources": {"url": "path:write"}, "paths": "copy"}, "a copy is read-only; write through io"),
    (_url, {"resources": {"url": "url"}, "paths": "host"}, "paths='host' is unknown; use one of copy, text"),
    (_url, {"resources": {"url": "url"}, "transient": [int]}, "transient= contains something that is not"),
    (_url, {"resources": {"url": "url"}, "effect": "netwrk"}, "EFFECT must be one of"),
    (print, {}, "is not a function"),
    (len, {}, "is not a function"),
]


@pytest.mark.parametrize(("function", "more", "what"), REFUSED, ids=[line for _, _, line in REFUSED])
def test_what_has_no_exact_schema_is_refused(function: Any, more: dict[str, Any], what: str) -> None:
    assert what in refused(lambda: made(function, **more))


# ---- what pydantic reads -------------------------------------------------------------------------------


class Window(BaseModel):
    start: datetime.date
    days: Annotated[int, Field(ge=1, le=7)] = 1


def test_models_dates_ids_and_decimals_are_read_and_returned() -> None:
    def book(window: Window, id: uuid.UUID, price: Decimal, names: Part | Note) -> list[Any]:
        """Book."""
        assert isinstance(window, Window) and isinstance(id, uuid.UUID) and isinstance(price, Decimal)
        return [window, id, price * 2, names]

    book.__annotations__ = {
        "window": Window,
        "id": uuid.UUID,
        "price": Decimal,
        "names": Part | Note,
        "return": Any,
    }
    tool = made(book)
    window = tool.input_schema["properties"]["window"]
    assert window["additionalProperties"] is False
    assert window["properties"]["days"] == {
        "type": "integer",
        "title": "Days",
        "minimum": 1,
        "maximum": 7,
        "default": 1,
    }
    text = {"type": "string", "pattern": "^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"}
    assert tool.input_schema["properties"]["price"] == {"anyOf": [{"type": "number"}, text]}
    one = "12345678-1234-5678-1234-567812345678"
    given = {"window": {"start": "2026-01-02"}, "id": one, "price": "1.10", "names": {"text": "t"}}
    assert tool.run(given, IO) == {"result": [{"start": "2026-01-02", "days": 1}, one, "2.20", {"text": "t"}]}
    for name, value in (("price", True), ("id", 3), ("window", {"start": "2026-01-02", "days": "2"})):
        with pytest.raises(ValidationError):
            tool.run({**given, name: value}, IO)


def test_a_default_that_is_no_json_data_is_not_in_the_schema() -> None:
    def take(limit: float = float("inf"), part: Part = Part(1)) -> None:  # noqa: B008
        """Take."""

    tool = made(take)
    assert tool.input_schema["properties"]["limit"] == {"type": "number"}
    assert tool.input_schema["properties"]["part"]["default"] == {"number": 1, "tags": [], "depth": "deep"}


def test_options_are_keywords_of_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'efect'"):
        made(_vague, efect="pure")


def test_what_is_not_declared_is_external_and_not_idempotent() -> None:
    tool = tool_from_function(_plain, name="plain")
    assert (tool.effect, tool.idempotent, tool.is_external, tool.is_declared) == (
        "external",
        False,
        True,
        False,
    )
    assert tool_from_function(_plain, name="plain", effect="read").is_declared


def _plain(text: str) -> str:
    """Return the text."""
    return text


PLAIN = st.sampled_from(
    [str, int, bool, float, None, Depth, Part, Note, Literal["a", 1], Literal["x", None], Literal[Depth.DEEP]]
)
ANNOTATIONS = st.recursive(
    PLAIN,
    lambda inner: (
        inner.map(lambda one: list[one])  # type: ignore[valid-type]
        | inner.map(lambda one: dict[str, one])  # type: ignore[valid-type]
        | inner.map(lambda one: Annotated[one, "Words."])
        | st.tuples(inner, inner).map(lambda two: Union[two])  # noqa: UP007 - made from a tuple
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "x", "deep", "1", 1.5, 2.0]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["text", "by", "number", "tags", "depth", "z"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(ANNOTATIONS, st.lists(VALUES, max_size=6))
def test_whatever_the_schema_accepts_is_read(annotation: Any, values: list[Any]) -> None:
    argument = Argument(annotation, "t", "x", {})
    validator = Draft202012Validator(argument.schema)
    for value in values:
        if validator.is_valid(value):
            kept = to_data(argument.read(value))
            assert validator.is_valid(kept) and type(kept) in (type(value), int, float), (annotation, value)


def test_without_pydantic_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    def either(code: int | str) -> str:
        """Find it."""
        return str(code)

    line = refused(lambda: made(either))
    assert line == "the package 'pydantic' is not installed; run: pip install 'tachograph[functions]'"
