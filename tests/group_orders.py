"""Perform the calls of groups in any order: what comes first differs, what is recorded must not."""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from tachograph.runtime.driver import driver
from tachograph.runtime.driver.groups import BranchRun, Perform
from tachograph.runtime.driver.stopping.interrupts import ForceQuit


@contextmanager
def shuffled(seed: int) -> Iterator[list[int]]:
    """Perform the effects of groups in a random order of the calls; the list gets the sizes of the groups."""
    draw = random.Random(seed)
    sizes: list[int] = []

    def perform_group(runs: list[BranchRun], perform: Perform) -> None:
        sizes.append(len(runs))
        while left := [run for run in runs if run.effect is not None]:
            run = draw.choice(left)
            with run.here():
                assert run.effect is not None
                run.end(run.begin() or perform(run.effect, run.stamps))
        draw.shuffle(runs)

    with mock.patch.object(driver, "perform_group", perform_group):
        yield sizes


class _Turns:
    """Threads of which one runs at a time; whoever has the turn says when another one gets it."""

    def __init__(self, draw: random.Random, count: int) -> None:
        self._draw = draw
        self._change = threading.Condition()
        self._waiting = list(range(count))
        self._whose = draw.choice(self._waiting)
        self.failures: dict[int, BaseException] = {}

    def take(self, number: int) -> None:
        """Wait for the turn. Where another thread played the death of the process, this one dies too."""
        with self._change:
            self._change.wait_for(lambda: self._whose == number)
        if any(isinstance(failure, ForceQuit) for failure in self.failures.values()):
            raise ForceQuit

    def give(self, *, ended: int | None = None) -> None:
        with self._change:
            if ended is not None:
                self._waiting.remove(ended)
            self._whose = self._draw.choice(self._waiting) if self._waiting else -1
            self._change.notify_all()


_HERE = threading.local()


def switch() -> None:
    """Let another call of the group go on, where calls overlap; a tool calls it in the middle of what it does."""
    turns: _Turns | None = getattr(_HERE, "turns", None)
    if turns is not None:
        turns.give()
        turns.take(_HERE.number)


@contextmanager
def overlapped(seed: int) -> Iterator[None]:
    """Perform the calls of groups in threads that take turns, so that several are under way at once."""
    draw = random.Random(seed)

    def perform_group(runs: list[BranchRun], perform: Perform) -> None:
        turns = _Turns(draw, len(runs))

        def work(number: int, run: BranchRun) -> None:
            _HERE.turns, _HERE.number = turns, number
            try:
                turns.take(number)
                with run.here():
                    while run.effect is not None:
                        run.end(run.begin() or perform(run.effect, run.stamps))
                        switch()
            except BaseException as error:  # noqa: BLE001 - raised again where the group is performed
                turns.failures[number] = error
            finally:
                turns.give(ended=number)

        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(work, number, run))
            for number, run in enumerate(runs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _, failure in sorted(turns.failures.items()):
            raise failure

    with mock.patch.object(driver, "perform_group", perform_group):
        yield
