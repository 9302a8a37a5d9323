"""`make seal-demo` shows what it says."""

from __future__ import annotations

import pytest

from dev import seal_demo
from tests.evidence.keys import needs_library

pytestmark = needs_library


def test_every_command_ends_as_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    assert seal_demo.main() == 0
    out = capsys.readouterr().out
    assert out.count("$ tachograph") == 10 and out.endswith("seal-demo: all as it should be\n")


def test_a_command_that_ends_otherwise_is_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal_demo, "strip", lambda project: None)
    assert seal_demo.main() == 1
    assert capsys.readouterr().out.endswith("seal-demo: 1 wrong\n")
