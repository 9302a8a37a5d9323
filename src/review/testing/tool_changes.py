"""Changes of the rules per tool and of named lists: each part dropped, each limit moved, values dropped and added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ...runtime.formats.canonical_json import encode
from ...runtime.formats.json_pointer import escape_pointer
from ...runtime.policy.per_tool.windows_of_the_week import moved_days, moved_hours, written
from ...runtime.resources.http_methods import METHODS
from ..compare.grants import target_of
from .answers import Question

# (what stands there instead, where within the value that is replaced, what is done in words)
Changed = tuple[Any, str, str]
Calls = Callable[[str], Iterable[Question]]

# of a list of values, an `enum` or the like; whoever holds each of the first by a test holds the rest alike
MOST_VALUES: Final = 50
_NUMBERS: Final = frozenset("minimum maximum exclusiveMinimum exclusiveMaximum".split())
_COUNTS: Final = frozenset(
    "minLength maxLength minItems maxItems minProperties maxProperties".split()
)  # never below 0
_SETS: Final = frozenset("enum required type anyOf oneOf".split())
_USED: Final = {"calls": "calls_of_tool", "per_minute": "calls_in_minute"}


def rules_of_tool(rules: Mapping[str, Any]) -> Iterator[Changed]:
    """Yield the rules of one tool with one change each; a rule that stands alone is dropped with its section."""
    for section, value in rules.items():
        place = f"/{escape_pointer(section)}"
        if len(rules) > 1:
            yield _without(rules, section), place, f"{section} dropped"
        for inner, at, words in _PARTS.get(section, lambda _: iter(()))(value):
            yield {**rules, section: inner}, place + at, f"{section} {words}"


def questions_about(name: str, rules: Mapping[str, Any], calls: Calls) -> Iterator[Question]:
    """Yield calls of a tool that has been called as often as its limits say, and once less."""
    for limit, number in rules.get("limits", {}).items():
        used = _USED.get(limit)
        for count in (number - 1, number) if used else ():
            yield from ({**call, "used": {used: count}} for call in calls(name))
    for url in rules.get("urls", ()):
        for target in (target_of(url).url, target_of(url).origin):
            for method in METHODS:
                yield {"late": {"tool": name, "target": target, "hop": 0, "method": method}}
    for mount in rules.get("mounts", ()):
        for access in ("read", "write"):
            yield {"late": {"tool": name, "path": f"{mount}/file", "access": access}}


def values_of_list(values: list[Any], unlisted: Iterable[Any]) -> Iterator[Changed]:
    """Yield a named list with each of its first values dropped, and with values that it does not have."""
    for i, value in enumerate(values[:MOST_VALUES]):
        yield values[:i] + values[i + 1 :], f"/{i}", f"value {encode(value)} dropped"
    kinds = {_kind(value) for value in values}
    added = [value for value in unlisted if value not in values and (not kinds or _kind(value) in kinds)]
    numbers = [value for value in values if _kind(value) == "number"]
    if not added:
        added = [max(numbers) + 1] if numbers else ["unlisted"]
    yield [*values, *added], "", f"values that are not listed added, such as {encode(added[0])}"


def scalars_in(data: Any) -> Iterator[Any]:
    """Yield the texts, numbers, true, false and null in some arguments."""
    left = [data]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        else:
            yield value


def _kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def _without(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {other: value for other, value in data.items() if other != key}


def _limits(limits: Mapping[str, int]) -> Iterator[Changed]:
    for name, number in limits.items():
        place = f"/{escape_pointer(name)}"
        if len(limits) > 1:
            yield _without(limits, name), place, f"{name} dropped"
        for value in (number - 1, number + 1):
            yield {**limits, name: value}, place, f"{name} {value} instead of {number}"


def _urls(urls: list[str]) -> Iterator[Changed]:
    for i, url in enumerate(urls[:MOST_VALUES]):
        yield urls[:i] + urls[i + 1 :], f"/{i}", f"{url} dropped"


def _methods(methods: list[str]) -> Iterator[Changed]:
    for i, method in enumerate(methods if len(methods) > 1 else ()):
        yield methods[:i] + methods[i + 1 :], f"/{i}", f"{method} dropped"
    more = [method for method in METHODS if method not in methods]
    if more:
        yield [*methods, *more], "", f"{more[0]} and all others added"


def _mounts(mounts: list[str]) -> Iterator[Changed]:
    for i, mount in enumerate(mounts):
        yield mounts[:i] + mounts[i + 1 :], f"/{i}", f"{mount} dropped"


def _windows(between: Any) -> Iterator[Changed]:
    """Yield windows with one less, and with one edge of one of them moved."""
    windows = written(between)
    for i, window in enumerate(windows):
        place = "" if isinstance(between, Mapping) else f"/{i}"
        if len(windows) > 1:
            yield [*windows[:i], *windows[i + 1 :]], place, f"window {i + 1} dropped"
        for changed, at, words in _window(window):
            whole = changed if isinstance(between, Mapping) else [*windows[:i], changed, *windows[i + 1 :]]
            yield whole, place + at, words


def _window(window: Mapping[str, Any]) -> Iterator[Changed]:
    """Yield a window with each key dropped, an hour's edge moved by a minute, or a day more or less."""
    for key in ("days", "hours"):
        if key in window:
            yield _without(window, key), f"/{key}", f"{key} dropped"
    if "hours" in window:
        for hours in moved_hours(window["hours"]):
            yield {**window, "hours": hours}, "/hours", f"hours {hours} instead of {window['hours']}"
    if "days" in window:
        for days in moved_days(window["days"]):
            yield (
                {**window, "days": days},
                "/days",
                f"days {encode(days)} instead of {encode(window['days'])}",
            )


def _conditions(conditions: Mapping[str, Any]) -> Iterator[Changed]:
    for pointer, condition in conditions.items():
        place = f"/{escape_pointer(pointer)}"
        if len(conditions) > 1:
            yield _without(conditions, pointer), place, f"{pointer} dropped"
        for inner, at, words in _condition(condition):
            if inner != {}:  # the policy refuses a condition that judges nothing
                yield {**conditions, pointer: inner}, place + at, f"{pointer} {words}"


def _condition(condition: Any) -> Iterator[Changed]:
    """Yield a condition with one change each, at any depth."""
    for keyword, value in condition.items() if isinstance(condition, dict) else ():
        place = f"/{escape_pointer(keyword)}"
        yield _without(condition, keyword), place, f"{keyword} dropped"
        for inner, at, words in _of_keyword(keyword, value):
            yield {**condition, keyword: inner}, place + at, f"{keyword} {words}"


def _of_keyword(keyword: str, value: Any) -> Iterator[Changed]:
    if keyword in _NUMBERS or keyword in _COUNTS:
        for moved in (value - 1, value + 1):
            if moved >= 0 or keyword in _NUMBERS:
                yield moved, "", f"{encode(moved)} instead of {encode(value)}"
    elif keyword in _SETS and isinstance(value, list):
        for i, item in enumerate(value[:MOST_VALUES] if len(value) > 1 else ()):
            shown = encode(item) if not isinstance(item, dict) else str(i + 1)
            yield value[:i] + value[i + 1 :], f"/{i}", f"{shown} dropped"
        for i, item in enumerate(value[:MOST_VALUES] if keyword in ("anyOf", "oneOf") else ()):
            for inner, at, words in _condition(item):
                yield [*value[:i], inner, *value[i + 1 :]], f"/{i}{at}", f"{i + 1} {words}"
    elif keyword in ("items", "additionalProperties"):
        yield from _condition(value)
    elif keyword == "properties":
        for name, condition in value.items():
            for inner, at, words in _condition(condition):
                yield {**value, name: inner}, f"/{escape_pointer(name)}{at}", f"{name} {words}"


# what may stand in the rules of a tool, each with the changes of it; that it is dropped is a change of every one
_PARTS: Final[Mapping[str, Callable[[Any], Iterator[Changed]]]] = {
    "arguments": _conditions,
    "headers": _conditions,
    "body": _conditions,
    "ask_if": _conditions,
    "limits": _limits,
    "urls": _urls,
    "methods": _methods,
    "mounts": _mounts,
    "between": _windows,
}
