"""Records of schema `ledger/v1`: proved by `verify`, shown, explained and moved on to the present schema."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.queries.explain import explain_run
from tachograph.evidence.queries.show import show
from tachograph.evidence.recording import index
from tachograph.runtime.formats.canonical_json import digest
from tachograph.runtime.journal import ledger, ledger_v1
from tachograph.runtime.models.request_parts import options_of
from tachograph.runtime.policy.policy import Policy
from tachograph.views.model import run_of
from tests.evidence.project import copy_inputs, edit_lines, edit_manifest, tachograph
from tests.support import LINES, ROOT

RECORDS = ROOT / "tests/data/v1"
V1 = sorted(path.parent for path in RECORDS.glob("*/*/manifest.json"))
LIVE = RECORDS / "live/smollm"
FITS_V1 = jsonschema_rs.validator_for(
    json.loads((ROOT / "src/runtime/journal/ledger.v1.schema.json").read_text(encoding="utf-8"))
)


def plain(text: str, _colour: str) -> str:
    return text


def lines_of(folder: Path, **how: Any) -> list[Any]:
    return list(ledger.read((folder / "state.jsonl").read_bytes(), folder.name, **how))


@pytest.mark.parametrize("folder", V1, ids=lambda path: path.name)
def test_a_record_of_v1_is_proved_and_shown(folder: Path) -> None:
    written = lines_of(folder, as_written=True)
    assert written[0]["schema"] == "ledger/v1"
    assert [error.message for line in written for error in FITS_V1.iter_errors(line)] == []
    assert verify(folder, ROOT) == []
    assert set(rebuild((folder / "state.jsonl").read_bytes(), "v1")) == {
        "trace.json", "run_report.md", "manifest.json"
    }  # fmt: skip
    shown = show(folder, as_json=False, paint=plain)
    assert shown.startswith(written[0]["run_id"]) and f"ending    {written[-1]['terminal_reason']}" in shown
    assert json.loads(show(folder, as_json=True, paint=plain))[0]["schema"] == "ledger/v1"
    assert len(run_of(folder, ROOT).steps) == len(written) - 2


def test_the_schema_of_v1_stays_as_it_was() -> None:
    """Records of v1 exist and are written no more: a new key belongs into the present schema."""
    text = (ROOT / "src/runtime/journal/ledger.v1.schema.json").read_bytes()
    assert digest(text) == "c716dc2c49bedbcc768066fc260747bc6734d5010f3ecba221e71ea4e3be2e4a"


def test_there_are_records_of_a_live_model_of_people_and_of_failures() -> None:
    names = {path.name for path in V1}
    assert {"smollm", "approval_given", "retry_exhaustion", "redacted_secret", "wrap_up"} <= names


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: edit_lines(folder, _deny, chain=True), "the lines before it give"),
        (lambda folder: _append(folder / "run_report.md"), "its digest is not the one in"),
        (lambda folder: edit_manifest(folder, lambda data: data.update(seed=8)), "the ledger gives 7"),
        (lambda folder: edit_manifest(folder, _other_schema), "/schemas/ledger"),
    ],
    ids=["a decision", "the report", "the manifest", "its schema"],
)  # fmt: skip
def test_a_changed_record_of_v1_is_found(
    change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(RECORDS / "canonical/v1", tmp_path / "v1"))
    change(folder)
    assert any(words in line for line in verify(folder, tmp_path)), verify(folder, tmp_path)


def _deny(lines: list[dict[str, Any]]) -> None:
    lines[1]["policy_decisions"][0]["decision"] = "deny"


def _other_schema(manifest: dict[str, Any]) -> None:
    manifest["schemas"]["ledger"] = "ledger/v2"


def _append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


def test_a_line_of_v1_comes_in_the_present_shape() -> None:
    run, *steps, end = lines_of(LIVE)
    written = lines_of(LIVE, as_written=True)
    assert options_of(run) == written[0]["model"]["options"] != {}
    assert "options" not in run["model"] and "tools" not in run["request_parts"]
    assert steps == written[1:-1] and end == written[-1]
    present = jsonschema_rs.validator_for(LINES)
    wrong = {error.message for error in present.iter_errors({**run, "schema": ledger.SCHEMA})}
    assert not any("request_parts" in message or "options" in message for message in wrong), wrong


def test_lines_of_the_present_schema_stay_as_they_are() -> None:
    line = {"type": "run", "schema": ledger.SCHEMA, "model": {"options": {"seed": 1}}}
    assert ledger_v1.lifted(line) is line
    odd = {"type": "run", "schema": ledger_v1.SCHEMA, "model": "none"}
    assert ledger_v1.lifted(odd) == {**odd, "request_parts": {}}


# ---- in a project ------------------------------------------------------------------------------------------

RUN = "canonical/v1"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose canonical run is of v1."""
    base = copy_inputs(tmp_path / "project", [RUN])
    shutil.rmtree(base / "runs" / RUN)
    shutil.copytree(RECORDS / RUN, base / "runs" / RUN)
    index.update(base)
    return base


def test_what_reads_a_record_without_comparing_bytes_reads_v1(project: Path) -> None:
    explained = explain_run(project / "runs" / RUN, root=project)
    assert len(explained.calls) == 4
    assert not any("ends early" in note for note in explained.notes), explained.notes
    policy = Policy.load(project / "policy/v1.yaml", root=project)
    found = under(project / "runs" / RUN, policy, root=project)
    assert found.undecided is not None or found.same == 4


def test_a_replay_of_v1_is_refused_with_a_way_forward(project: Path) -> None:
    (line,) = replayed(project / "runs" / RUN, root=project).lines
    assert "runs/canonical/v1/state.jsonl: is of schema 'ledger/v1'" in line and "accept" in line


def test_a_policy_of_that_time_keeps_its_version_and_what_it_does_not_say() -> None:
    policy = Policy.load(RECORDS / "policy.yaml", root=RECORDS)
    assert policy.version == lines_of(RECORDS / RUN)[0]["policy"]["version"]
    assert not policy.denies_overdraft and policy.on_failure == "terminate" and policy.reveal_to == {}
    (warning,) = policy.warnings
    assert "redaction is off" in warning
    listed = Policy.from_dict({**policy.data, "redact": ["email", "jwt"]})
    assert listed.redact == ("email", "jwt") and listed.warnings == ()
    recorded = lines_of(RECORDS / "policy_gates/redacted_secret")[0]["policy"]["version"]
    assert recorded == Policy.from_dict({**policy.data, "redact": ["email"]}).version


def test_a_project_of_v1_records_moves_on_by_accepting_them(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    code, said = tachograph(project, capsys, monkeypatch, "check")
    assert code == 1 and f'tachograph accept runs/{RUN} --reason "..."' in said
    code, said = tachograph(project, capsys, monkeypatch, "accept", "--all", "--reason", "record schema v2")
    assert code == 0, said
    assert lines_of(project / "runs" / RUN)[0]["schema"] == ledger.SCHEMA
    assert tachograph(project, capsys, monkeypatch, "check")[0] == 0
