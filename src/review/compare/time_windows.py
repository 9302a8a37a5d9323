"""Times at which one policy lets a tool be called and another does not, and such as both do.

Within one zone the week is finite and every minute is judged. Windows in several zones are judged at times when one of
them begins or ends, in every week of a year, by the zone database; what is not found there is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from ...runtime.core.local_time import WEEK, instant_of, local_times, time_in_week
from ...runtime.policy.per_tool.time_windows import contains, windows_of
from ...runtime.policy.per_tool.windows_of_the_week import Window
from ...runtime.policy.policy import Policy

_WEEKS: Final = 53  # a whole year, so that clocks are met as they are put forward and back
ALWAYS: Final[dict[str, str]] = {}  # a time that decides nothing

Windows = tuple[Window, ...]


def moment_of(policies: Iterable[Policy], name: str) -> dict[str, str] | None:
    """Return local times at which all policies let a tool be called, None if none are found."""
    within = tuple(windows for policy in policies if (windows := windows_of(policy, name)))
    return _found(within, ()) if within else ALWAYS


def moment_between(looser: Policy, stricter: Policy, name: str) -> tuple[dict[str, str] | None, bool]:
    """Return local times at which only the looser policy lets a tool be called.

    The second says whether, where none are found, there surely are none.
    """
    wide, narrow = windows_of(looser, name), windows_of(stricter, name)
    if not narrow:
        return None, True
    found = _found((wide,) if wide else (), narrow)
    return found, (bool(wide) and _covered(wide, narrow)) or _is_whole(narrow) or _zones(wide, narrow) < 2


@lru_cache(maxsize=1000)
def _found(within: tuple[Windows, ...], outside: Windows) -> dict[str, str] | None:
    """Return local times that one window of each of `within` contains, and none of `outside`."""
    zones = sorted({window.zone for windows in (*within, outside) for window in windows})
    if len(zones) == 1:
        minutes = ~_minutes(outside) & ((1 << WEEK) - 1)
        for windows in within:
            minutes &= _minutes(windows)
        if not minutes:
            return None
        first = (minutes & -minutes).bit_length() - 1
        return {zones[0]: time_in_week(first)}
    return next(
        (
            times
            for times in _times(within, outside, zones)
            if all(contains(windows, times) for windows in within) and not contains(outside, times)
        ),
        None,
    )


def _times(within: Sequence[Windows], outside: Windows, zones: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the local times at which a window begins, or is over, in every week of a year."""
    edges = [
        (window.zone, minute)
        for windows in (*within, outside)
        for window in windows
        for minute in _edges(window.minutes)
    ]
    for week in range(_WEEKS):
        for zone, minute in edges:
            yield local_times(instant_of(time_in_week(minute, week), zone), zones)


def _edges(minutes: int) -> list[int]:
    """Return the minutes of the week that are in a set while those before are not, or the other way round."""
    before = (minutes << 1 | minutes >> (WEEK - 1)) & ((1 << WEEK) - 1)
    changed = minutes ^ before
    found = [0]
    while changed:
        lowest = changed & -changed
        found.append(lowest.bit_length() - 1)
        changed ^= lowest
    return found


def _minutes(windows: Iterable[Window]) -> int:
    """Return the minutes of the week that some windows of one zone contain."""
    found = 0
    for window in windows:
        found |= window.minutes
    return found


def _by_zone(windows: Windows) -> Mapping[str, int]:
    return {
        window.zone: _minutes(other for other in windows if other.zone == window.zone) for window in windows
    }


def _covered(wide: Windows, narrow: Windows) -> bool:
    """Return whether, zone by zone, every time in `wide` is in `narrow` too."""
    covering = _by_zone(narrow)
    return all(not minutes & ~covering.get(zone, 0) for zone, minutes in _by_zone(wide).items())


def _is_whole(windows: Windows) -> bool:
    """Return whether windows of one zone contain the whole week."""
    return any(minutes == (1 << WEEK) - 1 for minutes in _by_zone(windows).values())


def _zones(*windows: Windows) -> int:
    return len({window.zone for some in windows for window in some})
