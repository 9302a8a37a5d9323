"""The template of an ordinary step gives the bytes that the projection gives."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.tracing.otlp_json import span_text
from tachograph.tracing.spans import Projector, spans_of
from tachograph.tracing.step_template import StepTemplates
from tests.support import ROOT

RUNS = sorted(ROOT.glob("runs/*/*/state.jsonl"))
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['%s "\\', "\x00", "<id>"]
)
times = st.integers(0, 2**53)


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / "runs" / name / "state.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("state", RUNS, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_recorded_steps(state: Any) -> None:
    run, *steps, end = [json.loads(line) for line in state.read_bytes().splitlines()]
    plain, projector = Projector(run), Projector(run)
    templates = StepTemplates(projector)
    for line in steps:
        spans = plain.step(line)
        rendered = templates.render(line)
        if rendered is None:
            projector.step(line)
        else:
            assert rendered == (",\n".join(map(span_text, spans)), tuple(span.name for span in spans))
    assert projector.end(end) == plain.end(end) == spans_of([run, *steps, end])[-1]


def test_ordinary_steps_are_rendered() -> None:
    run, *steps, _ = _lines("canonical/v1")
    assert [StepTemplates(Projector(run)).render(line) is not None for line in steps].count(True) >= 3


@settings(deadline=None)
@given(
    words=st.fixed_dictionaries(
        dict.fromkeys(("at", "reason", "rule_id", "name", "id", "finish_reason", "model"), text)
    ),
    without=st.sets(st.sampled_from(["finish_reason", "model"])),
    stamps=st.lists(times, min_size=6, max_size=6, unique=True).map(sorted),
    index=st.integers(0, 10**6),
    tokens=st.tuples(times, times),
)
def test_any_values(
    words: dict[str, str], without: set[str], stamps: list[int], index: int, tokens: tuple[int, int]
) -> None:
    run, first, *_ = _lines("canonical/v1")
    line = copy.deepcopy(first)
    (decision,), (result,) = line["policy_decisions"], line["tool_results"]
    decision.update(at=words["at"], reason=words["reason"], rule_id=words["rule_id"], id=words["id"])
    result.update(id=words["id"], name=words["name"])
    line["intended_tool_calls"][0].update(id=words["id"], name=words["name"])
    for key in ("finish_reason", "model"):
        line["llm_output"][key] = None if key in without else words[key]
    line["stamps"] = {key: stamps[2 * n : 2 * n + 2] for n, key in enumerate(("m.1", "d0", "i0.1"))}
    line["step_index"] = index
    line["usage"].update(input_tokens=tokens[0], output_tokens=tokens[1])
    templates = StepTemplates(Projector(run))
    assert templates.render(first) is not None
    rendered = templates.render(line)
    assert rendered is not None
    assert rendered[0] == ",\n".join(map(span_text, Projector(run).step(line)))


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line["tool_results"][0].update(status="failed"),
        lambda line: line["tool_results"][0]["attempts"].append({"attempt": 2, "outcome": "success"}),
        lambda line: line["llm_attempts"].append({"attempt": 2, "outcome": "success"}),
        lambda line: line["stamps"].update({"h0": [1, 2]}),
        lambda line: line["policy_decisions"][0].update(approval={"answer": "allow"}),
        lambda line: line["policy_decisions"][0].update(phase="execution"),
        lambda line: line["policy_decisions"].append(dict(line["policy_decisions"][0])),
        lambda line: line.update(failure_mode="tool_call_failure"),
        lambda line: line.update(llm_output=None),
    ],
)
def test_any_other_step_is_left_to_the_projection(change: Any) -> None:
    run, line, *_ = _lines("canonical/v1")
    assert StepTemplates(Projector(run)).render(line) is not None
    change(line)
    assert StepTemplates(Projector(run)).render(line) is None
