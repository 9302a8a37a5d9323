"""What the model saw at a step, on the page of a run: each text stands there once, and a step points to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph.views.model import run_of
from tachograph.views.page import run_page
from tests.evidence.project import edit_lines
from tests.support import CANONICAL, ROOT, copy_project
from tests.views.reading import Page, must_be_sound

V1 = ROOT / "tests/data/v1"


def page_of(folder: Path) -> Page:
    return must_be_sound(run_page(run_of(folder)))


def links(page: Page, words: str) -> list[str]:
    """Addresses of the links whose text begins with `words`."""
    return [place for text, place in page_links(page) if text.startswith(words)]


def page_links(page: Page) -> list[tuple[str, str]]:
    addresses = [attributes["href"] for tag, attributes in page.found if tag == "a"]
    texts = [text for tag, text in page.words if tag == "a"]
    assert len(addresses) == len(texts)
    return list(zip(texts, addresses, strict=True))


def test_a_step_points_to_every_part_that_the_model_saw() -> None:
    page = page_of(ROOT / "runs/canonical/v1")
    assert links(page, "message 1: the question") == ["#question"]
    assert links(page, "messages 1 to 3, as in step 2") == ["#step-2"]
    assert links(page, "message 4: the reply of step 2") == ["#step-2"]
    assert links(page, "message 5: the result of tc_2_0") == ["#tc_2_0"]
    tools = set(links(page, "tools"))
    assert len(tools) == 1 and next(iter(tools)).startswith("#asked-tools-")
    assert "what the model saw: 5 messages, 5 tools" in page.text
    assert "at most 48,981 tokens of reply" in page.text


def test_descriptions_and_schemas_stand_once() -> None:
    line = json.loads((ROOT / CANONICAL / "state.jsonl").read_text(encoding="utf-8").split("\n")[0])
    page = page_of(ROOT / "runs/canonical/v1")
    for tool in line["request_parts"]["tools"][0]["tools"]:
        assert page.text.count(tool["description"]) == 1
    assert "Tools: search, fetch, read, write, summarize" in page.text


def test_options_and_a_step_without_tools_are_shown() -> None:
    live = page_of(ROOT / "runs/live/smollm")
    assert links(live, "options") and "temperature" in live.text
    last = page_of(ROOT / "runs/loop/wrap_up")
    assert len(set(links(last, "tools"))) == 2
    assert "Tools: none" in last.text and "No tool was offered." in last.text
    assert ": the notice above" in last.text


def test_a_record_of_v1_says_what_it_does_not_know() -> None:
    page = page_of(V1 / "canonical/v1")
    assert "tools: the ledger does not say" in page.text
    assert "The ledger does not say which tools were offered." in page.text


def test_what_the_ledger_does_not_vouch_for_is_marked(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    edit_lines(project / CANONICAL, lambda lines: lines[0].update(question="What then?"), chain=True)
    page = page_of(project / CANONICAL)
    assert page.text.count("not vouched for: the lines before it give other messages") == 5


@pytest.mark.parametrize("run", ["failure_modes/llm_failure", "policy_gates/pg3_loop_budget"])
def test_a_step_that_was_not_asked_says_nothing_of_a_request(run: str) -> None:
    run_read = run_of(ROOT / "runs" / run)
    page = must_be_sound(run_page(run_read))
    asked = sum(step.request is not None for step in run_read.steps)
    assert page.text.count("what the model saw: ") == asked
    assert asked == sum(step.line["llm_input"] is not None for step in run_read.steps)
