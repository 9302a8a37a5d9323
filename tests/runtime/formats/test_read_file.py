"""Files that a person names: read without waiting, without end, whatever stands behind the name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tachograph.evidence.tasks.task import load_task
from tachograph.fail.errors import InputError
from tachograph.runtime.formats.read_file import NotPlain, read_plain, read_unlinked
from tachograph.runtime.policy.policy import Policy

LOADERS: dict[str, Callable[[Path], Any]] = {
    "policy": lambda path: Policy.load(path, root=path.parent),
    "overlay": lambda path: Policy.shipped([path]),
    "task": lambda path: load_task(path, root=path.parent),
}


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """A test that hangs fails."""

    def late(_signum: int, _frame: FrameType | None) -> None:
        raise AssertionError("still reading")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_read_plain(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_plain(path, 5) == read_plain(str(path), 9) == b"12345"
    assert read_plain(path, 3) == b"1234"
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_plain(link, 9) == b"12345"
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "b", 5)


def test_read_unlinked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_unlinked(path) == read_unlinked(path, 9) == b"12345"
    assert read_unlinked(path, 3) == b"123"
    for target in ("a", "nowhere", "link"):
        link = tmp_path / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(NotPlain, match="it is a link"):
            read_unlinked(link)
    with pytest.raises(FileNotFoundError):
        read_unlinked(tmp_path / "b")


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def _fifo_behind_a_link(folder: Path) -> Path:
    (folder / "link").symlink_to(_fifo(folder))
    return folder / "link"


NO_FILES: dict[str, Callable[[Path], Path]] = {
    "fifo": _fifo,
    "link to a fifo": _fifo_behind_a_link,
    "endless device": lambda _: Path("/dev/zero"),
    "empty device": lambda _: Path("/dev/null"),
    "folder": lambda folder: folder,
    "no name": lambda folder: folder / "a\0b",
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = NO_FILES[kind](tmp_path)
    for read in (read_plain, read_unlinked):
        with pytest.raises(NotPlain):
            read(path, 5)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("kind", NO_FILES)
def test_loaders_refuse_what_is_no_file(tmp_path: Path, kind: str, loader: str) -> None:
    path = NO_FILES[kind](tmp_path)
    with pytest.raises(InputError, match=r"is not a regular file; name a (YAML )?file"):
        LOADERS[loader](path)


@pytest.mark.parametrize("loader", LOADERS)
def test_loaders_read_no_more_than_they_judge(tmp_path: Path, loader: str) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # without a byte on the disk
    with pytest.raises(InputError, match=r"the file has more than \d+ bytes; split it"):
        LOADERS[loader](path)
