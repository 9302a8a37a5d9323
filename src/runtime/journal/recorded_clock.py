"""The stamps of a record, given again: in their order, and for the calls of a group call by call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...fail.errors import ReplayError
from ..core.branches import BRANCH, Branch
from ..core.clock import SystemClock, VirtualClock
from ..core.effects import ReadClock
from ..core.lines import Line


class RecordedClock:
    """The stamps of a record, given again in their order; past their end `then` goes on.

    Without `then` what follows is one nanosecond after another.
    """

    def __init__(
        self,
        kind: str,
        start: str,
        stamps: Iterable[int],
        then: VirtualClock | SystemClock | None = None,
        branches: Mapping[Branch, Iterable[int]] | None = None,
        local_times: Mapping[tuple[int, str], Mapping[str, str]] | None = None,
    ) -> None:
        """Give `stamps` again, and within the calls of a group those that `branches` has for the call.

        `local_times` are those that decisions rest on, by step and position.
        """
        self.kind = kind
        self.start = start
        self._main = _Queue(stamps, -1)
        self._branches = {branch: _Queue(queue, -1) for branch, queue in (branches or {}).items()}
        self._then = then
        self._local_times = dict(local_times or {})

    @property
    def continues(self) -> bool:
        """Whether there is a clock behind the recorded stamps."""
        return self._then is not None

    @classmethod
    def of(cls, lines: Sequence[Line]) -> RecordedClock:
        """Return the clock that gives the stamps of a whole ledger again."""
        run, end = lines[0], lines[-1]
        stamps: list[int] = [end["stamp"]]
        branches: dict[Branch, list[int]] = {}
        local_times: dict[tuple[int, str], Mapping[str, str]] = {}
        for line in lines[1:-1]:
            for position, times in line.get("local_times", {}).items():
                local_times[line["step_index"], position] = times
            grouped = grouped_calls(line)
            for position, pair in line["stamps"].items():
                index = call_index(position)
                if index is not None and index in grouped:
                    branches.setdefault((line["step_index"], index), []).extend(pair)
                else:
                    stamps += pair
        return cls(
            run["clock"]["kind"], run["clock"]["start"], stamps, branches=branches, local_times=local_times
        )

    def reaches(self, end: int) -> bool:
        """Return whether a virtual clock that goes on after the recorded stamps is at `end` or later."""
        behind = self._then
        return not self._here().stamps and isinstance(behind, VirtualClock) and behind.reaches(end)

    def stop_at(self, end: int) -> bool:
        """Return whether that clock is later than `end`, to which it is set back then."""
        behind = self._then
        return not self._here().stamps and isinstance(behind, VirtualClock) and behind.stop_at(end)

    def stamp(self) -> int:
        """Return the next recorded stamp, then those of the next clock."""
        queue = self._here()
        if queue.stamps:
            queue.last = queue.stamps.pop()
            if not queue.stamps and queue is not self._main and self._then is not None:
                self._then.continue_after(queue.last)
        else:
            queue.last = queue.last + 1 if self._then is None else self._then.stamp()
        return queue.last

    def spend(self, what: str, extra_ms: int = 0) -> None:
        """Time passed when the record was made."""
        if not self._here().stamps and self._then is not None:
            self._then.spend(what, extra_ms)

    def sleep(self, ms: int) -> None:
        """Time passed when the record was made."""
        if not self._here().stamps and self._then is not None:
            self._then.sleep(ms)

    def join(self, branches: Iterable[Branch]) -> None:
        """Go on after the latest stamp of calls that were performed as a group."""
        keys = list(branches)
        self._main.last = max((self._main.last, *(self._branches[key].last for key in keys)))
        if self._then is not None:
            self._then.join(keys)

    def local_times(self, asked: ReadClock, now: int) -> dict[str, str]:
        """Return the recorded local times. Raises ReplayError where a zone's is not in the record."""
        recorded = self._local_times.get((asked.step, asked.position))
        if recorded is None and self._then is not None:
            return self._then.local_times(asked, now)
        missing = next((zone for zone in asked.zones if zone not in (recorded or {})), None)
        if recorded is None or missing is not None:
            where = f"the local time in {missing} when call {asked.index} was decided is not in the record"
            raise ReplayError(asked.step, where, asked.position)
        return {zone: recorded[zone] for zone in asked.zones}

    def _here(self) -> _Queue:
        """Return the stamps of the call that is performed here as one of a group, else those of the run."""
        branch = BRANCH.get()
        if branch is None:
            return self._main
        if branch not in self._branches:
            self._branches[branch] = _Queue((), self._main.last)
        return self._branches[branch]


class _Queue:
    """Stamps that are yet to be given, the next one last, and the one that was given last."""

    __slots__ = ("last", "stamps")

    def __init__(self, stamps: Iterable[int], last: int) -> None:
        self.stamps = sorted(stamps, reverse=True)
        self.last = last


def grouped_calls(step: Line) -> list[int]:
    """Return the places of the calls of a step line that were performed as members of a group."""
    if "groups" not in step:
        return []
    grouped = {call for group in step["groups"] for call in group}
    return [number for number, call in enumerate(step["intended_tool_calls"]) if call["id"] in grouped]


def call_index(position: str) -> int | None:
    """Return the place of the call that an attempt or the wait after it belongs to, None for other positions."""
    number = position[1:].partition(".")[0]
    return int(number) if position[0] in "iw" and number.isdecimal() else None
