"""`tachograph doctor` names what is wrong with an installation and a project, and `ls` lists what has not ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tachograph.evidence import doctor
from tachograph.runtime.io import safe_open
from tests.commands import Capsys, exit_code, output_of


def findings(capsys: Capsys, code: int) -> list[dict[str, str]]:
    """Return what is not ok, after a look at the exit code and at the lines for people."""
    found: list[dict[str, str]] = json.loads(output_of(capsys, "doctor", "--json", code=code).out)
    assert len(output_of(capsys, "doctor", code=code).out.splitlines()) == len(found)
    return [finding for finding in found if finding["status"] != "ok"]


def test_all_is_well(two_runs: Path, capsys: Capsys) -> None:
    assert findings(capsys, 0) == []


def test_many_problems_leave_room_for_others_and_without_a_project_there_are_few(
    two_runs: Path, capsys: Capsys
) -> None:
    for n in range(9):
        (two_runs / f"policy/odd{n}.yaml").write_text("schema: none\n")
    assert [it["words"] for it in findings(capsys, 1)][-1] == "and 4 more"
    shutil.rmtree(two_runs / "policy")
    assert [it["what"] for it in findings(capsys, 1)] == ["project"]


def test_without_proc_nothing_is_run(two_runs: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (safe_open, doctor):
        monkeypatch.setattr(module, "OPEN_FILES", "/nowhere")
    assert [it["what"] for it in findings(capsys, 1)] == ["/proc"]
    assert all("mount /proc" in output_of(capsys, word, code=1).err for word in ("check", "run"))
    assert exit_code("verify") == 0


FILES = [
    # a file with its text, and the finding
    ("policy/a/b.yml", "schema: policy/v1\ntool_registry: {allowed: [eco]}\n", "bad", "policies", "'echo'"),
    ("profiles/odd.yaml", "schema: profile/v1\n", "bad", "profiles", "profiles/odd.yaml:1:"),
    ("tools/other.py", "import nothing_of_this_name\n", "bad", "tools", "tools/other.py"),
    ("tasks/s/call.yaml", "{}\n", "bad", "tasks", "tasks/s/call.yaml:1:"),
    ("tachograph/__init__.py", "", "bad", "package", "pip install -e"),
    ("runs/s/call.partial/state.jsonl", "", "warn", "open runs", "tachograph resume s/call"),
    (".tachograph/rejected/s-call/run_report.md", "", "warn", "rejected runs", ".tachograph/rejected/s-call"),
    ("runs/LIST", "s/call\n", "warn", "list of runs", "s/sent_once"),
]


@pytest.mark.parametrize(("file", "text", "status", "what", "word"), FILES)
def test_what_is_wrong_is_named_with_a_remedy(
    two_runs: Path, capsys: Capsys, file: str, text: str, status: str, what: str, word: str
) -> None:
    path = two_runs / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    found = findings(capsys, int(status == "bad"))
    assert (status, what) in [(it["status"], it["what"]) for it in found]
    assert any(word in it["words"] for it in found if it["what"] == what), found


def test_packages_of_extras_that_are_missing_are_named(
    two_runs: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ("openai", "rich", "prompt_toolkit")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in missing else name)
    found = findings(capsys, 0)
    parts = [f"packages for {it}" for it in ("`tachograph chat`", "live models", "views")]
    assert [(it["status"], it["what"]) for it in found] == [("warn", part) for part in parts]
    assert "openai" in found[1]["words"] and "tachograph[live]" in found[1]["words"]


def test_open_runs_are_listed(two_runs: Path, capsys: Capsys) -> None:
    shutil.move(two_runs / "runs/s/call", two_runs / "runs/s/call.partial")
    log = two_runs / "runs/s/call.partial/state.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    lines = [line.split() for line in output_of(capsys, "ls").out.splitlines()]
    assert [line[:2] for line in lines] == [["s/sent_once", "final_answer"], ["s/call", "open"]]
    log.write_bytes(b"")  # its process ended before the first line
    assert exit_code("ls") == 0


def test_bytes_that_are_no_text_are_a_finding(two_runs: Path, capsys: Capsys) -> None:
    (two_runs / "runs/LIST").write_bytes(b"\xff\n")
    assert "list of runs" in {it["what"] for it in findings(capsys, 0)}
    assert exit_code("check") == 1
