"""`arguments`: the arguments of a call meet the conditions that the policy sets for its tool.

A pointer names values among the arguments, and `*` stands for every item of a list. Where a reading is not obvious, the
stricter one holds: a keyword also demands the type that it speaks of, and so does each step of a pointer; an argument
that is absent counts as the default that the schema of the tool gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer, parse
from ...formats.strict_json import canonical
from ...log.events import Call
from ...redaction.redactor import placeholders
from ...schema.validator import SchemaValidator
from ..leaf import Leaf, Question, Rule, differing

if TYPE_CHECKING:
    from ...tools.contract import Tool
    from ..policy import Policy

Condition = Mapping[str, Any]
_NOTHING: Final = object()  # stands for a step of a pointer into what has no such step


class Keyword(NamedTuple):
    """A keyword of conditions.

    Attributes:
        fits: Whether a value is of the type that the keyword speaks of.
        meets: Whether a value of that type meets a limit.
        holds: Whether a limit lets nothing through that another one does not.
        moved: Other limits near one.
    """

    fits: Callable[[Any], bool]
    meets: Callable[[Any, Any], bool]
    holds: Callable[[Any, Any], bool]
    moved: Callable[[Any], Iterable[Any]]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _near(limit: Any) -> tuple[Any, Any]:
    return limit - 1, limit + 1


def _same(value: Any, other: Any) -> bool:
    """Return whether two values are one in JSON, where 1 is 1.0, and true is neither."""
    return canonical(value) == canonical(other) or (
        _is_number(value) and _is_number(other) and value == other
    )


def _is_in(value: Any, values: Any) -> bool:
    return any(_same(value, other) for other in values)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator({"pattern": pattern})


def _matches(value: str, pattern: str) -> bool:
    return _compiled(pattern).first_mismatch(value) is None


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "maximum": Keyword(_is_number, lambda v, m: v <= m, lambda mine, old: mine <= old, _near),
    "minimum": Keyword(_is_number, lambda v, m: v >= m, lambda mine, old: mine >= old, _near),
    "exclusiveMaximum": Keyword(_is_number, lambda v, m: v < m, lambda mine, old: mine <= old, _near),
    "exclusiveMinimum": Keyword(_is_number, lambda v, m: v > m, lambda mine, old: mine >= old, _near),
    "maxLength": Keyword(_is_text, lambda v, m: len(v) <= m, lambda mine, old: mine <= old, _near),
    "pattern": Keyword(_is_text, _matches, lambda mine, old: mine == old, lambda pattern: ()),
    "in": Keyword(
        lambda value: not isinstance(value, dict | list),
        _is_in,
        lambda mine, old: all(_is_in(value, old) for value in mine),
        lambda values: (
            [*values, "another value"],
            *([v for v in values if v is not gone] for gone in values),
        ),
    ),
}


def values_at(arguments: Any, pointer: str) -> list[Any]:
    """Return the values at a pointer; a step into what has no such step gives a value of no type."""
    found = [arguments]
    for key in parse(pointer):
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


def _holds(mine: Condition, old: Condition) -> bool:
    """Return whether a condition lets nothing through that another one does not, keyword by keyword."""
    return all(name in mine and KEYWORDS[name].holds(mine[name], limit) for name, limit in old.items())


class _Conditions(Leaf[Any]):
    """Conditions by pointer. A point is the arguments of a call, with defaults filled in."""

    def __init__(self, conditions: Mapping[str, Condition] | None = None) -> None:
        self.conditions = {pointer: dict(condition) for pointer, condition in (conditions or {}).items()}

    def wrong(self, point: Any) -> str | None:
        """Return the pointer of the first condition that does not allow the arguments, None if all do."""
        raise NotImplementedError

    def allows(self, point: Any) -> bool:
        return self.wrong(point) is None

    def entry(self, point: Any) -> str:
        pointer = self.wrong(point)
        return "" if pointer is None else f"/{escape_pointer(pointer)}"

    def plus(self, point: Any) -> Any | None:
        """Leave it to a person whether a condition is to go."""
        return self if self.allows(point) else None

    def others(self) -> Iterator[tuple[str, Any]]:
        return differing(self, self._changes())

    def _changes(self) -> Iterator[tuple[str, Any]]:
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

    def wrong(self, point: Any) -> str | None:
        for pointer, condition in self.conditions.items():
            # a placeholder is not the value that the tool may be given in its place
            if not all(
                _meets(value, condition) and not placeholders(value) for value in values_at(point, pointer)
            ):
                return pointer
        return None

    def beyond(self, old: Demanded) -> Iterator[tuple[str, None]]:
        for pointer, condition in old.conditions.items():
            if not _holds(self.conditions.get(pointer, {}), condition):
                yield f"{pointer}: {canonical(self.conditions.get(pointer, {})).decode()}", None


class Unasked(_Conditions):
    """Conditions on which a person is asked: arguments that meet one of them do not go through by themselves."""

    def wrong(self, point: Any) -> str | None:
        for pointer, condition in self.conditions.items():
            if any(_meets(value, condition) for value in values_at(point, pointer)):
                return pointer
        return None

    def beyond(self, old: Unasked) -> Iterator[tuple[str, None]]:
        for pointer, condition in old.conditions.items():
            mine = self.conditions.get(pointer)
            if mine is None or not _holds(condition, mine):
                yield f"{pointer}: {canonical(mine or {}).decode()}", None

    def odd(self, point: Any) -> str | None:
        """Return the pointer of a condition that cannot judge a value, since it is of another type."""
        for pointer, condition in self.conditions.items():
            for value in values_at(point, pointer):
                if (
                    value is _NOTHING
                    or placeholders(value)
                    or not all(KEYWORDS[name].fits(value) for name in condition)
                ):
                    return pointer
        return None


class Judgeable(Unasked):
    """The same conditions, held to their types alone: what `ask_if` cannot judge is denied, and not just not asked."""

    def wrong(self, point: Any) -> str | None:
        return self.odd(point)

    def beyond(self, old: Unasked) -> Iterator[tuple[str, None]]:
        for pointer, condition in old.conditions.items():
            mine = self.conditions.get(pointer, {})
            if not {KEYWORDS[name].fits for name in condition} <= {KEYWORDS[name].fits for name in mine}:
                yield f"{pointer}: {canonical(mine).decode()}", None


class ArgumentsRule(Rule):
    """Judges the arguments of a proposed call."""

    id = "arguments"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, _Conditions]]:
        rules = policy.tool_rules(tool)
        place = f"/tools/{escape_pointer(tool)}"
        return [(f"{place}/arguments", rules.arguments), (f"{place}/ask_if", rules.judgeable)]

    def points(self, question: Question, tool: Tool | None) -> Iterator[Any]:
        if isinstance(question.about, Call) and tool is not None and question.about.arguments is not None:
            yield tool.filled(question.about.arguments)

    def reason(self, point: Any, leaf: _Conditions, *, allowed: bool) -> str:
        if allowed:
            return "the arguments meet the conditions"
        pointer = quote_untrusted(leaf.wrong(point) or "/")
        if isinstance(leaf, Judgeable):
            return f"argument {pointer} is of a type that ask_if cannot judge"
        return f"argument {pointer} does not meet the conditions of the policy"

    def question(self, point: Any, tool: str, call: Call | None) -> Question | None:
        return Question(Call("example", tool, point), tool)
