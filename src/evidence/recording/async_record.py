"""Record a run without blocking an event loop."""

from __future__ import annotations

import os
from typing import Any

from ...runtime.agent import Agent
from ...runtime.driver.foreign_calls import ended
from ...runtime.driver.scopes import Scope
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
