"""What lets secrets into records is a class of its own, and is accepted only by a flag of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.cli import main as command_line
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.exposure import is_exposed, redacts_less
from tachograph.evidence.checking.experiment.find import find_causes
from tachograph.runtime.policy.policy import Policy
from tests.evidence.files.test_git_objects import git
from tests.evidence.project import copy_inputs, replaced, tachograph
from tests.support import ROOT

RUN, OVERLAY = "runs/policy_gates/redacted_secret", "policy/overlays/redact_email.yaml"
PLAIN = "runs/canonical/v1"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = copy_inputs(
        tmp_path_factory.mktemp("exposure") / "project", ("policy_gates/redacted_secret", "canonical/v1")
    )
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "runs")
    return project


@pytest.fixture
def project(committed: Path, tmp_path: Path) -> Path:
    shutil.copytree(committed, tmp_path / "project")
    return tmp_path / "project"


def test_a_policy_that_redacts_less(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(project / "policy/v1.yaml", "    - github_token\n", "")
    code, out = tachograph(project, capsys, monkeypatch, "check", PLAIN)
    assert code == 1 and f"EXPOSURE  {PLAIN}" in out
    assert "EXPOSURE: secrets of the kind github_token may enter records" in out
    assert f'accept it: tachograph accept {PLAIN} --expose-secrets --reason "..."' in out
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(project)
    assert command_line.main(["accept", PLAIN, "--reason", "why not"]) == 2
    assert "puts into its record what was kept out of it (secrets of the kind" in capsys.readouterr().err
    assert command_line.main(["accept", "--all", "--reason", "why not"]) == 1
    lines = (project / "runs/ACCEPTED.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == [RUN]  # whose overlay names its kinds itself
    capsys.readouterr()
    code, out = tachograph(
        project, capsys, monkeypatch, "accept", PLAIN, "--expose-secrets", "--reason", "why not"
    )
    assert (
        code == 0
        and json.loads((project / "runs/ACCEPTED.jsonl").read_text().splitlines()[-1])["class"] == "EXPOSURE"
    )
    assert tachograph(project, capsys, monkeypatch, "check", PLAIN)[0] == 0


def test_a_value_in_the_place_of_a_placeholder_is_told_without_git(project: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / OVERLAY).write_text('redact: {kinds: [], "off": true}\n')
    findings = examine(project / RUN, root=project)
    find_causes([findings], project)
    assert (
        findings.kind == "EXPOSURE" and findings.drift is not None and findings.drift.counts["EXPOSURE"] > 0
    )
    assert findings.accept is None or "--expose-secrets" in findings.accept


def test_a_policy_that_redacts_more_exposes_nothing(project: Path) -> None:
    replaced(project / "policy/v1.yaml", "    - github_token\n", "    - github_token\n    - email\n")
    findings = examine(project / PLAIN, root=project)
    find_causes([findings], project)
    assert findings.exposes == [] and findings.kind == "DIGEST-ONLY"


def test_policy_diff_fails_where_less_is_redacted(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = project / "policy/v1.yaml"
    less = project / "policy/less.yaml"
    less.write_text(old.read_text().replace("    - github_token\n", ""))
    code, out = tachograph(project, capsys, monkeypatch, "policy", "diff", str(old), str(less))
    assert code == 1 and "EXPOSURE  redact:" in out
    assert "secrets may enter records or reach a tool that were kept from them (EXPOSURE)" in out
    code, out = tachograph(project, capsys, monkeypatch, "policy", "diff", str(less), str(old))
    assert code == 0 and "EXPOSURE" not in out
    code, out = tachograph(project, capsys, monkeypatch, "policy", "diff", str(old), str(less), "--json")
    assert code == 1 and json.loads(out)["exposes"] is True


def test_what_redacts_less() -> None:
    plain = Policy.load(ROOT / "policy/v1.yaml", root=ROOT)
    more = Policy.load(ROOT / "policy/v1.yaml", [ROOT / OVERLAY], root=ROOT)
    assert redacts_less(plain, plain) == [] and redacts_less(plain, more) == []
    assert redacts_less(more, plain) == ["secrets of the kind email may enter records"]


@given(st.text(), st.text(), st.text(min_size=1))
def test_a_text_is_exposed_where_a_placeholder_became_something_else(a: str, b: str, secret: str) -> None:
    a, b, secret = (text.replace("<secret:", "") for text in (a, b, secret))
    before = f"{a}<secret:env:1>{b}"  # of which no pattern tells
    assert is_exposed(before, f"{a}{secret}{b}") == bool(secret)
    assert not is_exposed(before, before) and not is_exposed(f"{a}{b}", f"{a}{secret}{b}")
    assert not is_exposed(before, f"{a}<secret:env:2>{b}") and not is_exposed(before, f"{before}!")


def test_a_value_that_was_taken_out_is_no_exposure() -> None:
    before = "write to <secret:email:1> today"
    assert is_exposed(before, "write to lead@ollerbeck.example today")
    assert not is_exposed(before, "write to the lead today")
