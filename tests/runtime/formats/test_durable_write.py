"""A file is written as a whole, and is on the disk before it is in its place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.formats import durable_write
from tachograph.runtime.formats.durable_write import write_durably


def test_a_file_is_written_and_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_durably(path, b"first", mode=0o600)
    assert path.read_bytes() == b"first" and path.stat().st_mode & 0o777 == 0o600
    write_durably(path, b"second")
    assert path.read_bytes() == b"second" and os.listdir(tmp_path) == ["one.json"]


def test_a_file_that_is_there_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_durably(path, b"first", replaces=False)
    with pytest.raises(FileExistsError):
        write_durably(path, b"second", replaces=False)
    assert path.read_bytes() == b"first"


@pytest.mark.parametrize("replaces", [True, False])
def test_what_is_in_place_is_on_the_disk(
    replaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noted(name: str) -> Any:
        real = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return real(*given, **named)

        return call

    for name in ("fsync", "replace", "link"):
        monkeypatch.setattr(durable_write.os, name, noted(name))
    write_durably(tmp_path / "one.json", b"data", replaces=replaces)
    assert calls == ["fsync", "replace" if replaces else "link", "fsync"]
