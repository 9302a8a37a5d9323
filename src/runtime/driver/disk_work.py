"""Wait for the disk: here, or beside an event loop that goes on meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from .foreign_calls import Threads, caught

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

# apart from those of tools and models, which may all be taken for long
_threads: Final = Threads(8, "tachograph-disk")

# waits for work of the disk and returns what it returns
WaitFor = Callable[[Callable[[], Any]], Awaitable[Any]]


async def at_once(work: Callable[[], T]) -> T:
    """Do the work here; this never suspends."""
    return work()


async def aside(work: Callable[[], T]) -> tuple[T, asyncio.CancelledError | None]:
    """Do the work in a thread, to its end, whatever happens to the task that waits for it.

    Returns:
        What the work returns, and what cancelled the task meanwhile; None if nothing did.
    """
    import asyncio

    done = asyncio.wrap_future(_threads.submit(caught, work))
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError as error:
            cancelled = error
    value, failed = done.result()
    if failed is not None:
        raise failed
    return value, cancelled


async def within_a_run(work: Callable[[], T]) -> T:
    """Do the work in a thread. A task that is cancelled meanwhile is told so where it waits next."""
    value, cancelled = await aside(work)
    if cancelled is not None:
        cancel_again()
    return value


def cancel_again() -> None:
    """Cancel the present task where it waits next, since its cancellation came where nothing could be left out."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    task.uncancel()  # it counts once
    task.cancel()


class Entered(Generic[T]):
    """A context manager that waits for the disk, entered and left by `wait_for`."""

    def __init__(self, wait_for: WaitFor, context: AbstractContextManager[T]) -> None:
        self._wait_for = wait_for
        self._context = context

    async def __aenter__(self) -> T:
        entered: T = await self._wait_for(self._context.__enter__)
        return entered

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        if kind is GeneratorExit:  # nobody can be waited for any more
            return self._context.__exit__(kind, error, trace)
        swallows: bool | None = await self._wait_for(lambda: self._context.__exit__(kind, error, trace))
        return swallows
