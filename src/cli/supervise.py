"""The small parent process of a run that is kept in a journal.

The run is performed in a child, which prints and records as ever and says over a pipe that it is done. The parent
passes signals on and waits. A child that ended itself without a word, as by `os._exit` in a tool, leaves its journal:
the parent writes the record from it. One that somebody else ended with a signal leaves it too, for `resume`. However it
ended, what it started and left running is ended, and threads end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ..runtime.driver.stopping import processes
from ..runtime.driver.stopping.interrupts import Interrupts, Relay

# signals by which a process ends itself; all others come from somebody else
_CRASHES: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_SI_KERNEL: Final = 0x80  # of a signal that the terminal sent, to every process in the foreground


@dataclass(frozen=True)
class Vanished:
    """How the process of a run ended that did not say that it was done: `code` is negative for a signal."""

    code: int

    @property
    def by_itself(self) -> bool:
        """Whether it ended itself, and was not ended by somebody else."""
        return self.code >= 0 or -self.code in _CRASHES

    @property
    def words(self) -> str:
        """How it ended, in words."""
        return f"exit code {self.code}" if self.code >= 0 else signal.Signals(-self.code).name


def supervise(perform: Callable[[], int], vanished: Callable[[Vanished], int]) -> int:
    """Perform a run in a child process and return its exit code.

    Args:
        perform: Performs the run, says what is to be said and returns the exit code; raises nothing.
        vanished: Gets how the child ended that did not return from `perform`, and returns the exit code. The
            process ends by the signal that ended the child, if it was one of somebody else's.
    """
    if not hasattr(signal, "sigwaitinfo"):  # as on macOS: there is no parent
        return perform()
    waited = {signal.SIGTERM, signal.SIGCHLD}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        waited.add(signal.SIGINT)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    spared = set(processes.children())
    adopts = processes.adopt_orphans()
    done, say_done = os.pipe()
    relayed, relay = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # else it would be printed twice
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(done)
        os.close(relay)
        _child(perform, parent, before, relayed, say_done)
    os.close(say_done)
    os.close(relayed)
    try:
        status = _wait(child, waited, relay)
    finally:
        if adopts:
            processes.end_children(spared)
        while signal.sigtimedwait(waited, 0) is not None:
            pass  # it was for the run, which is over
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(relay)
    said = _said(done)
    if said is not None:
        return said
    end = Vanished(os.waitstatus_to_exitcode(status))
    code = vanished(end)
    if not end.by_itself:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        signal.signal(-end.code, signal.SIG_DFL) if -end.code != signal.SIGKILL else None
        os.kill(parent, -end.code)
    return code


def _child(perform: Callable[[], int], parent: int, mask: Any, relayed: int, say_done: int) -> NoReturn:
    """Perform the run, say that it is done, and end with every thread that is left."""
    code = 1
    try:
        processes.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)  # it ended before
        Interrupts.relay = Relay(relayed)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, Interrupts.relay.on_ctrl_c)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = perform()
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
    for _ in range(9):  # what came before signals were blocked may still be raised
        with contextlib.suppress(KeyboardInterrupt):
            _say_done(say_done, code)
    os._exit(code)


def _say_done(say_done: int, code: int) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os.write(say_done, b"%d\n" % code)
    os._exit(code)


def _wait(child: int, waited: set[signal.Signals], relay: int) -> int:
    """Wait until the child ends, and pass signals on to it; return its status."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        told = signal.sigwaitinfo(waited)
        if told.si_signo == signal.SIGCHLD or told.si_code == _SI_KERNEL:
            continue
        with contextlib.suppress(BrokenPipeError, ProcessLookupError):  # it has just ended
            os.write(relay, b"s")
            os.kill(child, told.si_signo)


def _said(done: int) -> int | None:
    """Return the exit code that the child gave, None where it said nothing."""
    with os.fdopen(done, "rb") as file:
        text = file.read()
    return int(text) if text.endswith(b"\n") else None
