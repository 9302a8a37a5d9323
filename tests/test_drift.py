"""Drift is told as stories: what has moved, and the gravest thing that follows, once for all runs of the same."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence import record_files
from tachograph.evidence.check import check
from tachograph.evidence.compare import CHANGED, GRAVEST_FIRST, Difference
from tachograph.evidence.drift import drift
from tachograph.evidence.record import record
from tachograph.evidence.tasks import load_task
from tachograph.runtime.policy.rules.tool_registry import ToolRegistryRule
from tests.commands import Capsys, exit_code, output_of
from tests.project import ROWS, edit, make_project

ROOT = Path(__file__).parents[1]
RUNS = len((ROOT / "runs/LIST").read_text().split())
TOKEN = "ghp_k3Qw9ZrT1xVb7NmL5pYd2HsJ8fGc4AeU6oIi"


def told(capsys: Capsys, *words: str, code: int = 1, command: str = "check") -> list[str]:
    """Return the lines that a command prints; a check that is not asked for all prints few."""
    lines = output_of(capsys, command, *words, code=code).out.splitlines()
    assert len(lines) <= 30 or "--all" in words or command == "review"
    return lines


EDITS = [
    # the file that is edited, how, and class and address of something that follows; others are in test_pull_request.py
    ("data/corpus/v1/op-a3.md", "\n", "\r\n", "EFFECT 3.c0.i1"),
    ("tools/search.py", "row[1], row[2])", "row[1], row[2]), reverse=True", "EFFECT 1.c0.i1"),
    ("policy/v1.yaml", "on_deny", "approval: {required_for: [fetch]}\non_deny", "VERDICT 2.c0.d"),
    ("policy/secrets.yaml", "email, github_token", "email", "EXPOSURE 0"),
    ("tasks/canonical/v1.yaml", "question: ", "question: Now, ", "ASKED 0"),
    ("tasks/loop/guard.py", "is for workshops", "is for others", "EFFECT"),
]


@pytest.mark.parametrize(("file", "old", "new", "story"), EDITS)
def test_a_cause_is_named_with_what_follows(
    shipped: Path, capsys: Capsys, file: str, old: str, new: str, story: str
) -> None:
    edit(shipped / file, old, new)
    lines = told(capsys)
    assert [line for line in lines if line.startswith(f"{file}: ")] == lines[:1]
    assert ("carriage" in lines[0]) == (new == "\r\n")
    assert f"What follows from {file}:" in lines
    assert any(line.startswith(f"  {story}") for line in lines), lines
    assert lines[-1].endswith(f"of {RUNS} runs hold")


def test_a_helper_of_a_tool_is_named(shipped: Path, capsys: Capsys) -> None:
    (shipped / "tools/words.py").write_text("SUFFIX = '.md'\n")
    edit(shipped / "tools/search.py", "import sqlite3\n", "import sqlite3\nfrom tools.words import SUFFIX\n")
    edit(shipped / "tools/search.py", 'SUFFIX = ".md"\n', "")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(shipped)
        exit_code("run")
        edit(shipped / "tools/words.py", "md", "txt")
        sys.modules.pop("tools.words")
        assert "What follows from tools/words.py:" in told(capsys)


def test_a_renamed_tool(shipped: Path, capsys: Capsys) -> None:
    (shipped / "tools/search.py").rename(shipped / "tools/find.py")
    lines = told(capsys, code=2)  # no run can be made
    assert "search" in lines[0] and "policy/v1.yaml" in lines[0]
    for path in [path for it in ("policy", "profiles", "tasks") for path in (shipped / it).rglob("*.yaml")]:
        path.write_text(re.sub(r"\bsearch\b", "find", path.read_text()))
    lines = told(capsys)
    assert any("ASKED 0" in line and "find" in line for line in lines)


def test_other_code_moves_no_input(shipped: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToolRegistryRule, "reason", lambda *_, **__: "so it is")
    lines = told(capsys)
    assert lines[0].startswith("No recorded input has moved")
    assert any("OTHER 1.c0.d: reason" in line for line in lines)


def test_drift_of_a_renderer_is_no_damage(
    shipped: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_files, "report", lambda events, steps: "another report")
    lines = told(capsys)
    assert "OTHER run_report.md" in lines[1] and f"{RUNS} runs" in lines[2]
    edit(shipped / "runs/canonical/v1/run_report.md", "driver", "rider")
    assert "DAMAGE run_report.md" in "".join(told(capsys))


def test_records_with_other_line_ends_are_damaged(shipped: Path, capsys: Capsys) -> None:
    for log in (shipped / "runs").rglob("state.jsonl"):
        edit(log, "\n", "\r\n")
    lines = told(capsys)
    assert lines[0].startswith("Damaged")
    assert "DAMAGE state.jsonl:1: " in lines[1] and f"{RUNS} runs" in lines[2]


def test_the_command_that_shows_a_change_is_named_in_a_checkout(
    shipped: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(shipped / "policy/v1.yaml", "max_iterations: 10", "max_iterations: 2")
    assert "git" not in "".join(told(capsys))
    (shipped / ".git").mkdir()
    monkeypatch.chdir(shipped / "tools")
    assert "git diff -- ../policy/v1.yaml" in told(capsys)[0]


def test_every_difference_is_printed_on_request(shipped: Path, capsys: Capsys) -> None:
    edit(shipped / "policy/v1.yaml", "https://corpus.test/", "https://other.test/")
    edit(shipped / "tools/search.py", "bm25(docs, 0.0", "bm25(docs, 9.0")  # of which no story tells
    assert "tools/search.py: has changed" in told(capsys, "canonical/v1")
    assert any("INPUT tools/fetch.py" in line for line in told(capsys, "canonical/v1", "--all"))


def test_one_cause_takes_at_most_30_lines(tmp_path: Path) -> None:
    moved = Difference("INPUT", "a", CHANGED)
    lines = drift({f"s/{n}": [moved, Difference("OTHER", f"{n}", "", ("a",))] for n in range(99)}, tmp_path)
    assert len(lines) <= 30 and "88 runs" in lines[-1]


def drifted(root: Path, row: dict[str, Any], *edits: tuple[str, str, str]) -> list[Difference]:
    """Return what differs in the run of a scenario after some edits."""
    name = row["name"]
    make_project(root, [row])
    record(load_task(root / f"tasks/s/{name}.yaml"), root / "runs/s" / name)
    for file, old, new in edits:
        edit(root / file, old, new)
    return check(load_task(root / f"tasks/s/{name}.yaml"), root / "runs/s" / name, "run")


def story(found: list[Difference]) -> tuple[str, str, tuple[str, ...]]:
    gravest = min(found, key=lambda it: GRAVEST_FIRST.index(it.kind))
    return gravest.kind, gravest.at, gravest.rests_on


ECHO, LOOK, BOOK = "tools/echo.py", "tools/look.py", "book/a.txt"
SEVERAL = [
    # what is edited, and the story: of several inputs that have moved, those that concern it
    ("call", [(ECHO, "* args", "+ 'x' * args"), (LOOK, "Read a", "Look at a")], ("EFFECT", "1.c0.i1", (ECHO,))),
    ("call", [(LOOK, "Read a", "Look at a"), ("policy/call.yaml", "5000", "4000")], ("ASKED", "0", (LOOK,))),
    ("sent_once", [(ECHO, "Return", "Give"), (BOOK, "alpha", "other")], ("EFFECT", "2.c0.i1", (BOOK,))),
    ("call", [(ECHO, "* args", "+ 'x' * args"), ("policy/call.yaml", '"echo", ', "")],
     ("VERDICT", "1.c0.d", ("policy/call.yaml",))),
    ("approval_given", [("tasks/s/approval_given.yaml", '"answer": "allow"', '"answer": "deny"'),
                        ("policy/approval_given.yaml", "5000", "4000")],
     ("VERDICT", "1.c0.p", ("tasks/s/approval_given.yaml",))),
    ("call", [("tasks/s/call.yaml", '"tool": "echo"', '"tool": "page"'),
              ("policy/call.yaml", "5000", "4000")],
     ("VERDICT", "1.c0.d", ("policy/call.yaml", "tasks/s/call.yaml"))),
    # an objection that is gone grants something
    ("redirect_outside", [("policy/redirect_outside.yaml", '["https://good.test/"', '["https://good.test/", "https://bad.test/"')],
     ("VERDICT", "1.c0.i1.d1", ("policy/redirect_outside.yaml",))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "edits", "expected"), SEVERAL)
def test_a_story_rests_on_the_inputs_that_concern_it(
    tmp_path: Path, name: str, edits: list[tuple[str, str, str]], expected: tuple[str, str, tuple[str, ...]]
) -> None:
    assert story(drifted(tmp_path, ROWS[name], *edits)) == expected


HIDING = {
    "name": "hiding",
    "policy": {"redact": {"kinds": ["github_token"], "env": ["DESK_KEY"]}},
    "turns": [[["echo", {"text": f"{TOKEN} {TOKEN}"}]], [["echo", {"text": "hi"}]], "done"],
    "expect": {},
}
ENVIRONMENT = '__import__("os").environ["DESK_KEY"]'


@pytest.mark.parametrize(
    ("edits", "at"),
    [
        ([("policy/hiding.yaml", '"github_token"', '"jwt"')], "0"),
        ([("policy/hiding.yaml", ', "env": ["DESK_KEY"]', "")], "0"),
        # one of two is split, so that it is none for the search
        ([("tools/echo.py", 'args["text"] *', 'args["text"][:-5] + " " + args["text"][-5:] *')], "1.c0.i1"),
        ([("tools/echo.py", 'args["text"] *', f'args["text"].replace("hi", {ENVIRONMENT}) *')], "2.c0.i1"),
    ],
)
def test_what_the_record_hid_is_an_exposure_and_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edits: list[tuple[str, str, str]], at: str
) -> None:
    monkeypatch.setenv("DESK_KEY", "xyzzy-plugh-1234567")
    found = drifted(tmp_path, HIDING, *edits)
    assert story(found) == ("EXPOSURE", at, (edits[0][0],))
    assert not any(secret[:15] in it.words for it in found for secret in (TOKEN, os.environ["DESK_KEY"]))
