"""Windows of the week as a policy writes them: `{days: mon-fri, hours: "08:00-17:00", zone: Europe/Berlin}`.

Days are a name, a range (`fri-mon` goes over the week's end) or a list of these; without them every day counts, without
hours the whole day. The end is excluded, and hours over midnight belong to the day on which they begin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....light_dataclasses import dataclass
from ...core.local_time import WEEK, minute_of_week

BETWEEN: Final = "between"
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = WEEK // 7
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|(24):(00))", re.ASCII)


class BadWindow(ValueError):
    """A window cannot be read: the key, what is wrong, and what to write instead."""

    def __init__(self, key: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.key, self.message, self.remedy = key, message, remedy


@dataclass(frozen=True, slots=True)
class Window:
    """A window: bit n of `minutes` says whether minute n of a week that begins on Monday is in it."""

    zone: str
    minutes: int

    def contains(self, time: str) -> bool:
        """Return whether a local time is in the window. Raises ValueError."""
        return bool(self.minutes >> minute_of_week(time) & 1)


def written(between: Any) -> Sequence[Mapping[str, Any]]:
    """Return the windows as they are written: a single one stands for a list of one."""
    return [between] if isinstance(between, Mapping) else between


def read_window(data: Mapping[str, Any]) -> Window:
    """Return a window. Raises BadWindow."""
    start, end = _hours(data["hours"]) if "hours" in data else (0, _DAY)
    last = end if end > start else end + _DAY
    minutes = 0
    for day in _days(data["days"]) if "days" in data else range(7):
        span = ((1 << (last - start)) - 1) << (day * _DAY + start)
        minutes |= span & ((1 << WEEK) - 1) | span >> WEEK
    return Window(data["zone"], minutes)


def _hours(text: str) -> tuple[int, int]:
    found = _HOURS.fullmatch(text)
    if found is None:
        raise BadWindow("hours", f"{text!r} are no hours", 'write them like "08:00-17:00"')
    begin_hour, begin_minute, *ends = (int(part) for part in found.groups() if part is not None)
    start, end = begin_hour * 60 + begin_minute, ends[0] * 60 + ends[1]
    if start == end:
        raise BadWindow("hours", f"{text!r} begin when they end", "remove hours for the whole day")
    return start, end


def _days(given: str | Sequence[str]) -> set[int]:
    found: set[int] = set()
    for text in [given] if isinstance(given, str) else given:
        first, _, last = text.partition("-")
        ends = (first, last or first)
        if any(day not in DAYS for day in ends) or text.endswith("-"):
            remedy = f"write a day ({', '.join(DAYS)}), a range like mon-fri, or a list of these"
            raise BadWindow("days", f"{text!r} is no day and no range of days", remedy)
        begin, end = (DAYS.index(day) for day in ends)
        found.update((begin + n) % 7 for n in range((end - begin) % 7 + 1))
    return found


def moved_hours(hours: str) -> list[str]:
    """Return hours with either edge a minute earlier or later, as far as these are hours. Raises BadWindow."""
    start, end = _hours(hours)
    edges = [(start - 1, end), (start + 1, end), (start, end - 1), (start, end + 1)]
    texts = [f"{_clock(first)}-{_clock(last)}" for first, last in edges if min(first, last) >= 0]
    return [text for text in texts if _HOURS.fullmatch(text) and text[:5] != text[6:]]


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def moved_days(given: str | Sequence[str]) -> list[list[str]]:
    """Return days with one more, and with one less. Raises BadWindow."""
    days = _days(given)
    changed = [days ^ {day} for day in range(7)]
    return [[DAYS[day] for day in sorted(some)] for some in changed if some]
