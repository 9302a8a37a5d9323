"""The package under test is this one, and never another that is installed under its name."""

from __future__ import annotations

import sys
from pathlib import Path

import tachograph.cli.main

ROOT = Path(__file__).parent.parent


def test_no_other_package_is_imported() -> None:
    files = {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "tachograph"
    }
    assert tachograph.cli.main.__name__ in files
    assert [
        name for name, file in files.items() if not Path(file or "").is_relative_to(ROOT / "tachograph")
    ] == []
