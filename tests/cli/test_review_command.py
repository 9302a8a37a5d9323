"""Drift gone through at a terminal: each key, what is asked before anything is written, and how it can end."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tachograph.cli import main as command_line
from tests.cli.terminal_hand import Hand
from tests.evidence.checking.experiment.changes import by_other_code
from tests.evidence.project import DENIED, RETRIED, copy_inputs
from tests.review.accepting import ACCEPTED, edit, entries
from tests.review.drift_changes import CHANGES, GIVEN, MINUTES, PAGE, task_of
from tests.support import ROOT, tree

TITLE = CHANGES["the title"].edits[0]
OVERLAY = CHANGES["an overlay asks no person"].edits[0]
HOSTILE = "20 minutes\x1b]0;owned\x07\x1b[31m"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = copy_inputs(
        tmp_path_factory.mktemp("review") / "project",
        [run.removeprefix("runs/") for run in (RETRIED, DENIED, GIVEN)],
    )
    who = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "base")):
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, timeout=60)
    return project


@pytest.fixture
def project(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "project"))


def reviewing(project: Path, *words: str, rows: int = 40, columns: int = 100, **given: str) -> Hand:
    return Hand(
        "tachograph", "review", "--jobs", "1", *words, cwd=project, rows=rows, columns=columns, **given
    )


def test_a_group_is_accepted_for_a_reason_and_another_is_left(project: Path) -> None:
    edit(project, MINUTES, TITLE)
    before = tree(project)
    with reviewing(project) as hand:
        said = hand.until()
        assert "2 of 3 runs drifted, for 2 causes; nothing is written before you accept" in said
        assert f"{PAGE} changed: 1 run" in said and f"EFFECT  {RETRIED}" in said
        assert "accept: 1 run will be recorded anew; no verdict changes" in hand.ask("a")
        assert tree(project) == before
        said = hand.ask("the room asks for 21 minutes\n")
        assert "1 run recorded anew" in said and f"{task_of(DENIED)} changed: 1 run" in said
        (entry,) = entries(project)
        assert (entry["run"], entry["reason"]) == (RETRIED, "the room asks for 21 minutes")
        hand.type("s")
        assert hand.end() == 1
        assert "accepted 1 of 2 runs that drifted; `tachograph check` says what is left" in hand.seen
        assert hand.modes_now() == hand.modes
    assert len(entries(project)) == 1


def test_with_all_accepted_the_check_holds(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(project, MINUTES)
    with reviewing(project, RETRIED) as hand:
        hand.until()
        hand.ask("a\n")  # with Enter, as someone types who is used to it
        hand.type("longer talks\n")
        assert hand.end() == 0
        assert "review: accepted 1 of 1 runs that drifted" in hand.seen
    monkeypatch.chdir(project)
    assert command_line.main(["check"]) == 0


def test_it_is_shown_and_explained_page_by_page(project: Path) -> None:
    edit(project, MINUTES)
    with reviewing(project, rows=7) as hand:
        hand.until()
        said = hand.ask("v")
        assert f"EFFECT  {RETRIED}" in said.replace("\x1b[31m", "").replace("\x1b[0m", "")
        assert "more lines: space goes on, q goes back > " in said
        assert "space goes on, q goes back" in hand.ask("x")
        while said.endswith("q goes back > "):
            said = hand.ask(" ")
        hand.resize(60, 60)
        said = hand.ask("e\n")
        assert f"{PAGE} changed after the runs were recorded" in said
        assert "-" in said and "20 minutes" in said and "+" in said and "21 minutes" in said
        assert "accepting replaces 1 recorded run by what it gives" in said
        assert "more lines" not in said and max(map(len, said.replace("\r", "").split("\n"))) <= 60
        hand.type("q")
        assert hand.end() == 1
        assert "review: nothing was accepted" in hand.seen
    assert not (project / ACCEPTED).exists()


def test_an_input_is_compared_with_what_was_recorded_and_not_with_the_last_commit(project: Path) -> None:
    edit(project, (PAGE, "20 minutes", "25 minutes"))
    who = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, "commit", "-qam", "later"], cwd=project, check=True, timeout=60)
    edit(project, (PAGE, "25 minutes", "21 minutes"))
    with reviewing(project) as hand:
        hand.until()
        said = hand.ask("e")
        assert "20 minutes" in said and "21 minutes" in said and "25 minutes" not in said
        hand.type("q")
        hand.end()


def test_a_change_of_verdicts_wants_a_whole_word(project: Path) -> None:
    edit(project, OVERLAY)
    before = tree(project)
    with reviewing(project) as hand:
        hand.until()
        assert "verdict change" in hand.ask("a")
        assert "of the gate change" in hand.ask("nobody is asked\n")
        assert "nothing was accepted" in hand.ask("y\n")
        assert tree(project) == before
        hand.ask("a")
        hand.ask("nobody is asked\n")
        hand.type("yes\n")
        assert hand.end() == 0
    (entry,) = entries(project)
    assert (entry["run"], entry["class"]) == (GIVEN, "VERDICT")


def test_what_only_a_manifest_claims_wants_a_whole_word(project: Path) -> None:
    by_other_code(DENIED)(project)
    before = tree(project)
    with reviewing(project) as hand:
        assert "the code: 1 run" in hand.until()
        assert "only the manifest claims that this was another" in hand.ask("e")
        hand.ask("a")
        assert "is only claimed, in 1 of the runs" in hand.ask("clearer words\n")
        assert "nothing was accepted" in hand.ask("\n")
        assert tree(project) == before
        hand.ask("a")
        hand.ask("clearer words\n")
        hand.type("yes\n")
        assert hand.end() == 0
    assert [entry["run"] for entry in entries(project)] == [DENIED]


def test_an_empty_reason_accepts_nothing(project: Path) -> None:
    edit(project, MINUTES)
    before = tree(project)
    with reviewing(project) as hand:
        hand.until()
        hand.ask("a")
        assert "a change is accepted for a reason" in hand.ask("  \n")
        assert "longer than 2000 characters" in hand.ask(f"{'x' * 2001}\n")
        assert "nothing was accepted" in hand.ask("\n")
        hand.type("q")
        assert hand.end() == 1
    assert tree(project) == before


@pytest.mark.parametrize("key", ["x", "\x1b[A", "é", "0", "why not\n"])
def test_a_wrong_key_is_told_and_does_nothing(project: Path, key: str) -> None:
    edit(project, MINUTES)
    before = tree(project)
    with reviewing(project) as hand:
        hand.until()
        said = hand.ask(key)
        assert said.count("there is no such key") == 1 and "q  end the review" in said
        hand.type("Q")
        assert hand.end() == 1
        assert hand.seen.count("there is no such key") == 1  # a sentence that was typed is no row of keys
    assert tree(project) == before


@pytest.mark.parametrize("at_reason", [False, True])
@pytest.mark.parametrize(("typed", "code"), [("\x03", 130), ("\x04", 1)])
def test_ctrl_c_and_the_end_of_input_leave_what_was_accepted(
    project: Path, typed: str, code: int, at_reason: bool
) -> None:
    edit(project, MINUTES, TITLE)
    with reviewing(project) as hand:
        hand.until()
        hand.ask("a")
        hand.ask("so\n")
        kept = tree(project)
        if at_reason:
            hand.ask("a")
        hand.type(typed)
        assert hand.end() == code
        assert "accepted 1 of 2 runs that drifted" in hand.seen
        assert hand.modes_now() == hand.modes
    assert tree(project) == kept and len(entries(project)) == 1


def test_sigterm_restores_the_terminal(project: Path) -> None:
    edit(project, MINUTES)
    with reviewing(project) as hand:
        hand.until()
        hand.signal(signal.SIGTERM)
        assert hand.end() == 143
        assert hand.modes_now() == hand.modes and "nothing was accepted" in hand.seen


def test_a_terminal_that_is_closed_accepts_nothing(project: Path) -> None:
    edit(project, MINUTES)
    before = tree(project)
    with reviewing(project) as hand:
        hand.until()
        hand.ask("a")
        hand.hang_up()
        assert hand.end() != 0
    assert tree(project) == before


@pytest.mark.parametrize("what", ["an input", "the run"])
def test_what_changes_while_it_is_reviewed_is_not_accepted(project: Path, what: str) -> None:
    edit(project, MINUTES)
    with reviewing(project) as hand:
        hand.until()
        if what == "an input":
            edit(project, (PAGE, "21 minutes", "22 minutes"))
        else:
            edit(project, (f"{RETRIED}/state.jsonl", "summarize", "summarise"))
        before = tree(project)
        hand.ask("a")
        said = hand.ask("so\n")
        assert f"changed since this review began: {RETRIED}; nothing was accepted" in " ".join(said.split())
        hand.type("q")
        assert hand.end() == 1
    assert tree(project) == before


def test_text_of_others_reaches_the_terminal_escaped(project: Path) -> None:
    edit(project, (PAGE, "20 minutes", HOSTILE))
    with reviewing(project, NO_COLOR="1") as hand:
        hand.until()
        hand.ask("v")
        hand.ask("e")
        hand.ask("a")
        hand.type("so\n")
        assert hand.end() == 0
        ours = hand.seen.partition(f"{PAGE} changed")[2]
        assert "\x1b" not in ours and "\x07" not in ours and "owned" in ours


def test_what_cannot_be_accepted_is_said(project: Path) -> None:
    edit(project, (f"{RETRIED}/state.jsonl", "summarize", "summarise"))
    with reviewing(project) as hand:
        assert "edited by hand" in hand.until()
        assert "none of these runs can be accepted" in hand.ask("a")
        assert "restore it from git" in hand.ask("e")
        hand.type("s")
        assert hand.end() == 1


def test_the_transcript_in_the_docs_is_what_is_said(project: Path) -> None:
    page = (ROOT / "docs/review.md").read_text(encoding="utf-8")
    shown = page.partition("$ tachograph review\n")[2].partition("```")[0]
    edit(project, MINUTES)
    with reviewing(project, columns=110, NO_COLOR="1") as hand:
        hand.until()
        hand.ask("e")
        hand.ask("a")
        hand.type("the room asks for 21 minutes\n")
        assert hand.end() == 0
        said = hand.seen.replace("\r\n", "\n")
    assert said[said.index("review: 1 of 3 runs drifted") :] == shown


def test_nothing_drifted(project: Path) -> None:
    with reviewing(project) as hand:
        assert hand.end() == 0
        assert "review: none of 3 runs drifted, so there is nothing to review" in hand.seen


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_without_a_terminal_other_commands_are_named(
    project: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    assert command_line.main(["review", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert "`tachograph check`" in err and "`tachograph accept RUN --reason TEXT`" in err


def test_ci_reviews_nothing(project: Path) -> None:
    with reviewing(project, CI="true") as hand:
        assert hand.end() == 2
        assert "CI never accepts" in hand.seen
