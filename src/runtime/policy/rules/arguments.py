"""`arguments`: the arguments of a call meet the conditions that the policy sets for its tool.

A pointer names values among the arguments, and `*` stands for every item of a list. Where a reading is not obvious, the
stricter one holds: a keyword also demands the type that it speaks of, and so does each step of a pointer; an argument
that is absent counts as the default that the schema of the tool gives it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, Final

from msgspec import Struct

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer, parse
from ...formats.strict_json import canonical
from ...log.values import Call
from ...redaction.redactor import placeholders
from ...schema.validator import SchemaValidator
from ...tools.contract import Tool
from ..leaf import Instead, Leaf, Leaves, Policy, Question, Rule, Sample

Condition = Mapping[str, Any]
_LONGEST: Final = 1_000  # characters of an example
_NOTHING: Final = object()  # stands for a step of a pointer into what has no such step


class Keyword(Struct, frozen=True):
    """A keyword of conditions.

    Attributes:
        fits: Whether a value is of the type that the keyword speaks of.
        meets: Whether a value of that type meets a limit.
        moved: Other limits near one.
    """

    fits: Callable[[Any], bool]
    meets: Callable[[Any, Any], bool]
    moved: Callable[[Any], Iterable[Any]]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _near(limit: Any) -> tuple[Any, Any]:
    return limit - 1, limit + 1


class _Values(list[Any]):
    """The values of `in`, among which one is found at once."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.known = {*map(_key, self)}


def _key(value: Any) -> tuple[type, Any]:
    """Return what is equal of two values that are one in JSON, where 1 is 1.0, and true is neither."""
    return float if _is_number(value) else type(value), value


def _is_in(value: Any, values: _Values) -> bool:
    return _key(value) in values.known


def _other_values(values: list[Any]) -> Iterable[list[Any]]:
    return [*values, "another value"], *([it for it in values if it is not gone] for gone in values)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator({"pattern": pattern})


def _matches(value: str, pattern: str) -> bool:
    return _compiled(pattern).first_mismatch(value) is None


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "maximum": Keyword(_is_number, lambda value, most: value <= most, _near),
    "minimum": Keyword(_is_number, lambda value, least: value >= least, _near),
    "exclusiveMaximum": Keyword(_is_number, lambda value, bound: value < bound, _near),
    "exclusiveMinimum": Keyword(_is_number, lambda value, bound: value > bound, _near),
    "maxLength": Keyword(_is_text, lambda value, most: len(value) <= most, _near),
    "pattern": Keyword(_is_text, _matches, lambda pattern: ()),
    "in": Keyword(lambda value: not isinstance(value, dict | list), _is_in, _other_values),
}
_TYPES: Final[tuple[Any, ...]] = (0, "a", True, None, [])


@lru_cache(maxsize=4096)
def _keys(pointer: str) -> tuple[str, ...]:
    return tuple(parse(pointer))


def values_at(arguments: Any, pointer: str) -> list[Any]:
    """Return the values at a pointer; a step into what has no such step gives a value of no type."""
    found = [arguments]
    for key in _keys(pointer):
        below: list[Any] = []
        for value in found:
            if key == "*":
                below += value if isinstance(value, list) else [_NOTHING]
            elif isinstance(value, dict):
                below += [value[key]] if key in value else []
            else:
                below.append(_NOTHING)
        found = below
    return found


def _meets(value: Any, condition: Condition) -> bool:
    return all(
        value is not _NOTHING and KEYWORDS[name].fits(value) and KEYWORDS[name].meets(value, limit)
        for name, limit in condition.items()
    )


def bounds(condition: Condition) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return between what a number has to be: each bound with 0, or 1 below and -1 above if it is none itself."""
    low = [(condition[key], n) for n, key in enumerate(("minimum", "exclusiveMinimum")) if key in condition]
    high = [(condition[key], -n) for n, key in enumerate(("maximum", "exclusiveMaximum")) if key in condition]
    return max(low, default=(-math.inf, 0)), min(high, default=(math.inf, 0))


def _holds(mine: Condition, old: Condition) -> bool:
    """Return whether it is certain that a condition lets nothing through that another one does not."""
    (least, most), (old_least, old_most) = bounds(mine), bounds(old)
    spoken_of = {KEYWORDS[name].fits for name in mine}
    is_number, is_text = _is_number in spoken_of, _is_text in spoken_of
    if "in" in mine or (is_number and least == most):
        values = mine.get("in", [least[0]])
        return all(_meets(value, old) for value in values if _meets(value, mine))
    if (is_number and is_text) or least > most:
        return True
    return all(
        (is_number and old_least <= least and most <= old_most)
        if KEYWORDS[name].fits is _is_number
        else name in mine and (mine[name] == limit or (name == "maxLength" and mine[name] < limit))
        for name, limit in old.items()
    )


def examples(*conditions: Condition) -> Iterator[Any]:
    """Yield values that the limits of some conditions may tell apart."""
    numbers: set[float] = {0}
    texts, sizes = ["", "~"], {0}
    for condition in conditions:
        for name, limit in condition.items():
            if name == "in":
                yield from limit
            elif name == "maxLength":
                sizes |= {size for size in (limit, limit + 1) if size <= _LONGEST}
            elif name == "pattern":
                literal = re.sub(r"\\.|[^\w ./:@-]", "", limit)  # what it may match
                texts += [literal, f"{literal}~", f"~{literal}"]
            else:
                numbers.add(limit)
    ordered = sorted(numbers)
    yield from (ordered[0] - 1, *ordered, ordered[-1] + 1)
    for low, high in pairwise(ordered):
        between = low / 2 + high / 2
        yield int(between) if between.is_integer() else between
    for text, size in product(texts, sorted(sizes)):
        yield from (text.ljust(size, "a"), text.rjust(size, "a"))
    yield from _TYPES


def _told_apart(allowed: Condition, refused: Condition) -> Iterable[Any]:
    """Return a value of each type that meets one condition and not another one; `_NOTHING` where none is found."""
    values = [*examples(allowed, refused)]
    found = [value for value in values if _meets(value, allowed) and not _meets(value, refused)]
    return {type(value): value for value in reversed(found)}.values() or [_NOTHING]


def with_value(path: list[str] | tuple[str, ...], value: Any) -> Any:
    """Return arguments that hold a value at a path, and nothing else."""
    for key in reversed(path):
        value = [value] if key == "*" else {key: value}
    return value


def _is_judgeable(value: Any, condition: Condition) -> bool:
    return all(KEYWORDS[name].fits(value) for name in condition)


class _Conditions(Leaf[Any]):
    """Conditions by pointer. A point is the arguments of a call, with defaults filled in."""

    def __init__(self, conditions: Mapping[str, Condition] | None = None) -> None:
        self.conditions = {
            pointer: {name: _Values(limit) if name == "in" else limit for name, limit in condition.items()}
            for pointer, condition in (conditions or {}).items()
        }
        self.allows_all = not self.conditions
        # pointers by their first key, each with its place in the order
        self._of: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for place, pointer in enumerate(self.conditions):
            self._of[_keys(pointer)[0]].append((place, pointer))

    def about(self, point: Any) -> Iterator[tuple[str, Condition]]:
        """Yield the conditions that may find a value in arguments, in order."""
        keys = {*point, "*"} if isinstance(point, dict) else {*self._of}
        for _, pointer in sorted(it for key in keys & self._of.keys() for it in self._of[key]):
            yield pointer, self.conditions[pointer]

    def objects(self, values: list[Any], condition: Condition) -> bool:
        """Return whether a condition does not allow what stands at its pointer."""
        raise NotImplementedError

    def wrong(self, point: Any) -> str | None:
        """Return the pointer of the first condition that does not allow the arguments, None if all do."""
        for pointer, condition in self.about(point):
            if self.objects(values_at(point, pointer), condition):
                return pointer
        return None

    def point_of(self, arguments: dict[str, Any]) -> Any:
        """Return the point of some arguments."""
        return arguments

    def allows(self, point: Any) -> bool:
        return self.wrong(point) is None

    def entry(self, point: Any) -> str:
        pointer = self.wrong(point)
        return "" if pointer is None else f"/{escape_pointer(pointer)}"

    def larger(self, point: Any) -> Any | None:
        """Leave it to a person whether a condition is to go."""
        return None

    def data(self) -> dict[str, Any]:
        return {
            pointer: {name: [*limit] if name == "in" else limit for name, limit in condition.items()}
            for pointer, condition in self.conditions.items()
        }

    def opened(self, mine: Condition, was: Condition) -> Iterable[Any]:
        """Return values that one condition lets through and another one does not; `_NOTHING` for one unknown."""
        raise NotImplementedError

    def beyond(self, old: Any) -> Iterator[tuple[str, Any]]:
        for pointer, was in old.conditions.items():
            mine = self.conditions.get(pointer, {})
            said = [canonical(it).decode() if it else "no condition" for it in (mine, was)]
            words = Instead(f"{pointer}: ", *said)
            for value in self.opened(mine, was):
                arguments = None if value is _NOTHING else with_value(parse(pointer), value)
                point = self.point_of(arguments) if isinstance(arguments, dict) else None
                is_shown = point is not None and self.allows(point) and not old.allows(point)
                yield words, point if is_shown else None

    def changes(self) -> Iterator[tuple[str, Any]]:
        for pointer, condition in self.conditions.items():
            for name, limit in condition.items():
                rest = {key: value for key, value in condition.items() if key != name}
                yield f"{pointer} {name} dropped", self._with(pointer, rest)
                for moved in KEYWORDS[name].moved(limit):
                    yield f"{pointer} {name} moved", self._with(pointer, {**condition, name: moved})
        yield "another condition", self._with("/another", {"maximum": 0})

    def _with(self, pointer: str, condition: Condition) -> Any:
        changed = {**self.conditions, pointer: condition}
        return type(self)({key: value for key, value in changed.items() if value})


class Demanded(_Conditions):
    """Conditions that the arguments have to meet."""

    def objects(self, values: list[Any], condition: Condition) -> bool:
        # a placeholder is not the value that the tool may be given in its place
        return not all(_meets(value, condition) and not placeholders(value) for value in values)

    def opened(self, mine: Condition, was: Condition) -> Iterable[Any]:
        return () if _holds(mine, was) else _told_apart(mine, was)


class Unasked(_Conditions):
    """Conditions on which a person is asked: arguments that meet one of them do not go through by themselves."""

    def objects(self, values: list[Any], condition: Condition) -> bool:
        return any(_meets(value, condition) for value in values)

    def opened(self, mine: Condition, was: Condition) -> Iterable[Any]:
        mine = mine or {"in": _Values([])}  # nothing at all meets a condition that is not there
        return () if _holds(was, mine) else _told_apart(was, mine)


class Judgeable(_Conditions):
    """The same conditions, held to their types alone: what `ask_if` cannot judge is denied, and not just not asked."""

    def objects(self, values: list[Any], condition: Condition) -> bool:
        return any(
            value is _NOTHING or placeholders(value) or not _is_judgeable(value, condition)
            for value in values
        )

    def opened(self, mine: Condition, was: Condition) -> Iterable[Any]:
        return [it for it in _TYPES if _is_judgeable(it, mine) and not _is_judgeable(it, was)]


class ArgumentsRule(Rule):
    """Judges the arguments of a proposed call."""

    id = "arguments"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, _Conditions]]:
        rules = policy.tool_rules(tool)
        place = f"/tools/{escape_pointer(tool)}"
        return [(f"{place}/arguments", rules.arguments), (f"{place}/ask_if", rules.judgeable)]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[Any]:
        if isinstance(question.about, Call) and tool is not None and question.about.arguments is not None:
            return [tool.filled(question.about.arguments, keeps_null=False)]
        return []

    def reason(self, point: Any, leaf: _Conditions, *, allowed: bool) -> str:
        if allowed:
            return "the arguments meet the conditions"
        wrong = leaf.wrong(point) or "/"
        pointer = quote_untrusted(wrong)
        if placeholders(values_at(point, wrong)):
            return f"argument {pointer} holds a secret, whose value no condition judges"
        if isinstance(leaf, Judgeable):
            return f"argument {pointer} is of a type that ask_if cannot judge"
        return f"argument {pointer} does not meet the conditions of the policy"

    def questions(self, point: Any, sample: Sample) -> Iterator[Question]:
        if point is not None:
            yield from sample.with_arguments(point)
