"""Call foreign code: here, or beside an event loop that is not blocked meanwhile.

An executor prepares a call, awaits it, and makes an outcome of what came back. Only the middle differs between the two
drivers: `DirectCalls` never suspends, so that `run_now` takes the executor's coroutine to its end in one go.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum, auto
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ...fail.errors import Cancelled
from ..core.clock import Clock, SystemClock
from ..core.stopping import STOPPING
from ..tools.coroutines import WATCHED, run_coroutine
from .stopping.interrupts import Interrupts
from .stopping.scopes import Scope

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future, ThreadPoolExecutor

    from ..core.redaction import Redactor
    from ..workspace.tool_io import IO

_RUNTIME: Final = __name__.partition("driver.")[0]
THREADS: Final = 64  # of the process, for the sync tools and models of all its async runs

T = TypeVar("T")

# what foreign code returned, or what it raised
Came = tuple[Any, BaseException | None]


class Manner(Enum):
    """How foreign code is called beside an event loop.

    HERE: it waits for nothing. AWAITED: it returns an awaitable. THREAD: it may wait, and cannot be ended. WORKER: it
    waits in a thread for a process, and ends soon when its attempt is told to.
    """

    HERE = auto()
    AWAITED = auto()
    THREAD = auto()
    WORKER = auto()


class CallerLeft(BaseException):
    """Carries what the caller of a run raised into it through the handlers of foreign code's failures."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__()


class Attempt:
    """A call of foreign code under way, which may be told to end."""

    def __init__(self, interrupts: Interrupts, scope: Scope | None, io: IO | None = None) -> None:
        self._interrupts = interrupts
        self.scope = scope
        self._io = io
        self._over = False

    def raise_pending(self) -> None:
        """Raise Cancelled if the attempt is to end, KeyboardInterrupt if one is kept."""
        self._interrupts.raise_pending()
        if self._over:
            raise Cancelled("by code")
        stopped = None if self.scope is None else self.scope.stopped()
        if stopped is not None:
            raise stopped

    def end(self) -> None:
        """Tell the attempt to end. Its `io` does nothing more once this returns."""
        self._over = True
        if self._io is not None:
            self._io.close()


class ForeignCalls(Protocol):
    """Calls foreign code for an executor."""

    is_async: bool

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the run is in, None for none."""

    async def call(
        self, foreign: Callable[[], Any], manner: Manner, attempt: Attempt, timeout_s: float | None = None
    ) -> Came:
        """Return what came of `foreign`."""

    async def sleep(self, clock: Clock, ms: int, scope: Scope | None) -> None:
        """Let time pass; what ends the scope ends that."""


def run_now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends to its end."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AssertionError("a call that is made here was suspended")


class DirectCalls:
    """Calls foreign code here; the run waits for it. A wait between two attempts ends when its scope is stopped."""

    is_async = False
    loop = None

    async def call(
        self,
        foreign: Callable[[], Any],
        _manner: Manner,
        attempt: Attempt,
        _timeout_s: float | None = None,
    ) -> Came:
        """Return what came of `foreign`.

        A coroutine that it runs to its end, and a request to a live model, are ended where the run is to stop.
        """
        if attempt.scope is None:
            return caught(foreign)
        token, stopping = WATCHED.set(partial(_watched, attempt.scope)), STOPPING.set(attempt.scope)
        try:
            return caught(foreign)
        finally:
            WATCHED.reset(token)
            STOPPING.reset(stopping)

    async def sleep(self, clock: Clock, ms: int, scope: Scope | None) -> None:
        """Let time pass; the run may be stopped meanwhile."""
        if scope is None or not isinstance(clock, SystemClock):
            clock.sleep(ms)
        elif (stopped := scope.wait(ms / 1000)) is not None:
            raise stopped


class AsyncCalls:
    """Calls foreign code beside an event loop, and ends it where it can be ended when the run is to stop.

    An error of foreign code is returned. What is raised is Cancelled where the run is to stop, and CallerLeft for an
    error of the caller: its task is cancelled, or left to the garbage collector.
    """

    is_async = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the run is in."""
        import asyncio

        return asyncio.get_running_loop()

    async def call(
        self, foreign: Callable[[], Any], manner: Manner, attempt: Attempt, timeout_s: float | None = None
    ) -> Came:
        """Return what came of `foreign`."""
        if manner is Manner.HERE:
            return caught(foreign)
        import asyncio
        import contextvars

        if manner is Manner.AWAITED:
            found, failed = caught(foreign)
            if failed is not None or not isinstance(found, Awaitable):
                return found, failed  # what a task puts in the place of the call
            future: asyncio.Future[Any] = asyncio.ensure_future(_awaited(found, timeout_s))
            end: Callable[[], object] = future.cancel
        else:
            work = _threads.submit(contextvars.copy_context().run, caught, foreign)
            future = asyncio.wrap_future(work)
            # a thread that is left to itself reports to nobody; one that has not begun never does
            end = future.cancel if manner is Manner.THREAD else work.cancel
        try:
            await _until_over(future, attempt.scope)
        except BaseException as error:  # noqa: BLE001 - raised again by the executor
            attempt.end()
            end()
            if not isinstance(error, GeneratorExit):  # after which nothing can be awaited
                await ended(future)
            if manner is Manner.AWAITED and isinstance(found, CoroutineType) and future.done():
                found.close()  # it was not begun, or is over
            raise error if isinstance(error, Cancelled) else CallerLeft(error) from None
        came: Came = future.result()
        return came

    async def sleep(self, clock: Clock, ms: int, scope: Scope | None) -> None:
        """Let time pass; the run may be stopped meanwhile."""
        import asyncio

        if not isinstance(clock, SystemClock):
            clock.sleep(ms)  # its time passes by the table, or did when the record was made
            return
        rest = asyncio.ensure_future(asyncio.sleep(ms / 1000))
        try:
            await _until_over(rest, scope)
        except Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again by the executor
            raise CallerLeft(error) from None
        finally:
            rest.cancel()


async def _watched(scope: Scope, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns. Raises Cancelled where the scope is stopped first, once the coroutine ended."""
    import asyncio

    future = asyncio.ensure_future(work)
    try:
        await _until_over(future, scope)
    except BaseException:
        future.cancel()
        await ended(future)
        raise
    return future.result()


async def _until_over(future: asyncio.Future[Any], scope: Scope | None) -> None:
    """Wait for a future. Raises Cancelled where the scope is stopped first."""
    import asyncio

    over = asyncio.get_running_loop().create_future()
    forget = None if scope is None else scope.on_cancel(lambda: _wake(over))
    try:
        while not future.done():
            stopped = None if scope is None else scope.stopped()
            if stopped is not None:
                raise stopped
            await asyncio.wait(
                {future, over} if scope is not None else {future},
                timeout=None if scope is None else scope.wait_s(),
                return_when=asyncio.FIRST_COMPLETED,
            )
    finally:
        if forget is not None:
            forget()


def _wake(over: asyncio.Future[None]) -> None:
    """Wake what waits for `over`, from any thread."""
    loop = over.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: None if over.done() else over.set_result(None))


async def ended(future: asyncio.Future[Any]) -> None:
    """Wait until foreign code that was told to end has ended."""
    import asyncio
    import contextlib

    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):  # it is on its way already
            await asyncio.wait({future})


async def _awaited(found: Awaitable[Any], timeout_s: float | None) -> Came:
    """Return what came of an awaitable: an exit raised in a task would end the event loop."""
    import asyncio

    try:
        async with asyncio.timeout(timeout_s) as limit:
            value = await found
        if limit.expired():
            raise TimeoutError("the attempt took longer than it may")
    except BaseException as error:  # noqa: BLE001 - raised again where the call was made
        return None, error
    return value, None


def caught(foreign: Callable[[], Any]) -> Came:
    """Return what came of foreign code: no coroutine and no future carries a StopIteration."""
    pid = os.getpid()
    try:
        return foreign(), None
    except BaseException as error:  # noqa: BLE001 - raised again where the call was made
        return None, error
    finally:
        if os.getpid() != pid:
            os._exit(70)  # a child that foreign code forked: the run and its files are not its own


def log_failure(message: str, *values: object, error: BaseException, redact: Redactor) -> None:
    """Log what foreign code raised, with text and traceback: for the one who develops it, never for a record.

    The text, with notes and causes, is logged without secrets. A handler that looks at the exception itself gets it as
    it is.

    Raises MemoryError where it was the runtime itself that found no memory.
    """
    if lacks_memory_itself(error):
        raise error
    import logging  # slow to import, and most runs have nothing to log

    logger = logging.getLogger("tachograph")
    if logger.isEnabledFor(logging.INFO):
        raised = (type(error), error, error.__traceback__)
        record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, message, values, raised)
        record.exc_text = redact.ahead()(logging.Formatter().formatException(raised))
        logger.handle(record)


def lacks_memory_itself(error: BaseException) -> bool:
    """Return whether a MemoryError was raised in the runtime's own code, and not in the foreign code that it called."""
    trace = error.__traceback__
    if not isinstance(error, MemoryError) or trace is None:
        return isinstance(error, MemoryError)
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__"))
    # what a worker raised is raised again by the module that talks to it
    return module.startswith(_RUNTIME) and not module.endswith(".tools.isolation")


async def in_thread(work: Callable[[], Any]) -> Any:
    """Return what `work` returns, which may take its time, in an event loop that is not blocked."""
    import asyncio

    value, failed = await asyncio.wrap_future(_threads.submit(caught, work))
    if failed is not None:
        raise failed
    return value


def settled(found: Any) -> Any:
    """Return what foreign code returned; a coroutine is run to its end."""
    return run_coroutine(lambda: found) if isinstance(found, CoroutineType) else found


class Threads:
    """A bounded number of threads of the process, made when they are first needed."""

    def __init__(self, bound: int, name: str) -> None:
        self._bound = bound
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, work: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """Have a thread do the work; the future holds what it returns."""
        with self._lock:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(self._bound, thread_name_prefix=self._name)
            return self._pool.submit(work, *arguments)


_threads: Final = Threads(THREADS, "tachograph")
