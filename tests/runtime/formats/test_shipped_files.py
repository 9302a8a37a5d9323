"""Files that ship with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tachograph.runtime.formats import shipped_files

SOURCES = Path(shipped_files.__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("fail/catalog.py", True),
        ("runtime/loop/loop.py", True),
        ("light_dataclasses.py", True),
        ("views/page.py", False),
    ],
)
def test_the_digest_covers_what_decides_a_run(
    file: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "src"
    shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shipped_files, "_PACKAGE", copied)
    before = shipped_files.package_digest.__wrapped__()
    with (copied / file).open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    assert (shipped_files.package_digest.__wrapped__() != before) is counts
