"""Where rules stand today: the line that is shown beside a recorded rule, and whether the policy is still the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachograph.evidence.files.words.rule_places import RulePlaces
from tests.evidence.project import copy_inputs, replaced, tachograph

DENIED = "runs/policy_gates/pg1_off_allowlist_url"
RULE = "policy/v1.yaml#/url_allowlist"
MOVED = "the policy has moved on since the run: it is version "
GONE = "the policy files of the run are not at hand"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", [DENIED.removeprefix("runs/")])


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_rule_is_shown_with_its_line_of_today_and_a_moved_policy_is_said(
    command: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> str:
        code, out = tachograph(project, capsys, monkeypatch, command, DENIED)
        assert code == 0
        return out

    policy = project / "policy/v1.yaml"
    place = RulePlaces(project).find(RULE)
    assert place is not None and place.text.startswith("url_allowlist")
    first = said()
    assert f"policy/v1.yaml:{place.line} " in first and RULE not in first and MOVED not in first
    policy.write_text("# a remark\n" + policy.read_text())
    remarked = said()
    assert f"policy/v1.yaml:{place.line + 1} " in remarked and MOVED not in remarked
    replaced(policy, "max_repeats: 3", "max_repeats: 4")
    moved = said()
    assert f"policy/v1.yaml:{place.line + 1} " in moved and MOVED in moved


def test_without_its_policy_a_rule_is_shown_as_recorded(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "policy/v1.yaml").unlink()
    code, out = tachograph(project, capsys, monkeypatch, "show", DENIED)
    assert code == 0 and RULE in out and GONE in out


def test_check_shows_the_line_of_the_rule_that_decides_now(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = project / "policy/v1.yaml"
    replaced(policy, "search, fetch, ", "search, ")
    place = RulePlaces(project).find("policy/v1.yaml#/tool_registry/allowed")
    assert place is not None
    code, out = tachograph(project, capsys, monkeypatch, "check", DENIED)
    assert code == 1 and "policy/v1.yaml moved" in out
    assert f"rule now    policy/v1.yaml:{place.line}  {place.text.strip()}" in out


def test_a_committed_report_names_file_and_pointer_and_no_line(project: Path) -> None:
    report = (project / DENIED / "run_report.md").read_text()
    assert f"[`{RULE}`](../../../policy/v1.yaml)" in report
    assert "policy/v1.yaml:" not in report and "#L" not in report
