"""Costs compared within one run: the things compared take turns, and medians of ratios count."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table. `target` is the largest ratio wanted; None only reports."""

    name: str
    value: float
    target: float | None = None
    unit: str = "x"
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "ok" if self.value <= self.target else "over"


@dataclass(frozen=True)
class Case:
    """Something to time: `do(make(n))`, where only `do` counts and every n comes once."""

    do: Callable[[Any], object]
    make: Callable[[int], Any] = lambda n: n
    batch: int = 100


@dataclass(frozen=True)
class Turns:
    """CPU nanoseconds of one operation, by case, one figure for each round."""

    times: Mapping[str, Sequence[float]]

    def ratio(self, over: str, *under: str) -> float:
        """Median over the rounds of one case against the sum of others."""
        rounds = range(len(self.times[over]))
        return median(self.times[over][i] / sum(self.times[name][i] for name in under) for i in rounds)

    def difference(self, more: str, less: str, under: str) -> float:
        """Median over the rounds of what one case costs beyond another, against a third."""
        times = self.times
        return median((a - b) / c for a, b, c in zip(times[more], times[less], times[under], strict=True))

    def us(self, name: str) -> float:
        return median(self.times[name]) / 1000


def take_turns(cases: Mapping[str, Case], rounds: int) -> Turns:
    """Time the cases in alternation, `rounds` times each, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    number = 0
    for turn in range(rounds + 1):
        for name, case in cases.items():
            inputs = [case.make(number + i) for i in range(case.batch)]
            number += case.batch
            spent = cpu_ns(case.do, inputs)
            if turn:
                times[name].append(spent / case.batch)
    return Turns(times)


def cpu_ns(do: Callable[[Any], object], inputs: Sequence[Any]) -> int:
    """CPU time of this process for `do` on every input; the garbage of before is collected first."""
    gc.collect()
    begun = time.process_time_ns()
    for item in inputs:
        do(item)
    return time.process_time_ns() - begun


def child_cpu_s(command: Sequence[str]) -> float:
    """User and system time of a process and those it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_memory(command: Sequence[str]) -> int:
    """Return the largest resident size of a process and those it starts, in the unit of the system."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss


def children_take_turns(commands: Mapping[str, Callable[[], Sequence[str]]], rounds: int) -> Turns:
    """Time whole processes in alternation; a command is built anew for each round."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            spent = child_cpu_s(command())
            if turn:
                times[name].append(spent * 1e9)
    return Turns(times)
