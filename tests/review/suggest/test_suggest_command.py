"""`tachograph policy suggest`: what is printed, where it is written, and that no text in it acts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph import LLMOutput, Policy, ToolCall
from tachograph.cli import main as cli
from tachograph.review.suggest.policy_writer import policy_text
from tachograph.review.suggest.suggest import suggest
from tachograph.runtime.formats.strict_yaml import load
from tests.evidence.project import copy_inputs, tachograph
from tests.review.runs import run_of
from tests.support import ROOT
from tests.tables.output_texts import TEXTS


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(
        tmp_path / "project", ("canonical/v1", "policy_gates/inform_adapts", "policy_gates/pg5_arg_schema")
    )


RUN = "runs/policy_gates/inform_adapts"


def test_the_command_prints_a_draft_and_exits_by_what_it_proved(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = tachograph(project, capsys, monkeypatch, "policy", "suggest", RUN)
    assert code == 0 and out.startswith("# A draft for review")
    assert max(map(len, out.splitlines())) <= 80
    code, out = tachograph(
        project, capsys, monkeypatch, "policy", "suggest", "runs/policy_gates/pg5_arg_schema"
    )
    assert code == 1 and "# cannot be allowed: step 1 search: the tool's schema decides" in out
    code, out = tachograph(project, capsys, monkeypatch, "policy", "suggest", RUN, "--json")
    data = json.loads(out)
    assert code == 0 and data["run_id"] == "policy_gates-inform_adapts-s7" and data["edits"] is None
    assert data["proof"]["replayed"]["frontier"]["kind"] == "widening"
    assert Policy.from_dict(data["policy"]).version == data["version"]
    code, out = tachograph(
        project, capsys, monkeypatch, "policy", "suggest", RUN, "--policy", "policy/v1.yaml"
    )
    assert code == 0 and '\n+  - "https://news.example/recorder-failures"\n' in out


def test_a_draft_is_written_to_a_new_file_only(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (project / "policy/v1.yaml").read_bytes()
    assert tachograph(project, capsys, monkeypatch, "policy", "suggest", RUN, "--out", "draft.yaml") == (
        0,
        "",
    )
    assert Policy.load(project / "draft.yaml").on_deny == "inform"
    (project / "gone.yaml").symlink_to("nowhere")
    for name in (
        "draft.yaml",
        "policy/v1.yaml",
        "policy/new.yaml",
        "gone.yaml",
        "./tools/../policy/x.yaml",
    ):
        capsys.readouterr()
        assert cli.main(["policy", "suggest", RUN, "--out", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (project / "policy/new.yaml").exists() and (project / "policy/v1.yaml").read_bytes() == before
    assert cli.main(["policy", "suggest", RUN, "--out", "no/such/folder.yaml"]) == 2
    assert cli.main(["policy", "suggest", RUN, "--out", "x.yaml", "--policy", "policy/v1.yaml"]) == 2


HOSTILE = [text for kind in sorted(TEXTS) for text in list(TEXTS[kind]())[::37]]


def test_whatever_a_model_wrote_a_draft_is_plain_text(tmp_path: Path) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    calls = []
    for text in texts:
        calls += [
            ToolCall(text, {"x": text}),
            ToolCall("read", {"path": f"nowhere/{text}"}),
            ToolCall("fetch", {"url": text}),
        ]
        calls.append(ToolCall("fetch", {"url": f"https://evil.test/{text}"}))
    folder = run_of(
        tmp_path, [LLMOutput(text="x", tool_calls=calls[at : at + 30]) for at in range(0, 90, 30)]
    )
    found = suggest(folder, root=ROOT)
    assert all(line.isascii() and line.isprintable() for line in found.text.split("\n"))
    assert len(found.proof.refused) > 20


def test_no_comment_of_a_draft_ends_before_its_line() -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    data = {"schema": "policy/v1", "url_allowlist": [f"https://h{i}.test/" for i in range(len(texts))]}
    line_comments = {f"/url_allowlist=https://h{i}.test/": text for i, text in enumerate(texts)}
    text = policy_text(data, texts, {**line_comments, "/schema": texts[0]})
    assert all(line.isascii() and line.isprintable() for line in text.split("\n"))
    assert load(text.encode(), "draft").data == data
