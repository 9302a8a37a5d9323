"""Cancellation as a tree: a process, its sessions, their runs, a run's calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ....fail.errors import CallCancelled, Cancelled, DeadlineExceeded
from ...core.clock import stopwatch

POLL_S: Final = 0.05  # between looks at an Event, which tells nobody that it was set


class Scope:
    """A part of a program that is cancelled as a whole, with everything below it.

    May be used from any thread. A scope below a cancelled one is cancelled from its beginning. It is closed when what
    it stands for is over, so that the scope above does not keep it; as a context manager it closes itself.

    Args:
        above: What cancels it too: the scope that it is a part of, or an Event, which is looked at again and again.

    Example:
        >>> from tachograph import Scope
        >>> session = Scope()
        >>> run = session.child()
        >>> session.cancel()
        >>> run.is_set()
        True
    """

    def __init__(self, above: Scope | threading.Event | None = None) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._until: float | None = None
        self._heard: dict[object, Callable[[], None]] = {}
        self._below: dict[Scope, None] = {}
        self._event: threading.Event | None = None
        self._above: Scope | None = None
        if isinstance(above, Scope):
            self._event, self._until = above._event, above._until
            self._above = above
            if above._join(self):
                self._cancelled = True
        else:
            self._event = above

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def child(self) -> Scope:
        """Return a new scope below this one."""
        return Scope(self)

    def cancel(self) -> None:
        """Cancel this scope and all below it. What is under way is ended where it can be."""
        to_cancel = [self]  # no recursion: scopes may be nested deeper than Python calls
        while to_cancel:
            scope = to_cancel.pop()
            with scope._lock:
                scope._cancelled = True
                heard, scope._heard = list(scope._heard.values()), {}
                below, scope._below = list(scope._below), {}
            for hear in heard:
                hear()
            to_cancel.extend(reversed(below))

    def cancel_call(self, call_id: str) -> bool:
        """Cancel one call of a run, by its id; the model reads that it was cancelled, and the run goes on.

        Returns:
            Whether a run below this scope has begun such a call in its present step. One that is over stays as it is;
            where several runs have one, all are cancelled.
        """
        found = []
        to_look = [self]
        while to_look:
            scope = to_look.pop()
            with scope._lock:
                below = list(scope._below)
            found += [one for one in below if isinstance(one, CallScope) and one.call_id == call_id]
            to_look.extend(below)
        for call in found:
            call.cancel()
        return bool(found)

    def limit(self, seconds: float) -> None:
        """Let the time of this scope, and of those made below it, be over after so many seconds."""
        self._until = stopwatch() + max(seconds, 0.0)

    def wait_s(self) -> float | None:
        """Return after how many seconds `stopped` has to be asked again, None where `on_cancel` tells it all."""
        left = None if self._until is None else max(self._until - stopwatch(), 0.0)
        if self._event is None:
            return left
        return POLL_S if left is None else min(left, POLL_S)

    def is_set(self) -> bool:
        """Return whether this scope is cancelled."""
        return self._cancelled or (self._event is not None and self._event.is_set())

    def stopped(self) -> Cancelled | None:
        """Return what ends whatever is under way in this scope, None while it may go on."""
        if self.is_set():
            return Cancelled("by code")
        if self._until is not None and stopwatch() >= self._until:
            return DeadlineExceeded("the run's time is over")
        return None

    def on_cancel(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Have `hear` called once when this scope is cancelled, at once if it is; returns what takes that back.

        It is called in the thread that cancels, and must not wait or raise.
        """
        key = object()
        with self._lock:
            if not self._cancelled:
                self._heard[key] = hear
                return lambda: self._forget(key)
        hear()
        return _nothing

    def close(self) -> None:
        """Take this scope out of the one above. May be called twice."""
        above, self._above = self._above, None
        if above is not None:
            above._drop(self)

    def wait(self, seconds: float) -> Cancelled | None:
        """Wait for so many seconds; returns early what ends whatever is under way, None where the time has passed."""
        until = stopwatch() + seconds
        over = threading.Event()
        forget = self.on_cancel(over.set)
        try:
            while (stopped := self.stopped()) is None:
                left = until - stopwatch()
                if left <= 0:
                    break
                wait_s = self.wait_s()
                over.wait(left if wait_s is None else min(left, wait_s))
            return stopped
        finally:
            forget()

    def _join(self, scope: Scope) -> bool:
        """Take a scope in below this one; returns whether this one is cancelled already."""
        with self._lock:
            if not self._cancelled:
                self._below[scope] = None
            return self._cancelled

    def _drop(self, scope: Scope) -> None:
        with self._lock:
            self._below.pop(scope, None)

    def _forget(self, key: object) -> None:
        with self._lock:
            self._heard.pop(key, None)

    @property
    def open_below(self) -> int:
        """How many scopes and calls below this one are not closed."""
        return len(self._heard) + len(self._below)


class CallScope(Scope):
    """One call of a run, from its first attempt to its end. Cancelled alone, it ends nothing but itself."""

    def __init__(self, run: Scope, call_id: str) -> None:
        super().__init__(run)
        self.call_id = call_id
        self._run = run

    def stopped(self) -> Cancelled | None:
        """Return what ends the call: whatever stops the run, or a CallCancelled."""
        return self._run.stopped() or (CallCancelled("by code") if self.is_set() else None)


def _nothing() -> None:
    pass
