"""Python types as JSON: the schema of a type, data read as the type, values written as data.

Types are those of msgspec: `str`, `int`, `float`, `bool`, `None`, `Any`, Literal, Enum, `X | None`, lists, dicts,
tuples, sets, dataclasses, TypedDicts, NamedTuples, Structs, dates, times and datetimes with an offset, UUIDs, decimals;
and pydantic models, which pydantic reads. What a schema accepts its type reads: a pattern says what a `format` does not
enforce, and a type that demands what no schema says is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, time  # noqa: TID251 - the types; no clock is read
from functools import partial
from inspect import cleandoc
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as mi

from ..formats.strict_json import canonical
from .places import MARK

Url = Annotated[str, msgspec.Meta(extra_json_schema={MARK: "url"})]
"""A string that is a URL: the gate judges it before the tool runs."""
ReadPath = Annotated[str, msgspec.Meta(extra_json_schema={MARK: "path:read"})]
"""A string that is a path below a mount, which the tool reads."""
WritePath = Annotated[str, msgspec.Meta(extra_json_schema={MARK: "path:write"})]
"""A string that is a path below a mount, which the tool writes."""
Text = Annotated[str, msgspec.Meta(extra_json_schema={MARK: "text"})]
"""A string of an external tool that is not a resource; one that as a whole is a URL is judged as one."""
AnyText = Annotated[str, msgspec.Meta(extra_json_schema={MARK: "any"})]
"""A string of an external tool that nothing is to be judged about."""

Mode = Literal["validation", "serialization"]
"""Whether a schema is of what is read or of what is written."""

# the 29th of February, which only leap years have, comes last
_DATE: Final = (
    "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_MINUTE: Final = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME: Final = f"{_MINUTE}:[0-5][0-9](?:[.][0-9]{{1,6}})?(?:Z|[+-]{_MINUTE})"
_PATTERNS: Final = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "decimal": "^-?[0-9]{1,30}(?:[.][0-9]{1,30})?$",
}
# keywords whose value is not a schema; those that tell nobody anything, or that are taken by themselves
_DATA: Final = ("default", "enum", "const", "examples")
_DROPPED: Final = ("title", "discriminator", "$defs", "properties")


def object_schema(types: Mapping[str, Any], mode: Mode, problems: list[str]) -> dict[str, Any]:
    """Return the schema of an object that must have properties of these types, and no others.

    Args:
        types: The type of each property.
        mode: Whether the object is read or written.
        problems: Gets a line for whatever has no exact schema; such a property is left out.
    """
    properties: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name, kind in types.items():
        try:
            kind = plain_type(kind)
            parts = _parts(mi.type_info(kind), set()) if mode == "validation" else ()
            wrong = [*map(_problem, parts), *(_limits(kind) if mode == "validation" else ())]
            properties[name] = _closed(schema_of(kind, partial(_model_schema, mode=mode)), mode, found)
        except Exception as error:  # noqa: BLE001 - annotations of classes are foreign text, and models foreign code
            first_line = str(error).partition("\n")[0]
            wrong = [f"is of no supported type ({first_line})"]
        problems += [f"{name!r} {problem}" for problem in dict.fromkeys(wrong) if problem]
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": [*properties]} if properties else {}) | ({"$defs": found} if found else {})


def schema_of(kind: Any, of_model: Callable[[type], Any] | None = None) -> dict[str, Any]:
    """Return the schema of a type, the same under each Python: from 3.13 on, docstrings have no indentation.

    Args:
        kind: The type.
        of_model: Returns the schema of a class that msgspec does not know.
    """
    (schema,), definitions = msgspec.json.schema_components((kind,), schema_hook=of_model)
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = cleandoc(definition["description"])
    return {**schema, "$defs": schema.get("$defs", definitions)}  # a model of pydantic has its own


def result_schema(kind: Any, mode: Mode, problems: list[str]) -> tuple[dict[str, Any], bool]:
    """Return the schema of a value as an object, and whether the value is wrapped as `{"result": value}` in it.

    A type with named fields is such an object itself, anything else is wrapped. Arguments are as of `object_schema`.
    """
    schema = object_schema({"result": kind}, mode, problems)
    definitions, result = schema.get("$defs", {}), schema["properties"].get("result", {})
    result = definitions.get(result.get("$ref", "").removeprefix("#/$defs/"), result)
    if result.get("type") != "object" or result.get("additionalProperties") is not False:
        return schema, True
    return result | ({"$defs": definitions} if definitions else {}), False


def closed_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object of others in which no object has properties that are not named."""
    found: dict[str, Any] = {}
    closed = {"type": "object", "properties": {}, **_closed(schema, "validation", found)}
    return {**closed, "additionalProperties": False} | ({"$defs": found} if found else {})


def read_as(kind: Any, data: Any) -> Any:
    """Return plain data as a value of a type, given as `plain_type` returns it.

    Raises:
        ValueError: The type refuses it. Data that fits the schema is refused only by code of the type.
    """
    return msgspec.convert(data, kind, strict=True, dec_hook=_read_model)


def written(value: Any) -> Any:
    """Return a value as plain data; what has no such form is returned as it is, and is refused where it is judged."""
    try:
        return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_model_data)
    except Exception:  # noqa: BLE001 - code of models runs here
        return value


def plain_type(kind: Any) -> Any:
    """Return a type without aliases, in which datetimes and times that say nothing of an offset must have one."""
    if kind in (datetime, time):
        return Annotated[kind, msgspec.Meta(tz=True)]
    if any(getattr(item, "tz", None) is not None for item in getattr(kind, "__metadata__", ())):
        return kind
    origin, args = get_origin(kind), tuple(map(plain_type, get_args(kind)))
    if value := getattr(origin or kind, "__value__", None):  # of `type X = ...`, which Python 3.12 brought
        return plain_type(value[args] if args else value)
    return (Union if origin is UnionType else origin)[args if args[1:] else args[0]] if args else kind


def _model_schema(kind: Any, mode: Mode) -> Any:
    """Return the schema of a model of pydantic, the one kind of class that msgspec does not know and we do."""
    if not hasattr(kind, "model_json_schema"):
        raise TypeError(f"{getattr(kind, '__qualname__', kind)} has no JSON Schema")
    return kind.model_json_schema(mode=mode)


def _read_model(kind: Any, data: Any) -> Any:
    return kind.model_validate_json(canonical(data), strict=True)


def _model_data(value: Any) -> Any:
    data = value.model_dump(mode="json", by_alias=True)
    # models that cannot be hashed may stand in a set, and then there is no such form
    with suppress(TypeError):
        return _in_order(value.model_dump(by_alias=True), data)
    return data


def _in_order(value: Any, data: Any) -> Any:
    """Return the JSON form of a value with the items of sets sorted: their order is another one in each process."""
    if isinstance(value, dict) and isinstance(data, dict) and len(value) == len(data):
        return {key: _in_order(it, data[key]) for it, key in zip(value.values(), data, strict=True)}
    if isinstance(value, list | tuple) and isinstance(data, list) and len(value) == len(data):
        return [_in_order(it, item) for it, item in zip(value, data, strict=True)]
    is_of_set = isinstance(value, set | frozenset) and isinstance(data, list)
    return sorted(data, key=canonical) if is_of_set else data


def _parts(info: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a type, its fields, and all types that it is made of."""
    if id(info) in seen or not isinstance(info, mi.Type | mi.Field):
        return
    seen.add(id(info))
    yield info
    for name in info.__struct_fields__:
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            yield from _parts(part, seen)


def _limits(kind: Any) -> Iterator[str]:
    """Yield of each limit of pydantic beside a type that nothing would heed it."""
    is_foreign = type(kind).__module__.partition(".")[0] in ("pydantic", "annotated_types")
    if is_foreign and not isinstance(kind, type) and getattr(kind, "metadata", True):
        yield f"has a {type(kind).__name__} beside its type: use msgspec.Meta"
    for part in get_args(kind):
        yield from _limits(part)


def _problem(part: Any) -> str:
    """Return what a type demands that its schema does not say; "" for nothing."""
    if isinstance(part, mi.DictType) and not isinstance(part.key_type, mi.StrType | mi.AnyType):
        return "holds a dict whose keys are not str"
    loose = mi.BytesType | mi.ByteArrayType | mi.MemoryViewType | mi.TimeDeltaType | mi.RawType
    if isinstance(part, loose) or not getattr(part, "tz", True):
        word = type(part).__name__.removesuffix("Type").lower()
        return f"holds a {word} whose text no schema describes: take str, or a datetime with msgspec.Meta(tz=True)"
    if isinstance(part, mi.Field) and part.default_factory not in (list, dict, set, msgspec.NODEFAULT):
        return f"has a function for the default of its field {part.name!r}: write the default"
    if isinstance(part, mi.DataclassType) and hasattr(part.cls, "__pydantic_validator__"):
        return "holds a dataclass of pydantic, which would not be read by it: take a model"
    if isinstance(part, mi.DataclassType | mi.TypedDictType | mi.NamedTupleType | mi.StructType):
        hints = get_type_hints(get_origin(part.cls) or part.cls, include_extras=True).values()
        return next((limit for hint in hints for limit in _limits(plain_type(hint))), "")
    return ""


def _closed(schema: Any, mode: Mode, found: dict[str, Any]) -> Any:
    """Return a schema in which no object has properties that are not named; its definitions are put in `found`."""
    if isinstance(schema, list):
        return [_closed(item, mode, found) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, definition in schema.get("$defs", {}).items():
        closed = _closed(definition, mode, found)
        if found.setdefault(name, closed) != closed:
            raise TypeError(f"another type has the name {name}")
    kept = {key: value for key, value in schema.items() if key not in _DROPPED}
    out = {key: value if key in _DATA else _closed(value, mode, found) for key, value in kept.items()}
    if "properties" in schema:
        out["properties"] = {name: _closed(part, mode, found) for name, part in schema["properties"].items()}
        out.setdefault("additionalProperties", False)
    if mode == "validation" and out.get("format") in _PATTERNS:
        out.setdefault("pattern", _PATTERNS[out["format"]])
    default, options = out.get("default"), out.get("anyOf")
    parts = [out, *(options if isinstance(options, list) else ())]
    if isinstance(default, list) and any(isinstance(it, dict) and it.get("uniqueItems") for it in parts):
        out["default"] = sorted(default, key=canonical)  # of a set, see `_in_order`
    return out
