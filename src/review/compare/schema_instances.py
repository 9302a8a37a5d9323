"""Arguments that a tool's input schema accepts, made up one after the other. A search with bounds.

Candidates only: the schema's own judge has the last word, so that a keyword which is left aside here (`not`,
`unevaluatedProperties`, ...) costs a find at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product
from typing import Any, Final

from ...runtime.schema.schema_parts import Document, may_be, of_item, of_key
from .constraints import Schema, fits_plainly
from .pattern_samples import texts_of

Path = tuple[str, ...]
# texts of at least so many characters for a place that holds a resource; None for any other place
Offers = Callable[[Path, int], Iterable[str] | None]

DEEP: Final = 14
WORLDS: Final = 24
_FEW: Final = 3  # texts offered for a place that a pattern is tried with
_PICKS: Final = 6  # values tried at one place
_WISHED: Final = 48  # and at the one that matters
_PRODUCTS: Final = 64
_NAMES: Final = 200
_STEPS: Final = 20_000  # places looked at in one search
_COUNTED: Final = 40
_LONGEST: Final = 2_000_000
_ITEMS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Wish:
    """What arguments are to hold: a value at `at`, one of `texts` if any are given, `broken` a limit not kept there."""

    at: Path = ()
    texts: tuple[str, ...] = ()
    broken: str | None = None


class Finder:
    """Candidates for one schema."""

    def __init__(self, schema: Mapping[str, Any], offers: Offers) -> None:
        self.document = Document(dict(schema))
        self.offers = offers
        self.wish = Wish()
        self._left = 0

    def arguments(self, wish: Wish | None = None) -> Iterator[dict[str, Any]]:
        """Objects that may fit, the simplest first."""
        self.wish, self._left = wish or Wish(), _STEPS
        for value in self._values([self.document.root], (), 0):
            if isinstance(value, dict):
                yield value

    # ---- which schemas meet ----------------------------------------------------------------------------

    def _flat(self, schema: Any) -> list[Any]:
        if not isinstance(schema, dict):
            return [schema]
        return [schema, *(part for sub in self.document.always(schema) for part in self._flat(sub))]

    def worlds(self, schemas: Iterable[Any]) -> Iterator[list[Schema]]:
        """The sets of plain schemas, one for each way through the choices, that a value may have to fit together."""
        return islice(self._chosen([], [[list(schemas)]]), WORLDS)

    def _chosen(self, kept: list[Schema], groups: list[list[list[Any]]]) -> Iterator[list[Schema]]:
        if not groups:
            yield kept
            return
        for option in groups[0]:
            parts = [part for schema in option for part in self._flat(schema)]
            if any(part is False for part in parts):
                continue
            plain = [part for part in parts if isinstance(part, dict)]
            more = [group for part in plain for group in self._groups(part)]
            yield from self._chosen([*kept, *plain], [*groups[1:], *more])

    def _groups(self, schema: Schema) -> Iterator[list[list[Any]]]:
        for _, subs in self.document.choices(schema):
            yield [[sub] for sub in subs]
        if "if" in schema:
            yield [[schema["if"], schema.get("then", True)], [schema.get("else", True)]]
        for sub in schema.get("dependentSchemas", {}).values():
            yield [[True], [sub]]

    def worlds_at(self, path: Path) -> list[list[Schema]]:
        """The sets of schemas that may meet at a place."""
        level: list[list[Any]] = [[self.document.root]]
        for i in range(len(path)):
            below = [
                schemas
                for above in level
                for world in self.worlds(above)
                for schemas, at in inner_of(world, path[:i])
                if at == path[: i + 1]
            ]
            level = list({tuple(map(id, schemas)): schemas for schemas in below}.values())
        return [world for schemas in level for world in self.worlds(schemas)]

    # ---- values ----------------------------------------------------------------------------------------

    def _values(self, schemas: Iterable[Any], path: Path, depth: int) -> Iterator[Any]:
        self._left -= 1
        if depth > DEEP or self._left < 0:
            return
        broken = self.wish.broken if path == self.wish.at else None
        on_the_way = len(path) < len(self.wish.at) and self.wish.at[: len(path)] == path
        for world in self.worlds(schemas):
            kept = world if broken is None else [_without(schema, broken) for schema in world]
            for value in self._of(kept, world, path, depth):
                if on_the_way and not isinstance(value, dict | list):
                    continue
                if fits_plainly(value, kept):
                    yield value

    def _of(self, kept: list[Schema], world: list[Schema], path: Path, depth: int) -> Iterator[Any]:
        listed = next((schema for schema in kept if "enum" in schema or "const" in schema), None)
        here = path == self.wish.at and path != ()
        if here and self.wish.broken is not None:
            yield from self._breaking(world, path, depth)
        if listed is not None:
            yield from listed["enum"] if "enum" in listed else [listed["const"]]
            return
        for kind in ("string", "object", "array", "number", "boolean", "null"):
            if not all(may_be(schema, kind) for schema in kept):
                continue
            if kind == "string":
                yield from self.wish.texts if here and self.wish.texts else self._strings(kept, path)
            elif here and self.wish.texts:
                continue
            elif kind == "object":
                yield from self._objects(kept, path, depth)
            elif kind == "array":
                yield from self._arrays(kept, path, depth, *_lengths(kept))
            elif kind == "number":
                yield from _numbers(kept)
            else:
                yield from (False, True) if kind == "boolean" else (None,)

    def _strings(self, world: list[Schema], path: Path, least: int | None = None) -> Iterator[str]:
        least = max((schema.get("minLength", 0) for schema in world), default=0) if least is None else least
        least = int(least)
        if least > _LONGEST:
            return
        samples = [text for schema in world if "pattern" in schema for text in texts_of(schema["pattern"])]
        said = [text for text in _said(world) if isinstance(text, str)]
        offered = self.offers(path, least)
        if offered is not None:
            yield from offered
            yield from said
            few = list(islice(self.offers(path, 0) or (), _FEW))
            for sample in samples:
                yield sample
                yield from (f"{text}{between}{sample}" for text in few for between in ("", "x", "/x"))
            return
        yield from said
        for sample in samples:
            yield sample + (sample[-1:] or "x") * max(0, least - len(sample))
        yield "x" * max(1, least)
        if least == 0:
            yield ""

    # ---- objects and arrays ----------------------------------------------------------------------------

    def _objects(
        self, world: list[Schema], path: Path, depth: int, least: int = 0
    ) -> Iterator[dict[str, Any]]:
        least = int(max((least, *(s.get("minProperties", 0) for s in world))))
        for names in self._name_sets(world, path, least):
            picks: dict[str, list[Any]] = {}
            for name, step in names.items():
                schemas = [sub for schema in world for sub in of_key(schema, name)]
                most = self._tried((*path, step))
                picks[name] = list(islice(self._values(schemas, (*path, step), depth + 1), most))
                if not picks[name]:
                    break
            else:
                yield from _mixed(picks)

    def _tried(self, path: Path) -> int:
        """How many values are tried at a place: more of a resource, and on the way to what is wished for."""
        matters = self.wish.at[: len(path)] == path or self.offers(path, 0) is not None
        return _WISHED if matters else _PICKS

    def _name_sets(self, world: list[Schema], path: Path, least: int) -> Iterator[dict[str, str]]:
        """Sets of names with the step that each is in a place's path, the fewest names first."""
        declared = list(dict.fromkeys(name for s in world for name in s.get("properties", ())))
        free = [name for name in _free_names(world, least) if name not in declared]
        names = [name for s in world for name in s.get("required", ())]
        depth = len(path)
        if len(self.wish.at) > depth and self.wish.at[:depth] == path:
            step = self.wish.at[depth]
            names += [step] if step != "*" or not free else free[:1]
        names = _with_dependents(list(dict.fromkeys(names)), world)
        others = [name for name in (*declared, *free) if name not in names]
        while len(names) < least and others:
            names = _with_dependents([*names, others.pop(0)], world)

        def steps(chosen: list[str]) -> dict[str, str]:
            return {name: name if name in declared else "*" for name in chosen}

        yield steps(names)
        for name in others[:12]:
            yield steps(_with_dependents([*names, name], world))
        if len(others) > 1:
            yield steps(_with_dependents([*names, *others[:24]], world))

    def _arrays(
        self, world: list[Schema], path: Path, depth: int, least: int, most: int
    ) -> Iterator[list[Any]]:
        fixed = max((len(schema.get("prefixItems", ())) for schema in world), default=0)
        at = len(path)
        if len(self.wish.at) > at and self.wish.at[:at] == path:
            step = self.wish.at[at]
            least = max(least, fixed + 1 if step == "*" else int(step) + 1 if step.isdigit() else 0)
        unique = any(schema.get("uniqueItems") for schema in world)
        holds = [schema["contains"] for schema in world if "contains" in schema]
        for length in dict.fromkeys((least, least + 1, most)):
            if not least <= length <= min(most, _ITEMS):
                continue
            picks = []
            for i in range(min(length, fixed + 1)):
                schemas = [sub for schema in world for sub in of_item(schema, i)]
                step = str(i) if i < fixed else "*"
                wanted = self._tried((*path, step))
                if unique and i == fixed:
                    wanted = max(wanted, length - fixed)
                picks.append(list(islice(self._values([*schemas, *holds], (*path, step), depth + 1), wanted)))
            yield from _filled(picks, length, fixed, unique)

    # ---- limits that are not kept ----------------------------------------------------------------------

    def _breaking(self, world: list[Schema], path: Path, depth: int) -> Iterator[Any]:
        keyword = str(self.wish.broken)
        rest = [_without(schema, keyword) for schema in world]
        for limit in [schema[keyword] for schema in world if keyword in schema]:
            if keyword in ("minimum", "exclusiveMinimum"):
                yield from (limit - 1, limit, limit - 0.5)
            elif keyword in ("maximum", "exclusiveMaximum"):
                yield from (limit + 1, limit, limit + 0.5)
            elif keyword == "multipleOf":
                yield from (1, limit + 1, 0.5, _plain(Fraction(repr(limit)) / 2))
            elif keyword == "maxLength":
                yield from self._strings(rest, path, int(limit) + 1)
                if limit < _LONGEST and self.offers(path, 0) is None:
                    yield "x" * (int(limit) + 1)
            elif keyword in ("minLength", "pattern"):
                yield from self._strings(rest, path, 0)
                if self.offers(path, 0) is None:
                    yield from (
                        "",
                        "x" * max(0, int(limit) - 1) if keyword == "minLength" else "-",
                        " ",
                        "x",
                        "0",
                    )
            elif keyword in ("minItems", "contains", "minContains"):
                yield from self._arrays(
                    rest, path, depth, 0, max(0, int(limit) - 1) if keyword == "minItems" else 1
                )
            elif keyword in ("maxItems", "maxContains"):
                yield from self._arrays(rest, path, depth, int(limit) + 1, int(limit) + 1)
            elif keyword == "not":
                yield from self._values([limit, *rest], path, depth + 1)
            elif keyword == "uniqueItems":
                for value in islice(self._arrays(rest, path, depth, 1, 1), _PICKS):
                    yield value * max(2, *(int(s.get("minItems", 0)) for s in world))
            elif keyword == "maxProperties":
                yield from self._objects(rest, path, depth, int(limit) + 1)
            else:
                yield from self._objects(rest, path, depth)


def _without(schema: Schema, keyword: str) -> Schema:
    return {key: value for key, value in schema.items() if key != keyword} if keyword in schema else schema


def _said(world: list[Schema]) -> Iterator[Any]:
    for schema in world:
        if "default" in schema:
            yield schema["default"]
        if isinstance(schema.get("examples"), list):
            yield from schema["examples"]


def _lengths(world: list[Schema]) -> tuple[int, int]:
    least = max((schema.get("minItems", 0) for schema in world), default=0)
    held = max((schema.get("minContains", 1) for schema in world if "contains" in schema), default=0)
    most = min((schema["maxItems"] for schema in world if "maxItems" in schema), default=_ITEMS)
    return int(max(least, held)), int(most)


def _numbers(world: list[Schema]) -> Iterator[int | float]:
    yield from (value for value in _said(world) if type(value) in (int, float))
    low = max((s[key] for s in world for key in ("minimum", "exclusiveMinimum") if key in s), default=None)
    high = min((s[key] for s in world for key in ("maximum", "exclusiveMaximum") if key in s), default=None)
    yield from (1, 0)
    yield from range(2, _COUNTED)
    steps = [schema["multipleOf"] for schema in world if "multipleOf" in schema]
    for start in (value for value in (low, high) if value is not None):
        whole = int(start // 1)
        yield from (start, whole, whole + 1, whole - 1)
        for step in steps:
            times = start // step
            yield from (_plain(Fraction(repr(step)) * int(times + more)) for more in (0, 1, -1))
    yield from steps
    if low is not None and high is not None:
        yield _plain(Fraction(repr(low)) / 2 + Fraction(repr(high)) / 2)


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def _free_names(world: list[Schema], least: int) -> list[str]:
    """Names that no schema declares and that some pattern, list or open object lets pass."""
    listed = [
        name
        for s in world
        if isinstance(s.get("propertyNames"), dict)
        for name in _listed(s["propertyNames"])
    ]
    shaped = [
        text for s in world for pattern in s.get("patternProperties", ()) for text in texts_of(pattern, 3)
    ]
    asked = [
        text
        for s in world
        if isinstance(s.get("propertyNames"), dict) and "pattern" in s["propertyNames"]
        for text in texts_of(s["propertyNames"]["pattern"], 3)
    ]
    return list(dict.fromkeys([*listed, *asked, *shaped, "x", *(f"x{i}" for i in range(min(least, _NAMES)))]))


def _listed(names: Schema) -> list[str]:
    found = names.get("enum", [names["const"]] if "const" in names else [])
    return [name for name in found if isinstance(name, str)]


def _with_dependents(names: list[str], world: list[Schema]) -> list[str]:
    out = list(names)
    for name in out:  # grows under way
        more = [other for s in world for other in s.get("dependentRequired", {}).get(name, ())]
        out += [other for other in dict.fromkeys(more) if other not in out]
    return out


def _mixed(picks: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    first = {name: found[0] for name, found in picks.items()}
    yield first
    for name, found in picks.items():
        yield from ({**first, name: other} for other in found[1:])
    several = [name for name, found in picks.items() if len(found) > 1]
    if len(several) > 1:
        for values in islice(product(*(picks[name] for name in several)), 1, _PRODUCTS):
            yield {**first, **dict(zip(several, values, strict=True))}


def _filled(picks: list[list[Any]], length: int, fixed: int, unique: bool) -> Iterator[list[Any]]:
    if not all(picks):
        return
    rest = picks[fixed] if len(picks) > fixed else []
    head = [found[0] for found in picks[:fixed]][:length]
    left = length - len(head)
    if unique:
        if len(rest) >= left:
            yield [*head, *rest[:left]]
        return
    yield [*head, *rest[:1] * left]
    for i, found in enumerate(picks[:fixed]):
        yield from ([*head[:i], other, *head[i + 1 :], *rest[:1] * left] for other in found[1:])
    yield from ([*head, other, *rest[:1] * (left - 1)] for other in rest[1:] if left)


def inner_of(world: list[Schema], path: Path) -> Iterator[tuple[list[Any], Path]]:
    """The places below one: the schemas that meet there, and its path."""
    declared = dict.fromkeys(name for s in world for name in s.get("properties", ()))
    for name in declared:
        yield [sub for s in world for sub in of_key(s, name)], (*path, name)
    free = [sub for s in world for sub in s.get("patternProperties", {}).values()]
    free += [s["additionalProperties"] for s in world if isinstance(s.get("additionalProperties"), dict)]
    for sub in free:
        yield [sub], (*path, "*")
    fixed = max((len(s.get("prefixItems", ())) for s in world), default=0)
    for i in range(fixed):
        yield [sub for s in world for sub in of_item(s, i)], (*path, str(i))
    behind = [sub for s in world for sub in of_item(s, None)]
    yield from [(behind, (*path, "*"))] if behind else []
