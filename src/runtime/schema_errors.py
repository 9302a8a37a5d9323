"""A file that misses its JSON Schema, told to a person: where, what is wrong, what to write instead.

No sentence of the schema library is passed on; keywords, limits and names are put into words of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """The first thing wrong in a document, by place. `pointer` is a JSON Pointer into it."""

    pointer: str
    message: str
    remedy: str


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?` for the nearest known word, or None."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None


def escape_pointer(key: str) -> str:
    """A key as a JSON Pointer token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def first_problem(validator: Any, data: Any, whole: str) -> Problem | None:
    """The first problem of `data` by place, or None. `whole` names the document in a sentence."""
    errors = sorted(
        validator.iter_errors(data), key=lambda e: ([str(p) for p in e.absolute_path], str(e.validator))
    )
    return _explain(errors[0], whole) if errors else None


def _explain(error: Any, whole: str) -> Problem:
    path = [str(part) for part in error.absolute_path]
    pointer = "".join(f"/{escape_pointer(part)}" for part in path)
    where = ".".join(path) or whole
    keyword, limit = error.validator, error.validator_value
    if keyword == "additionalProperties" and limit is False:
        known = list(error.schema.get("properties", ()))
        key = min(k for k in error.instance if k not in known)
        remedy = did_you_mean(key, known) or f"known keys here: {', '.join(known)}"
        return Problem(f"{pointer}/{escape_pointer(key)}", f"unknown key {key[:80]!r}", remedy)
    if keyword == "required":
        key = next(k for k in limit if k not in error.instance)
        return Problem(pointer, f"{where} lacks the key {key!r}", "add it")
    if keyword in ("enum", "const"):
        choices = [str(c) for c in (limit if keyword == "enum" else [limit])]
        remedy = did_you_mean(str(error.instance), choices) or "choose one of them"
        return Problem(pointer, f"{where} must be one of {', '.join(choices)}", remedy)
    if keyword == "type":
        named = {"object": "mapping", "array": "list"}
        wanted = " or ".join(named.get(kind, kind) for kind in ([limit] if isinstance(limit, str) else limit))
        remedy = "quote the value if text is meant" if limit == "string" else "mend the value"
        return Problem(pointer, f"{where} must be of type {wanted}, not {_type_name(error.instance)}", remedy)
    if "propertyNames" in error.absolute_schema_path:
        pointer += f"/{escape_pointer(str(error.instance))}"
    if keyword == "pattern":
        remedy = "use letters, digits, '-' and '_', starting with a letter; wildcards are not names"
        return Problem(pointer, f"{str(error.instance)[:80]!r} is no valid name", remedy)
    if keyword == "uniqueItems":
        twice = next(x for i, x in enumerate(error.instance) if x in error.instance[:i])
        index = len(error.instance) - 1 - error.instance[::-1].index(twice)
        return Problem(f"{pointer}/{index}", f"{twice!r} is listed twice", "remove one")
    if keyword in ("oneOf", "anyOf"):
        shapes = ["+".join(option.get("required", ["?"])) for option in limit]
        return Problem(
            pointer, f"{where} has none of the shapes it may have", f"give one of: {', '.join(shapes)}"
        )
    return Problem(pointer, f"{where} breaks the limit {keyword}={str(limit)[:60]}", "mend the value")


def _type_name(value: Any) -> str:
    names = {dict: "mapping", list: "list", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")
