"""Filesystems for a while: small, read-only, or on an image that can be copied as if the power had failed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def _do(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def mounted(place: Path, *words: str | Path) -> Iterator[Path]:
    """`mount WORDS PLACE`, unmounted afterwards whatever happens."""
    place.mkdir(parents=True, exist_ok=True)
    done = _do("mount", *words, place)
    assert done.returncode == 0, done.stderr
    try:
        yield place
    finally:
        if _do("umount", place).returncode != 0:  # something still holds a file there
            _do("umount", "--lazy", place)


@contextmanager
def small(place: Path, size: str) -> Iterator[Path]:
    """A filesystem in memory that holds no more than `size`."""
    with mounted(place, "-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs") as found:
        yield found


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """A folder that not even root can write to."""
    with mounted(place, "--bind", place):
        done = _do("mount", "-o", "remount,bind,ro", place)
        assert done.returncode == 0, done.stderr
        yield place


def make_image(file: Path) -> None:
    """An empty ext4 filesystem in a file."""
    with file.open("wb") as made:
        made.truncate(16 << 20)
    done = _do("mkfs.ext4", "-q", "-F", "-O", "^metadata_csum", file)
    assert done.returncode == 0, done.stderr


@contextmanager
def image(place: Path, file: Path) -> Iterator[Path]:
    """An image mounted, with a journal that waits long before it commits on its own."""
    with mounted(place, "-o", "loop,commit=300", file) as found:
        yield found


@cache
def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        if _do("mount", "-t", "tmpfs", "tmpfs", folder).returncode != 0:
            return False
        _do("umount", folder)
        return True
