"""Where time enters. Stamps are whole nanoseconds since the run's start and strictly increase.

While a group of calls is performed, each call has a time of its own that begins where the group begins; its stamps
increase, and those of two calls may overlap. After the group time goes on from the latest of them.

The virtual clock's time depends on what is done, never on how long the machine took: a recorded stub run
has the same stamps everywhere. The system clock reads wall time once and is monotonic from there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from .branches import BRANCH, Branch

if TYPE_CHECKING:
    from .effects import ReadClock

MS: Final = 1_000_000
DEFAULT_COSTS_MS: Final = {"model": 200, "attempt": 20, "decision": 1, "person": 1000}
DEFAULT_START: Final = "2026-01-01T00:00:00Z"
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z\Z", re.ASCII)


class Clock(Protocol):
    """A run's clock. `kind` is `virtual` or `system`, `start` an ISO 8601 time in UTC."""

    kind: str
    start: str

    def stamp(self) -> int:
        """Return the time now in nanoseconds since the start, later than every stamp before."""

    def spend(self, what: str, extra_ms: int = 0) -> None:
        """Let the time of an effect of kind `what` (model, attempt, decision, person) pass."""

    def sleep(self, ms: int) -> None:
        """Let time pass."""

    def join(self, branches: Iterable[Branch]) -> None:
        """Go on after the latest stamp of calls that were performed as a group."""

    def local_times(self, asked: ReadClock, now: int) -> dict[str, str]:
        """Return the local times in the zones that are asked for, `now` after the start."""


class VirtualClock:
    """Time by table: 200 ms for the model, 20 ms an attempt, 1 ms a decision, 1 s a person."""

    kind = "virtual"

    def __init__(self, start: str = DEFAULT_START, costs_ms: Mapping[str, int] | None = None) -> None:
        epoch_ns(start)
        self.start = start
        self._costs = {**DEFAULT_COSTS_MS, **(costs_ms or {})}
        self._now = 0
        self._last = -1
        self._branches: dict[Branch, VirtualClock] = {}

    def continue_after(self, last: int) -> None:
        """Continue after `last`, the stamp of an effect that is over."""
        here = self._here()
        here._now = here._last = last

    def reaches(self, end: int) -> bool:
        """Return whether the time is `end` or later."""
        return self._here()._now >= end

    def stop_at(self, end: int) -> bool:
        """Return whether the time is later than `end`, to which it is set back then."""
        here = self._here()
        is_later, here._now = here._now > end, min(here._now, end)
        return is_later

    def stamp(self) -> int:
        """Return the time now, later than every stamp before."""
        here = self._here()
        here._last = here._now = max(here._now, here._last + 1)
        return here._now

    def spend(self, what: str, extra_ms: int = 0) -> None:
        """Let the time of an effect pass."""
        self._here()._now += (self._costs[what] + extra_ms) * MS

    def sleep(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        self._here()._now += ms * MS

    def join(self, branches: Iterable[Branch]) -> None:
        """Go on after the latest stamp of calls that were performed as a group."""
        ended = [self._branches.pop(branch) for branch in branches if branch in self._branches]
        self._now = max((self._now, *(clock._now for clock in ended)))
        self._last = max((self._last, *(clock._last for clock in ended)))

    def local_times(self, asked: ReadClock, now: int) -> dict[str, str]:
        """Return the local times in the zones that are asked for, `now` after the start."""
        return _local_times(self.start, asked, now)

    def _here(self) -> VirtualClock:
        """Return the clock of the call that is performed here as one of a group, else this one."""
        branch = BRANCH.get()
        if branch is None:
            return self
        if branch not in self._branches:  # nothing moves this clock while a group is performed
            self._branches[branch] = clock = VirtualClock(self.start, self._costs)
            clock._now, clock._last = self._now, self._last
        return self._branches[branch]


class SystemClock:
    """Real time: the wall clock once, then the monotonic clock."""

    kind = "system"

    def __init__(self, start: str | None = None, last: int = -1) -> None:
        """Begins now; with `start` and `last` it continues a run that began then, after its last stamp."""
        now = time.time_ns()
        self.start = iso_of(now) if start is None else start
        passed = 0 if start is None else max(now - epoch_ns(start), last + 1)
        self._zero = time.monotonic_ns() - passed
        self._last: dict[Branch | None, int] = {None: last}

    def stamp(self) -> int:
        """Return the time now, later than every stamp before."""
        branch = BRANCH.get()
        last = self._last.get(branch, self._last[None])
        self._last[branch] = now = max(time.monotonic_ns() - self._zero, last + 1)
        return now

    def continue_after(self, last: int) -> None:
        """Continue after `last`, the stamp of an effect that is over."""
        self._last[BRANCH.get()] = last

    def join(self, branches: Iterable[Branch]) -> None:
        """Go on after the latest stamp of calls that were performed as a group."""
        ended = [self._last.pop(branch) for branch in branches if branch in self._last]
        self._last[None] = max((self._last[None], *ended))

    def local_times(self, asked: ReadClock, now: int) -> dict[str, str]:
        """Return the local times in the zones that are asked for, `now` after the start."""
        return _local_times(self.start, asked, now)

    def spend(self, what: str, extra_ms: int = 0) -> None:
        """Let the time of an effect pass."""
        if extra_ms:
            self.sleep(extra_ms)

    def sleep(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        time.sleep(ms / 1000)


def _local_times(start: str, asked: ReadClock, now: int) -> dict[str, str]:
    if not asked.zones:
        return {}
    from .local_time import local_times  # the zone database is for few runs

    return local_times(epoch_ns(start) + now, asked.zones)


def epoch_ns(iso: str) -> int:
    """Nanoseconds since 1970 of `YYYY-MM-DDThh:mm:ss[.fffffffff]Z`. Raises ValueError."""
    if not _ISO.match(iso):
        raise ValueError("not an ISO 8601 time in UTC")
    whole, _, fraction = iso[:-1].partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def iso_of(ns: int) -> str:
    """Return the ISO 8601 text of a time in nanoseconds since 1970, always with nine digits of fraction."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // 1_000_000_000)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 1_000_000_000:09d}Z"


def wall_now() -> str:
    """Wall time in whole seconds, for the volatile part of a manifest."""
    return iso_of(time.time_ns())[:19] + "Z"


def time_ns() -> int:
    """Nanoseconds since 1970 on the system clock, for how long a question to a person stands."""
    return time.time_ns()


def stopwatch() -> float:
    """Seconds of a monotonic clock, for the volatile part of a manifest and for how long a person is waited on."""
    return time.monotonic()


def nap(seconds: float) -> None:
    """Let real time pass, whatever the run's clock is."""
    time.sleep(seconds)


def time_left(timeout_s: float | None, otherwise: float) -> Callable[[], float]:
    """Return what tells how many seconds of a time-out are left from now on; without one, always `otherwise`."""
    if timeout_s is None:
        return lambda: otherwise
    until = time.monotonic() + timeout_s
    return lambda: max(until - time.monotonic(), 0.0)
