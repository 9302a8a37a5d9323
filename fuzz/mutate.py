"""The built-in engine: seeds changed at random, without a look at the code they reach."""

# ruff: noqa: TID251 - randomness and time are this engine's business

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fuzz.targets import Target

SLOW_S = 10  # for one input
_BYTES = (0, 9, 10, 32, 34, 39, 46, 47, 48, 58, 64, 91, 92, 123, 127, 128, 195, 255)


class TooSlow(Exception):
    """One input took longer than SLOW_S."""


class Mutator:
    """Endless inputs from the seeds of a target; the same seed number gives the same inputs."""

    def __init__(self, target: Target, seed: int) -> None:
        self._random = random.Random(f"{target.name} {seed}")  # noqa: S311 - nothing secret
        self._seeds = [bytes(each) for each in target.seeds()]
        self._tokens = [token.encode("utf-8", "surrogatepass") for token in target.tokens] or [b"\0"]
        self._longest = target.longest
        self._first = list(self._seeds)

    def next(self) -> bytes:
        """Every seed as it is, then changed ones."""
        if self._first:
            return self._first.pop(0)
        data = bytearray(self._random.choice(self._seeds))
        for _ in range(self._random.choice((1, 1, 2, 3, 5, 8))):
            data = self._change(data)
        return bytes(data[: max(self._longest, len(data) // 2)])

    def _change(self, data: bytearray) -> bytearray:
        pick = self._random
        a, b = sorted((pick.randint(0, len(data)), pick.randint(0, len(data))))
        b = min(b, a + pick.choice((1, 2, 4, 64)))
        kind = pick.randrange(8)
        if kind == 0:  # another byte, or one flipped bit
            new = bytes([pick.choice(_BYTES)]) if pick.random() < 0.7 or not data[a:b] else b""
            data[a : a + 1] = new or bytes([data[a] ^ 1 << pick.randrange(8)])
        elif kind == 1:
            del data[a:b]
        elif kind == 2:
            data[a:a] = data[a:b] * pick.choice((1, 1, 2, 30))
        elif kind in (3, 4):
            data[a:a] = pick.choice(self._tokens)
        elif kind == 5:
            data[a:b] = pick.choice(self._tokens)
        elif kind == 6:  # a piece of another seed
            other = pick.choice(self._seeds)
            at = pick.randint(0, len(other))
            data[a:b] = other[at : at + pick.choice((1, 4, 16, 999))]
        else:  # a character that is more than a byte
            data[a:a] = chr(pick.choice((0xE9, 0x3B1, 0x2028, 0x202E, 0xFF0F, 0x1F600, 0x301))).encode()
        return data


@contextmanager
def _alarm() -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"one input took more than {SLOW_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(
    target: Target, seed: int, seconds: float, inputs: int | None = None
) -> tuple[int, bytes, Exception | None]:
    """Try inputs until the time or their number is used up, or one fails.

    Returns how many were tried, the last one, and what it raised.
    """
    mutator = Mutator(target, seed)
    end = time.monotonic() + seconds
    tried, data = 0, b""
    with _alarm():
        while time.monotonic() < end and (inputs is None or tried < inputs):
            data = mutator.next()
            tried += 1
            signal.alarm(SLOW_S)
            try:
                target.one(data)
            except Exception as error:  # noqa: BLE001 - whatever leaves a target is the finding
                return tried, data, error
    return tried, data, None
