"""What hooks answered, on the page of a run and in its drawings."""

from __future__ import annotations

import pytest

from tachograph.evidence.queries.show import show
from tachograph.views.model import run_of
from tachograph.views.page import run_page
from tachograph.views.tree import leaves
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


@pytest.mark.parametrize("name", ["hook_denies", "hook_rewrites", "hook_raises"])
def test_a_hook_stands_before_the_decision_that_it_led_to(name: str) -> None:
    folder = ROOT / "runs/loop" / name
    shown = show(folder, as_json=False, paint=lambda text, _colour: text, root=ROOT).splitlines()
    calls = [number for number, line in enumerate(shown) if line.startswith("  call ")]
    first, then = shown[calls[0] + 1 : calls[0] + 4], {"hook_rewrites": "allow"}.get(name, "deny")
    assert [line.split()[0] for line in first] == ["allow", "hook", then]
    drawn = ["".join(text for text, _ in leaf.pieces) for leaf in leaves(run_of(folder))[0].below[1].below]
    assert [line.split()[0] for line in drawn[:3]] == ["allow", "hook", then]
