"""Runs of many sizes: time, bytes and memory for one step more."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from measure import Row, cpu_ns

from runs import Runs

SIZES = (5, 50, 200, 1000, 5000)
MEMORY = (500, 2500)


def rows(*, quick: bool) -> list[Row]:
    sizes = SIZES[:4] if quick else SIZES
    times: dict[int, list[int]] = {size: [] for size in sizes}
    bytes_: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        runs.record(5)
        for _ in range(2 if quick else 9):
            for size in sizes:
                times[size].append(cpu_ns(runs.record, [size]))
        for size in sizes:
            bytes_[size] = sum(path.stat().st_size for path in runs.record(size).iterdir())
    us = {size: median(times[size]) / size / 1000 for size in sizes}
    out = [
        Row("a run of 1,000 steps : one of 200", _ratio(times, (1000, 0), (200, 0)), 5.6),
        Row("a step of steps 201 to 1,000 : of 51 to 200", _ratio(times, (1000, 200), (200, 50)), 1.12),
    ]
    if not quick:
        out.append(
            Row(
                "a step of steps 1,001 to 5,000 : of 201 to 1,000",
                _ratio(times, (5000, 1000), (1000, 200)),
                1.12,
            )
        )
    out += [
        Row(f"  a step in a run of {size}", us[size] / us[200], unit="of 200", note=f"{us[size]:.0f} us")
        for size in sizes
    ]
    early = (bytes_[200] - bytes_[50]) / 150
    late = (bytes_[1000] - bytes_[200]) / 800
    return [
        *out,
        Row(
            "bytes of a step of steps 201 to 1,000 : of 51 to 200",
            late / early,
            1.05,
            note=f"{late:.0f} bytes",
        ),
        Row(
            "memory for a step more",
            _memory_kb(),
            8.0,
            unit="kB",
            note=f"{MEMORY[0]} against {MEMORY[1]} steps",
        ),
    ]


def _ratio(times: dict[int, list[int]], over: tuple[int, int], under: tuple[int, int]) -> float:
    """Median over the rounds of (what lies between two sizes) : (what lies between two others).

    Between (1000, 200) lie 800 steps; with nothing to take off, whole runs are compared, else single steps.
    """
    rounds = range(len(times[over[0]]))

    def between(i: int, more: int, less: int) -> float:
        return (times[more][i] - times[less][i]) / (more - less) if less else times[more][i]

    return median(between(i, *over) / between(i, *under) for i in rounds)


def _memory_kb() -> float:
    """Peak of what Python holds, as the difference of two runs, each in a process of its own."""
    peaks = []
    for size in MEMORY:
        done = subprocess.run(
            [sys.executable, __file__, str(size)], check=True, capture_output=True, text=True
        )
        peaks.append(int(done.stdout))
    return (peaks[1] - peaks[0]) / (MEMORY[1] - MEMORY[0]) / 1000


def _peak(size: int) -> int:
    import tracemalloc

    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        runs.record(5)
        tracemalloc.start()
        runs.record(size)
        return tracemalloc.get_traced_memory()[1]


if __name__ == "__main__":
    print(_peak(int(sys.argv[1])))
