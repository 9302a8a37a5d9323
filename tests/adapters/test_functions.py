"""A plain typed function becomes a governed tool, or is refused with one line."""

from __future__ import annotations

import enum
import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict

import pytest

from tachograph.adapters import resource, tool_from_function
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
    part = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "number": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "depth": {"type": "string", "enum": ["shallow", "deep"], "default": "deep"},
        },
        "required": ["number"],
    }
    note = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"text": {"type": "string"}, "by": {"type": "string"}},
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


def _alike(x: Part | Note) -> str:
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
    (_any, {}, "x is of type Any, which has no JSON Schema here; use str,"),
    (_bare, {}, "x has no annotation"),
    (_positional, {}, "cannot be given by its name"),
    (_many, {}, "*x: 'int' cannot be given by its name"),
    (_rest, {}, "**x: 'int' cannot be given by its name"),
    (_dict, {}, "x is of type dict"),
    (_limited, {}, "Annotated with range, which would not be kept"),
    (_alike, {}, "members look alike as JSON"),
    (_unknown, {}, "cannot be resolved (NameError)"),
    (_items, {}, "yields its results"),
    (_silent, {}, "says nothing of what it does; give description="),
    (_marked, {"resources": {"url": "none"}}, "says 'none' of 'url', and its annotation 'url'"),
    (
        _url,
        {"resources": {"ulr": "url"}},
        "names 'ulr', where the schema has nothing to declare; did you mean",
    ),
    (_url, {"resources": {"/url/x": "url"}}, "names '/url/x', where"),
    (_url, {"resources": {"url": "uri"}}, "x-resource 'uri' at /properties/url is none"),
    (
        _url,
        {"resources": {"url": "path:read"}},
        "/url is a path in a mount, and this tool opens files by itself",
    ),
    (_url, {"resources": {"url": "path:write"}, "paths": "copy"}, "a copy is read only; write through io"),
    (_url, {"resources": {"url": "url"}, "paths": "host"}, "paths='host' is unknown; use one of copy, text"),
    (_url, {"resources": {"url": "url"}, "transient": [int]}, "transient= holds something else"),
    (_url, {"resources": {"url": "url"}, "effect": "netwrk"}, "EFFECT must be one of"),
    (print, {}, "is no function"),
    (len, {}, "is no function"),
]


@pytest.mark.parametrize(("function", "more", "what"), REFUSED, ids=[line for _, _, line in REFUSED])
def test_what_has_no_exact_schema_is_refused(function: Any, more: dict[str, Any], what: str) -> None:
    assert what in refused(lambda: made(function, **more))


def test_a_class_that_holds_itself_is_refused() -> None:
    @dataclass
    class Node:
        below: list[Any]

    Node.__annotations__ = {"below": list[Node]}

    def walk(top: Node) -> int:
        """Walk."""
        return 0

    walk.__annotations__ = {"top": Node}
    assert "type Node, which holds itself" in refused(lambda: made(walk))
