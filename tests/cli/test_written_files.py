"""Files that a command writes where a person says: whole at once, and never in the place of a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from tachograph.cli.commands.common import write_file, write_new
from tachograph.fail.errors import OutputError

OURS: Final[dict[str, Any]] = {"ours": b"our", "kind": "note of ours"}


def test_a_file_is_whole_and_has_the_usual_permissions(tmp_path: Path) -> None:
    place = tmp_path / "a"
    for text in ("our one", "our tw\u00f6"):
        write_file(place, text, **OURS)
        assert place.read_text(encoding="utf-8") == text
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(place.stat().st_mode) == 0o666 & ~mask
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("our old")
    (tmp_path / "link").symlink_to("there")
    write_file(tmp_path / "link", "new", **OURS)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_text() == "new"


@pytest.mark.parametrize("there", [b"theirs", b"x" * 400 + b"our", b"\xff\x00", b"ou", b"\n"])
def test_what_is_not_ours_stays(tmp_path: Path, there: bytes) -> None:
    place = tmp_path / "a"
    place.write_bytes(there)
    (tmp_path / "link").symlink_to("a")
    for way in (place, tmp_path / "link"):
        with pytest.raises(OutputError, match="already exists and is not a note of ours; name a new file"):
            write_file(way, "x", **OURS)
    assert place.read_bytes() == there and sorted(path.name for path in tmp_path.iterdir()) == ["a", "link"]


@pytest.mark.parametrize("there", [b"", b"our", b"x" * 397 + b"our and more" * 99])
def test_what_is_ours_or_empty_is_replaced(tmp_path: Path, there: bytes) -> None:
    (tmp_path / "a").write_bytes(there)
    write_file(tmp_path / "a", "x", **OURS)
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize(
    "number, remedy",
    [
        (errno.ENOSPC, "make room"),
        (errno.EROFS, "where you may write"),
        (errno.ENOENT, "folder that is there"),
    ],
)
def test_what_the_system_says_is_told(
    tmp_path: Path, number: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_words: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number), "elsewhere")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    for write in (lambda: write_file(tmp_path / "a", "x", **OURS), lambda: write_new(tmp_path / "a", "x")):
        with pytest.raises(OutputError, match=os.strerror(number)) as found:
            write()
        assert remedy in str(found.value) and str(found.value).startswith(f"{tmp_path / 'a'}: cannot be")


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_file(tmp_path / "pipe", "page", **OURS)
    reader.join(timeout=30)
    assert read == ["page"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("name", ["", "no/such/folder", "a\0b", "loop"])
def test_what_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="cannot be written") as found:
        write_file(tmp_path / name if name else tmp_path, "x", **OURS)
    assert "\n" not in str(found.value)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
