"""Data held against a tool's schema: as it stands, or in shape only, and what first does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..formats.canonical_json import MAX_SAFE_INTEGER, encode
from ..formats.json_pointer import escape_pointer
from .patterns import python_pattern
from .schema_parts import mapped, parts, turns_back

_LIMITS: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format "
    "minItems maxItems uniqueItems minProperties maxProperties minContains maxContains".split()
)
# the library takes some twenty frames of the stack a level
MAX_ROUNDS: Final = 32
_UPPER: Final = "maximum exclusiveMaximum maxLength maxItems maxProperties maxContains".split()
_LOWER: Final = ("minimum", "exclusiveMinimum")


def shape(schema: Any) -> Any:
    """A schema without limits on values; types, lists of values, required and undeclared properties remain.

    Whatever fits the schema fits its shape. A keyword that counts or negates would turn that round once its
    subschema is wider: `oneOf` becomes `anyOf` then, `not` goes, and of `if` either branch will do.
    """
    return _shape(schema)[0]


def _shape(schema: Any) -> tuple[Any, bool]:
    """A schema's shape, and whether it is wider or leads to something that may be."""
    if not isinstance(schema, dict):
        return schema, False
    wider: set[int] = set()

    def change(sub: Any) -> Any:
        out, is_wider = _shape(sub)
        if is_wider:
            wider.add(id(sub))
        return out

    kept = {key: value for key, value in schema.items() if key not in _LIMITS}
    names = kept.pop("propertyNames", True)
    out = mapped(kept, change)
    if names is not True:  # names are no values
        out["propertyNames"] = names
    also: list[Any] = []
    if any(id(sub) in wider for sub in schema.get("oneOf", ())):
        also.append({"anyOf": out.pop("oneOf")})
    if "if" in schema and id(schema["if"]) in wider:
        met = {"allOf": [out.pop("if"), out.pop("then", True)]}
        also.append({"anyOf": [met, out.pop("else", True)]})
    if "not" in schema and id(schema["not"]) in wider:
        del out["not"]
    if "contains" in schema:  # it still says which items are evaluated
        out["minContains"] = 0
    if also:
        out["allOf"] = [*out.get("allOf", ()), *also]
    # a format judges nothing
    lost = not (_LIMITS - {"format"}).isdisjoint(schema) or "contains" in schema
    refers = "$ref" in schema or any("$ref" in part for part in parts(names))
    return out, bool(wider or lost or refers)


def without_extensions(schema: Any) -> Any:
    """A schema without our `x-` keywords."""
    if not isinstance(schema, dict):
        return schema
    kept = mapped(schema, without_extensions)
    return {key: value for key, value in kept.items() if not key.startswith("x-")}


def without_unreachable(schema: Any) -> Any:
    """A schema without limits that lie beyond every number of ours, such as those of 64-bit integers."""
    if not isinstance(schema, dict):
        return schema
    out = mapped(schema, without_unreachable)
    for keywords, sign in ((_UPPER, 1), (_LOWER, -1)):
        for key in keywords:
            if type(out.get(key)) in (int, float) and sign * out[key] > MAX_SAFE_INTEGER:
                del out[key]
    return out


def place_beyond(value: Any, pointer: str = "") -> str | None:
    """JSON Pointer of the first number in `value` that is beyond every number of ours, None if there is none."""
    if type(value) in (int, float):
        return pointer if abs(value) > MAX_SAFE_INTEGER else None
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = (place_beyond(item, f"{pointer}/{escape_pointer(str(key))}") for key, item in pairs)
    return next((place for place in found if place is not None), None)


def _for_python(schema: Any) -> Any:
    """A schema with every pattern in it put for Python's `re`, which the library asks."""
    if not isinstance(schema, dict):
        return schema
    out = mapped(schema, _for_python)
    if "pattern" in out:
        out["pattern"] = python_pattern(out["pattern"])
    if "patternProperties" in out:
        named: dict[str, Any] = {}
        for pattern, sub in out["patternProperties"].items():
            key = python_pattern(pattern)  # several may read alike then, such as \d and [0-9]
            named[key] = {"allOf": [named[key], sub]} if key in named else sub
        out["patternProperties"] = named
    return out


class Judge:
    """A validator of the library for one schema; `rounds` says whether data of any depth may fit."""

    __slots__ = ("iter_errors", "rounds")

    def __init__(self, library: Any, rounds: bool) -> None:
        self.iter_errors: Callable[[Any], Iterator[Any]] = library.iter_errors
        self.rounds = rounds


def validator(schema: Mapping[str, Any]) -> Judge:
    """What judges data by a schema (Draft 2020-12), to be kept: making it takes long. Raises BadPattern."""
    from referencing import Registry

    from .schema_keywords import Validator

    root = _for_python(dict(schema))
    # where it is named, the library goes on with a class of its own
    root.pop("$schema", None)
    # an empty registry: a $ref to elsewhere is an error here, never a fetch
    return Judge(Validator(root, registry=Registry()), turns_back(root))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where data does not fit a schema: JSON Pointer, schema keyword, the keyword's limit if it is short."""

    pointer: str
    keyword: str
    limit: str


def first_mismatch(judge: Judge, data: Any) -> Mismatch | None:
    """The first mismatch by (pointer, keyword), whatever order the library finds them in; None if it fits.

    A schema that holds itself is followed no further than `MAX_ROUNDS` levels down the data.
    """
    if judge.rounds and _is_deeper(data, MAX_ROUNDS):
        return Mismatch("", "depth", str(MAX_ROUNDS))
    first: tuple[str, str, str] | None = None
    for error in judge.iter_errors(data):  # none is kept but the first: there may be one an item
        pointer = "".join(f"/{escape_pointer(str(part))}" for part in error.absolute_path)
        keyword = str(error.validator or "false")
        if first is None or (pointer, keyword) <= first[:2]:
            found = (pointer, keyword, _limit(error))
            first = found if first is None else min(first, found)
    return None if first is None else Mismatch(*first)


def _is_deeper(data: Any, levels: int) -> bool:
    found = [data]
    for _ in range(levels + 1):
        found = [
            item for value in found if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]  # fmt: skip
        if not found:
            return False
    return True


def _limit(error: Any) -> str:
    keyword, value = error.validator, error.validator_value
    if keyword == "required":
        missing = [name for name in value if name not in error.instance]
        return ",".join(sorted(missing)[:5])
    if keyword == "additionalProperties":
        from .schema_keywords import undeclared

        return ",".join(sorted(undeclared(error.instance, error.schema))[:5])[:80]
    if keyword in ("type", "enum") and isinstance(value, list):
        return ",".join(_short(item) for item in value[:10])[:80]
    return "" if isinstance(value, dict | list) or value is None else _short(value)[:80]


def _short(value: Any) -> str:
    return getattr(value, "written", value) if isinstance(value, str) else encode(value)
