"""Judge data by a JSON Schema (Draft 2020-12) and name the first mismatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...light_dataclasses import dataclass
from ..formats.canonical_json import Fragment, encode
from ..formats.json_pointer import join
from .ecma_patterns import MAX_COMPILED, compiled_bytes, linear_pattern
from .indexed_values import keywords_of, original_keyword, with_indexes
from .subschemas import JsonSchema, mapped, parts
from .work import MAX_WORK, SchemaWork, Sizes, Work, is_indexed, sizes_by_name, sizes_of, work_of

# Values, each 256 characters of text counted as one more. The library makes all errors at once, each with a copy of
# what it is about: 2,048 wrong values under `anyOf` cost about 8 MB, 50,000 cost 250 MB and two seconds.
MAX_EXPLAINED: Final = 2_048
_TEXT_PER_VALUE: Final = 256
# Each takes up to 12 us, so these take 12 ms at most.
MAX_ERRORS: Final = 1_024
# Steps of judging the data. To find the errors it is judged twice more, so that this takes 16 ms at most.
MAX_EXPLAINED_WORK: Final = 8_000_000
# Compiled bytes of patterns times characters judged by them. The engine needs up to 140 ps for each where a pattern
# has too many states to keep, so this is at most about 2.4 s; patterns of up to _SMALL_PATTERN judge any text.
MAX_PATTERN_WORK: Final = 1 << 34
_SMALL_PATTERN: Final = 4 << 10
# Steps of judging a result, for each character of its JSON.
_PER_CHARACTER: Final = 500


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where data does not fit a schema.

    Attributes:
        pointer: JSON Pointer into the data.
        keyword: The keyword of the schema that it breaks.
        limit: That keyword's value, if it is short.
        schema: JSON Pointer of the keyword in the schema; it ends at a reference, as what lies behind one has
            another place.
    """

    pointer: str
    keyword: str
    limit: str
    schema: str = ""


class SchemaValidator:
    """A schema compiled by jsonschema-rs: no look-ups elsewhere, patterns in linear time, formats not asserted.

    Making one costs about as much as a hundred calls: keep it.

    Raises:
        BadPattern: A pattern is not supported.
        ValueError: The schema is invalid.
    """

    __slots__ = ("_failures", "_library", "_pattern_bytes", "_schema", "_work")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        self._schema = schema
        self._work: SchemaWork | None = None
        self._pattern_bytes = _pattern_bytes(dict(schema))
        self._failures: list[Exception] = []
        root = with_indexes(with_linear_patterns(dict(schema)), is_indexed)
        self._library = Draft202012Validator(
            root,
            validate_formats=False,
            pattern_options=RegexOptions(size_limit=MAX_COMPILED),
            offline=True,
            keywords=keywords_of(self._failures),
            mask="value",  # its messages are not used, and each would contain the data
        )

    @property
    def work(self) -> SchemaWork:
        """The work of judging data by this schema."""
        if self._work is None:
            self._work = work_of(self._schema)
        return self._work

    def accepts(self, data: Any) -> bool:
        """Return whether JSON data fits."""
        return self._is_valid(data) if self._beyond_patterns(data) is None else False

    def first_mismatch(self, data: Any) -> Mismatch | None:
        """Return the first mismatch by (pointer, keyword), whatever order the library finds them in.

        Of data larger than MAX_EXPLAINED, or with more than MAX_ERRORS possible errors, it is the mismatch that the
        library finds first. Where even that one could hold as many, or judging the data takes more than
        MAX_EXPLAINED_WORK, it names no place.
        """
        too_long = self._beyond_patterns(data)
        if too_long is not None:
            return too_long
        if self._is_valid(data):
            return None
        first: tuple[str, str] | None = None
        limit = place_in_schema = ""
        seen: set[tuple[str | int, ...]] = set()  # places in the schema with an error at the first place
        for error in self._errors(data):
            place, path = (join(error.instance_path), _keyword(error)), tuple(error.schema_path)
            if first is not None and (place > first or (place == first and path in seen)):
                continue  # each name that `required` misses is an error, with the same limit
            is_new = place != first
            this_limit, this_place = self._limit(error, data), _place_in_schema(_path_of(error))
            limit = this_limit if is_new else min(this_limit, limit)
            place_in_schema = this_place if is_new else min(this_place, place_in_schema)
            first, seen = place, {path} if is_new else {*seen, path}
        if first is None:  # refused without a reason: it stays refused
            return Mismatch("", "schema", "")
        return Mismatch(*first, limit, place_in_schema)

    def mismatch_of_result(self, result: Fragment) -> Mismatch | None:
        """Return the first mismatch of what a tool or a model returned.

        A result that takes more steps to judge than a decision may, and than its size is a reason for, is not judged:
        it fits nowhere.
        """
        length, data = len(result.text), result.value()
        allowed = max(MAX_WORK, _PER_CHARACTER * length)
        # at most so many for each character, whatever it holds
        if self.work.densest() * (length + 1) > allowed and self._explaining(data)[0] > allowed:
            return Mismatch("", "schema", f"at most {allowed} steps to judge it")
        return self.first_mismatch(data)

    def _is_valid(self, data: Any) -> bool:
        fits = bool(self._library.is_valid(data))
        if self._failures:
            raise self._failures.pop()
        return fits

    def _errors(self, data: Any) -> Iterable[Any]:
        """Return the errors of refused data; of large data only one, as all of them could fill the memory."""
        steps, errors, in_one = self._explaining(data)
        if steps > MAX_EXPLAINED_WORK or in_one > MAX_ERRORS:
            return ()
        if errors <= MAX_ERRORS and _size(data, MAX_EXPLAINED) <= MAX_EXPLAINED:
            return self._library.iter_errors(data)
        from jsonschema_rs import ValidationError

        try:
            self._library.validate(data)
        except ValidationError as error:
            return (error,)
        return ()

    def _explaining(self, data: Any) -> tuple[int, int, int]:
        """Return the steps of judging data, how many errors there may be, and how many may be part of a single one."""
        work, errors, in_one = self.work, self.work.own.parts, self.work.own.parts
        sizes = self._sizes(data)
        if not isinstance(data, dict):
            work = SchemaWork(work.own, {}, _larger(work))
        for name, size in sizes.items():
            below = work.properties.get(name, work.others)
            errors += below.parts * (size.values + size.names)
            in_one = max(in_one, below.parts, below.choices * size.values)
        return work.steps(sizes), errors, in_one

    def _sizes(self, data: Any) -> dict[str, Sizes]:
        if not isinstance(data, dict):
            return {"": sizes_of(data)}
        # the largest value is asked for only where a choice is below an undeclared name
        return sizes_by_name(data, None if self.work.others.choices else self.work.properties)

    def _beyond_patterns(self, data: Any) -> Mismatch | None:
        """Return a mismatch for text that would keep costly patterns busy for more than a second or so."""
        for name, compiled in self._pattern_bytes.items():
            value = data if name is None else data.get(name) if isinstance(data, dict) else None
            most = MAX_PATTERN_WORK // compiled
            if _characters(value) > most:
                pointer = "" if name is None else join([name])
                where = "" if name is None else join(["properties", name])
                return Mismatch(pointer, "pattern", f"at most {most} characters", where)
        return None

    def _limit(self, error: Any, data: Any) -> str:
        """Return what a keyword demands, shortened: names that are missing or not declared, or its value."""
        keyword = _keyword(error)
        if keyword == "additionalProperties":
            return ",".join(sorted(error.kind.unexpected)[:5])[:80]
        value = _at(self._schema, _path_of(error))
        if value is None and keyword == error.kind.name:  # below a pattern that was rewritten
            value = error.kind.value
        if keyword == "required" and isinstance(value, list):
            given = _at(data, error.instance_path)
            return ",".join(sorted(name for name in value if name not in given)[:5])
        if keyword in ("type", "enum") and isinstance(value, list):
            return ",".join(_short(item) for item in value[:10])[:80]
        return (
            ""
            if isinstance(value, dict | list) or value is None or keyword == "false"
            else _short(value)[:80]
        )


def _pattern_bytes(schema: JsonSchema) -> dict[str | None, int]:
    """Return the compiled size of the patterns that judge a property, by its name; None stands for all the data.

    Patterns that stand elsewhere, as in definitions, may judge any of the data; so may all of them where the schema
    refers to itself. Small patterns need no bound and are left out.
    """
    references = (part[key] for part in parts(schema) for key in ("$ref", "$dynamicRef") if key in part)
    recursive = not all(reference.startswith(("#/$defs/", "#/definitions/")) for reference in references)
    properties = {} if recursive else schema.get("properties", {})
    elsewhere = {key: value for key, value in schema.items() if recursive or key != "properties"}
    sizes = {None: _bytes_of(elsewhere), **{name: _bytes_of(part) for name, part in properties.items()}}
    return {name: size for name, size in sizes.items() if size > _SMALL_PATTERN}


def _bytes_of(schema: Any) -> int:
    return sum(
        compiled_bytes(pattern)
        for part in parts(schema)
        for pattern in (*([part["pattern"]] if "pattern" in part else ()), *part.get("patternProperties", ()))
    )


def _larger(work: SchemaWork) -> Work:
    """Return the work of a value that is no object."""
    return Work(*map(max, zip(work.own, work.others, *work.properties.values(), strict=True)))


def _characters(value: Any) -> int:
    """Return how many characters the texts and names in a value have."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_characters, value))
    if isinstance(value, dict):
        return sum(len(key) + _characters(item) for key, item in value.items())
    return 0


def _size(value: Any, most: int) -> int:
    """Return how large a value is, in the unit of MAX_EXPLAINED; counting ends beyond `most`."""
    size = 1 + len(value) // _TEXT_PER_VALUE if isinstance(value, str) else 1
    if isinstance(value, dict):
        size += sum(len(key) for key in value) // _TEXT_PER_VALUE
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if size > most:
            break
        size += _size(item, most - size)
    return size


def _place_in_schema(path: Sequence[str | int]) -> str:
    keys = list(map(str, path))
    references = [i for i, key in enumerate(keys) if key in ("$ref", "$dynamicRef")]
    return join(keys[: references[0] + 1] if references else keys)


def _keyword(error: Any) -> str:
    if error.kind.name == "falseSchema":
        return "false"
    return original_keyword(str(error.schema_path[-1] if error.schema_path else error.kind.name))


def _path_of(error: Any) -> list[str | int]:
    """Return the place of the keyword that is broken, as the schema names it."""
    path = error.schema_path
    return [original_keyword(step) if isinstance(step, str) else step for step in path]


def _at(value: Any, path: list[str | int]) -> Any:
    """Return what a path leads to, None if there is nothing.

    The library gives keys that look like numbers as integers.
    """
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
