"""Other processes, as far as `/proc` tells: what a run started, and what of it is still alive.

The process that performs a kept run has an environment variable with the run's marker, which every program that it
starts inherits. A program that clears its environment is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from typing import Final

MARKER: Final = "TACHOGRAPH_RUN"  # markers, with a space between: a run may be started by a tool of another
_LOCK: Final = threading.Lock()
_ROUNDS: Final = 1000  # at 5 ms: how long is waited for what was killed


@contextlib.contextmanager
def marking(marker: str | None) -> Iterator[None]:
    """Give every program that is started in the block the marker of a run; None gives nothing."""
    if marker is None:
        yield
        return
    with _LOCK:
        os.environ[MARKER] = " ".join([*_markers(), marker])
    try:
        yield
    finally:
        with _LOCK:
            left = _markers()
            with contextlib.suppress(ValueError):  # a tool changed the variable
                left.remove(marker)
            if left:
                os.environ[MARKER] = " ".join(left)
            else:
                os.environ.pop(MARKER, None)


def _markers() -> list[str]:
    return os.environ.get(MARKER, "").split()


def carriers(marker: str) -> list[int] | None:
    """Return the living processes that carry a marker, or None where this system does not tell.

    The environment of another user's process cannot be read; a run starts no such processes.
    """
    if not os.path.exists("/proc/self/environ"):
        return None
    found = []
    for pid in _processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name == MARKER.encode() and marker.encode() in value.split() and pid != os.getpid():
                    found.append(pid)
    return found


def children() -> list[int]:
    """Return the processes whose parent is this one; none where `/proc` does not tell."""
    found = []
    for pid in _processes():
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(pid)
    return found


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def adopt_orphans() -> bool:
    """Become the parent of every process below this one whose own parent ends; return whether that was possible."""
    return _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def die_with_parent() -> bool:
    """Let SIGKILL end this process when its parent ends; return whether that was possible."""
    return _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def end_children(spared: Collection[int]) -> None:
    """End every child of this process and all that comes to it from below them, save those `spared`."""
    for _ in range(_ROUNDS):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        living = [pid for pid in children() if pid not in spared]
        if not living:
            return
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
