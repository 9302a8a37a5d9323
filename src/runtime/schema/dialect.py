"""Check the schemas of a tool when it is loaded, and refuse those that could not judge a call.

Input schemas are held to a subset of Draft 2020-12 in which every resource can be found by one walk; an output
schema may use the whole draft, in so far as its references can be followed and its size is bounded.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ...fail.errors import ToolError
from ..formats.escape import escape_terminal
from .ecma_patterns import BadPattern, linear_pattern
from .reference_bounds import check_bounds
from .resource_places import RESOURCES, Resource, find_resources
from .schema_errors import did_you_mean
from .subschemas import JsonSchema, located, mapped, parts, target
from .work import MAX_WORK, work_of

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LIMITS: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format "
    "minItems maxItems uniqueItems minProperties maxProperties".split()
)
_NOTES: Final = frozenset(
    "title description default example examples deprecated readOnly writeOnly $comment contentEncoding "
    "contentMediaType".split()
)
_CHOICES: Final = frozenset({"anyOf", "oneOf"})
_OF_THE_ROOT: Final = frozenset({"$schema", "$id", "$defs", "definitions"})
_INPUT: Final = (
    frozenset("type enum const properties required additionalProperties items $ref".split())
    | _LIMITS
    | _NOTES
    | _CHOICES
)
# they change what a schema, or a reference in it, means
_ELSEWHERE: Final = frozenset(
    "$anchor $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $schema $vocabulary".split()
)
_INSTEAD: Final = {
    "allOf": "merge its schemas into one",
    "patternProperties": "name the properties, or use additionalProperties",
    "prefixItems": "use an object with named properties",
}
# how alike a word has to be to x-resource to be a misspelling of it; "x-source" is another word
_NEAR: Final = 0.88


def check_input(schema: JsonSchema, label: str) -> tuple[Resource, ...]:
    """Return the resources that an input schema declares.

    The schema is valid by the meta-schema. Raises ToolError, naming `label`, for a schema outside the subset, or one
    that could hide a resource.
    """
    try:
        _check_dialect(schema, label)
        for pointer, part in located(schema):
            where = f"at {pointer or '/'}"
            _check_keywords(part, schema, where, label)
            _check_common(part, schema, where, label)
        resources = find_resources(schema, label)
        steps = work_of(schema).least()
        if steps > MAX_WORK:
            raise ToolError(
                f"judging one value may take {steps:,} steps, more than a decision may take ({MAX_WORK:,})",
                file=label,
                remedy="shorten its enum, const or patterns",
            )
        return resources
    except RecursionError:
        raise _too_deep(label) from None


def check_output(schema: JsonSchema, label: str) -> None:
    """Refuse an output schema that could not be judged in bounded time. Raises ToolError naming `label`."""
    try:
        _check_dialect(schema, label)
        for pointer, part in located(schema):
            where = f"at {pointer or '/'}"
            for key in part.keys() & _ELSEWHERE:
                if part is not schema or key not in _OF_THE_ROOT:
                    raise ToolError(f"{key} {where} is not supported", file=label, remedy="leave it out")
            _check_common(part, schema, where, label)
        check_bounds(schema, label)
    except RecursionError:
        raise _too_deep(label) from None


def shape(schema: Any) -> Any:
    """Return an input schema without limits on values; types, lists of values, required and names remain.

    Whatever fits the schema fits its shape: `oneOf` becomes `anyOf` where a choice in it has become wider.
    """
    if not isinstance(schema, dict):
        return schema
    out = mapped({key: value for key, value in schema.items() if key not in _LIMITS}, shape)
    refers = any("$ref" in part for sub in schema.get("oneOf", ()) for part in parts(sub))
    if "oneOf" in schema and (refers or out["oneOf"] != schema["oneOf"]):
        out["anyOf"] = out.pop("oneOf")
    return out


def without_extensions(schema: Any) -> Any:
    """Return a schema without our `x-` keywords."""
    if not isinstance(schema, dict):
        return schema
    kept = mapped(schema, without_extensions)
    return {key: value for key, value in kept.items() if not key.startswith("x-")}


def _check_dialect(schema: JsonSchema, label: str) -> None:
    dialect = schema.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.rstrip("#") != DIALECT:
        raise ToolError(
            f"$schema {str(dialect)[:80]!r} is not Draft 2020-12",
            file=label,
            remedy=f"write it for {DIALECT}",
        )


def _check_keywords(part: JsonSchema, root: JsonSchema, where: str, label: str) -> None:
    """Refuse keywords outside the subset of input schemas."""
    known = _INPUT | _OF_THE_ROOT if part is root else _INPUT
    for key in part:
        if key in known or key.startswith("x-") or _is_misspelt(key):
            continue
        remedy = _INSTEAD.get(key) or did_you_mean(key, sorted(known)) or "leave it out"
        raise ToolError(
            f"{escape_terminal(key[:80])} {where} is not supported in an input schema",
            file=label,
            remedy=remedy,
        )
    leading = [key for key in ("$ref", "anyOf", "oneOf") if key in part]
    if leading and part is not root:
        beside = next((key for key in part if key in _INPUT - _NOTES and key != leading[0]), None)
        if beside is not None:
            raise ToolError(
                f"{beside} beside {leading[0]} {where} is not supported in an input schema",
                file=label,
                remedy=f"move it into the schemas of {leading[0]}",
            )
    elif leading:
        raise ToolError(
            f"{leading[0]} {where} is not supported in an input schema",
            file=label,
            remedy="list the properties of the arguments in one schema",
        )


def _is_misspelt(key: str) -> bool:
    """Return whether a key is `x-resource`, misspelt."""
    folded = re.sub("[^a-z]", "", key.lower())
    if key == "x-resource" or not folded.startswith("x"):
        return False
    import difflib  # slow to import, and rarely needed

    return difflib.SequenceMatcher(None, folded, "xresource").ratio() >= _NEAR


def _check_common(part: JsonSchema, root: JsonSchema, where: str, label: str) -> None:
    """Refuse what neither an input nor an output schema may contain."""
    for key in part:
        if _is_misspelt(key):
            raise ToolError(
                f"unknown key {key[:80]!r} {where}", file=label, remedy="did you mean 'x-resource'?"
            )
    if "x-resource" in part and part["x-resource"] not in RESOURCES:
        kind = part["x-resource"]
        near = did_you_mean(kind, RESOURCES) if isinstance(kind, str) else None
        raise ToolError(
            f"x-resource {str(kind)[:80]!r} {where} is not valid",
            file=label,
            remedy=near or f"use one of {', '.join(RESOURCES)}",
        )
    if "$ref" in part:
        _check_reference(part["$ref"], root, where, label)
    for pattern in (part.get("pattern", ""), *part.get("patternProperties", ())):
        try:
            linear_pattern(pattern)
        except BadPattern as error:
            raise ToolError(
                f"the pattern {pattern[:80]!r} {where} is not usable: {error.reason}",
                file=label,
                remedy="fix the pattern; look-around and references to groups are not supported",
            ) from None


def _check_reference(reference: str, root: JsonSchema, where: str, label: str) -> None:
    name = f"$ref {reference[:80]!r} {where}"
    try:
        target(root, reference)
    except KeyError:
        raise ToolError(f"{name} does not exist", file=label, remedy="fix the reference") from None
    except ValueError:
        raise ToolError(
            f"{name} cannot be followed", file=label, remedy="refer to #/$defs/NAME only"
        ) from None


def _too_deep(label: str) -> ToolError:
    return ToolError("is nested too deeply", file=label, remedy="nest or refer less")
