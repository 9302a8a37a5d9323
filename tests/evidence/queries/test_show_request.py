"""`show RUN --request STEP`: what the model saw, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph.runtime.journal import ledger
from tests.evidence.project import edit_lines
from tests.support import CANONICAL, ROOT, cli, copy_project

V1 = ROOT / "tests/data/v1"


def shown(*words: str | Path) -> str:
    done = cli("show", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_the_text_names_every_part() -> None:
    out = shown(ROOT / CANONICAL, "--request", "2")
    lines = out.splitlines()
    assert lines[:3] == [
        "what the model saw at step 2",
        "message 1  user",
        "  What must a driver do when the recorder fails on the road?",
    ]
    assert "message 3  tool search (tc_1_0)" in lines
    assert '  call search {"query":"driver recorder failure on the road","top_k":3}' in lines
    assert [line for line in lines if line.startswith("tool ")] == [
        f"tool {name}" for name in ("search", "fetch", "read", "write", "summarize")
    ]
    assert "options" not in lines and "not vouched for" not in out
    assert lines[-1] == "at most  49550 tokens of reply"


def test_the_data_are_those_of_the_ledger() -> None:
    data = json.loads(shown(ROOT / "runs/live/smollm", "--request", "1", "--json"))
    run, step, *_ = ledger.read((ROOT / "runs/live/smollm/state.jsonl").read_bytes(), "state.jsonl")
    assert data["tools"] == run["request_parts"]["tools"][0]["tools"]
    assert data["options"] == run["request_parts"]["options"][0]["options"]
    assert data["messages"] == [{"role": "user", "content": run["question"]}]
    assert data["max_output_tokens"] == step["llm_input"]["max_output_tokens"]
    assert data["not_vouched_for"] == [] and "instructions" not in data


def test_a_step_without_tools_and_a_record_of_v1_say_so() -> None:
    assert "tools\n  none" in shown(ROOT / "runs/loop/wrap_up", "--request", "3")
    assert "tools\n  a record of ledger/v1 does not say" in shown(
        V1 / CANONICAL.removeprefix("runs/"), "--request", "1"
    )


def test_what_the_ledger_does_not_vouch_for_is_said(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    edit_lines(project / CANONICAL, lambda lines: lines[0].update(question="What\x1b[2J then?"), chain=True)
    out = shown(project / CANONICAL, "--request", "1")
    assert "not vouched for: the lines before it give other messages" in out
    assert "\x1b" not in out and "What\\u{1b}[2J then?" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((CANONICAL, "--request", "9"), "the model was not asked in step 9; steps: 1, 2, 3, 4, 5"),
        ((CANONICAL, CANONICAL, "--request", "1"), "--request is about one run"),
        ((CANONICAL, "--request", "1", "--html", "page.html"), "--request is about one run"),
        ((CANONICAL, "--request", "one"), "invalid int value"),
        (("runs/nowhere", "--request", "1"), "runs/nowhere"),
    ],
    ids=["no such step", "two runs", "a page", "no number", "no run"],
)
def test_what_cannot_be_shown_is_refused(words: tuple[str, ...], said: str) -> None:
    done = cli("show", *words)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
