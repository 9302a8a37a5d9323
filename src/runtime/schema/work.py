"""Bound the work of judging data by a schema, from the sizes of both.

Nothing is timed, so that every machine comes to the same number. A step is about a nanosecond of one core of 2024. The
weights are the most that was measured of the library for one value, rounded up, and most calls cost far less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from .ecma_patterns import compiled_bytes
from .subschemas import JsonSchema, parts, subschemas, target

# steps of one decision; what would cost more is not judged
MAX_WORK: Final = 40_000_000

_PART: Final = 100  # a schema held against a value, with its short keywords
_LISTED: Final = (
    20  # comparing with a text, an integer, true, false or null of a list that is searched in order
)
_LISTED_BELOW: Final = 40  # beginning to compare two arrays or objects
_LISTED_NAME: Final = 170  # finding a name of one object in another
_LISTED_NUMBER: Final = 1_200  # comparing fractions, which the library does exactly
_LISTED_FRACTION: Final = 200  # what a fraction adds to that
_TINY: Final = 1e-9  # numbers below are much longer as exact fractions
_TINY_FRACTION: Final = 150
_REQUIRED: Final = 40
_LIMIT: Final = 700  # of a limit that is an integer, for a value that is not
_FRACTION_LIMIT: Final = 1_300
_MULTIPLE: Final = 2_000
_FRACTION_MULTIPLE: Final = 10_000
_BIG_MULTIPLE: Final = 25_000
# up to 15 items are compared with one another, more are hashed
_UNIQUE: Final = 250
_UNIQUE_NUMBER: Final = 6_000
_UNIQUE_CHARACTER: Final = 2
_BYTES_PER_STEP: Final = 7  # compiled bytes of a pattern that the engine passes in one step for a character
_CHARACTERS_PER_STEP: Final = 16  # of two equal texts
_SHOWN_PER_ERROR: Final = 64  # values of a list that take as long to show as an error
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
        out = SchemaWork(_own(schema), named, _sum((others, spread)))
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
            value, fraction = value + _at_fraction(schema[key], _FRACTION_LIMIT), fraction + _LIMIT
    if "multipleOf" in schema:
        value += _at_fraction(schema["multipleOf"], _FRACTION_MULTIPLE)
        fraction += _BIG_MULTIPLE if type(schema["multipleOf"]) is float else _MULTIPLE
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if listed is not None and not _is_hashed(listed):
        value += sum(map(_compared, listed))
        fraction += sum(map(_compared_with_fraction, listed))
    texts, names = ([schema["pattern"]] if "pattern" in schema else []), schema.get("patternProperties", ())
    of_texts = sum(compiled_bytes(pattern) // _BYTES_PER_STEP for pattern in texts)
    of_names = sum(compiled_bytes(pattern) // _BYTES_PER_STEP for pattern in names)
    character += of_texts + of_names
    return Work(value + of_texts, _PART + of_names, fraction, character, _errors(schema, listed))


def _errors(schema: JsonSchema, listed: list[Any] | None) -> int:
    """Return how many errors the keywords of a schema may cause for one value, one that shows a long list for more."""
    shown = 0 if listed is None else sizes_of(listed).values // _SHOWN_PER_ERROR
    return 1 + len(schema.get("required", ())) + shown


def _spread(schema: JsonSchema) -> Work:
    """Return the work of `uniqueItems`, which looks at everything below an array."""
    return Work(_UNIQUE, _UNIQUE, _UNIQUE_NUMBER, _UNIQUE_CHARACTER) if schema.get("uniqueItems") else Work()


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
        return _LISTED_NUMBER * _exactly(item)
    return _LISTED + (len(item) // _CHARACTERS_PER_STEP if isinstance(item, str) else 0)


def _exactly(number: float) -> int:
    """Return for how many ordinary fractions one counts: the library compares it exactly, and tiny ones are long."""
    return 1 if abs(number) >= _TINY else _TINY_FRACTION


def _compared_with_fraction(item: Any) -> int:
    """Return the further steps of comparing a number that is no integer with the numbers in an item of a list."""
    if isinstance(item, dict | list):
        return sum(map(_compared_with_fraction, item.values() if isinstance(item, dict) else item))
    return {int: _LISTED_NUMBER, float: _LISTED_FRACTION}.get(type(item), 0)


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
