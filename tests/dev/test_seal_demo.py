"""`make seal-demo` shows what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import seal_demo
from tests.evidence.keys import needs_library

pytestmark = needs_library


def test_every_command_ends_as_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    assert seal_demo.main() == 0
    out = capsys.readouterr().out
    assert out.count("$ tachograph") == 10 and out.endswith("seal-demo: all as it should be\n")


def test_a_command_that_ends_otherwise_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = seal_demo.Demo(tmp_path)
    demo.show(0, "--version")
    assert demo.wrong == 0
    demo.show(1, "--version")
    assert demo.wrong == 1 and "seal-demo: the exit code should have been 1" in capsys.readouterr().out
