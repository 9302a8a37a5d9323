"""Judge data by a JSON Schema (Draft 2020-12) and name the first mismatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..formats.canonical_json import encode
from ..formats.json_pointer import escape_pointer
from .ecma_patterns import MAX_COMPILED, linear_pattern
from .subschemas import mapped


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where data does not fit a schema: JSON Pointer, schema keyword, the keyword's limit if it is short."""

    pointer: str
    keyword: str
    limit: str


class SchemaValidator:
    """A schema compiled by jsonschema-rs: no look-ups elsewhere, patterns in linear time, formats not asserted.

    Making one costs about a hundred calls: keep it. Raises BadPattern, or ValueError for what is no valid schema.
    """

    __slots__ = ("_library", "_schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        self._schema = schema
        root = with_linear_patterns(dict(schema))
        self._library = Draft202012Validator(
            root,
            validate_formats=False,
            pattern_options=RegexOptions(size_limit=MAX_COMPILED),
            offline=True,
            mask="value",  # its messages are not used, and would hold the data once for each error
        )

    def accepts(self, data: Any) -> bool:
        """Return whether JSON data fits."""
        return bool(self._library.is_valid(data))

    def first_mismatch(self, data: Any) -> Mismatch | None:
        """Return the first mismatch by (pointer, keyword), whatever order the library finds them in."""
        if self._library.is_valid(data):
            return None
        first: tuple[tuple[str, str], Any] | None = None
        limit = ""
        for error in self._library.iter_errors(data):
            pointer = "".join(f"/{escape_pointer(str(part))}" for part in error.instance_path)
            place = (pointer, _keyword(error))
            if first is None or place <= first[0]:
                said = self._limit(error, data)
                limit = said if first is None or place < first[0] else min(said, limit)
                first = (place, error)
        if first is None:  # refused without a reason: it stays refused
            return Mismatch("", "schema", "")
        return Mismatch(*first[0], limit)

    def _limit(self, error: Any, data: Any) -> str:
        """Return what a keyword demands, in short: names that are missing or not declared, or its value."""
        keyword = error.kind.name
        if keyword == "additionalProperties":
            return ",".join(sorted(error.kind.unexpected)[:5])[:80]
        value = _at(self._schema, error.schema_path)
        if value is None:  # below a pattern that was rewritten
            value = error.kind.value
        if keyword == "required" and isinstance(value, list):
            there = _at(data, error.instance_path)
            return ",".join(sorted(name for name in value if name not in there)[:5])
        if keyword in ("type", "enum") and isinstance(value, list):
            return ",".join(_short(item) for item in value[:10])[:80]
        return (
            ""
            if isinstance(value, dict | list) or value is None or keyword == "falseSchema"
            else _short(value)[:80]
        )


def _keyword(error: Any) -> str:
    if error.kind.name == "falseSchema":
        return "false"
    return str(error.schema_path[-1]) if error.schema_path else str(error.kind.name)


def _at(value: Any, path: list[str | int]) -> Any:
    """Return what a path leads to, None if it leads nowhere; a key that reads as a number is told as one."""
    try:
        for step in path:
            value = value[str(step) if isinstance(value, Mapping) else step]
    except LookupError:
        return None
    return value


def _short(value: Any) -> str:
    return value if isinstance(value, str) else encode(value)


def with_linear_patterns(schema: Any) -> Any:
    """Return a copy of a schema with every pattern in it rewritten for the engine. Raises BadPattern."""
    if not isinstance(schema, dict):
        return schema
    out = mapped(schema, with_linear_patterns)
    if "pattern" in out:
        out["pattern"] = linear_pattern(out["pattern"])
    if "patternProperties" in out:
        named: dict[str, Any] = {}
        for pattern, sub in out["patternProperties"].items():
            key = linear_pattern(pattern)  # several may read alike then, such as a and \x61
            named[key] = {"allOf": [named[key], sub]} if key in named else sub
        out["patternProperties"] = named
    return out


def place_of_schema_error(schema: Any) -> tuple[str, str] | None:
    """Return (JSON Pointer, keyword of the meta-schema) of what makes a schema invalid, None for a valid one."""
    from jsonschema_rs import ValidationError, meta

    try:
        meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    except ValidationError as error:
        return "/" + "/".join(map(str, error.instance_path)), str(error.kind.name)
    return None
