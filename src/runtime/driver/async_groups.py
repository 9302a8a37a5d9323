"""Perform the calls of a group at the same time, in an event loop.

A group has no more calls than `max_parallel` of its run allows. `Slots` bounds the calls of all runs of the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ...fail.errors import Cancelled
from ..core.effects import Effect, Invoke, Outcome
from .disk_work import cancel_again
from .groups import BranchRun
from .ports import Kept, Stamps

if TYPE_CHECKING:
    import asyncio

PROCESS_CALLS: Final = 64  # of all groups that are performed at the same time in a process

PerformAsync = Callable[[Effect, Stamps], Awaitable[Outcome | Cancelled]]


class Slots:
    """At most so many calls at a time, from any number of event loops and threads; who waited longest goes first."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a slot."""
        import asyncio

        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                was_given = turn not in self._waiting
                if not was_given:
                    self._waiting.remove(turn)
            if was_given:
                self.give()
            raise

    def give(self) -> None:
        """Give a slot to the one that waited longest, or back."""
        with self._lock:
            while self._waiting:
                if _was_given(self._waiting.popleft()):
                    return
            self._free += 1


def _was_given(turn: asyncio.Future[None]) -> bool:
    """Give a turn to who waits for it, from any thread; False where the event loop is no more."""

    def give() -> None:
        if not turn.done():
            turn.set_result(None)

    try:
        turn.get_loop().call_soon_threadsafe(give)
    except RuntimeError:  # it is closed
        return False
    return True


_SLOTS: Final = Slots(PROCESS_CALLS)


async def perform_group_async(
    runs: list[BranchRun], perform: PerformAsync, slots: Slots = _SLOTS, kept: Kept | None = None
) -> asyncio.CancelledError | None:
    """Perform the calls of a group, each in a task of its own.

    Where one of them raises, what is under way is brought to its end, so that its outcome is known, and nothing
    further is begun. A caller that is cancelled stops all of them.

    Returns:
        What cancelled the caller, None if nothing did.

    Raises:
        Exception: The first in the order of the calls that performing one of them raised.
    """
    import asyncio

    is_over = False

    async def work(run: BranchRun) -> None:
        nonlocal is_over
        with run.here():
            try:
                while run.effect is not None and not is_over:
                    await _perform_one(run, perform, slots, kept)
            except BaseException:
                is_over = True
                raise

    tasks = [asyncio.create_task(work(run)) for run in runs]
    waiting = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while waiting:
        try:
            _, waiting = await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
            for task in waiting:
                task.cancel()
        except BaseException:  # the caller was closed, and nobody is left to wait for the calls
            is_over = True
            for task in waiting:
                task.cancel()
            raise
    errors = [None if task.cancelled() else task.exception() for task in tasks]  # looks at each of them
    for run, task, failed in zip(runs, tasks, errors, strict=True):
        if failed is not None:
            raise failed
        if task.cancelled() and run.effect is not None:  # it was cancelled before it began
            with run.here():
                run.begin()
                run.end(Cancelled("by its task"))
    return cancelled


async def _perform_one(run: BranchRun, perform: PerformAsync, slots: Slots, kept: Kept | None) -> None:
    """Perform the next effect of a call; a wait between two attempts takes no slot."""
    import asyncio

    assert run.effect is not None
    takes_slot = isinstance(run.effect, Invoke)
    has_slot = has_begun = False
    try:
        if takes_slot:
            await slots.take()
            has_slot = True
        stopped = run.begin()
        has_begun = True
        outcome = stopped or await perform(run.effect, run.stamps)
    except asyncio.CancelledError:
        if not has_begun:
            run.begin()
        outcome = Cancelled("by its task")
    finally:
        if has_slot:
            slots.give()
    run.keep(outcome)
    if kept is not None and await kept() is not None:
        cancel_again()
    run.go_on(outcome)
