"""Record a run without blocking an event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import Any

from ...runtime.agent import Agent
from ...runtime.driver.event_stream import stream_of
from ...runtime.driver.foreign_calls import ended
from ...runtime.driver.listeners import listener_list
from ...runtime.driver.scopes import Scope
from ...runtime.events import AgentEvent
from ...runtime.run_config import RunResult
from .record import record


async def arecord(
    agent: Agent | str, question: str, out: str | os.PathLike[str] | None = None, **given: Any
) -> RunResult:
    """Record a run in a thread of its own, so that locks and the disk block no event loop; takes what `record` takes.

    Coroutine functions are run to their end in event loops of their own. A task that is cancelled ends the run as
    `cancelled` with a complete record, and is cancelled then; the record is waited for.

    Args:
        agent: As for `record`.
        question: As for `record`.
        out: As for `record`.
        **given: As for `record`.
    """
    import asyncio

    with Scope(given.pop("cancel", None)) as scope:
        run = asyncio.ensure_future(asyncio.to_thread(record, agent, question, out, cancel=scope, **given))
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            scope.cancel()
            await ended(run)
            raise


def record_stream(
    agent: Agent | str, question: str, out: str | os.PathLike[str] | None = None, **given: Any
) -> AsyncGenerator[AgentEvent, None]:
    """Record a run and yield what happens, when it happens; takes what `record` takes.

    The events are those of `Agent.stream`. When they have ended, the record is complete. An iterator that is closed
    before that cancels the run, and returns once the record of the cancelled run is complete.

    Args:
        agent: As for `record`.
        question: As for `record`.
        out: As for `record`.
        **given: As for `record`.
    """
    listeners = listener_list(given.pop("listeners", ()))
    return stream_of(
        lambda listener: arecord(agent, question, out, listeners=[*listeners, listener], **given)
    )
