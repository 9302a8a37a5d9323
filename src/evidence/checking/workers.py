"""The same work on many items, on all cores, with the results in the order of the items.

Workers are forked while this process has one thread, after the first item was done here: what that loaded, each
of them has. They are sent numbers of items, so neither the work nor the items need pickling. Results do.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Final, TextIO, TypeVar

from ...fail.errors import InputError, TachographError
from ...runtime.core.clock import nap, stopwatch

Item = TypeVar("Item")
Result = TypeVar("Result")

WORTH: Final = 6  # fewer items than this are done before workers are warm
_MOST_AT_ONCE: Final = 16  # items handed out at a time
_AHEAD: Final = 4  # shares handed out for each worker: what waits to be taken in order is bounded by it
_GRACE_S: Final = 1.0  # for a worker that was told to end
_LOOK_S: Final = 0.5  # between looks at whether workers are still there
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

# What workers do, on which items, and the signal mask they run under. Set right before they are forked.
_task: tuple[Callable[[Any], Any], Sequence[Any], Any]

_Share = tuple[list[bytes], bytes | None]  # pickled results, and the error of the item after them


class WorkerLost(InputError):
    """A worker process ended while it worked."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def each(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    tell: Callable[[int, Result], object] | None = None,
    jobs: int | None = None,
    name: Callable[[Item], str] = str,
) -> list[Result]:
    """Return `[work(item) for item in items]`, done by `jobs` processes.

    Args:
        work: What is done to each item.
        items: The items; the first is always done in this process.
        tell: Called here with the number of results so far and the newest, in the order of the items.
        jobs: How many processes; all cores that this process may use if None.
        name: Gives the name of an item in an error.

    Raises:
        WorkerLost: A worker was killed or ended by itself.
        BaseException: What `work` raises for the first item that fails, as in a plain loop. Ctrl-C and SIGTERM
            end all workers first.
    """
    todo = list(items)
    results: list[Result] = []
    with contextlib.closing(_in_order(work, todo, min(jobs or cores(), len(todo) - 1), name)) as ordered:
        for result in ordered:
            results.append(result)
            if tell is not None:
                tell(len(results), result)
    return results


def _in_order(
    work: Callable[[Item], Result], items: list[Item], jobs: int, name: Callable[[Item], str]
) -> Generator[Result, None, None]:
    for index, item in enumerate(items):
        if index == 1 and jobs > 1 and len(items) >= WORTH and _has_one_thread():
            yield from _forked(work, items[1:], jobs, name)
            return
        yield work(item)


def _has_one_thread() -> bool:
    """Return whether forking is safe: a lock that another thread holds would be held in the child for ever."""
    if threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return True


def _forked(
    work: Callable[[Item], Result], items: list[Item], jobs: int, name: Callable[[Item], str]
) -> Generator[Result, None, None]:
    """Yield the results of forked workers in order; on the way out no worker is left."""
    global _task
    size = min(max(len(items) // (jobs * _AHEAD), 1), _MOST_AT_ONCE)
    starts = iter(range(0, len(items), size))
    pending: deque[tuple[int, Future[_Share]]] = deque()
    others = set(multiprocessing.active_children())
    with _on_sigterm():
        # The pool's own thread starts at the first `submit`: with signals blocked, all of them come to this one.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        _task = (work, items, mask)
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), _begin)
        workers: list[Any] = []
        start = 0
        try:
            for start in islice(starts, jobs * _AHEAD):
                pending.append((start, pool.submit(_share, start, start + size)))
            workers += set(multiprocessing.active_children()) - others
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            while pending:
                start, future = pending.popleft()
                results, error = _result(future, workers)
                yield from map(pickle.loads, results)
                if error is not None:
                    raise _error_of(error)
                for more in islice(starts, 1):
                    pending.append((more, pool.submit(_share, more, more + size)))
            pool.shutdown()
        except BrokenProcessPool:
            raise WorkerLost(
                f"a process that worked on it or on an item after it {_how(workers)}",
                file=name(items[start]),
                remedy="free memory or give --jobs 1, and try again",
            ) from None
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            _end(pool, workers)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _result(future: Future[_Share], workers: Sequence[Any]) -> _Share:
    """Wait for a share. A worker whose pipes something else still holds is seen to be gone all the same."""
    while True:
        try:
            return future.result(_LOOK_S)
        except TimeoutError:
            if not all(worker.is_alive() for worker in workers) and not future.done():
                raise BrokenProcessPool from None


def _how(workers: Sequence[Any]) -> str:
    """Return in words how the first worker ended that did not end as it was told."""
    until = stopwatch() + _GRACE_S
    while stopwatch() < until:
        for code in filter(None, (worker.exitcode for worker in workers)):
            return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        nap(0.01)
    return "ended"


def _end(pool: ProcessPoolExecutor, workers: Sequence[Any]) -> None:
    """End every worker: those that work by a signal, and by force where that does not help.

    The pool is shut down last, and waited for: its thread, left to the end of the process, would find its pipe closed.
    """
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    until = stopwatch() + _GRACE_S
    while any(worker.is_alive() for worker in workers) and stopwatch() < until:
        nap(0.002)
    for worker in workers:
        if worker.is_alive():
            worker.kill()
    pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _on_sigterm() -> Iterator[None]:
    """Leave by an exception on SIGTERM while there are workers, unless the process handles it already."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(_signum: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


# ---- in a worker --------------------------------------------------------------------------------------------


class _Told(BaseException):
    """A worker is told to end while it works."""


def _leave_work(_signum: int, _frame: object) -> None:
    raise _Told


def _leave_at_once(_signum: int, _frame: object) -> None:
    os._exit(0)


def _begin() -> None:
    """Prepare a worker."""
    # Ctrl-C reaches every process at a terminal; the parent ends us. No SIG_IGN, which tools would inherit.
    signal.signal(signal.SIGINT, lambda _signum, _frame: None)
    signal.signal(signal.SIGTERM, _leave_at_once)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    threading.Thread(target=_leave_with_parent, daemon=True).start()  # which hears no signal
    signal.pthread_sigmask(signal.SIG_SETMASK, _task[2])
    gc.freeze()  # what was there before is not looked through again and again


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def _share(start: int, stop: int) -> _Share:
    """Return the pickled results of some items, up to the first that fails, and its error."""
    work, items, _ = _task
    results: list[bytes] = []
    try:
        signal.signal(signal.SIGTERM, _leave_work)  # so that the work is cleaned up
        for item in items[start:stop]:
            results.append(pickle.dumps(work(item)))
        return results, None
    except _Told:
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - it is raised in the parent
        return results, _error_parts(error)
    finally:
        signal.signal(signal.SIGTERM, _leave_at_once)


def _error_parts(error: BaseException) -> bytes:
    """Return type, arguments and attributes: nobody knows the parameters of an `__init__`."""
    if not isinstance(error, TachographError):
        error.add_note("in a worker: " + "".join(traceback.format_exception(error)))
    try:
        return pickle.dumps((type(error), error.args, vars(error)))
    except Exception:  # noqa: BLE001 - of an error that cannot be sent, its text is
        return pickle.dumps((RuntimeError, (f"{type(error).__name__}: {error}",), {}))


def _error_of(parts: bytes) -> BaseException:
    kind, args, attributes = pickle.loads(parts)  # noqa: S301 - from our own worker
    error: BaseException = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


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
        """Show how far the work is."""
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
