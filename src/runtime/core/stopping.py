"""What ends a call that the run waits for, as the code that is called sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol

from ...fail.errors import Cancelled


class Stopping(Protocol):
    """A part of a program that may be stopped, from any thread; a `Scope` is one."""

    def stopped(self) -> Cancelled | None:
        """Return what ends whatever is under way, None while it may go on."""

    def wait_s(self) -> float | None:
        """Return after how many seconds `stopped` has to be asked again, None where `on_cancel` tells it all."""

    def on_cancel(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Have `hear` called once when this is cancelled; returns what takes that back."""


# what stops the call that is made here; None where nothing does, or where the caller does not wait for its end
STOPPING: Final[ContextVar[Stopping | None]] = ContextVar("STOPPING", default=None)


def _never() -> bool:
    return False


# whether nobody waits any more for what is done here, as in a thread that a cancelled run has left
IS_OVER: Final[ContextVar[Callable[[], bool]]] = ContextVar("IS_OVER", default=_never)
