"""The faults of the suite by name: what is broken, and what it needs to be broken here."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .lab import Lab, build_shim

# a fault yields the name of each case before it is made; an AssertionError belongs to the last one
Cases = Callable[[Lab], Iterator[str]]


@dataclass(frozen=True)
class Entry:
    """A fault: `words` say what is broken, `needs` are keys of NEEDS."""

    name: str
    words: str
    needs: tuple[str, ...]
    cases: Cases

    def missing(self) -> list[str]:
        """What it needs and this machine has not."""
        return [NEEDS[need][0] for need in self.needs if not NEEDS[need][1]()]


FAULTS: dict[str, Entry] = {}

NEEDS: dict[str, tuple[str, Callable[[], bool]]] = {
    "shim": ("Linux and a C compiler", lambda: can_build()),
    "mounts": ("root and mount", lambda: os.geteuid() == 0 and _has("mount") and _may_mount()),
    "loop": ("root, mount, losetup and mkfs.ext4", lambda: _all("losetup", "mkfs.ext4") and _may_mount()),
    "user": ("root, to become somebody else", lambda: os.geteuid() == 0),
}


def fault(name: str, words: str, *needs: str) -> Callable[[Cases], Cases]:
    def add(cases: Cases) -> Cases:
        assert name not in FAULTS
        FAULTS[name] = Entry(name, words, needs, cases)
        return cases

    return add


@cache
def can_build() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return build_shim(Path(folder)) is not None


def _has(command: str) -> bool:
    return shutil.which(command) is not None


def _all(*commands: str) -> bool:
    return all(map(_has, commands))


def _may_mount() -> bool:
    """Whether a filesystem can be mounted here: root in a container often may not."""
    from .mounts import may_mount

    return os.geteuid() == 0 and may_mount()
