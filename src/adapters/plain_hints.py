"""Plain annotations as JSON Schema, and JSON data as what they promise, without any library.

Plain are `str`, `int`, `float`, `bool`, `None`, `Any`, `list[X]`, `dict[str, X]`, `Literal` of texts or of integers,
`X | None`, TypedDicts and dataclasses. The schemas are those that `annotations` gives, so that a record does not depend
on whether pydantic is installed; whatever is not certain to be the same is not plain.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, Required, Union

from ..fail.errors import ToolError
from ..runtime.formats.canonical_json import MAX_DEPTH, NotJson, freeze
from ..runtime.schema.subschemas import JsonSchema
from .schemas import require_module, resource, result_schema

_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_HOOKS: Final = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__", "__pydantic_config__")
# modules whose values pydantic writes as one text, the same in every process
_WRITTEN_AS_TEXT: Final = ("datetime", "decimal", "uuid")
_REMEDY: Final = (
    "use str, int, float, bool, None, Literal, Enum, list[...], dict[str, ...], a dataclass or a model"
)
_MISSING: Final = dataclasses.MISSING


class NotPlain(Exception):
    """Raised for an annotation that needs pydantic."""


@dataclasses.dataclass(frozen=True)
class Hint:
    """One annotation.

    Attributes:
        schema: Its JSON Schema.
        read: Returns JSON data as what the annotation promises. Raises ValueError for other data.
        is_class: Whether it is a class with fields, or that or None.
    """

    schema: JsonSchema
    read: Callable[[Any], Any]
    is_class: bool = False


class Hints:
    """Reads annotations.

    Args:
        definitions: Gets the schemas of classes by name, and each place a reference to its class; None to write the
            schema of a class wherever it is meant.
    """

    def __init__(self, definitions: dict[str, Any] | None = None) -> None:
        self._definitions = definitions
        self._classes: dict[str, type] = {}
        self._open: list[type] = []

    def of(self, annotation: Any) -> Hint:
        """Return an annotation as a Hint. Raises NotPlain."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is None or annotation in _NAMES:
            kind = type(None) if annotation is None else annotation
            return Hint({"type": _NAMES[kind]}, partial(_scalar, kind))
        if annotation is Any:
            return Hint({}, lambda value: value)
        if annotation is list or annotation is dict:
            anything: JsonSchema = {"items": {}} if annotation is list else {"additionalProperties": True}
            name = "array" if annotation is list else "object"
            return Hint({"type": name, **anything}, partial(_typed, annotation))
        if origin is list:
            item = self.of(args[0])
            return Hint({"type": "array", "items": item.schema}, partial(_list, item.read))
        if origin is dict and args[0] is str:
            item = self.of(args[1])
            values = item.schema or True
            return Hint({"type": "object", "additionalProperties": values}, partial(_dict, item.read))
        if origin is Literal:
            return _literal(args)
        if origin in (Union, types.UnionType) and len(args) == 2 and args[1] is type(None):
            inner = self.of(args[0])
            return Hint(
                {"anyOf": [inner.schema, {"type": "null"}]},
                lambda value: None if value is None else inner.read(value),
                inner.is_class,
            )
        if origin is Annotated and not self._open:
            return self._annotated(args)
        if isinstance(annotation, type) and not args:
            return self._class(annotation)
        raise NotPlain

    def _annotated(self, args: tuple[Any, ...]) -> Hint:
        inner = self.of(args[0])
        more: JsonSchema = {}
        for item in args[1:]:
            if not isinstance(item, str | resource) or len(args) > 3:
                raise NotPlain
            more["description" if isinstance(item, str) else "x-resource"] = getattr(item, "kind", item)
        if inner.is_class:
            raise NotPlain
        return Hint({**inner.schema, **more}, inner.read, inner.is_class)

    def _class(self, kind: type) -> Hint:
        if kind in self._open or any(hasattr(kind, hook) for hook in _HOOKS):
            raise NotPlain
        if self._classes.setdefault(kind.__name__, kind) is not kind:
            raise NotPlain  # two classes of one name
        self._open.append(kind)
        try:
            if type(kind).__name__ == "_TypedDictMeta":
                schema, read = self._typed_dict(kind)
            elif dataclasses.is_dataclass(kind) and type(kind) is type:
                schema, read = self._dataclass(kind)
            else:
                raise NotPlain
        finally:
            self._open.pop()
        if self._definitions is not None:
            self._definitions[kind.__name__] = schema
            schema = {"$ref": f"#/$defs/{kind.__name__}"}
        return Hint(schema, read, is_class=True)

    def _typed_dict(self, kind: type) -> tuple[JsonSchema, Callable[[Any], Any]]:
        fields: dict[str, Hint] = {}
        required = []
        for name, hint in _resolved(kind).items():
            said = typing.get_origin(hint)
            fields[name] = self.of(typing.get_args(hint)[0] if said in (Required, NotRequired) else hint)
            keys: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
            if said is Required or (said is not NotRequired and name in keys):
                required.append(name)
        return _object(kind, fields, {}, required), partial(_fields, dict, fields, tuple(required))

    def _dataclass(self, kind: type) -> tuple[JsonSchema, Callable[[Any], Any]]:
        fields: dict[str, Hint] = {}
        defaults: dict[str, Any] = {}
        required = []
        hints = _resolved(kind)
        for field in dataclasses.fields(kind):
            if not field.init or field.metadata or field.kw_only or field.name.startswith("_"):
                raise NotPlain
            fields[field.name] = self.of(hints[field.name])
            if field.default is not _MISSING:
                defaults[field.name] = _plain_default(field.default)
            elif field.default_factory is _MISSING:
                required.append(field.name)
        given = kind.__init__.__code__.co_varnames  # type: ignore[misc]
        if len(given) != len(fields) + 1:  # an InitVar, or an __init__ of its own
            raise NotPlain
        return _object(kind, fields, defaults, required), partial(_fields, kind, fields, tuple(required))


def _resolved(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluates foreign text; the reader with pydantic says what is wrong with it
        raise NotPlain from None


def _object(
    kind: type, fields: Mapping[str, Hint], defaults: Mapping[str, Any], required: list[str]
) -> dict[str, Any]:
    properties = {}
    for name, hint in fields.items():
        entry = dict(hint.schema)
        if not hint.is_class:
            entry["title"] = name.title().replace("_", " ").strip()
        if name in defaults:
            entry["default"] = defaults[name]
        properties[name] = entry
    schema: JsonSchema = {
        "type": "object",
        "title": kind.__name__,
        "additionalProperties": False,
        "properties": properties,
    }
    doc = kind.__doc__ if dataclasses.is_dataclass(kind) else None  # pydantic reads a copy of a TypedDict
    if doc and not doc.startswith(f"{kind.__name__}("):
        schema["description"] = inspect.cleandoc(doc)
    return {**schema, "required": required} if required else schema


def _literal(members: tuple[Any, ...]) -> Hint:
    kinds = {type(member) for member in members}
    if kinds not in ({str}, {int}):
        raise NotPlain
    allowed = {"const": members[0]} if len(members) == 1 else {"enum": list(members)}
    (kind,) = kinds

    def read(value: Any) -> Any:
        if type(value) is not kind or value not in members:
            raise ValueError("the value is none of those that are allowed")
        return value

    return Hint({"type": _NAMES[kind], **allowed}, read)


def _plain_default(value: Any) -> Any:
    if type(value) not in _NAMES:
        raise NotPlain
    try:
        return freeze(value).value()
    except NotJson:
        raise NotPlain from None


def plain_argument(annotation: Any, field: Mapping[str, Any]) -> Hint:
    """Return a parameter; `field` holds its `description` and `default`. Raises NotPlain."""
    hint = Hints().of(annotation)
    said = dict(field)
    if "default" in said:
        said["default"] = _plain_default(said["default"])
    # what stands beside the parameter comes before its docstring
    if typing.get_origin(annotation) is Annotated:
        return dataclasses.replace(hint, schema={**said, **hint.schema})
    return dataclasses.replace(hint, schema={**hint.schema, **said})


def output_schema(returns: Any) -> JsonSchema:
    """Return the schema of `{"result": ...}`; any JSON where `returns` has no exact schema.

    Raises:
        InputError: The annotation is not plain, and pydantic is not installed.
    """
    definitions: dict[str, Any] = {}
    try:
        made = Hints(definitions).of(returns).schema
    except NotPlain:
        require_module("pydantic", "pydantic", "functions")
        from .annotations import output_schema_by_pydantic  # imports pydantic

        return output_schema_by_pydantic(returns)
    if set(made) == {"$ref"}:
        made = definitions.pop(made["$ref"].rpartition("/")[2])
    return result_schema({**made, "$defs": definitions} if definitions else made)


def refused(where: str, what: str, label: str, remedy: str = _REMEDY) -> ToolError:
    """Return the error for an annotation that no tool can have."""
    return ToolError(f"{where} {what}", file=label, remedy=remedy)


def type_hints(of: Any, where: str, label: str) -> dict[str, Any]:
    """Return the annotations of a function or class by name. Raises ToolError."""
    try:
        return typing.get_type_hints(of, include_extras=True)
    except Exception as error:  # noqa: BLE001 - evaluates foreign text
        raise refused(
            where,
            f"has an annotation that cannot be resolved ({type(error).__name__})",
            label,
            "import what it names where the function is defined",
        ) from None


# ---- values ------------------------------------------------------------------------------------------------


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a value is no {kind.__name__}")
    return value


def _scalar(kind: type, value: Any) -> Any:
    return float(value) if kind is float and type(value) is int else _typed(kind, value)


def _list(read: Callable[[Any], Any], value: Any) -> Any:
    return [read(item) for item in _typed(list, value)]


def _dict(read: Callable[[Any], Any], value: Any) -> Any:
    return {key: read(item) for key, item in _typed(dict, value).items()}


def _fields(kind: type, fields: Mapping[str, Hint], required: tuple[str, ...], value: Any) -> Any:
    _typed(dict, value)
    if not value.keys() <= fields.keys() or not value.keys() >= set(required):
        raise ValueError(f"a value has other fields than {kind.__name__}")
    return kind(**{key: fields[key].read(item) for key, item in value.items()})


def to_data(value: Any, depth: int = 0) -> Any:
    """Return a result as JSON data: models, dataclasses and enums by what they hold.

    Anything else is returned as it is, and the runtime refuses it: the text of an object may hold its address, and
    the order of a set differs between processes.
    """
    if depth > MAX_DEPTH or value is None or type(value) in (str, int, float, bool):
        return value
    deeper = partial(to_data, depth=depth + 1)
    if isinstance(value, enum.Enum):
        return deeper(value.value)
    if isinstance(value, dict):
        return {key: deeper(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [deeper(item) for item in value]
    # a value can only be one of pydantic's models if somebody has imported that
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: deeper(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if type(value).__module__ in _WRITTEN_AS_TEXT:
        try:
            import pydantic_core
        except ImportError:
            return value
        return pydantic_core.to_jsonable_python(value)
    return value
