"""Ctrl-C and SIGTERM while a run is under way."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Self

from ....fail.errors import Interrupted
from ...core.branches import BRANCH
from ...core.effects import (
    Outcome,
)


class ForceQuit(BaseException):
    """A second signal: nothing more is waited for. What is durable by then stays so."""


def exit_for(signum: int | None) -> BaseException:
    """Return what to raise once a signal ended a run: KeyboardInterrupt, or SystemExit(143) for SIGTERM."""
    return SystemExit(128 + signal.SIGTERM) if signum == signal.SIGTERM else KeyboardInterrupt()


class Relay:
    """Tells a signal that a parent process passed on from the same one that came here directly.

    A signal to a process group comes twice: to this process, and to its parent, which writes a byte into the pipe
    `fd` and passes it on. It counts once. `on_ctrl_c` attends to Ctrl-C while no run is under way.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._passed_on = self._direct = self._counted = 0

    def is_new(self) -> bool:
        """Return whether the signal that has just come is not one that was counted."""
        try:
            passed_on = len(os.read(self._fd, 64))
        except BlockingIOError:
            passed_on = 0
        if passed_on:
            self._passed_on += passed_on
        else:
            self._direct += 1
        counted, self._counted = self._counted, max(self._passed_on, self._direct)
        return self._counted > counted

    def on_ctrl_c(self, _signum: int, _frame: object) -> None:
        """Raise KeyboardInterrupt for a signal that was not counted yet."""
        if self.is_new():
            self.leave()
            raise KeyboardInterrupt

    def leave(self) -> None:
        """Hold back what comes from here on: the process is told to end, and the same signal may come once more."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


class Interrupts:
    """SIGINT and SIGTERM while a run is under way: raised at once in foreign code, kept for the next effect elsewhere.

    As a context manager it takes the two over, in the main thread and unless someone else did already. What
    comes after the last effect is raised at the end of the block. A second signal does not wait for anything.
    `signum` is the signal that came, or None. `relay` is set in a process whose parent passes signals on.
    """

    relay: ClassVar[Relay | None] = None

    def __init__(self) -> None:
        self._pending = self._open = False
        self._before: dict[int, Any] = {}
        self.signum: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum, untouched in (
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ):
                found = signal.getsignal(signum)
                if found is untouched or (self.relay is not None and found == self.relay.on_ctrl_c):
                    self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.relay is not None and self.signum is not None:
            self.relay.leave()
        self._give_back()
        if kind is ForceQuit or (self._pending and kind is None):
            raise exit_for(self.signum) from None

    def _give_back(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before = {}

    def _on_signal(self, signum: int, _frame: object) -> None:
        if self.relay is not None and not self.relay.is_new():
            return
        again = self.signum is not None
        self.signum = signum
        if again:
            self._give_back()
            raise ForceQuit
        self.defer()
        if self._open:
            self.raise_pending()

    def defer(self) -> None:
        """Keep an interrupt for the next effect."""
        self._pending = True

    def raise_pending(self) -> None:
        """Raise KeyboardInterrupt if one is kept, once."""
        if self._pending:
            self._pending = self._open = False
            raise KeyboardInterrupt

    def interrupted(self) -> Interrupted:
        """Return the error for a KeyboardInterrupt; foreign code may raise one though no signal came."""
        return Interrupted(self.signum or signal.SIGINT, came=self.signum is not None)

    def stop_if_told(self) -> None:
        """Raise Interrupted if an interrupt is kept, once; in a group it stops every call that is not over."""
        if self.signum is not None and BRANCH.get() is not None:
            self._pending = False
            raise self.interrupted()
        try:
            self.raise_pending()
        except KeyboardInterrupt:
            raise self.interrupted() from None

    def around(self, foreign: Callable[[], Outcome]) -> Outcome:
        """Call foreign code, where an interrupt does not wait."""
        self._open = True
        pid = os.getpid()
        try:
            self.raise_pending()
            found = foreign()
            if os.getpid() != pid:
                os._exit(70)  # a child that foreign code forked: the run and its files are not its own
            return found
        finally:
            self._open = False
