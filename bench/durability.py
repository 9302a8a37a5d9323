"""What making a run durable costs: a run kept in a journal against the bare write and fsync of the same bytes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from measure import Row

from tachograph import Agent, Policy, Stub, record

STEPS = 40
ROUNDS = 7


def rows(*, quick: bool) -> list[Row]:
    steps, rounds = (10, 3) if quick else (STEPS, ROUNDS)
    spent: dict[str, list[float]] = {"off": [], "step": [], "effect": [], "floor": []}
    sizes: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for durability in ("off", "step", "effect"):
                out = Path(folder, f"{durability}-{number}")
                took = _timed(lambda out=out, how=durability: _run(out, steps, how))
                if number:
                    spent[durability].append(took)
            sizes = sizes or _journal_lines(Path(folder, "kept"), steps)
            took = _timed(lambda number=number, sizes=sizes: _floor(Path(folder, f"floor-{number}"), sizes))
            if number:
                spent["floor"].append(took)
    extra = median(
        (kept - free) / floor
        for kept, free, floor in zip(spent["effect"], spent["off"], spent["floor"], strict=True)
    )
    step = median((s - o) / f for s, o, f in zip(spent["step"], spent["off"], spent["floor"], strict=True))
    note = f"{len(sizes)} entries, floor {median(spent['floor']) / len(sizes) * 1e6:.0f} us wall each"
    return [
        Row("fsync per effect, beyond no journal : bare write and fsync", extra, 2.0, note=note),
        Row("fsync per step, beyond no journal : bare write and fsync", step, 2.0),
    ]


def _timed(do: Callable[[], object]) -> float:
    """Wall seconds: waiting for a disk is no CPU time."""
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def _run(out: Path, steps: int, durability: str) -> None:
    turns = [
        {"calls": [{"tool": "summarize", "arguments": {"text": f"One. Two {i}. Three."}}]}
        for i in range(steps)
    ]
    data = Policy.shipped().data
    budget = {
        **data["loop_budget"],
        "max_iterations": steps + 1,
        "max_tool_calls": steps,
        "max_tokens": 10**9,
    }
    agent = Agent(Stub([*turns, {"answer": "done"}]), ["summarize"], Policy.from_dict(
        {**data, "loop_budget": budget, "tool_registry": {"allowed": ["summarize"]}}
    ))  # fmt: skip
    record(agent, "What?", out, run_id="bench", durability=durability)


def _journal_lines(out: Path, steps: int) -> list[int]:
    """Return the sizes of the lines of a journal."""
    kept: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if data.startswith(b'{"chain"'):
            kept.append(bytes(data))
        return real(fd, data)

    os.write = write  # type: ignore[assignment]
    try:
        _run(out, steps, "effect")
    finally:
        os.write = real  # type: ignore[assignment]
    return [len(line) for line in kept]


def _floor(path: Path, sizes: list[int]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for size in sizes:
            os.write(fd, b"x" * size)
            os.fsync(fd)
    finally:
        os.close(fd)
