"""Which call of a group is being performed here.

The calls of a group may be performed at the same time, each in a thread or task of its own. What counts in order
(stamps, numbers of placeholders) is kept for each of them apart while the group is open, and put together in the
order of the calls when it is over. The driver sets `BRANCH` around whatever it performs for a call; a thread that
performs a part of it has to run in a copy of the context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

# of one reply: each call is decided, and may cost a person's time, before any limit of the run is reached
MAX_CALLS: Final = 64

# the step, and the call's place in the reply
Branch = tuple[int, int]

BRANCH: Final[ContextVar[Branch | None]] = ContextVar("BRANCH", default=None)
