"""Python annotations as JSON Schema, and JSON data as annotated values, by pydantic."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, NotRequired, Required, Union

import annotated_types
import pydantic
import pydantic.fields
import pydantic.json_schema
import pydantic_core
import typing_extensions

from ..runtime.formats.canonical_json import NotJson, encode, freeze
from ..runtime.schema.subschemas import JsonSchema
from .plain_hints import refused, to_data, type_hints
from .schemas import inline, resource, result_schema

_UNION: Final = (Union, types.UnionType)
_LIMITS: Final = (
    *(
        annotated_types.Gt,
        annotated_types.Ge,
        annotated_types.Lt,
        annotated_types.Le,
        annotated_types.Interval,
    ),
    *(annotated_types.MultipleOf, annotated_types.MinLen, annotated_types.MaxLen, annotated_types.Len),
    *(annotated_types.Predicate, pydantic.StringConstraints, pydantic.Strict, pydantic.fields.FieldInfo),
)
_HOOKS: Final = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")
# without the look-ahead in pydantic's own pattern, which no linear-time engine reads
_DECIMAL: Final = "^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"


class _SchemaWriter(pydantic.json_schema.GenerateJsonSchema):
    """Writes schemas that say neither more nor less than what the type accepts."""

    def emit_warning(self, kind: str, detail: str) -> None:
        if kind == "skipped-choice":  # a member of a union that would be missing from the schema
            raise pydantic.errors.PydanticInvalidForJsonSchema(detail)

    def encode_default(self, dft: Any) -> Any:
        try:
            return freeze(to_data(dft)).value()
        except NotJson:
            raise pydantic_core.PydanticSerializationError("the default is not JSON data") from None

    def decimal_schema(self, schema: Any) -> JsonSchema:
        text = {"type": "string", "pattern": _DECIMAL}
        return text if self.mode == "serialization" else {"anyOf": [{"type": "number"}, text]}

    def dataclass_schema(self, schema: Any) -> JsonSchema:
        return {"additionalProperties": False, **super().dataclass_schema(schema)}

    def typed_dict_schema(self, schema: Any) -> JsonSchema:
        return {"additionalProperties": False, **super().typed_dict_schema(schema)}


class Argument:
    """One parameter of a function: its schema, and how to read a value.

    Args:
        annotation: The resolved annotation, with its `Annotated` metadata.
        label: Names the tool in an error.
        where: Names the parameter in an error.
        field: Keyword arguments of `pydantic.Field`: `description`, `default`.

    Raises:
        ToolError: The annotation has no exact JSON Schema.
    """

    def __init__(self, annotation: Any, label: str, where: str, field: Mapping[str, Any]) -> None:
        if isinstance(field.get("default"), pydantic.fields.FieldInfo):
            raise refused(where, "has Field(...) as its default", label, "write Annotated[TYPE, Field(...)]")
        prepared = _Preparation(label).prepare(annotation, where)
        if field:
            inside = prepared.__metadata__ if typing.get_origin(prepared) is Annotated else ()
            base = typing.get_args(prepared)[0] if inside else prepared
            prepared = Annotated[(base, pydantic.Field(**field), *inside)]
        try:
            self._adapter = pydantic.TypeAdapter(prepared)
            schema = self._adapter.json_schema(schema_generator=_SchemaWriter)
        except Exception as error:  # noqa: BLE001 - pydantic evaluates foreign text and calls foreign hooks
            raise refused(where, f"has no JSON Schema ({type(error).__name__})", label) from None
        self.schema = inline(schema, label)

    def read(self, value: Any) -> Any:
        """Return JSON data as what the annotation promises. Raises pydantic.ValidationError."""
        return self._adapter.validate_json(encode(value), strict=True)


class _Preparation:
    """Puts an annotation into the form that pydantic reads, and refuses metadata that it would ignore."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._classes: dict[Any, Any] = {}  # what has been made of each class; itself while that is under way

    def prepare(self, annotation: Any, where: str) -> Any:
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            metadata = (self._metadata(item, where) for item in args[1:])
            return Annotated[(self.prepare(args[0], where), *metadata)]
        if isinstance(annotation, type) and not args:
            return self._class(annotation, where)
        if origin is Literal:  # a member of an enum is given, and passed on, as its value
            return Literal[tuple(item.value if isinstance(item, enum.Enum) else item for item in args)]
        if not args:
            return annotation
        prepared = tuple(self.prepare(item, where) for item in args)
        return Union[prepared] if origin in _UNION else origin[prepared]  # noqa: UP007 - made from a tuple

    def _class(self, kind: Any, where: str) -> Any:
        if kind not in self._classes:
            self._classes[kind] = kind
            if typing_extensions.is_typeddict(kind):
                self._classes[kind] = self._typed_dict(kind, where)
            elif dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel):
                for name, hint in type_hints(kind, where, self._label).items():
                    self._check_field(hint, f"{name} in {where}")
        return self._classes[kind]

    def _check_field(self, hint: Any, where: str) -> None:
        if typing.get_origin(hint) is not ClassVar and self.prepare(hint, where) != hint:
            raise refused(
                where,
                "has an annotation that pydantic does not read within a class",
                self._label,
                "use pydantic.Field(description=...) and typing_extensions.TypedDict there",
            )

    def _metadata(self, item: Any, where: str) -> Any:
        if isinstance(item, str):
            return pydantic.Field(description=item)
        if isinstance(item, (resource, *_LIMITS)) or any(hasattr(item, hook) for hook in _HOOKS):
            return item
        raise refused(
            where,
            f"is Annotated with {type(item).__name__}, which would be ignored",
            self._label,
            "use resource(...), a description or limits of pydantic",
        )

    def _typed_dict(self, kind: Any, where: str) -> Any:
        """Return a copy that pydantic reads on every Python, with `Required` where the class says so."""
        hints = type_hints(kind, where, self._label)
        fields = {}
        for name, hint in hints.items():
            said = typing.get_origin(hint)
            inner = typing.get_args(hint)[0] if said in (Required, NotRequired) else hint
            # where annotations are text, the class itself does not know what they say
            is_required = said is Required or (said is not NotRequired and name in kind.__required_keys__)
            presence = Required if is_required else NotRequired
            fields[name] = presence[self.prepare(inner, f"{name} in {where}")]
        return typing_extensions.TypedDict(kind.__name__, fields)  # type: ignore[operator]


def output_schema_by_pydantic(returns: Any) -> JsonSchema:
    """Return the schema of `{"result": ...}`; any JSON where `returns` has no exact schema."""
    try:
        adapter = pydantic.TypeAdapter(_Preparation("").prepare(returns, "the result"))
        made = adapter.json_schema(mode="serialization", schema_generator=_SchemaWriter)
    except Exception:  # noqa: BLE001 - pydantic evaluates foreign text; a result's schema may be left open
        made = {}
    return result_schema(made)
