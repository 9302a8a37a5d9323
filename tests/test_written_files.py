"""Files that a command writes where a person says: whole at once, and never in the place of a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from tachograph.fail.errors import OutputError
from tachograph.verbs.common import write_file


def test_a_file_is_whole_and_has_the_usual_permissions(tmp_path: Path) -> None:
    place = tmp_path / "a"
    for text in ("one", "tw\u00f6"):
        write_file(place, text)
        assert place.read_text(encoding="utf-8") == text
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(place.stat().st_mode) == 0o666 & ~mask
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_text() == "new"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_file(tmp_path / "pipe", "page")
    reader.join(timeout=30)
    assert read == ["page"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("name", ["", "no/such/folder", "a\0b", "loop"])
def test_what_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="cannot be written") as found:
        write_file(tmp_path / name if name else tmp_path, "x")
    assert "\n" not in str(found.value)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
