"""The real world: effects are tasks of an event loop, plain functions run in threads, and time passes by itself."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from ...fail.catalog import StopReason
from ...fail.errors import InputError, asks_to_end, class_of, warn
from ..branches import Pending
from ..clock import begin_thread, monotonic_ns
from ..effects import AskPerson, Wait
from ..io.workspace import Workspace
from ..log.events import Answered, Entered, Event, Failed, Outcome, StopAsked, Stopped
from ..models.types import Piece
from .people import Approve, answered
from .perform import Performer

T = TypeVar("T")
Tell = Callable[[Event | Piece], None]
"""Is told each line of a log when it is written, and pieces of the model's text while they come."""
# seconds that a coroutine has to clean up once it is cancelled
_GRACE_S: Final = 1.0


class Real(Performer):
    """The world as it is. `stop` may be called from any thread; all else belongs to the driver.

    Args:
        workspace: What tools may touch.
        approve: Asks a person about a call; without it nobody is asked, and the call is refused.
        leaves: Whether a cancellation by the caller leaves the run to a resume, and does not stop it.
        listens: Whether the run may wait for somebody outside who says something.
    """

    def __init__(self, workspace: Workspace, *, leaves: bool, listens: bool, approve: Approve | None) -> None:
        super().__init__(workspace)
        self._approve, self._leaves, self._listens = approve, leaves, listens
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._entering: deque[Entered] = deque()
        self._tasks: dict[str, asyncio.Task[Any]] = {}  # by the address of the effect
        self._whys: dict[str, str] = {}  # why each was cancelled, likewise
        self._left: set[str] = set()  # the effects whose threads may still be at work
        self._happened: deque[tuple[int, Outcome | Entered | BaseException]] = deque()
        self._bell: asyncio.Future[None] | None = None  # is done once something has happened
        self._cancelled: asyncio.CancelledError | None = None
        self._zero = self._last = 0  # when the run began by the system's clock; when something happened last

    def stop(self, scope: str = "", why: str = "cancelled") -> None:
        """Stop a part of the run, from any thread: "" all of it, `3.c1` a call, `3.c1/` the agent that it started.

        Raises:
            InputError: The scope is not an address, or the reason is another word.
        """
        if why not in [*StopReason] or not isinstance(scope, str) or not scope.isascii():
            what = f"there is no stop of {scope!r} for the reason {why!r}"
            raise InputError(what, remedy=f"give an address, and one of {', '.join(StopReason)}")
        self.enter(StopAsked(at="", scope=scope, why=why))

    def enter(self, event: Entered) -> None:
        """Let something come from outside, from any thread."""
        self._entering.append(event)  # before the loop is looked at: it may begin, or end, at any moment
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(self._tell_entering)

    # ---- for the driver ----------------------------------------------------------------------------------------------

    def go_live(self, now: int, entered: Sequence[tuple[int, Entered]], deadline: int | None) -> None:
        """Take over from the log; time goes on where it ended."""
        self._loop = asyncio.get_running_loop()
        if deadline is not None:
            left = max(0, deadline - now) / 1e9
            self._timer = self._loop.call_later(left, self.stop, "", "deadline")
        self._zero, self._last = monotonic_ns() - now, now
        self._tell_entering()

    def clock(self, now: int) -> int:
        """Return the time."""
        return max(now, monotonic_ns() - self._zero)

    async def start(self, pending: Pending) -> None:
        """Begin an effect as a task of its own."""
        task = asyncio.create_task(self.perform(pending))
        self._tasks[pending.at] = task
        task.add_done_callback(lambda task: self._over(pending, task))

    async def perform(self, pending: Pending) -> Any:
        """Perform an effect to its end."""
        effect = pending.effect
        if isinstance(effect, AskPerson):
            return await self._ask_person(pending, effect)
        if isinstance(effect, Wait):
            await asyncio.sleep(effect.ns / 1e9)
        return await super().perform(pending)

    async def _ask_person(self, pending: Pending, effect: AskPerson) -> Answered:
        if self._approve is None:
            return self.answer(pending)
        question = copy.deepcopy(effect)  # whoever is asked may change it, and the call is the run's
        try:
            said = await self.call(pending.at, self._approve, question, timeout_s=effect.timeout_s)
            answer = answered(pending.at, said)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or asks_to_end(error):
                raise
            why = "" if isinstance(error, TimeoutError) else f"asking failed: {class_of(error)}"
            answer = Answered(at=pending.at, answer="silence", why=why)
        if answer.answer == "silence" and answer.why:
            warn("a call is refused: %s", answer.why)
        return answer

    def answer(self, pending: Pending) -> Answered:
        """Return silence: nobody can be asked."""
        return Answered(at=pending.at, answer="silence", why="nobody can be asked")

    def finish(self, pending: Pending, now: int, outcome: Outcome) -> None:
        """Tell an outcome at once."""
        self._tell(outcome)

    def cancel(self, pending: Pending, now: int, why: str) -> None:
        """End an effect under way; what does not end in time is left behind."""
        at = pending.at
        if (task := self._tasks.get(at)) is not None and self._loop is not None:
            self._whys.setdefault(at, why)
            task.cancel()
            self._loop.call_later(_GRACE_S, self._leave, at)
        elif not any(isinstance(event, Outcome | Answered) and event.at == at for _, event in self._happened):
            self._tell(Stopped(at=at, why=why))  # it was not begun

    async def next(self) -> tuple[int, Outcome | Entered]:
        """Return what is over or arrives first, and when."""
        while not self._happened:
            if not self._tasks and not self._listens:
                raise AssertionError("a branch waits, and nothing can happen")
            self._bell = asyncio.get_running_loop().create_future()
            await self._undisturbed(self._bell)
        time, event = self._happened.popleft()
        if isinstance(event, BaseException):
            raise event
        return time, event

    async def store(self, do: Callable[[], None]) -> None:
        """Do what puts something on the disk, in a thread, since the loop has other things to do."""
        await self._undisturbed(asyncio.get_running_loop().run_in_executor(None, do))

    async def close(self) -> None:
        """Cancel what is still under way, wait for it to clean up, and end in a thread what its tools hold open."""
        if self._timer is not None:
            self._timer.cancel()
        self._leaves = False  # the run has ended: what is left to do is not broken off
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)
        if self._workspace.opened:
            await self._undisturbed(asyncio.ensure_future(self._in_thread(self._workspace.let_go)))

    def raise_if_cancelled(self) -> None:
        """Raise the cancellation by the caller again, once the log is whole."""
        if self._cancelled is not None:
            raise self._cancelled

    # ---- foreign code ------------------------------------------------------------------------------------------------

    async def call(
        self, at: str, function: Callable[..., Any], *arguments: Any, timeout_s: float | None = None
    ) -> Any:
        """Await a coroutine function, or call a plain one in a thread; neither takes longer than its limit."""
        begun = monotonic_ns()
        async with asyncio.timeout(timeout_s):
            if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
                result = await function(*arguments)
            else:
                try:
                    result = await self._in_thread(function, *arguments)
                except asyncio.CancelledError:
                    self._left.add(at)
                    raise
                result = await result if inspect.isawaitable(result) else result
        if timeout_s is not None and monotonic_ns() - begun > timeout_s * 1e9:
            raise TimeoutError  # it held the loop, or gave no heed to its cancellation: what comes late does not count
        return result

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread. It cannot be ended: one that hangs is left behind."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def tell(result: Any, error: BaseException | None) -> None:
            if not over.done():
                over.set_result((result, error))

        def came(result: Any, error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, result, error)

        begin_thread(function, arguments, came)
        result, error = await over
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    # ---- what happened -----------------------------------------------------------------------------------------------

    def _over(self, pending: Pending, task: asyncio.Task[Any]) -> None:
        at = pending.at
        if self._tasks.get(at) is not task:
            return  # it was left behind
        del self._tasks[at]
        if at in self._whys:  # whatever foreign code made of its cancellation
            if not task.cancelled():
                task.exception()
            self._tell(Stopped(at=at, why=self._whys[at], left=at in self._left))
        elif task.cancelled():  # foreign code raised it
            is_person = isinstance(pending.effect, AskPerson)
            self._tell(self.answer(pending) if is_person else Failed(at=at, error="CancelledError"))
        else:
            self._tell(task.exception() or task.result())

    def _leave(self, at: str) -> None:
        if self._tasks.pop(at, None) is not None:
            self._tell(Stopped(at=at, why=self._whys.get(at, "cancelled"), left=True))

    def _tell_entering(self) -> None:
        while self._entering:
            self._tell(self._entering.popleft())

    def _tell(self, event: Outcome | Entered | BaseException) -> None:
        self._last = max(self._last + 1, monotonic_ns() - self._zero)  # stamps always increase
        self._happened.append((self._last, event))
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    async def _undisturbed(self, future: asyncio.Future[Any]) -> Any:
        """Wait for a future; if the caller cancels the run meanwhile, that is a stop, and the log becomes whole."""
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                if self._leaves:  # what is being put on the disk is, before its file is closed
                    await asyncio.wait([future], timeout=0 if future is self._bell else _GRACE_S)
                    raise
                if self._cancelled is None:
                    self._tell(StopAsked(at="", scope="", why="cancelled"))
                else:  # for the second time: whatever is still at work is left behind
                    for at in list(self._tasks):
                        self._leave(at)
                self._cancelled = error
        return future.result()


async def streamed(
    begin: Callable[[Tell], Coroutine[Any, Any, object]],
) -> AsyncGenerator[Event | Piece, None]:
    """Yield what is told while something goes on; to leave the loop early cancels it."""
    happened: asyncio.Queue[Event | Piece | None] = asyncio.Queue()
    going = asyncio.create_task(begin(happened.put_nowait))
    going.add_done_callback(lambda going: happened.put_nowait(None))
    try:
        while (event := await happened.get()) is not None:
            yield event
        await going
    finally:
        if not going.done():
            going.cancel()
            await asyncio.wait([going])


def run_in_new_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine in an event loop of its own. Raises RuntimeError where one is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        coroutine.close()
        name = getattr(coroutine, "__name__", "").removesuffix("_async").removeprefix("a")
        raise RuntimeError(f"an event loop is running here: await `a{name}`")
    return asyncio.run(coroutine)  # outside of the handler, or every traceback would begin with its exception
