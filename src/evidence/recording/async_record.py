"""Record a run without blocking an event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import Any

from ...runtime.agent import Agent
from ...runtime.driver.events.event_stream import stream_of
from ...runtime.driver.events.listeners import listener_list
from ...runtime.events import AgentEvent
from ...runtime.setup.run_config import RunResult
from .record import recorded
from .sync_async import InLoop


async def arecord(
    agent: Agent | str, question: str, out: str | os.PathLike[str] | None = None, **given: Any
) -> RunResult:
    """Record a run in the caller's event loop, which is not blocked; takes what `record` takes.

    Models, tools and `approve` are called as in `Agent.arun`; the disk is waited for in threads. A task that is
    cancelled ends the run as `cancelled` with a complete record, and is cancelled then.

    Args:
        agent: As for `record`.
        question: As for `record`.
        out: As for `record`.
        **given: As for `record`.
    """
    way = InLoop()
    try:
        result = await recorded(way, agent, question, out, **given)
    except Exception as error:
        if way.cancelled is not None:
            raise way.cancelled from error
        raise
    if way.cancelled is not None:
        raise way.cancelled
    return result


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
