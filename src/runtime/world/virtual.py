"""A scripted world, whose time passes only by what is done in it: no event loop, no thread, no clock.

What begins is performed at once and told when its time has come: the earliest end first, then the earliest beginning.
"""

from __future__ import annotations

import inspect
from bisect import insort
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from ..branches import Pending
from ..clock import in_time
from ..effects import AskHook, AskModel, AskPerson, Invoke, Wait
from ..io.workspace import Workspace
from ..log.events import Answered, Closed, Entered, Outcome, StopAsked, Stopped
from ..models.types import LLMOutput
from .perform import NO_FAULT, Fault, Performer

T = TypeVar("T")
# in nanoseconds
_TAKES: Final = {AskModel: 200_000_000, Invoke: 20_000_000, AskHook: 1_000_000}
PERSON_TAKES: Final = 1_000_000_000


class Virtual(Performer):
    """The virtual clock: 200 ms for the model, 20 ms for an attempt, and a wait lasts as long as it says.

    Args:
        workspace: What tools may touch.
        fault: As of Performer.
        answers: A person's answer to the question at an address, None for silence.
        arrivals: What comes from outside and when, in nanoseconds since the beginning of the run, in that order.
        turns: What comes each time that the run waits for somebody; then nobody says anything more.
    """

    def __init__(
        self,
        workspace: Workspace,
        fault: Callable[[str], Fault | None] = lambda at: None,
        arrivals: Sequence[tuple[int, Entered]] = (),
        answers: Callable[[str], Answered | None] = lambda at: None,
        turns: Sequence[Entered] = (),
    ) -> None:
        super().__init__(workspace, fault)
        self._answers = answers
        # by address, of each effect under way: when it ends, its number, and what comes of it
        self._ends: dict[str, tuple[int, int, Outcome | Entered]] = {}
        self._arrivals = list(arrivals)
        self._turns = deque(turns)
        self._last = 0  # when something happened last

    def go_live(self, now: int, entered: Sequence[tuple[int, Entered]], deadline: int | None) -> None:
        """Take over from the log; time goes on where it ended, and what entered before does not come again."""
        self._last = now
        for time, event in entered:
            # by time and kind: what came is redacted, and a scope is that of its step
            scheduled = (it for it in self._arrivals if it[0] == time and type(it[1]) is type(event))
            if (found := next(scheduled, None)) is not None:
                self._arrivals.remove(found)
            elif self._turns and type(event) is type(self._turns[0]):
                self._turns.popleft()
        if deadline is not None:
            self._arrive(deadline, "deadline")

    def _arrive(self, time: int, why: str) -> None:
        """Let a stop of the whole run enter at a time."""
        insort(self._arrivals, (time, StopAsked(at="", scope="", why=why)), key=lambda item: item[0])

    def clock(self, now: int) -> int:
        """Return the time: nothing passes by itself."""
        return now

    async def call(
        self, at: str, function: Callable[..., Any], *arguments: Any, timeout_s: float | None = None
    ) -> Any:
        """Call foreign code in this very thread; what it returns to be awaited gets an event loop of its own."""
        result = function(*arguments) if timeout_s is None else in_time(function, arguments, timeout_s)
        if type(result) in (dict, LLMOutput) or not inspect.isawaitable(result):  # most are no question
            return result
        import asyncio  # slow to import, and few scripted runs come here

        async def awaited() -> Any:
            return await result

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(awaited())
        return await result

    def answer(self, pending: Pending) -> Answered:
        """Return the answer of a person to the question at an address; silence where the script holds none."""
        return self._answers(pending.at) or Answered(at=pending.at, answer="silence")

    async def start(self, pending: Pending) -> None:
        """Perform an effect; its outcome is told when its time has come."""
        effect = pending.effect
        if type(effect) is AskPerson:
            answer = self.answer(pending)
            takes = PERSON_TAKES if answer.answer != "silence" else effect.timeout_s * 1_000_000_000
            self._ends[pending.at] = pending.begun + takes, pending.number, answer
            return
        takes = effect.ns if type(effect) is Wait else _TAKES[type(effect)]
        fault = self.fault(pending.at) or NO_FAULT
        end = pending.begun + takes + fault.delay_ns
        self._ends[pending.at] = end, pending.number, await self.perform(pending)
        if fault.cancels:
            self._arrive(end, "cancelled")

    def finish(self, pending: Pending, now: int, outcome: Outcome) -> None:
        """Tell an outcome at a time."""
        self._ends[pending.at] = now, pending.number, outcome

    def cancel(self, pending: Pending, now: int, why: str) -> None:
        """End an effect under way."""
        self.finish(pending, now, Stopped(at=pending.at, why=why))

    async def next(self) -> tuple[int, Outcome | Entered]:
        """Return what is over or arrives first, and when."""
        first = min(self._ends.values()) if self._ends else None  # no two have one number
        if first is None and self._turns:  # the run waits for somebody
            first = self._last + PERSON_TAKES, 0, self._turns[0]
        if self._arrivals and (first is None or self._arrivals[0][0] <= first[0]):
            self._last = self._arrivals[0][0]
            return self._arrivals.pop(0)
        if first is None:
            return self._last + PERSON_TAKES, Closed(at="")
        self._last, _, outcome = first
        if self._turns and outcome is self._turns[0]:
            return self._last, self._turns.popleft()
        del self._ends[outcome.at]
        return self._last, outcome

    async def store(self, do: Callable[[], None]) -> None:
        """Do what puts something on the disk, at once."""
        do()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that waits for nothing real to its end, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("a scripted run waits for something real")
