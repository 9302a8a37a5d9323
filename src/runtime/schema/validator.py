"""Judge data by a JSON Schema (Draft 2020-12) and name the first mismatch.

Patterns are matched in linear time, and no reference leaves the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import msgspec
from jsonschema_rs import Draft202012Validator, ReferencingError, RegexOptions, ValidationError

from ..formats.json_pointer import get, join
from ..formats.strict_json import NotJson, as_json, canonical

# of the engine's memory for one pattern, in bytes
_PATTERN_BYTES: Final = 4 << 20
# the library makes all errors at once, each with a copy of what it is about: for data with more values it makes one
_MAX_VALUES: Final = 1_024
_MAX_LIMIT: Final = 40
# keywords that limit values, and neither types nor which properties there are
VALUE_LIMITS: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern minItems maxItems "
    "uniqueItems minProperties maxProperties enum const format".split()
)
# keywords that hold schemas, or lists of properties, by names
BY_NAME: Final = frozenset(
    "properties patternProperties $defs definitions dependentSchemas dependentRequired".split()
)


class Mismatch(msgspec.Struct, frozen=True):
    """Where data does not fit a schema.

    Attributes:
        pointer: JSON Pointer into the data.
        keyword: The keyword of the schema that it violates.
        limit: The value of that keyword, if it is short; where properties are too many, their names.
        place: JSON Pointer of the keyword in the schema.
    """

    pointer: str
    keyword: str
    limit: str
    place: str


class SchemaValidator:
    """A compiled schema. Raises ValueError where it cannot be compiled."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        try:
            options = RegexOptions(size_limit=_PATTERN_BYTES)
            self._rs = Draft202012Validator(schema, pattern_options=options, offline=True)
        except (ValidationError, ReferencingError, ValueError) as error:
            raise ValueError(f"a schema that cannot be compiled: {str(error).splitlines()[0]}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy, or another process, has it: compiled again, or as it was compiled there."""
        return validator_of, (canonical(self._schema),)

    def first_mismatch(self, data: Any) -> Mismatch | None:
        """Return the first mismatch of plain data, by pointer and keyword; None where it fits."""
        if self._rs.is_valid(data):
            return None
        found = []
        for error in self._errors(data):
            path = [str(key) for key in error.schema_path]
            place = join(error.instance_path), path[-1] if path else "false", path
            found.append((place, getattr(error.kind, "unexpected", None)))
        (pointer, keyword, path), unexpected = min(found, key=itemgetter(0))
        limit = self._limit(join(path)) if unexpected is None else canonical(sorted(unexpected)[:4]).decode()
        return Mismatch(pointer, keyword, limit, join(path))

    def _errors(self, data: Any) -> list[ValidationError]:
        """Return the errors of data; the first that the library comes to where there may be very many."""
        try:
            as_json(data, most=_MAX_VALUES)
        except NotJson:
            try:
                self._rs.validate(data)
            except ValidationError as error:
                return [error]
        return [*self._rs.iter_errors(data)]

    def _limit(self, place: str) -> str:
        """Return the value at a place in the schema as short JSON; "" where it is long or behind a reference."""
        try:
            value = get(self._schema, place)
        except (LookupError, ValueError, TypeError):
            return ""
        text = canonical(value).decode()
        return text if len(text) <= _MAX_LIMIT else ""


@lru_cache(maxsize=256)
def validator_of(schema: bytes) -> SchemaValidator:
    """Return the validator of a schema in canonical JSON: one for all tools that have it, since compiling is slow."""
    return SchemaValidator(msgspec.json.decode(schema))


def shape_of(schema: Any) -> Any:
    """Return a schema without limits on values: types, required and undeclared properties remain."""
    return pruned(schema, lambda key, value, is_name: key in VALUE_LIMITS and not is_name)


def pruned(schema: Any, drops: Callable[[str, Any, bool], bool], *, is_by_name: bool = False) -> Any:
    """Return a schema, or a part of one, without some keywords.

    Args:
        schema: The schema.
        drops: Whether a keyword goes, given that, its value, and whether it is the name of something and no keyword.
        is_by_name: Whether the part holds schemas by names.
    """
    if isinstance(schema, list):
        return [pruned(item, drops) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: pruned(value, drops, is_by_name=key in BY_NAME and not is_by_name)
        for key, value in schema.items()
        if not drops(key, value, is_by_name)
    }
