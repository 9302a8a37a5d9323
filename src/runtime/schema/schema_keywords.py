"""The library's validator for Draft 2020-12, with keywords of ours where time, memory or exactness ask for it.

Importing this module imports `jsonschema`, which takes a while: import it where a validator is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from .patterns import matches, too_long

# what the library looks for in lists, over and over
MAX_UNEVALUATED: Final = 4096

Errors = Iterator[ValidationError]


def identity(value: Any) -> Any:
    """A hashable stand-in that two values share if JSON Schema calls them equal: 1 and 1.0, but not 1 and true."""
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, list):
        return ("list", tuple(map(identity, value)))
    if isinstance(value, dict):
        return ("object", frozenset((key, identity(item)) for key, item in value.items()))
    return ("text" if isinstance(value, str) else "number", value)


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Errors:
    if wanted and validator.is_type(instance, "array") and len({*map(identity, instance)}) < len(instance):
        yield ValidationError("an item stands twice")


def _multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> Errors:
    if validator.is_type(instance, "number") and not _divides(divisor, instance):
        yield ValidationError("no multiple")


def _divides(divisor: int | float, number: int | float) -> bool:
    if isinstance(divisor, int) and isinstance(number, int):
        return number % divisor == 0
    if not math.isfinite(number):
        return False
    # as they are written: 19.99 is a multiple of 0.01, though no binary fraction is
    return (Fraction(repr(number)) / Fraction(repr(divisor))).denominator == 1


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Errors:
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield ValidationError("no match")


def _pattern_properties(validator: Any, patterns: dict[str, Any], instance: Any, schema: Any) -> Errors:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, item in instance.items():
            if too_long(pattern, key):
                yield ValidationError("a key that is too long")
            elif matches(pattern, key):
                yield from validator.descend(item, subschema, path=key, schema_path=pattern)


def undeclared(instance: dict[str, Any], schema: Any) -> list[str]:
    """The keys that neither `properties` nor `patternProperties` of a schema name."""
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    return [key for key in instance if key not in known and not any(matches(p, key) for p in patterns)]


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Errors:
    if not validator.is_type(instance, "object"):
        return
    extra = undeclared(instance, schema)
    if isinstance(allowed, dict):
        for key in extra:
            yield from validator.descend(instance[key], allowed, path=key)
    elif extra and not allowed:
        yield ValidationError("undeclared properties")


def _fits(validator: Any, schema: Any, instance: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _any_of(validator: Any, choices: list[Any], instance: Any, schema: Any) -> Errors:
    """Without a list of what each choice finds wrong, which may be longer than the data by far."""
    for choice in choices:
        if _fits(validator, choice, instance):
            return
    yield ValidationError("none fits")


def _one_of(validator: Any, choices: list[Any], instance: Any, schema: Any) -> Errors:
    found = 0
    for choice in choices:
        found += _fits(validator, choice, instance)
        if found > 1:
            break
    if found != 1:
        yield ValidationError("none fits, or several do")


def _unevaluated(keyword: str) -> Callable[..., Errors]:
    judge = Draft202012Validator.VALIDATORS[keyword]

    def bounded(validator: Any, subschema: Any, instance: Any, schema: Any) -> Errors:
        if isinstance(instance, list | dict) and len(instance) > MAX_UNEVALUATED:
            yield ValidationError("too many to tell which were evaluated")
        elif isinstance(instance, dict) and any(len(key) > MAX_UNEVALUATED for key in instance):
            yield ValidationError("a key that is too long")
        else:
            yield from judge(validator, subschema, instance, schema)

    return bounded


_extend: Any = extend
Validator: Any = _extend(
    Draft202012Validator,
    {
        "additionalProperties": _additional_properties,
        "anyOf": _any_of,
        "multipleOf": _multiple_of,
        "oneOf": _one_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "unevaluatedItems": _unevaluated("unevaluatedItems"),
        "unevaluatedProperties": _unevaluated("unevaluatedProperties"),
        "uniqueItems": _unique_items,
    },
)
