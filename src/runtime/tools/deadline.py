"""End a tool in this process when its time is up, as far as that is possible."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
import types
from typing import Any, Final

from ...fail.errors import Cancelled

_AGAIN_S: Final = 0.1  # before a time-out that the tool swallowed comes again
# no alarm is raised in frames of the tool's `io`, so that no decision or write is interrupted
_TOOL_IO: Final = tuple(
    __name__.replace(".tools.deadline", f".workspace.{name}") for name in ("attempt_io", "web_io", "tool_io")
)


class deadline:
    """Limit the time of a `with` block around a tool in this process; None sets no limit. Raises TimeoutError.

    In the main thread SIGALRM raises in what the block calls, what `except Exception` lets pass, and again
    while that goes on; never inside `io`, so that no decision or write is interrupted. In another thread,
    and while the tool sits in C code, lateness is noticed when the block ends. Whatever a late tool
    returns or raises counts as a time-out, except KeyboardInterrupt, Cancelled and what `passing` adds. An
    alarm set before is put off until the end of the block.
    """

    def __init__(self, timeout_s: float | None, *passing: type[BaseException]) -> None:
        self._limit_s = math.inf if timeout_s is None else timeout_s
        self._passing: Any = (KeyboardInterrupt, Cancelled, *passing)
        self._owner: types.FrameType | None = None  # while an alarm is set

    def __enter__(self) -> None:
        self._begun = time.monotonic()
        self._handler = signal.getsignal(signal.SIGALRM)
        main = threading.current_thread() is threading.main_thread()
        if self._limit_s < math.inf and main and self._handler is not None:
            self._timer = signal.getitimer(signal.ITIMER_REAL)
            self._owner = sys._getframe(1)
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, self._limit_s, _AGAIN_S)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._disarm()
        if time.monotonic() - self._begun >= self._limit_s and not isinstance(error, self._passing):
            raise TimeoutError("the attempt took longer than it may") from None

    def _on_alarm(self, _signum: int, frame: types.FrameType | None) -> None:
        below, late = False, time.monotonic() - self._begun >= self._limit_s
        while frame is not None and frame is not self._owner:
            if frame.f_globals.get("__name__") in (__name__, *_TOOL_IO):
                return  # it comes again
            frame, below = frame.f_back, True
        if frame is None:  # an exception kept the block from being entered
            self._disarm()
        elif below and late:  # in the block itself it might come where nothing catches it
            raise _TimeIsUp

    def _disarm(self) -> None:
        if self._owner is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
            self._owner = None
            left, again = self._timer
            if left:
                left -= time.monotonic() - self._begun
                signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6), again)


class _TimeIsUp(BaseException):
    """Raised inside a tool that is late."""
