"""Local times: what a wall clock shows in a zone, found in the zone database of the package `tzdata`.

A run asks for them once for each decision that needs them and records them; whatever reads the record decides from
there. The database of the operating system is not asked, so that machines with the same package agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

WEEK: Final = 7 * 24 * 60  # in minutes
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d", re.ASCII)
_MONDAY: Final = datetime(2027, 1, 4)


class NoZones(Exception):
    """The zone database is not there."""


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all zones. Raises NoZones."""
    from importlib.resources import files

    try:
        return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())
    except (ImportError, OSError) as error:
        raise NoZones(type(error).__name__) from error


@lru_cache(maxsize=100)
def _zone(name: str) -> tzinfo:
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    if name not in zone_names():
        raise NoZones(name)
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def local_times(ns: int, zones: Iterable[str]) -> dict[str, str]:
    """Return the local time in each zone as `YYYY-MM-DDThh:mm`, some nanoseconds after 1970 began in UTC.

    A zone has none where its calendar ends. Raises NoZones.
    """
    found = {}
    for name in zones:
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // 1_000_000_000)
            found[name] = moment.astimezone(_zone(name)).strftime("%Y-%m-%dT%H:%M")
        except OverflowError:
            continue
    return found


def instant_of(local: str, zone: str) -> int:
    """Return the first time at which a zone shows `YYYY-MM-DDThh:mm`, in nanoseconds since 1970 began in UTC.

    For a time that is skipped there it is that of the time before, as if nothing were skipped. Raises NoZones.
    """
    moment = datetime.fromisoformat(local).replace(tzinfo=_zone(zone))
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * 1_000_000_000


def minute_of_week(local: str) -> int:
    """Return how many minutes of its week, from Monday on, have passed at a local time. Raises ValueError."""
    if not _TIME.fullmatch(local):
        raise ValueError("not a local time")
    moment = datetime.fromisoformat(local)
    return (moment.weekday() * 24 + moment.hour) * 60 + moment.minute


def time_in_week(minute: int, week: int = 0) -> str:
    """Return a minute of a week as the local time of some date; `week` counts weeks from one in January."""
    return f"{_MONDAY + timedelta(weeks=week, minutes=minute):%Y-%m-%dT%H:%M}"


def times_given(given: str, zones: Iterable[str]) -> dict[str, str]:
    """Return the local times in some zones at a time that a person gives, as ISO 8601.

    Without an offset it is what the wall clock shows in each of the zones, with one it is a moment. Raises ValueError.
    """
    moment = datetime.fromisoformat(given)
    if "T" not in given:
        raise ValueError("no time of the day")
    if moment.tzinfo is None:
        return dict.fromkeys(zones, f"{moment:%Y-%m-%dT%H:%M}")
    passed = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return local_times(passed * 1_000_000_000, zones)
