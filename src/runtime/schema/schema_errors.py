"""Explain to a person why a document does not match its JSON Schema: where, what is wrong, what to write instead.

Messages are our own, not those of the schema library. Text from the file is shortened and shown in ASCII, so that
look-alike letters are visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from ...light_dataclasses import dataclass
from ..formats.canonical_json import encode
from ..formats.escape import quote_literal
from ..formats.json_pointer import escape_pointer, join, parse

_LONGEST_SLIP: Final = 200  # a longer word is no slip of the pen, and comparing it is slow
_END: Final = r"(?![\s\S])"  # the very end of a text, where `$` also stands before a last newline
_MANY: Final = 100  # wrong entries of one mapping that are looked at


@dataclass(frozen=True, slots=True)
class Problem:
    """The first thing wrong in a document, by place.

    Attributes:
        pointer: JSON Pointer into the document.
        message: What is wrong.
        remedy: What to do.
        of_value: Whether the value there is wrong, and not its key or something missing.
    """

    pointer: str
    message: str
    remedy: str
    of_value: bool


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return `did you mean 'x'?` for the nearest known word, or None."""
    if len(word) > _LONGEST_SLIP:
        return None
    import difflib  # slow to import, and needed for errors only

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {quote_literal(near[0])}?" if near else None


# ---- validation in bounded time ----------------------------------------------------------------------------


class DocumentValidator:
    """A validator of documents against one JSON Schema of ours; `jsonschema` is imported only to explain a refusal.

    Our own schemas hold plain patterns, for which the engine needs one rewriting: `_END`. So they are not read as
    schemas of tools are, and start-up is shorter. A test holds each of their patterns to what both readings accept.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)

    @cached_property
    def _quick(self) -> Any:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        return Draft202012Validator(
            _for_the_engine(self.schema),
            validate_formats=False,
            pattern_options=RegexOptions(),  # the engine that needs linear time
            offline=True,
            mask="value",
        )

    @cached_property
    def _explaining(self) -> Any:
        return _bounded_validator(self.schema)

    def accepts(self, data: Any) -> bool:
        """Return whether data fits; data that is not JSON does not."""
        try:
            return bool(self._quick.is_valid(data))
        except (ValueError, RecursionError):
            return False

    def iter_errors(self, data: Any) -> Iterator[Any]:
        """Yield the errors of data that does not fit, as `jsonschema` has them."""
        yield from self._explaining.iter_errors(data)


def _for_the_engine(schema: Any) -> Any:
    """Return a copy of a schema of ours in which the engine understands each pattern."""
    if isinstance(schema, dict):
        return {
            key: value.replace(_END, "$")
            if key == "pattern" and isinstance(value, str)
            else _for_the_engine(value)
            for key, value in schema.items()
        }
    return [_for_the_engine(item) for item in schema] if isinstance(schema, list) else schema


def _bounded_validator(schema: Mapping[str, Any]) -> Any:
    """Return a `jsonschema` validator that takes time linear in the data.

    It reports what is needed to find the first place: the size of a collection before its entries, the
    first wrong item of a list, some wrong entries of a mapping.
    """
    from jsonschema import Draft202012Validator, validators

    original = Draft202012Validator.VALIDATORS
    own = {
        "items": _items,
        "uniqueItems": _unique_items,
        "propertyNames": _few(original["propertyNames"]),
        "additionalProperties": _few(original["additionalProperties"]),
    }
    extend: Any = validators.extend
    return extend(Draft202012Validator, own)(dict(schema))


def _too_large(instance: Any, schema: Mapping[str, Any]) -> bool:
    limit = schema.get("maxProperties" if isinstance(instance, dict) else "maxItems")
    return limit is not None and len(instance) > limit


def _items(validator: Any, items: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not isinstance(instance, list) or _too_large(instance, schema):
        return
    inner = validator.evolve(schema=items)
    for i, item in enumerate(instance):
        if not inner.is_valid(item):
            yield from validator.descend(item, items, path=i)
            return


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from jsonschema import ValidationError

    judged = unique and isinstance(instance, list) and not _too_large(instance, schema)
    if judged and _first_repeated(instance) is not None:
        yield ValidationError("repeated")


def _first_repeated(items: list[Any]) -> int | None:
    """Return the index of the first item that equals an earlier one; in JSON Schema 1 is 1.0, and not true."""
    seen: set[Any] = set()
    for i, item in enumerate(items):
        key = item if type(item) is str else (encode(item),)
        if key in seen:
            return i
        seen.add(key)
    return None


def _few(keyword: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any]]:
    """Return a keyword of mappings that yields at most _MANY errors."""

    def some(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(instance, dict) and not _too_large(instance, schema):
            for _, error in zip(
                range(_MANY), keyword(validator, value, instance, schema) or (), strict=False
            ):
                yield error

    return some


# ---- the first problem, in words ---------------------------------------------------------------------------

Place = Callable[[str, bool], Any]


def first_problem(
    validator: DocumentValidator, data: Any, document: str, place: Place | None = None
) -> Problem | None:
    """Return the first problem of `data` by place, or None.

    Args:
        validator: The validator of the document.
        data: The document as JSON data.
        document: What messages call the document.
        place: Gives a sort key for a JSON Pointer and whether its value (not its key) is meant; without it
            pointers are ordered by themselves, indices as numbers.
    """
    if validator.accepts(data):
        return None
    place = place or (lambda pointer, _of_value: _natural(pointer))
    problems = []
    for error in validator.iter_errors(data):
        pointer, of_value = _blamed(error, place)
        # a key that is lacking may stand there, misspelled
        order = error.validator == "required", place(pointer, of_value), str(error.validator)
        problems.append((order, pointer, of_value, error))
    if not problems:  # refused by one of the two libraries only: it stays refused
        return Problem("", f"{document} does not fit its schema", "write it in plain JSON values", False)
    _, pointer, of_value, error = min(problems, key=lambda each: each[0])
    return Problem(pointer, *_explain(error, pointer, document, validator.schema), of_value)


def _natural(pointer: str) -> list[tuple[int, str]]:
    parts = pointer.split("/")[1:]
    return [(int(part), "") if re.fullmatch("[0-9]{1,9}", part) else (-1, part) for part in parts]


def _blamed(error: Any, place: Place) -> tuple[str, bool]:
    """Return the JSON Pointer at fault, and True if its value (not its key) is wrong."""
    pointer = join(error.absolute_path)
    keyword, instance = error.validator, error.instance
    if keyword == "additionalProperties" and error.validator_value is False:
        known = error.schema.get("properties", ())
        unknown = (f"{pointer}/{escape_pointer(key)}" for key in instance if key not in known)
        return min(unknown, key=lambda each: place(each, False)), False
    if keyword == "required":
        return pointer, False
    if keyword == "uniqueItems":
        return f"{pointer}/{_first_repeated(instance)}", True
    if "propertyNames" in error.absolute_schema_path:
        return f"{pointer}/{escape_pointer(str(instance))}", False
    return pointer, True


def _explain(error: Any, pointer: str, document: str, root: Mapping[str, Any]) -> tuple[str, str]:
    """Return a message and a remedy for an error."""
    where = quote_literal(".".join(map(str, error.absolute_path)))[1:-1] or document
    keyword, limit, instance = error.validator, error.validator_value, error.instance
    if keyword == "additionalProperties" and limit is False:
        return _unknown_key(error, parse(pointer)[-1], root)
    if keyword == "required":
        return f"{where} lacks the key {next(k for k in limit if k not in instance)!r}", "add it"
    if keyword in ("enum", "const"):
        choices = [str(c) for c in (limit if keyword == "enum" else [limit])]
        if len(choices) == 1:
            return f"{where} must be {choices[0]}", "fix the value"
        near = did_you_mean(instance, choices) if isinstance(instance, str) else None
        return f"{where} must be one of {', '.join(choices)}", near or "choose one of them"
    if keyword == "type":
        named = {"object": "mapping", "array": "list"}
        expected = " or ".join(
            named.get(kind, kind) for kind in ([limit] if isinstance(limit, str) else limit)
        )
        remedy = "quote the value if text is meant" if limit == "string" else "fix the value"
        return f"{where} must be of type {expected}, not {_type_name(instance)}", remedy
    if keyword == "pattern" and "description" in error.schema:
        return f"{quote_literal(str(instance))} is not {error.schema['description']}", "fix the value"
    if keyword == "pattern":
        remedy = "use letters, digits, '-' and '_', starting with a letter; wildcards are not names"
        return f"{quote_literal(str(instance))} is not a valid name", remedy
    if keyword == "uniqueItems":
        twice = instance[int(pointer.rpartition("/")[2])]
        return (
            f"{quote_literal(twice if isinstance(twice, str) else encode(twice))} is listed twice",
            "remove one",
        )
    if keyword in ("oneOf", "anyOf"):
        shapes = ["+".join(option.get("required", ["?"])) for option in limit]
        return f"{where} has none of the shapes it may have", f"give one of: {', '.join(shapes)}"
    return f"{where} {_limit_words(keyword, limit)}", "fix the value"


_BOUNDS: Final = {
    "minimum": "must be at least",
    "maximum": "must be at most",
    "exclusiveMinimum": "must be more than",
    "exclusiveMaximum": "must be less than",
}
_COUNTED: Final = {
    "Length": ("character", "characters"),
    "Items": ("entry", "entries"),
    "Properties": ("key", "keys"),
}


def _limit_words(keyword: str, limit: Any) -> str:
    """Return a limit of a schema in words, such as `must have at least 2 entries`."""
    if keyword in _BOUNDS:
        return f"{_BOUNDS[keyword]} {limit}"
    nouns = _COUNTED.get(keyword[3:])
    if nouns is not None and keyword[:3] in ("min", "max"):
        most = "at least" if keyword.startswith("min") else "at most"
        return f"must have {most} {limit} {nouns[limit != 1]}"
    return f"breaks the limit {keyword}={str(limit)[:60]}"


def _unknown_key(error: Any, key: str, root: Mapping[str, Any]) -> tuple[str, str]:
    known = list(error.schema.get("properties", ()))
    homes = sorted({f"under {home}" if home else "at the top" for home in _homes(root, root, key, ())})
    hints = [f"it belongs {' or '.join(homes[:3])}"] if homes else []
    near = did_you_mean(key, known)
    if near:
        hints.append(near)
    return f"unknown key {quote_literal(key)}", ", or ".join(hints) or f"known keys here: {', '.join(known)}"


def _homes(schema: Any, root: Mapping[str, Any], key: str, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the mappings of a schema that declare a key, each as its keys with dots between."""
    while isinstance(schema, Mapping) and str(schema.get("$ref", "")).startswith("#/$defs/"):
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties", {})
    if key in properties:
        yield ".".join(path)
    for name, sub in properties.items():
        yield from _homes(sub, root, key, (*path, name))
    for sub in (schema.get("items"), schema.get("additionalProperties"), *schema.get("oneOf", ())):
        yield from _homes(sub, root, key, path)


def _type_name(value: Any) -> str:
    names = {dict: "mapping", list: "list", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")
