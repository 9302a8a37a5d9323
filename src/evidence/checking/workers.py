"""The same work on many items, on all cores: forked workers answer in any order, the results come in theirs.

Workers are forked from this process while it has one thread, after the first item was done here: what that
loaded, each of them has. They get numbers of items and send results, so neither work nor items need pickling.
Results do.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, TextIO, TypeVar

from ...fail.errors import InputError, TachographError
from ...runtime.core.clock import nap, stopwatch

Item = TypeVar("Item")
Result = TypeVar("Result")

WORTH: Final = 6  # fewer items than this are done before workers are warm
_MOST_AT_ONCE: Final = 16  # items handed out at a time
_GRACE_S: Final = 1.0  # for a worker that was told to end
_LOOK_S: Final = 0.5  # between looks at whether workers are still there
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class WorkerLost(InputError):
    """A worker process ended while it worked."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def each(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    tell: Callable[[int, Result], object] | None = None,
    jobs: int | None = None,
    name: Callable[[Item], str] = str,
) -> list[Result]:
    """`[work(item) for item in items]`, on `jobs` processes (default: all cores that this process may use).

    `tell` hears here of each result as it comes, with how many there are. `name` names an item in an error.
    What `work` raises for the first item that fails is raised here, as it would be in a plain loop. Raises
    WorkerLost where a worker was killed. Ctrl-C and SIGTERM end all workers first.
    """
    todo = list(items)
    told: Callable[[int, Result], object] = tell or (lambda _done, _result: None)
    several = min(jobs or cores(), len(todo) - 1)
    found: list[Result] = []
    for item in todo:
        if found and several > 1 and len(todo) >= WORTH and _has_one_thread():
            return found + _Pool(work, todo[1:], told, name).run(several)
        found.append(work(item))
        told(len(found), found[-1])
    return found


def _has_one_thread() -> bool:
    """A lock that another thread holds would be held in a forked process for ever."""
    if threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return True


# ---- this side ----------------------------------------------------------------------------------------------


class _Worker:
    """A worker as its parent sees it: `at` is the item that it works on, `until` where its share ends."""

    def __init__(self, pid: int, link: Connection) -> None:
        self.pid = pid
        self.link = link
        self.at = self.until = 0
        self._how: str | None = None

    @property
    def is_busy(self) -> bool:
        return self.at < self.until

    def is_over(self) -> str | None:
        """How the process ended, in words; None while it is there. Its number is not used any more then."""
        if self._how is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._how = "ended"
            else:
                if pid:
                    code = os.waitstatus_to_exitcode(status)
                    self._how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return self._how

    def kill(self, signum: int) -> None:
        if self.is_over() is None:
            os.kill(self.pid, signum)


class _Pool:
    def __init__(
        self,
        work: Callable[[Any], Any],
        items: list[Any],
        tell: Callable[[int, Any], object],
        name: Callable[[Any], str],
    ) -> None:
        self._work = work
        self._items = items
        self._tell = tell
        self._name = name
        self._workers: list[_Worker] = []
        self._done = [False] * len(items)
        self._results: list[Any] = [None] * len(items)
        self._count = 1  # the first item was done before
        self._given = 0
        self._ready = 0  # all before it are done
        self._end = len(items)  # nothing from here on is wanted
        self._failure: BaseException | None = None

    def run(self, jobs: int) -> list[Any]:
        size = min(max(len(self._items) // (jobs * 4), 1), _MOST_AT_ONCE)
        with _on_sigterm():
            try:
                for _ in range(jobs):
                    self._start()
                    self._give(self._workers[-1], size)
                while self._ready < self._end:
                    self._listen(size)
            finally:
                self._stop()
        if self._failure is not None:
            raise self._failure
        return self._results

    def _start(self) -> None:
        ours, theirs = Pipe()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()  # or a worker would hold the same text
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                for link in (ours, *(worker.link for worker in self._workers)):
                    link.close()
                _serve(theirs, self._work, self._items, before)
            self._workers.append(_Worker(pid, ours))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def _give(self, worker: _Worker, size: int) -> None:
        worker.at, worker.until = self._given, min(self._given + size, self._end)
        self._given = max(self._given, worker.until)
        if worker.is_busy:
            with contextlib.suppress(OSError):  # it is gone: the next look says so
                worker.link.send((worker.at, worker.until))

    def _listen(self, size: int) -> None:
        busy = {worker.link: worker for worker in self._workers if worker.is_busy}
        heard = wait(list(busy), _LOOK_S)
        for link in heard:
            worker = busy[link]  # type: ignore[index]
            try:
                index, fine, data = worker.link.recv()
            except (EOFError, OSError):
                raise self._lost(worker) from None
            self._take(index, fine, _from_bytes(data))
            worker.at = index + 1
            if not fine:
                worker.until = worker.at
            if not worker.is_busy:
                self._give(worker, size)
        if not heard:
            for worker in busy.values():
                if (how := worker.is_over()) is not None and not worker.link.poll():
                    raise self._lost(worker, how)

    def _take(self, index: int, fine: bool, value: Any) -> None:
        self._done[index] = True
        if fine:
            self._results[index] = value
            self._count += 1
            self._tell(self._count, value)
        elif index < self._end:
            self._end, self._failure = index, value
        while self._ready < self._end and self._done[self._ready]:
            self._ready += 1

    def _lost(self, worker: _Worker, how: str | None = None) -> WorkerLost:
        until = stopwatch() + _GRACE_S
        while how is None and stopwatch() < until:
            how = worker.is_over()
            nap(0.01)
        return WorkerLost(
            f"the process that worked on it {how or 'closed its pipe'}",
            file=self._name(self._items[worker.at]),
            remedy="free memory or give --jobs 1, and try again",
        )

    def _stop(self) -> None:
        """End every worker: at once where it works, and by force where that does not help."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for worker in self._workers:
                if worker.is_busy:
                    worker.kill(signal.SIGTERM)
                worker.link.close()  # one that waits for work leaves
            until = stopwatch() + _GRACE_S
            left = [worker for worker in self._workers if worker.is_over() is None]
            while left and stopwatch() < until:
                nap(0.002)
                left = [worker for worker in left if worker.is_over() is None]
            for worker in left:
                worker.kill(signal.SIGKILL)
                while worker.is_over() is None:
                    nap(0.002)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _on_sigterm() -> Iterator[None]:
    """SIGTERM leaves by an exception while there are workers, unless someone else attends to it."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(_signum: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# ---- a worker's side ----------------------------------------------------------------------------------------


class _Told(BaseException):
    """A worker is told to end."""


def _serve(link: Connection, work: Callable[[Any], Any], items: list[Any], mask: Any) -> None:
    """What a worker does until its parent is gone. Never returns."""
    code = 70
    told: list[int] = []

    def end(signum: int, _frame: object) -> None:
        told.append(signum)  # whatever swallows the exception
        raise _Told

    try:
        # Ctrl-C reaches every process at a terminal; the parent ends us. No SIG_IGN, which tools would inherit.
        signal.signal(signal.SIGINT, lambda _signum, _frame: None)
        signal.signal(signal.SIGTERM, end)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        gc.freeze()  # what was there before is not looked through again and again
        while not told:
            start, stop = link.recv()
            for index in range(start, stop):
                if told or not _send(link, index, work, items[index]):
                    break
        code = 0
    except (EOFError, OSError, _Told):
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the parent's may go on in its child
        traceback.print_exc()
    finally:
        os._exit(code)


def _send(link: Connection, index: int, work: Callable[[Any], Any], item: Any) -> bool:
    try:
        value: Any = work(item)
        fine = True
        data = pickle.dumps(value)
    except _Told:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised in the parent
        fine = False
        data = _error_as_bytes(error)
    link.send((index, fine, data))
    return fine


# ---- what goes between --------------------------------------------------------------------------------------


def _error_as_bytes(error: BaseException) -> bytes:
    if not isinstance(error, TachographError):
        error.add_note("in a worker: " + "".join(traceback.format_exception(error)))
    try:
        return pickle.dumps(_Raised(type(error), error.args, dict(vars(error))))
    except Exception:  # noqa: BLE001 - an error that cannot be sent is told of
        return pickle.dumps(_Raised(RuntimeError, (f"{type(error).__name__}: {error}",), {}))


class _Raised:
    """An exception on its way: made again without its `__init__`, whose parameters nobody knows."""

    def __init__(self, kind: type[BaseException], args: tuple[Any, ...], data: dict[str, Any]) -> None:
        self._parts = (kind, args, data)

    def again(self) -> BaseException:
        kind, args, data = self._parts
        error = kind.__new__(kind, *args)
        error.__dict__.update(data)
        return error


def _from_bytes(data: bytes) -> Any:
    value = pickle.loads(data)  # noqa: S301 - from our own worker
    return value.again() if isinstance(value, _Raised) else value


# ---- how far it is ------------------------------------------------------------------------------------------


class Ticker:
    """One line at a terminal that says how far a command is, cleared at the end; nothing elsewhere.

    `tell` of `each`: `Ticker(sys.stderr, "check", 1000, "drifted", lambda found: not found.ok)`.
    """

    def __init__(
        self, stream: TextIO | None, word: str, total: int, what: str, counts: Callable[[Any], bool]
    ) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._word, self._total, self._what = word, total, what
        self._counts = counts
        self._met = self._wide = 0
        self._next = stopwatch() + 0.1

    def __enter__(self) -> Ticker:
        return self

    def __call__(self, done: int, result: Any) -> None:
        self._met += self._counts(result)
        if self._stream is not None and stopwatch() >= self._next:
            text = f"{self._word}: {done} of {self._total} runs, {self._met} {self._what}"
            self._put(f"\r{text:<{self._wide}}")
            self._wide = len(text)
            self._next = stopwatch() + 0.1

    def __exit__(self, *_: object) -> None:
        if self._wide:
            self._put(f"\r{'':<{self._wide}}\r")

    def _put(self, text: str) -> None:
        assert self._stream is not None
        with contextlib.suppress(OSError):  # its reader left: the work goes on
            self._stream.write(text)
            self._stream.flush()
