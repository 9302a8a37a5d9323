"""Python annotations as JSON Schema, and JSON values as what the annotations promise.

Understood are str, int, float, bool, None, Optional, Union, Literal, Enum, list[X], dict[str, X], dataclasses,
TypedDicts, and Annotated with a `resource(...)` or a description. Anything else is refused: a limit that would
not be kept must not look as if it were.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, NotRequired, Required, Union

from ..fail.errors import ToolError
from ..runtime.formats.canonical_json import NotJson, freeze

_PLAIN: Final[dict[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    None: "null",
    type(None): "null",
}
_UNION: Final = (Union, types.UnionType)
_REMEDY: Final = (
    "use str, int, float, bool, None, Literal, Enum, list[...], dict[str, ...], a dataclass or a TypedDict"
)


@dataclass(frozen=True, slots=True)
class resource:
    """What a string is, beside its annotation: `Annotated[str, resource("url")]`; also path:read, path:write, none."""

    kind: str


@dataclass(frozen=True, slots=True)
class Hint:
    """An annotation read. `make` turns a JSON value into what it promises; None: the value is that already."""

    schema: dict[str, Any]
    make: Callable[[Any], Any] | None = None


class Reader:
    """Reads the annotations of one tool; `label` names it in a refusal."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._open: list[Any] = []

    def refuse(self, where: str, what: str, remedy: str = _REMEDY) -> ToolError:
        return ToolError(f"{where} {what}", file=self.label, remedy=remedy)

    def named(self, of: Any, where: str) -> dict[str, Any]:
        """The annotations of a function or a class by name."""
        try:
            return typing.get_type_hints(of, include_extras=True)
        except Exception as error:  # noqa: BLE001 - evaluates foreign text
            raise self.refuse(
                where,
                f"has an annotation that cannot be resolved ({type(error).__name__})",
                "import what it names where the function is defined",
            ) from None

    def read(self, annotation: Any, where: str) -> Hint:
        """An annotation as a Hint. Raises ToolError, naming `where`, for one that has no exact JSON Schema."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            return self._annotated(args[0], args[1:], where)
        if origin in (Required, NotRequired):
            return self.read(args[0], where)
        if origin is Literal:
            return self._listed(args, where)
        if origin in _UNION:
            return self._union(args, where)
        if origin is list:
            inner = self.read(args[0], f"an item of {where}")
            return Hint({"type": "array", "items": inner.schema}, _each(inner.make))
        if origin is dict and args[0] is str:
            inner = self.read(args[1], f"a value of {where}")
            return Hint({"type": "object", "additionalProperties": inner.schema}, _every(inner.make))
        if _is_plain(annotation):
            return Hint({"type": _PLAIN[annotation]})
        if isinstance(annotation, type):
            return self._class(annotation, where)
        raise self.refuse(where, "has an annotation that has no JSON Schema here")

    def _class(self, kind: Any, where: str) -> Hint:
        if issubclass(kind, enum.Enum):
            return Hint(self._listed([member.value for member in kind], where).schema, kind)
        is_dict = typing.is_typeddict(kind)
        if not is_dict and not dataclasses.is_dataclass(kind):
            raise self.refuse(where, f"is of type {kind.__name__}, which has no JSON Schema here")
        if any(kind is other for other in self._open):
            raise self.refuse(
                where, f"is of type {kind.__name__}, which holds itself", "let it not hold itself"
            )
        self._open.append(kind)
        try:
            hints = {n: h for n, h in self.named(kind, where).items() if typing.get_origin(h) is not ClassVar}
            fields = {name: self.read(hint, f"{name} in {where}") for name, hint in hints.items()}
        finally:
            self._open.pop()
        if is_dict:
            required = [name for name, said in hints.items() if _is_required(kind, name, said)]
            return Hint(closed({n: f.schema for n, f in fields.items()}, required), _fields(fields, dict))
        members = dataclasses.fields(kind)
        if not all(member.init for member in members):
            raise self.refuse(where, f"is of type {kind.__name__}, which has a field that is not given")
        properties = {m.name: with_default(fields[m.name].schema, m.default) for m in members}
        required = [
            member.name
            for member in members
            if member.default is dataclasses.MISSING and member.default_factory is dataclasses.MISSING
        ]
        return Hint(closed(properties, required), _fields(fields, kind))

    def _annotated(self, inner: Any, said: Iterable[Any], where: str) -> Hint:
        hint = self.read(inner, where)
        schema = dict(hint.schema)
        for item in said:
            if isinstance(item, resource):
                schema["x-resource"] = item.kind
            elif isinstance(item, str):
                schema["description"] = item
            else:
                raise self.refuse(
                    where,
                    f"is Annotated with {type(item).__name__}, which would not be kept",
                    "leave resource(...) and a description, or write the tool as a module with a schema",
                )
        return Hint(schema, hint.make)

    def _listed(self, values: Iterable[Any], where: str) -> Hint:
        values = [value.value if isinstance(value, enum.Enum) else value for value in values]
        if not values or not all(value is None or type(value) in (str, int, bool) for value in values):
            raise self.refuse(where, "lists values that are no texts, whole numbers or booleans")
        types_of = list(dict.fromkeys(_PLAIN[type(value)] for value in values))
        return Hint({"type": types_of[0] if len(types_of) == 1 else types_of, "enum": values})

    def _union(self, args: Iterable[Any], where: str) -> Hint:
        hints = [self.read(arg, where) for arg in args]
        if all(hint.make is None for hint in hints):
            return Hint({"anyOf": [hint.schema for hint in hints]})
        kinds = [_json_types(hint.schema) for hint in hints]
        if len(set().union(*kinds)) < sum(map(len, kinds)):
            raise self.refuse(
                where, "is a union whose members look alike as JSON", "let them differ in their JSON type"
            )
        by_type = {name: hint.make for hint, names in zip(hints, kinds, strict=True) for name in names}

        def make(value: Any) -> Any:
            one = by_type.get(_json_type(value))
            return value if one is None else one(value)

        return Hint({"anyOf": [hint.schema for hint in hints]}, make)


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """The schema of an object that has these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**schema, "required": required} if required else schema


def with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """A schema that tells the default, if that is JSON data."""
    value = default.value if isinstance(default, enum.Enum) else default
    try:
        freeze(value)
    except NotJson:
        return schema
    return {**schema, "default": value}


def _is_required(kind: Any, name: str, said: Any) -> bool:
    """Whether a TypedDict needs a key; where annotations are text, the class itself does not know."""
    origin = typing.get_origin(said)
    return origin is Required or (origin is not NotRequired and name in kind.__required_keys__)


def _is_plain(annotation: Any) -> bool:
    try:
        return annotation in _PLAIN
    except TypeError:  # has no hash
        return False


def _json_type(value: Any) -> str:
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    return "number" if type(value) in (int, float) else _PLAIN[type(value)]


def _json_types(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*map(_json_types, schema["anyOf"]))
    said = schema["type"]
    return {"number" if name == "integer" else name for name in (said if isinstance(said, list) else [said])}


def _each(make: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if make is None else lambda items: [make(item) for item in items]


def _every(make: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if make is None else lambda items: {key: make(item) for key, item in items.items()}


def _fields(fields: dict[str, Hint], kind: Callable[..., Any]) -> Callable[[Any], Any]:
    def made(data: dict[str, Any]) -> Any:
        return kind(**converted(fields, data))

    return made


def converted(fields: dict[str, Hint], data: dict[str, Any]) -> dict[str, Any]:
    """The values of an object as the annotations of its fields promise them."""
    out = {}
    for name, value in data.items():
        make = fields[name].make
        out[name] = value if make is None else make(value)
    return out
