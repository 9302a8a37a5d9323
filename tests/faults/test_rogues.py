"""Tools that do what no tool should are contained, classified and recorded, wherever they run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.rogues import ROGUES, performed
from tests.support import attend_to_ctrl_c

HERE = [name for name, rogue in ROGUES.items() if rogue.here]


@pytest.fixture(autouse=True)
def _same_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.getcwd())  # and back


@pytest.mark.parametrize("name", HERE)
def test_a_rogue_is_contained(name: str, tmp_path: Path) -> None:
    attend_to_ctrl_c()
    step = performed(ROGUES[name], tmp_path / "here")
    (result,) = step["tool_results"]
    assert len(result["attempts"]) == 1, "what may not be repeated was"


@pytest.mark.parametrize(
    "name", [name for name, rogue in ROGUES.items() if not rogue.here or rogue.timeout_s]
)
def test_a_rogue_is_contained_in_its_own_process(name: str, tmp_path: Path) -> None:
    performed(ROGUES[name], tmp_path / "isolated", isolate=True)


def test_a_record_is_the_same_wherever_the_tool_failed(tmp_path: Path) -> None:
    for name in ("raises a BaseException", "returns NaN", "changes its arguments"):
        here = performed(ROGUES[name], tmp_path / name)
        there = performed(ROGUES[name], tmp_path / f"{name} isolated", isolate=True)
        assert here.pop("prev") != there.pop("prev"), "the tool's own text differs"
        assert here == there
