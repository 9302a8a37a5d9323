"""Refused when a tool is loaded: what would fail, take for ever, or mean something else, at a call."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final

from ...fail.errors import ToolError
from ..formats.json_pointer import escape_pointer
from .pattern_syntax import BadPattern
from .patterns import python_pattern
from .schema_cost import check_cost
from .schema_errors import did_you_mean
from .schema_parts import Document, subschemas
from .schema_walk import RESOURCES
from .tool_schema import first_mismatch, shape, validator

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# they change what a schema, or a reference in it, means
_ELSEWHERE: Final = (
    "$anchor $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $schema $vocabulary".split()
)
_OF_THE_ROOT: Final = ("$id", "$schema")
# a keyword of ours, misspelt; "x-source" is another word
_NEAR: Final = 0.88


def check_sound(schema: dict[str, Any], label: str) -> None:
    """Refuse a schema that no call should meet. Raises ToolError naming `label`.

    The schema is valid by the meta-schema.
    """
    try:
        _check(schema, label)
    except RecursionError:
        raise ToolError("is nested too deeply", file=label, remedy="nest or refer less") from None


def _check(schema: dict[str, Any], label: str) -> None:
    dialect = schema.get("$schema", DIALECT)
    if dialect.rstrip("#") != DIALECT:
        raise ToolError(
            f"$schema {dialect[:80]!r} is not Draft 2020-12", file=label, remedy=f"write it for {DIALECT}"
        )
    document = Document(schema)
    for pointer, part in _located(schema):
        where = f"at {pointer or '/'}"
        for key in part:
            if key in _ELSEWHERE and not (part is schema and key in _OF_THE_ROOT):
                raise ToolError(f"{key} {where} is not supported", file=label, remedy="leave it out")
            _check_spelling(key, where, label)
        _check_resource(part, where, label)
        _check_reference(document, part, where, label)
        _check_patterns(part, where, label)
    _check_rounds(document, label)
    check_cost(document, label)
    _try(schema, label)


def _located(schema: Any, pointer: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(JSON Pointer, schema) of every schema in a schema."""
    if isinstance(schema, dict):
        yield pointer, schema
        for keyword, name, sub in subschemas(schema):
            step = f"/{keyword}/{escape_pointer(name)}" if name else f"/{keyword}"
            yield from _located(sub, f"{pointer}{step}")


def _check_spelling(key: str, where: str, label: str) -> None:
    folded = re.sub("[^a-z]", "", key.lower())
    if key == "x-resource" or not folded.startswith("x"):
        return
    if difflib.SequenceMatcher(None, folded, "xresource").ratio() >= _NEAR:
        raise ToolError(f"unknown key {key[:80]!r} {where}", file=label, remedy="did you mean 'x-resource'?")


def _check_resource(part: dict[str, Any], where: str, label: str) -> None:
    if "x-resource" in part and part["x-resource"] not in RESOURCES:
        said = part["x-resource"]
        near = did_you_mean(said, RESOURCES) if isinstance(said, str) else None
        remedy = near or f"use one of {', '.join(RESOURCES)}"
        raise ToolError(f"x-resource {str(said)[:80]!r} {where} is none", file=label, remedy=remedy)


def _check_reference(document: Document, part: dict[str, Any], where: str, label: str) -> None:
    if "$ref" not in part:
        return
    name = f"$ref {part['$ref'][:80]!r} {where}"
    try:
        document.target(part["$ref"])
    except KeyError:
        raise ToolError(f"{name} leads nowhere", file=label, remedy="mend the reference") from None
    except ValueError:
        raise ToolError(
            f"{name} leads where the gate cannot follow", file=label, remedy="refer to #/$defs/NAME only"
        ) from None


def _check_patterns(part: dict[str, Any], where: str, label: str) -> None:
    for pattern in (part.get("pattern"), *part.get("patternProperties", ())):
        try:
            python_pattern(pattern or "")
        except BadPattern as error:
            raise ToolError(
                f"the pattern {pattern[:80]!r} {where} is not usable: {error.reason}",
                file=label,
                remedy="mend the pattern",
            ) from None


def _check_rounds(document: Document, label: str) -> None:
    """Refuse a reference that comes back to itself without a step down into the data."""
    done: set[int] = set()
    under: set[int] = set()

    def visit(schema: Any) -> None:
        if not isinstance(schema, dict) or id(schema) in done:
            return
        if id(schema) in under:
            raise ToolError(
                "a reference leads back to itself", file=label, remedy="let it go through properties or items"
            )
        under.add(id(schema))
        choices = [sub for _, subs in document.choices(schema) for sub in subs]
        for sub in (*document.always(schema), *choices, *document.perhaps(schema), schema.get("not")):
            visit(sub)
        under.discard(id(schema))
        done.add(id(schema))

    for _, part in _located(document.root):
        visit(part)


def _try(schema: dict[str, Any], label: str) -> None:
    """Hold some data against a schema: what raises now would raise at a call."""
    samples: list[Any] = [None, 0.5, "x", [], ["x", 0, {}, []], {"x": {}, "": [""]}]
    names = {*schema.get("properties", ()), ""}
    try:
        for judge in (validator(schema), validator(shape(schema))):
            for data in ({}, *(dict.fromkeys(names, sample) for sample in samples)):
                first_mismatch(judge, data)
    except Exception as error:  # noqa: BLE001 - whatever a library raises, no call could be judged
        raise ToolError(
            f"cannot be applied to data ({type(error).__name__})", file=label, remedy="mend the schema"
        ) from None
