"""When a tool may be called: `tools: {NAME: {between: {days: mon-fri, hours: "08:00-17:00", zone: Europe/Berlin}}}`.

`between` is one window or a list of them, of which one has to contain the time (`windows_of_the_week` reads them). What
is compared is what a wall clock in the zone shows, so that an hour which is skipped there never comes, and one which is
repeated comes twice.

The gate reads no clock and no zone database: the local time of a decision is in `Counters`, where the loop puts what
was read once and recorded. A zone whose local time is not there is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....fail.catalog import Rule
from ...core.effects import Decision, DecisionKind
from ...core.local_time import WEEK, minute_of_week
from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ..policy import Policy
from ..requests import GateRequest
from .windows_of_the_week import BETWEEN, DAYS, Window, read_window, written


def windows_of(policy: Policy, name: str) -> tuple[Window, ...]:
    """Return the windows of a tool, none for one that may be called at any time. Raises BadWindow."""
    return tuple(map(read_window, written(policy.tool_rules.get(name, {}).get(BETWEEN, ()))))


def zones_of(policy: Policy, name: str) -> tuple[str, ...]:
    """Return the zones whose local times decide about a tool, sorted."""
    given = policy.tool_rules.get(name, {}).get(BETWEEN, ())
    return tuple(sorted({window["zone"] for window in written(given)}))


def shown_times(policy: Policy, name: str, times: Mapping[str, str]) -> str:
    """Return the local times that decide about a tool in words, empty for a tool that may be called at any time."""
    return ", ".join(shown_time(zone, times.get(zone)) for zone in zones_of(policy, name))


def shown_time(zone: str, time: str | None) -> str:
    """Return a local time in words: `mon 2026-11-23 10:00 in Europe/Berlin`."""
    if time is None:
        return f"an unknown time in {zone}"
    return f"{DAYS[minute_of_week(time) * 7 // WEEK]} {time.replace('T', ' ')} in {zone}"


def contains(windows: Iterable[Window], times: Mapping[str, str]) -> bool:
    """Return whether a window contains the local time of its zone; one whose time is not known contains nothing."""
    return any(window.zone in times and window.contains(times[window.zone]) for window in windows)


class TimeWindows:
    """The windows of a policy, each read when its tool is first called."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._windows: dict[str, tuple[Window, ...]] = {}

    def decide(self, request: GateRequest) -> Decision | None:
        """Return the denial of a call at a time that no window of its tool contains, else None."""
        assert request.tool is not None
        name = request.tool.name
        if name not in self._windows:
            self._windows[name] = windows_of(self.policy, name)
        windows, times = self._windows[name], request.counters.local_times
        if not windows or contains(windows, times):
            return None
        known = {zone: times[zone] for zone in zones_of(self.policy, name) if zone in times}
        return Decision(
            DecisionKind.DENY,
            Rule.TIME_WINDOW,
            f"tool {quote_untrusted(name)} may not be called now: it is {shown_times(self.policy, name, times)}",
            self.policy.rule(f"/tools/{escape_pointer(name)}/{BETWEEN}"),
            {"local_times": known},
        )
