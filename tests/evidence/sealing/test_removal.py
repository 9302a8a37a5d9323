"""Removing a run as docs/limits.md says, step by step, in a project that was accepted and sealed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.evidence.keys import key_pair, needs_library, trust_file
from tests.evidence.project import FEW, RETRIED, copy_inputs, replaced, tachograph
from tests.support import ROOT

ACCEPTED = "runs/ACCEPTED.jsonl"
KEPT = "runs/canonical/v1"


@needs_library
def test_a_run_is_removed_without_breaking_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    project = copy_inputs(tmp_path / "project", FEW)
    key, public = key_pair(tmp_path, "ann")
    trust = str(trust_file(tmp_path / "trusted", 1, public))

    def says(code: int, *words: str) -> str:
        found, out = tachograph(project, capsys, monkeypatch, *words)
        assert found == code, out
        return out

    replaced(project / "tools/fetch.py", "EFFECT", "# a remark\nEFFECT")
    says(0, "accept", "--all", "--reason", "a remark")
    says(0, "seal", "--all", "--key", str(key))
    says(0, "verify", "--trust", trust, "--strict")
    ledger = (project / RETRIED / "state.jsonl").read_bytes()
    kept = {path.name: path.read_bytes() for path in (project / KEPT).iterdir()}

    shutil.rmtree(project / RETRIED)  # step 1
    says(1, "check")  # its task is there: a task without a run fails
    (project / f"tasks{RETRIED.removeprefix('runs')}.yaml").unlink()
    says(0, "index")
    assert f"{ACCEPTED}:2: its run {RETRIED} is gone; restore the run or take its lines out" in says(
        1, "check"
    )
    lines = (project / ACCEPTED).read_text().splitlines(keepends=True)  # step 2
    (project / ACCEPTED).write_text("".join(line for line in lines if json.loads(line)["run"] != RETRIED))
    says(0, "index")  # step 3
    says(0, "check")
    says(0, "verify")
    assert f"{RETRIED}: is gone" in says(1, "verify", "--trust", trust)  # step 4
    says(0, "seal", "--all", "--key", str(key))
    says(0, "verify", "--trust", trust, "--strict")
    assert [path.name for path in sorted((project / "seals").iterdir())] == ["000001.json", "000002.json"]
    assert {path.name: path.read_bytes() for path in (project / KEPT).iterdir()} == kept

    texts = [line for line in ledger.split(b'"') if len(line) > 40 and b" " in line]
    left = b"".join(path.read_bytes() for path in project.rglob("*") if path.parent.name == "seals")
    assert texts and not any(text in left for text in texts), "a snapshot holds digests and names alone"


REDACTED = "runs/policy_gates/redacted_secret"


def test_a_value_is_taken_out_of_a_run_and_of_what_was_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    project = copy_inputs(tmp_path / "project", [REDACTED.removeprefix("runs/")])
    address, overlay = "cards@ollerbeck.example", project / "policy/overlays/redact_email.yaml"

    def says(*words: str) -> None:
        code, out = tachograph(project, capsys, monkeypatch, *words)
        assert code == 0, out

    def holding() -> list[str]:
        files = (path for path in (project / "runs").rglob("*") if path.is_file())
        return sorted(path.name for path in files if address in path.read_text())

    assert holding() == []
    replaced(overlay, "    - email\n", "")
    says("accept", "--all", "--expose-secrets", "--reason", "the address is wanted")
    assert "state.jsonl" in holding()
    replaced(overlay, "    - github_token\n", "    - email\n    - github_token\n")
    says("accept", "--all", "--reason", "the address is hidden")
    assert holding() == ["ACCEPTED.jsonl"], "the difference is written down with both sides"
    lines = (project / ACCEPTED).read_text().splitlines(keepends=True)
    (project / ACCEPTED).write_text("".join(line for line in lines if address not in line))
    assert holding() == []
    says("check")
    says("verify")


def test_the_page_names_each_step() -> None:
    text = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    steps = text[text.index("To remove the run") : text.index("To keep a run without one value")]
    for words in ("Delete `runs/K/N`", ACCEPTED, "tachograph index", "tachograph seal --all", ".tachograph/"):
        assert words in steps
