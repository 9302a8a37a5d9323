"""A run in a terminal: a tree with times, two runs beside each other, and nothing that a text could forge."""

from __future__ import annotations

import io
import re
from itertools import islice
from pathlib import Path

import pytest

from tachograph.evidence.checking.differences.drift import compare
from tachograph.views.model import Run, run_of
from tachograph.views.tree import two_as_text
from tests.support import ROOT
from tests.tables import output_texts, outputs

pytest.importorskip("rich", reason="rich is not installed: requirements-view.txt")

from tachograph.views.terminal import print_run, print_two

RUNS = sorted(path.parent for path in (ROOT / "runs").glob("*/*/manifest.json"))


class Screen(io.StringIO):
    """A terminal of so many columns."""

    def __init__(self, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm-256color")
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)

    def isatty(self) -> bool:
        return True


def printed(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> str:
    screen = Screen(columns, monkeypatch)
    print_run(run, screen, no_color=True)
    return screen.getvalue()


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("folder", RUNS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_run_fits_a_terminal(folder: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(run_of(folder), monkeypatch, columns)
    assert max(map(len, text.split("\n"))) <= columns
    run = run_of(folder)
    for step in run.steps:
        assert f"─ step {step.index}" in text
    assert str(run.end and run.end["terminal_reason"]) in text


def test_the_tree_says_who_decided_what_and_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(run_of(ROOT / "runs/failure_modes/tool_call_failure"), monkeypatch, 100)
    lines = text.split("\n")
    (decision,) = [line for line in lines if "url_allowlist" in line]
    assert "allow  url_allowlist  policy/v1.yaml:7" in decision and decision.rstrip().endswith("1 ms")
    assert [line.split()[-2:] for line in lines if "wait" in line] == [["101", "ms"], ["198", "ms"]]
    attempts = [line for line in lines if "attempt" in line][:3]
    assert ["transient_failure" in line for line in attempts] == [True, True, False]
    starts = [re.search("█", line).start() for line in attempts if "█" in line]  # type: ignore[union-attr]
    assert starts == sorted(starts) and len(starts) == 3
    assert any("tool calls" in line and "2 of 40" in line for line in lines)


def test_a_person_s_word_and_a_late_denial_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(run_of(ROOT / "runs/policy_gates/approval_refused"), monkeypatch, 120)
    assert "a person said deny  shift lead: notes belong in the log book" in text
    text = printed(run_of(ROOT / "runs/policy_gates/pg1_redirect_off_allowlist"), monkeypatch, 120)
    assert "while it ran: deny  url_allowlist" in text
    text = printed(run_of(ROOT / "runs/policy_gates/one_of_several_denied"), monkeypatch, 120)
    assert "not reached" not in text


def test_two_runs_stand_beside_each_other_with_the_first_difference_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, refused = (run_of(ROOT / f"runs/policy_gates/approval_{word}") for word in ("given", "refused"))
    screen = Screen(80, monkeypatch)
    print_two(given, refused, compare(given.lines[1:], refused.lines[1:]), screen, no_color=True)
    lines = screen.getvalue().split("\n")
    assert max(map(len, lines)) <= 80
    (marked,) = [line for line in lines if line.startswith(">")]
    assert marked.split() == [">", "step", "1", "step", "1"]
    assert any("allow  approval" in line and "deny  approval" in line for line in lines)
    assert any(line.startswith("first difference: step 1 /policy_decisions/0/decision") for line in lines)
    screen = Screen(80, monkeypatch)
    print_two(given, given, compare(given.lines, given.lines), screen, no_color=True)
    assert "the two runs did the same\n" in screen.getvalue() and "\n>" not in screen.getvalue()


def test_colour_is_for_those_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(ROOT / "runs/canonical/v1")
    for no_color, wanted in ((False, True), (True, False)):
        screen = Screen(80, monkeypatch)
        print_run(run, screen, no_color=no_color)
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", screen.getvalue())) is wanted


@pytest.mark.parametrize("name", output_texts.TEXTS)
def test_no_text_leaves_its_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = outputs.record
    for case in islice(outputs.cases(name), 12):
        shown = []
        for number, one in enumerate((case, outputs.calm(case))):
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            (folder / "state.jsonl").write_bytes(heard(one, lambda _: None))
            run = run_of(folder)
            shown.append(printed(run, monkeypatch))
            screen = Screen(80, monkeypatch)
            print_two(run, run, compare(run.lines, run.lines), screen, no_color=True)
            shown[-1] += screen.getvalue()
        assert all(c == "\n" or c.isprintable() for c in shown[0]), case
        trees = [re.findall(r"^[ │├└─]*[├└]─ (?:step|attempt|wait)?", text, re.M) for text in shown]
        assert trees[0] == trees[1], case


def test_two_runs_in_a_pipe_are_a_diff() -> None:
    given, refused = (run_of(ROOT / f"runs/policy_gates/approval_{word}") for word in ("given", "refused"))
    text = two_as_text(given, refused, compare(given.lines[1:], refused.lines[1:]))
    lines = text.split("\n")
    assert lines[:2] == ["--- runs/policy_gates/approval_given", "+++ runs/policy_gates/approval_refused"]
    assert "-attempt 1  success" in lines and "-step 2" in lines
    assert any(line.startswith("+deny  approval") for line in lines)
    assert lines[-1].startswith(
        "first difference: step 1 /policy_decisions/0/decision: allow -> deny [VERDICT]"
    )
    same = two_as_text(given, given, compare(given.lines, given.lines))
    assert same == "the two runs did the same"
