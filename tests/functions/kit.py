"""Functions of many signatures that are tools, and data for a schema, drawn by hypothesis."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from msgspec import Meta
from pydantic import BaseModel, Field

from tachograph import Tool
from tachograph.runtime.schema.python_types import ReadPath, Url, WritePath

T = TypeVar("T")


class Unit(enum.Enum):
    KM = "km"
    MILES = "miles"


@dataclass
class Options:
    """How to look.

    Each Python tells it alike.
    """

    limit: Annotated[int, Meta(ge=1, le=50)] = 10
    units: list[Unit] = field(default_factory=list)
    source: Url | None = None


class Person(TypedDict):
    name: str
    title: NotRequired[str]  # also the name of a keyword that is dropped


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float = 1.0


class Box(msgspec.Struct, Generic[T]):
    held: T


class Order(BaseModel):
    """An order."""

    number: int = Field(gt=0, alias="no")
    day: date | None = None
    unit: Unit = Unit.KM


class Nested(BaseModel):
    orders: list[Order] = []


# any value of the type can be its argument
TYPES: dict[str, Any] = {
    "text": str, "whole": int, "number": float, "truth": bool, "nothing": None, "anything": Any,
    "bounded": Annotated[int, Meta(gt=0, multiple_of=3)], "short": Annotated[str, Meta(max_length=3)],
    "pattern": Annotated[str, Meta(pattern="^[a-c]{1,3}$")], "literal": Literal["a", 1, None], "flag": Literal[True],
    "unit": Unit, "level": enum.IntEnum("Level", "LOW HIGH"), "optional": int | None,
    "union": int | str | bool | list[int] | None,
    "list": list[str], "bare_list": list, "dict": dict[str, int], "bare_dict": dict, "set": set[int],
    "tuple": tuple[int, str], "many": tuple[int, ...], "long": Annotated[list[int], Meta(min_length=1, max_length=2)],
    "dataclass": Options, "typed_dict": Person, "struct": Square, "shapes": Circle | Square | None, "generic": Box[int],
    "deep": dict[str, list[Options | None]], "model": Order, "models": list[Nested] | None,
    "datetime": datetime, "datetimes": list[datetime | None], "aware": Annotated[datetime, Meta(tz=True)],
    "date": date, "time": time, "uuid": UUID, "decimal": Decimal,
    "url": Url, "paths": list[ReadPath], "write": dict[str, WritePath],
}  # fmt: skip

NUMBERS = st.integers(-5, 60) | st.floats(-1e6, 1e6)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS
    | st.sampled_from(["", "a", "km", "Circle", "2024-02-30", "2023-02-29", "10:00:00", "2024-01-01T10:00:00"]),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(st.sampled_from(["limit", "units", "name", "type", "no", "x"]), below, max_size=3),
    max_leaves=6,
)  # fmt: skip


def data_of(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return data for a schema, most of which fits it; `root` holds its definitions."""
    if "$ref" in schema:
        return data_of(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return st.one_of([data_of(option, root) for option in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return st.from_regex(schema["pattern"]) if "pattern" in schema else st.text(max_size=4)
        case "array" if "prefixItems" in schema:
            return st.tuples(*(data_of(item, root) for item in schema["prefixItems"])).map(list)
        case "array":
            return st.lists(data_of(schema.get("items", {}), root), max_size=3)
        case "object" if "properties" in schema:
            parts = {name: data_of(part, root) for name, part in schema["properties"].items()}
            required = {name: parts.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=parts)
        case "object":
            below = data_of(schema.get("additionalProperties", {}), root)
            return st.dictionaries(st.text(max_size=3), below, max_size=2)
    simple = {"integer": st.integers(-3, 60), "number": NUMBERS, "boolean": st.booleans(), "null": st.none()}
    return simple.get(schema.get("type"), JSON)


def arguments_of(tool: Tool) -> st.SearchStrategy[Any]:
    """Return arguments of a tool: some that fit, some in which a value was exchanged, some that are anything."""
    fitting = data_of(tool.input_schema, tool.input_schema)
    names = st.sampled_from([*tool.input_schema["properties"], "other"])
    spoiled = st.builds(lambda given, name, value: {**given, name: value}, fitting, names, JSON)
    return fitting | spoiled | JSON.filter(lambda given: isinstance(given, dict))
