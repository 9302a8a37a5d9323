"""What hooks answered, on the page of a run and in its drawings."""

from __future__ import annotations

import pytest

from tachograph.views.model import run_of
from tachograph.views.page import run_page
from tests.support import ROOT

SAID = {
    "hook_denies": ["hook hook_denies, before_call", "no objection"],
    "hook_rewrites": ["hook hook_rewrites, before_call", "arguments"],
    "hook_raises": ["hook hook_raises, before_call", "raised "],
    "hook_sends_back": ["hook hook_sends_back, on_stop", "what it was told after step"],
}


@pytest.mark.parametrize("name", SAID)
def test_a_page_shows_each_hook_and_its_answer(name: str) -> None:
    run = run_of(ROOT / "runs/loop" / name)
    page = run_page(run)
    for words in SAID[name]:
        assert words in page, words
    asked = sum(len(step.line.get("hooks", ())) for step in run.steps)
    assert page.count(f"hook {name}, ") >= asked > 0
    assert sum(lane == "hook" for step in run.steps for lane, _, _ in step.pieces) == asked
    assert sum(row.lane == "hook" for step in run.steps for row in step.rows) == asked
