"""Runs into which marked values are put: nothing of them is written, and without redaction all that is recorded is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph.cli.commands.secrets import _show
from tachograph.evidence.canary.agent import turns_of
from tachograph.evidence.canary.marks import WAYS, Search, marked_values
from tachograph.evidence.canary.trial import KINDS, Kind, tried
from tachograph.runtime.core.secret_kinds import PATTERNS
from tachograph.runtime.policy.policy import Policy
from tests.support import ROOT

REDACT = Policy.load(ROOT / "policy/v1.yaml", root=ROOT).data["redact"]
# texts of exceptions are logged alone
LOGGED = {"model_exception", "tool_error", "tool_error_note", "hook_error"}
# what no run writes down, whatever its policy: ids are the run's own, and of a reply only known words and counts stay
NOWHERE = {"history_call_id", "reply_finish", "reply_usage", "request_header"}
# what is checked before it is recorded, and stands in a journal until then
JOURNALED = {"approval_signature"}
RECORDED = WAYS.keys() - LOGGED - NOWHERE - JOURNALED


def places_of(kind: Kind, redact: Any) -> dict[str, set[str]]:
    """Where something of each way in was found."""
    trial = tried(kind, redact, _show)
    assert trial.ending == "final_answer" and trial.not_tried == []
    out: dict[str, set[str]] = {way: set() for way in WAYS}
    for found in trial.found:
        out[found.way].add(found.place)
    return out


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_marked_value_is_written_anywhere(kind: Kind) -> None:
    assert {way: places for way, places in places_of(kind, REDACT).items() if places} == {}


@pytest.mark.parametrize(
    ("kind", "redact"),
    [*((kind, None) for kind in KINDS), (KINDS[0], {"off": True}), (KINDS[-1], ["jwt"])],
    ids=lambda given: given.name if isinstance(given, Kind) else str(given),
)
def test_without_redaction_all_that_is_recorded_is_found(kind: Kind, redact: Any) -> None:
    found = places_of(kind, redact)
    state = "runs/canary/trial/state.jsonl"
    assert {way for way, places in found.items() if state in places} == RECORDED
    journal = "runs/canary/trial.partial/journal.jsonl"
    assert {way for way, places in found.items() if journal in places} == RECORDED | JOURNALED
    assert {way for way, places in found.items() if "log" in places} >= LOGGED
    assert {way for way in NOWHERE if found[way]} == set()
    pieces = {way for way, places in found.items() if "pieces of text" in places}
    assert pieces == ({"reply", "answer", "answer_misfit"} if kind.streams else set())
    for way in ("tool_name", "argument_name", "reply_model", "tool_error_class", "hook_reason"):
        trace = "runs/canary/trial/trace.json"
        assert trace in found[way] and any(place.startswith("OTLP") for place in found[way]), way
    # a trace that is pushed with what was said holds what the model and the tools said
    for way in ("question", "argument", "tool_result", "answer", "redirect", "file_name"):
        assert any(place.startswith("OTLP") for place in found[way]), way


def test_a_half_of_a_value_is_found_in_any_letter_case() -> None:
    values = marked_values()
    search = Search(values)
    half = values["question"][4:19]
    assert [(found.way, found.place) for found in search.found([("a", half.upper().encode())])] == [
        ("question", "a")
    ]
    assert search.found([("a", values["question"][4:18].encode())]) == []


def test_marked_values_differ_and_are_of_their_kind() -> None:
    values = marked_values()
    assert values.keys() == WAYS.keys() and len(set(values.values())) == len(WAYS)
    assert all(len(value) == 40 for value in values.values())
    assert "github_token" in PATTERNS and marked_values() != values


def test_each_way_that_a_model_says_stands_in_its_turns() -> None:
    values = marked_values()
    said = repr(turns_of(values))
    assert {way for way in WAYS if values[way] in said} == {
        *(way for way in WAYS if way.startswith("reply")),
        *(
            "answer",
            "answer_misfit",
            "model_error",
            "tool_name",
            "argument",
            "argument_name",
            "argument_text",
            "url_denied",
        ),
    }


def test_a_run_leaves_nothing_outside_of_its_own_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    tried(KINDS[0], REDACT, _show)
    assert list(tmp_path.iterdir()) == []
