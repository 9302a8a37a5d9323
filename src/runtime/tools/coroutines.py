"""Coroutines among the tools and models of a user."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final

_CANCEL_WAIT_S: Final = 5.0  # a coroutine that ignores its cancellation is left behind in its thread
_IS_COROUTINE: Final = 0x80  # the flag of a code object; `inspect` has it too, and is slow to import


# what a run that waits for foreign code makes of its coroutines: one that ends where the run is to stop
WATCHED: Final[ContextVar[Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None]] = (
    ContextVar("watched", default=None)
)


def is_async(function: object) -> bool:
    """Return whether a callable is a coroutine function, or an object whose call is one."""
    while hasattr(function, "func"):  # a partial
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code is not None and bool(code.co_flags & _IS_COROUTINE)


def native_async(model: Any) -> Any:
    """Return what an event loop asks a model by: its coroutine method `ask_async` where it has one, else itself."""
    native = getattr(model, "ask_async", None)
    return native if native is not None and is_async(native) else model


def run_coroutine(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return the result of a coroutine, run here, or in a thread of its own where an event loop runs already."""
    import asyncio

    watched = WATCHED.get()
    begin = make if watched is None else lambda: watched(make())
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(begin())
    return _run_in_thread(begin)


def _run_in_thread(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    import asyncio
    import contextvars

    box: dict[str, Any] = {}

    async def main() -> None:
        box["loop"], box["task"] = asyncio.get_running_loop(), asyncio.current_task()
        try:
            box["value"] = await make()
        except BaseException as error:  # noqa: BLE001 - raised by the caller's side
            box["error"] = error

    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(asyncio.run, main()), daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # a time-out or a signal: cancel what is waited for
        with contextlib.suppress(KeyError, RuntimeError):  # it may not have begun, or just have ended
            box["loop"].call_soon_threadsafe(box["task"].cancel)
            thread.join(_CANCEL_WAIT_S)
        raise
    if "error" in box:
        raise box["error"]
    return box["value"]
