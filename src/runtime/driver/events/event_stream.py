"""The events of a run as an iterator, in an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from ...events import AgentEvent, EventListener
from ..foreign_calls import ended


async def stream_of(
    run: Callable[[EventListener], Coroutine[Any, Any, object]],
) -> AsyncGenerator[AgentEvent, None]:
    """Begin a run and yield its events, each when it happens; raises what the run raises.

    An iterator that is closed before the end cancels the run, and returns once it has ended.

    Args:
        run: Returns the run, with a listener that hears of it; that may be called from any thread.
    """
    import asyncio  # slow to import, and a sync run needs none

    loop = asyncio.get_running_loop()
    events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()

    def hear(event: AgentEvent) -> None:
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            events.put_nowait(event)
        else:
            loop.call_soon_threadsafe(events.put_nowait, event)

    task = asyncio.ensure_future(run(EventListener(hear)))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
    finally:
        task.cancel()  # which does nothing to a run that has ended
        await ended(task)
    task.result()  # raises what the run raised
