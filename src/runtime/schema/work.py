"""Bound the work of judging data by a schema, from the sizes of both.

Nothing is timed, so that every machine comes to the same number. A step is about a nanosecond of one core of 2024. The
weights are the most that was measured of the library for one value, rounded up, and most calls cost far less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from .ecma_patterns import compiled_bytes
from .indexed_values import INDEXED, MAX_SHOWN, MIN_INDEXED
from .subschemas import JsonSchema, parts, subschemas, target

# steps of one decision; what would cost more is not judged
MAX_WORK: Final = 40_000_000

_PART: Final = 100  # a schema held against a value, with its short keywords
_LISTED: Final = 20  # comparing with a text, true, false or null of a list that is searched in order
_LISTED_INTEGER: Final = 220
_LISTED_BELOW: Final = 40  # beginning to compare two arrays or objects
_LISTED_NAME: Final = 170  # finding a name of one object in another
# comparing numbers of which one is no integer, which the library does exactly: making a fraction of each
_EXACT: Final = 2_100
_EXACT_BIT: Final = 9  # of a denominator with more than 64
_TINY: Final = 1e-9  # numbers below are much longer as exact fractions
_TINY_FRACTION: Final = 150
_REQUIRED: Final = 40
_LIMIT: Final = 700  # of a limit that is an integer, for a value that is not
_MULTIPLE: Final = 2_000
_FRACTION_MULTIPLE: Final = 12_000
_BIG_MULTIPLE: Final = 25_000
# handing a value to an index, with everything below it, and looking it up
_INDEXED: Final = 340
_LOOKED_UP: Final = 300
_INDEXED_CHARACTER: Final = 1
_BYTES_PER_STEP: Final = 7  # compiled bytes of a pattern that the engine passes in one step for a character
_CHARACTERS_PER_STEP: Final = 16  # of two equal texts
_TEXT_PER_LISTED: Final = 32  # characters that count like a value of a list
_NUMERIC: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_BESIDE: Final = frozenset("allOf anyOf oneOf not if then else dependentSchemas".split())
_CHOICES: Final = frozenset("anyOf oneOf not if then else".split())
# a value has one of these at most; any of the other applicators may come on top
_ONE_OF: Final = frozenset("properties prefixItems additionalProperties items".split())
_NEVER_APPLIED: Final = frozenset({"$defs", "definitions", "contentSchema"})


class Work(NamedTuple):
    """Steps that a schema needs for each unit of the data it judges, at most, wherever the unit stands in the data.

    Attributes:
        value: For each value.
        name: For each name.
        fraction: For each number that is no integer, beside that of a value; a tiny one counts for several.
        character: For each character of texts and names.
        parts: How many errors there may be about one value.
        choices: How many of them belong to a choice that looks below its value.
    """

    value: int = 0
    name: int = 0
    fraction: int = 0
    character: int = 0
    parts: int = 0
    choices: int = 0

    def steps(self, sizes: Sizes) -> int:
        """Return how many steps data of these sizes needs."""
        values, names, fractions, characters = sizes
        return (
            self.value * values + self.name * names + self.fraction * fractions + self.character * characters
        )


class Sizes(NamedTuple):
    """How large data is: values, names, numbers that are no integers, and characters of texts and names."""

    values: int = 0
    names: int = 0
    fractions: int = 0
    characters: int = 0


class SchemaWork(NamedTuple):
    """The work of a schema of objects, told apart by their properties.

    Attributes:
        own: For the object itself.
        properties: For what stands under a property, its name included.
        others: For what stands under any other name.
    """

    own: Work
    properties: dict[str, Work]
    others: Work

    def steps(self, sizes: dict[str, Sizes]) -> int:
        """Return how many steps an object needs whose properties have these sizes."""
        below = (self.properties.get(name, self.others).steps(size) for name, size in sizes.items())
        return self.own.steps(Sizes(1)) + sum(below)

    def least(self) -> int:
        """Return the steps of the smallest object with a value under the costliest property."""
        return self.own.value + max(work.value for work in (*self.properties.values(), self.others))

    def densest(self) -> int:
        """Return the most steps for a character of canonical JSON, in which a value takes one at least."""
        return max(
            work.value + work.name + work.fraction + work.character
            for work in (self.own, *self.properties.values(), self.others)
        )


def sizes_of(data: Any) -> Sizes:
    """Return how large JSON data is."""
    values = names = fractions = characters = 0
    left = [data]
    while left:
        value = left.pop()
        values += 1
        if type(value) is str:
            characters += len(value)
        elif type(value) is dict:
            names += len(value)
            characters += sum(map(len, value))
            left += value.values()
        elif type(value) is list:
            left += value
        elif type(value) is float:
            fractions += _exactly(value)
    return Sizes(values, names, fractions, characters)


def sizes_by_name(data: dict[str, Any], named: Collection[str] | None = None) -> dict[str, Sizes]:
    """Return how large the values of an object are, each with its name.

    Args:
        data: The object.
        named: Names that are told apart; all others are counted together, under a name that is none of these.
    """
    out = {}
    for name, value in data.items() if named is None else ((key, data[key]) for key in named if key in data):
        values, names, fractions, characters = sizes_of(value)
        out[name] = Sizes(values, names + 1, fractions, characters + len(name))
    if named is not None and (rest := {key: value for key, value in data.items() if key not in out}):
        values, names, fractions, characters = sizes_of(rest)
        out[max(named, key=len, default="") + "."] = Sizes(values - 1, names, fractions, characters)
    return out


def work_of(schema: Any) -> SchemaWork:
    """Return the work of a schema. A reference back to a schema that holds it is counted as one more part."""
    return _Counting(schema if isinstance(schema, dict) else {}).top(schema)


class _Counting:
    def __init__(self, root: JsonSchema) -> None:
        self.root = root
        self.known: dict[int, Work] = {}
        self.open: set[int] = set()

    def top(self, schema: Any) -> SchemaWork:
        """Return the work of a schema of objects; that of the whole object holds for its properties too."""
        if not isinstance(schema, dict) or id(schema) in self.open:
            return SchemaWork(Work(parts=1), {}, Work(_PART, _PART, parts=1))
        self.open.add(id(schema))
        spread = _spread(schema)
        properties = {name: self.heaviest(sub) for name, sub in schema.get("properties", {}).items()}
        others = _sum(self.apart(key, sub) for key, _, sub in self.below(schema) if key != "properties")
        apart = _sum(self.apart(key, sub) for key, _, sub in self.below(schema) if key not in _ONE_OF)
        named = {name: _sum((work, apart, spread)) for name, work in properties.items()}
        out = SchemaWork(_sum((_own(schema), spread)), named, _sum((others, spread)))
        for keyword, sub in self.beside(schema):
            out = _both(out, _as_choices(keyword, sub, self.top(sub)))
        self.open.discard(id(schema))
        return out

    def heaviest(self, schema: Any) -> Work:
        """Return the most work that a schema causes for one unit of the data, at any depth below it."""
        if not isinstance(schema, dict) or id(schema) in self.open:
            return Work(_PART, _PART, parts=1)
        if id(schema) in self.known:
            return self.known[id(schema)]
        self.open.add(id(schema))
        one = [self.heaviest(sub) for key, _, sub in self.below(schema) if key in _ONE_OF]
        more = [self.apart(key, sub) for key, _, sub in self.below(schema) if key not in _ONE_OF]
        deepest = Work(*map(max, zip(Work(), _own(schema), *one, strict=True)))
        beside = [_as_choice(keyword, sub, self.heaviest(sub)) for keyword, sub in self.beside(schema)]
        out = _sum((deepest, _spread(schema), *more, *beside))
        self.open.discard(id(schema))
        self.known[id(schema)] = out
        return out

    def apart(self, keyword: str, schema: Any) -> Work:
        """Return the work of a schema that is held against values or names below, whatever the other keywords are."""
        work = self.heaviest(schema)
        return work._replace(name=work.name + work.value) if keyword == "propertyNames" else work

    def below(self, schema: JsonSchema) -> Iterator[tuple[str, str, Any]]:
        """Yield the schemas directly in `schema` that are held against values below its own."""
        skipped = _BESIDE | _NEVER_APPLIED
        return (item for item in subschemas(schema) if item[0] not in skipped)

    def beside(self, schema: JsonSchema) -> Iterator[tuple[str, Any]]:
        """Yield keyword and schema of those that are held against the same value."""
        yield from ((keyword, sub) for keyword, _, sub in subschemas(schema) if keyword in _BESIDE)
        if "$ref" in schema:
            try:
                yield "$ref", target(self.root, schema["$ref"])
            except (KeyError, ValueError):
                return  # the schema of a tool holds no such reference


def _own(schema: JsonSchema) -> Work:
    """Return the work of the keywords of a schema that hold no other schema."""
    value, fraction, character = _PART, 0, 4 if {"minLength", "maxLength"} & schema.keys() else 1
    value += _REQUIRED * len(schema.get("required", ()))
    for key in _NUMERIC:
        if key in schema:
            value, fraction = value + _at_fraction(schema[key], _exact(schema[key])), fraction + _LIMIT
    if "multipleOf" in schema:
        value += _at_fraction(schema["multipleOf"], _FRACTION_MULTIPLE)
        fraction += _BIG_MULTIPLE if type(schema["multipleOf"]) is float else _MULTIPLE
    listed = _listed(schema)
    value += sum(map(_compared, listed))
    value += sum(
        _LOOKED_UP for keyword in ("enum", "const") if keyword in schema and is_indexed(schema, keyword)
    )
    fraction += sum(map(_compared_with_fraction, listed))
    texts, names = ([schema["pattern"]] if "pattern" in schema else []), schema.get("patternProperties", ())
    of_texts = sum(compiled_bytes(pattern) // _BYTES_PER_STEP for pattern in texts)
    of_names = sum(compiled_bytes(pattern) // _BYTES_PER_STEP for pattern in names)
    character += of_texts + of_names
    return Work(value + of_texts, _PART + of_names, fraction, character, 1 + len(schema.get("required", ())))


def _listed(schema: JsonSchema) -> list[Any]:
    """Return what the library compares a value with in order, nothing for what it or we look up."""
    keyword = "enum" if "enum" in schema else "const"
    listed: list[Any] = schema.get("enum", [schema["const"]] if "const" in schema else [])
    is_looked_up = keyword == "enum" and _is_hashed(listed)
    return [] if not listed or is_looked_up or is_indexed(schema, keyword) else listed


def is_indexed(schema: JsonSchema, keyword: str) -> bool:
    """Return whether `enum`, `const` or `uniqueItems` of a schema is judged by an index of ours."""
    if keyword == "uniqueItems":
        return schema[keyword] is True
    listed = schema[keyword] if keyword == "enum" else [schema[keyword]]
    size = sizes_of(listed)
    if size.values + size.characters // _TEXT_PER_LISTED > MAX_SHOWN + 1:  # the list itself is a value too
        return True
    return not _is_hashed(listed) and sum(map(_compared, listed)) > MIN_INDEXED


def _spread(schema: JsonSchema) -> Work:
    """Return the work of what is judged by an index, which looks at everything below a value."""
    count = sum(keyword in schema and is_indexed(schema, keyword) for keyword in INDEXED)
    return Work(_INDEXED * count, _INDEXED * count, 0, _INDEXED_CHARACTER * count)


def _at_fraction(limit: Any, steps: int) -> int:
    return steps if type(limit) is float else 0


def _is_hashed(listed: list[Any]) -> bool:
    """Return whether the library looks a value up in a list, instead of searching it."""
    return len({type(item) for item in listed}) == 1 and type(listed[0]) in (str, int)


def _compared(item: Any) -> int:
    """Return the steps of comparing a value with an item of a list, all of which may be equal."""
    if isinstance(item, dict):
        names = sum(_LISTED_NAME + len(name) // _CHARACTERS_PER_STEP for name in item)
        return _LISTED_BELOW + names + sum(map(_compared, item.values()))
    if isinstance(item, list):
        return _LISTED_BELOW + sum(map(_compared, item))
    if type(item) is float:
        return _exact(item)
    if type(item) is int:
        return _LISTED_INTEGER
    return _LISTED + (len(item) // _CHARACTERS_PER_STEP if isinstance(item, str) else 0)


def _exact(number: float) -> int:
    """Return the steps of comparing a fraction with an integer, exactly."""
    return 2 * _EXACT + _EXACT_BIT * max(0, number.as_integer_ratio()[1].bit_length() - 64)


def _exactly(number: float) -> int:
    """Return for how many ordinary fractions one counts: the library compares it exactly, and tiny ones are long."""
    return 1 if abs(number) >= _TINY else _TINY_FRACTION


def _compared_with_fraction(item: Any) -> int:
    """Return the further steps of comparing a number that is no integer with the numbers in an item of a list."""
    if isinstance(item, dict | list):
        return sum(map(_compared_with_fraction, item.values() if isinstance(item, dict) else item))
    return 2 * _EXACT if type(item) in (int, float) else 0


def _sum(works: Iterable[Work]) -> Work:
    return Work(*map(sum, zip(Work(), *works, strict=True)))


def _as_choice(keyword: str, schema: Any, work: Work) -> Work:
    """Return the work of a schema beside others, with its errors counted if it is a choice about values below its own.

    Such a choice is explained with everything that is wrong below.
    """
    if keyword not in _CHOICES:
        return work
    descends = any(
        "$ref" in part or any(key not in _BESIDE | _NEVER_APPLIED for key, _, _ in subschemas(part))
        for part in parts(schema)
    )
    return work._replace(choices=work.parts) if descends else work


def _as_choices(keyword: str, schema: Any, work: SchemaWork) -> SchemaWork:
    """Return the same for the work of a schema that is held against an object."""
    return SchemaWork(
        _as_choice(keyword, schema, work.own),
        {name: _as_choice(keyword, schema, below) for name, below in work.properties.items()},
        _as_choice(keyword, schema, work.others),
    )


def _both(one: SchemaWork, other: SchemaWork) -> SchemaWork:
    """Return the work of two schemas that are held against the same object."""
    names = [*one.properties, *(name for name in other.properties if name not in one.properties)]
    properties = {
        name: _sum((one.properties.get(name, one.others), other.properties.get(name, other.others)))
        for name in names
    }
    return SchemaWork(_sum((one.own, other.own)), properties, _sum((one.others, other.others)))
