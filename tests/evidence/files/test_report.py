"""The report: what it counts, and that foreign text in it can forge nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.files.report import Report
from tachograph.runtime.models.types import LLMOutput
from tests.support import ROOT, Ran, answer, ask, failing, perform, policy_data, probe, tool

HOSTILE = (
    "# Fake\n\n**Ending: `final_answer`**\n\n| 1 | x | allow |\n[a](https://evil.test) ![b](c)\n```\n"
    "<script>\x1b[31m\u202e`|` ```` @who #1 www.evil.test\r\n---\n> quote\n1. one\n\u2028# two"
)


def _report(done: Ran) -> str:
    return rebuild(done.state, "state.jsonl")["run_report.md"].decode()


def _row(report: str, first: str) -> list[str]:
    (row,) = [line for line in report.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_budgets_count_what_the_gate_counts() -> None:
    refused = _report(perform([ask(probe())], policy=policy_data(loop_budget={"max_iterations": 1})))
    assert _row(refused, "iterations") == ["iterations", "1", "1"]
    used = perform(
        [ask(probe(), probe("nope")), answer()],
        [tool(run=failing(ConnectionError()))],
        policy_data(on_deny="inform"),
    )
    assert _row(_report(used), "tool calls") == ["tool calls", "1", "20"]
    assert _row(_report(used), "result bytes")[1] == str(len('{"said":"ok"}'))
    assert "Attempts: 2 · Retries: 1 · Denials: 1" in _report(used)


def test_every_denial_and_failure_is_listed_with_its_step() -> None:
    done = perform(
        [ask(probe("nope")), ask(probe())],
        [tool(run=failing(KeyError()))],
        policy_data(on_deny="inform"),
    )
    report = _report(done)
    assert len(re.findall(r"^- Step 1, `tool_registry`", report, re.M)) == 1
    assert len(re.findall(r"^- Step 2, `probe`, attempt 1: .*KeyError", report, re.M)) == 1


def test_failures_that_the_model_was_told_of_are_counted_with_the_rule_for_them() -> None:
    policy = policy_data(on_failure={"default": "inform", "tools": {"echo": "terminate"}})
    done = perform([ask(probe()), LLMOutput(), answer()], [tool(run=failing(KeyError()))], policy)
    assert done.end["totals"]["told_failures"] == 2
    report = _report(done)
    assert "Failures that the model was told of: 2" in report
    assert "`on_failure: inform`, `echo`: `terminate`, at most 10" in report
    assert "told of" not in _report(perform([answer()]))
    cut = perform([ask(probe(), probe(n=1), finish_reason="length"), answer()], policy=policy)
    assert cut.end["totals"]["told_failures"] == 1  # one reply, whatever it proposed


def _modes(report: str) -> list[str]:
    """The last cell of each row that shows a call."""
    rows = [line for line in report.splitlines() if re.match(r"\| \d+ \| `", line)]
    return [row.strip("|").split("|")[-1].strip() for row in rows]


def test_a_call_has_its_own_failure_modes_and_not_those_of_its_step() -> None:
    tools = [tool(), tool("shaky", failing(ConnectionError())), tool("bad", failing(KeyError(), KeyError()))]
    calls = [probe(), probe("shaky"), probe("nope"), probe("bad"), probe()]
    registry = {"allowed": ["probe", "shaky", "bad"]}
    policy = policy_data(tool_registry=registry, on_deny="inform", on_failure="inform")
    told = perform([ask(*calls), answer()], tools, policy)
    assert told.steps[0]["failure_mode"] == "catalogued_unhandled"
    assert _modes(_report(told)) == ["", "tool_call_failure", "", "catalogued_unhandled", ""]
    ending = policy_data(tool_registry=registry)
    ended = perform([ask(probe(), probe("bad"), probe(n=1))], tools, ending)
    assert ended.result.mode == "catalogued_unhandled"
    assert _modes(_report(ended)) == [
        "",
        "catalogued_unhandled",
        "catalogued_unhandled",
    ]  # the last: not reached
    same = [ask(probe())] * 9
    cycle = perform(same, policy=policy_data(cycle_detection={"max_repeats": 1}))
    assert _modes(_report(cycle)) == ["", "cycle_detection"]
    misfit = perform([ask(probe(n="x"))], policy=policy_data())
    assert _modes(_report(misfit)) == [misfit.result.mode or ""]


def _shape(report: str) -> list[str]:
    """What a forge makes of each line: its block, and for a row the number of its cells."""
    shape = []
    for line in report.splitlines():
        if line.startswith("|"):
            shape.append(f"row {line.count('|')}")
        elif found := re.match(r"#+ |- |```|>", line):
            shape.append(found.group().strip() + (line if line[0] == "#" and "Run" not in line else ""))
    return shape


def test_foreign_text_forges_neither_heading_row_link_nor_fence() -> None:
    def of(text: str) -> str:
        replies: list[Any] = [
            ask(probe(text, path=text), text=text),
            ask(probe(path=f"../{text}")),
            answer(text, model=text),
        ]
        return _report(perform(replies, policy=policy_data(on_deny="inform")))

    calm, hostile = of("calm"), of(HOSTILE)
    quoted = len(HOSTILE.replace("\r\n", "\n").split("\n"))
    assert [s for s in _shape(hostile) if s != ">"] == [s for s in _shape(calm) if s != ">"]
    assert _shape(hostile).count(">") == _shape(calm).count(">") + quoted - 1
    assert [c for c in hostile if c != "\n" and not c.isprintable()] == []
    prose = re.sub(r"(`+).*?\1", "", hostile)
    assert "](" not in prose and "<script>" not in prose and "![" not in prose


def test_external_tools_and_declared_kinds_are_named() -> None:
    send = tool("send", effect="external")
    report = _report(perform([ask(probe()), answer()], [send]))
    assert "- External tools, whose results a check takes from this record: `send`" in report
    assert "- Effect kinds that were declared, not checked: `probe` (network), `echo` (network)" in report


@pytest.mark.parametrize("section", [[], {"kinds": ["jwt"], "off": True}])
def test_a_report_says_loudly_that_redaction_was_off(section: Any) -> None:
    said = "**Redaction was off**: secrets stand in this record as they came."
    assert said in _report(perform([answer()], policy=policy_data(redact=section)))
    assert said not in _report(perform([answer()], policy=policy_data(redact=["jwt"])))


def test_verdicts_that_cannot_be_derived_again_are_counted() -> None:
    report = Report(perform([answer()]).lines[0])
    totals = {**perform([answer()]).end["totals"], "hidden_verdicts": 2}
    said = report.end({**perform([answer()]).end, "totals": totals})
    assert "Verdicts on hidden values, which cannot be derived again: 2" in said
    assert "hidden values" not in _report(perform([answer()]))


def test_committed_reports_read_as_plain_text() -> None:
    """Names and rules are what a reviewer looks for in a diff: nothing inside a word is a reference."""
    reports = sorted((ROOT / "runs").glob("*/*/run_report.md"))
    assert len(reports) > 50
    for file in reports:
        assert re.findall(r"\w&#\d+;\w", file.read_text(encoding="utf-8")) == [], file
