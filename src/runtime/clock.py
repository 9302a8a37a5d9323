"""What comes from the system: time, randomness and variables of the environment enter here and nowhere else."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..fail.errors import SystemFailure

T = TypeVar("T")
Tell = Callable[[Any, BaseException | None], object]
"""Is given what a function returned, or what it raised."""


def wall_time() -> str:
    """Return the time as RFC 3339 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def wall_ns() -> int:
    """Return the time in nanoseconds since 1970."""
    return time.time_ns()


def monotonic_ns() -> int:
    """Return nanoseconds of a clock that is never set back."""
    return time.monotonic_ns()


def pause(seconds: float) -> None:
    """Let time pass."""
    time.sleep(seconds)


def later(seconds: float) -> int:
    """Return a deadline so many seconds from now, for `left`."""
    return monotonic_ns() + int(seconds * 1e9)


def left(deadline: int) -> float:
    """Return the seconds until a deadline, more than zero. Raises TimeoutError when there are none."""
    if (left := deadline - monotonic_ns()) > 0:
        return left / 1e9
    raise TimeoutError("the time is up")


def in_time(function: Callable[..., T], arguments: tuple[object, ...], seconds: float) -> T:
    """Call a function in a thread. Raises TimeoutError if it takes too long; it is left behind then."""
    told: list[tuple[Any, BaseException | None]] = []
    begin_thread(function, arguments, lambda *came: told.append(came)).join(seconds)
    if not told:
        raise TimeoutError
    result, error = told[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def begin_thread(function: Callable[..., Any], arguments: tuple[Any, ...], tell: Tell) -> threading.Thread:
    """Call a function in a thread that no process waits for; `tell` is given there what it returns or raises.

    Raises SystemFailure where the system allows no more threads.
    """

    def work() -> None:
        try:
            told: tuple[Any, BaseException | None] = (function(*arguments), None)
        except BaseException as error:  # noqa: BLE001 - a value until somebody looks at it
            told = (None, error)
        tell(*told)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
    begin(thread)
    return thread


def begin(thread: threading.Thread, undo: Callable[[], None] = lambda: None) -> None:
    """Begin a thread. Raises SystemFailure where the system allows no more threads, once `undo` has been called."""
    try:
        thread.start()
    except RuntimeError as error:
        undo()
        raise SystemFailure(f"no thread can be begun ({error}); see to it, and try again") from None


def random_key() -> bytes:
    """Return 32 bytes that nobody can guess."""
    return os.urandom(32)


def variable(name: str) -> str | None:
    """Return an environment variable, None if it is unset or empty."""
    return os.environ.get(name) or None


def random_hex() -> str:
    """Return eight hex digits that nobody can guess."""
    return os.urandom(4).hex()
