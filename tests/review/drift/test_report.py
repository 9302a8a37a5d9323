"""Drift of many runs: what is folded into one, what can be accepted, how it stands at a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.compare import Findings
from tachograph.evidence.checking.differences.drift import compare
from tachograph.evidence.files.accepted import ACCEPTED
from tachograph.evidence.queries.explain import as_text, explain_run
from tachograph.review.drift.annotations import commands, summary
from tachograph.review.drift.excerpt import excerpt
from tachograph.review.drift.page import drift_page
from tachograph.review.drift.report import DriftReport, drift_report
from tachograph.review.drift.text import lines
from tachograph.review.remedy.explain_denial import add_explanations
from tests.evidence.project import DENIED, RETRIED, replaced, tachograph
from tests.review import accepting
from tests.review.drift_changes import (
    ALLOWED,
    DEADLINE,
    GIVEN,
    INFORMED,
    MINUTES,
    POLICY,
    REMARK,
    RUNS,
)
from tests.support import CANONICAL, environment

project, shipped = accepting.project, accepting.shipped


def plain(text: str, _colour: str) -> str:
    return text


def reviewed(project: Path, *runs: str) -> DriftReport:
    names = runs or [f"runs/{name}" for name in RUNS]
    return drift_report([examine(project / run, root=project) for run in names], project)


# ---- what can be accepted ----------------------------------------------------------------------------------


def test_how_many_runs_are_accepted_and_why_not_the_others(project: Path) -> None:
    denied = (POLICY, ALLOWED, "  allowed: [search, read, write, summarize]\n  denied: [fetch]")
    replaced(project / denied[0], *denied[1:])
    replaced(project / GIVEN / "trace.json", '"allow"', '"ALLOW"')
    found = reviewed(project)
    said = (
        "accept takes 1 run; 1 was changed by hand and is to be restored, 1 cannot be made again, "
        "4 need their task fixed first"
    )
    *_, before, last = lines(found, plain)
    assert (before, last) == (said, 'accept it: tachograph accept --all --reason "..."')
    assert f"<p>{said}.</p>" in drift_page(found) and f"{said[0].upper()}{said[1:]}." in summary(found)
    assert found.to_dict()["accept_takes"] == said
    assert [run.run for run in found.runs if run.not_accepted is None] == [DENIED]
    replaced(project / denied[0], denied[2], denied[1])
    replaced(project / MINUTES[0], *MINUTES[1:])
    whole = reviewed(project, CANONICAL, RETRIED)
    assert whole.takes is None and "accept takes" not in "\n".join(lines(whole, plain))


def test_nothing_is_offered_where_accepted_changes_do_not_hold(project: Path) -> None:
    replaced(project / MINUTES[0], *MINUTES[1:])
    (project / ACCEPTED).write_text("no entry\n")
    for runs in ((CANONICAL,), (CANONICAL, RETRIED)):
        found = reviewed(project, *runs)
        last = list(lines(found, plain))[-1]
        assert last.startswith(f"nothing can be accepted: {ACCEPTED}:1: is ") and found.accept is None
        for told in (drift_page(found), summary(found), "\n".join(commands(found))):
            assert "tachograph accept" not in told
        assert set(found.to_dict()["accept"].values()) == {None}


def test_a_script_that_points_into_a_denial_is_told_so(project: Path) -> None:
    replaced(project / POLICY, "https://corpus.test/", "https://corpus.example/")
    found = examine(project / INFORMED, root=project)
    assert not found.judged and found.lines[0].endswith(
        "pointer '/text' finds nothing in result 1, which is a denial by url_allowlist: "
        '"https://corpus.test" is not in url_allowlist; fix the policy, or what the script does then'
    )


# ---- words ---------------------------------------------------------------------------------------------------


def test_one_is_no_plural() -> None:
    assert excerpt("a\nb\nc", "a\nb\nd")[0] == ("…", "1 line alike")
    assert excerpt("a\nb\nc\nd", "a\nb\nc\ne")[0] == ("…", "2 lines alike")
    then = [{"type": "step", "step_index": 1, "stopped": word} for word in ("a", "a", "a")]
    for number, said in (
        (1, "1 more, which may follow from it"),
        (2, "2 more, most of which follow from it"),
    ):
        now = [{**line, "stopped": "b" if i <= number else "a"} for i, line in enumerate(then)]
        assert compare(then, now).summary_lines("x")[0].endswith(f"; {said}")
    many = Findings("runs/a/b", ["x"] * 14)
    assert "  and 1 line more, which --json has" in list(lines(drift_report([many], Path(".")), plain))


# ---- at a terminal -------------------------------------------------------------------------------------------


def at_a_terminal(project: Path, *words: str) -> list[str]:
    """What a command shows at a terminal of 80 columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "tachograph", *words]
    said = b""
    with subprocess.Popen(
        command, cwd=project, env=environment({"NO_COLOR": "1"}), stdout=follower, stderr=subprocess.DEVNULL
    ) as process:
        os.close(follower)
        try:
            while piece := os.read(leader, 65536):
                said += piece
        except OSError:  # the other end is closed
            pass
        os.close(leader)
    assert process.returncode in (0, 1)
    return said.decode().replace("\r", "").split("\n")


def test_a_check_fits_a_terminal_and_in_a_pipe_a_list_is_one_line(project: Path) -> None:
    for edit in (MINUTES, REMARK):
        replaced(project / edit[0], *edit[1:])
    shown = at_a_terminal(project, "check", "--verbose")
    piped = list(lines(reviewed(project), plain, verbose=True))
    assert max(map(len, piped)) > 200 and max(map(len, shown)) == 80
    whole = "".join("\n".join(shown).split())
    assert [line for line in piped if "".join(line.split()) not in whole] == [], "\n".join(shown)
    assert 'accept it: tachograph accept --all --reason "..."' in shown
    # a command stands on one line, to be copied
    assert f'    tachograph accept {DEADLINE} --reason "..."' in shown or (
        f'  accept this one: tachograph accept {DEADLINE} --reason "..."' in shown
    )


def test_an_explanation_fits_a_terminal(project: Path) -> None:
    for run in (CANONICAL, DENIED, GIVEN, INFORMED):
        found = explain_run(project / run, root=project)
        add_explanations(found, None, plain)
        long, short = as_text(found, None, plain), as_text(found, None, plain, 80)
        assert max(map(len, long.split("\n"))) > 80 >= max(map(len, short.split("\n")))
        assert "".join(short.split()) == "".join(long.split())


def test_a_reader_that_leaves_says_nothing_of_a_commit(project: Path) -> None:
    replaced(project / REMARK[0], *REMARK[1:])
    command = [sys.executable, "-m", "tachograph", "check", "--bisect", "--json"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, cwd=project, env=environment({}), stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.stderr == b"" and done.returncode != 125


def test_replay_under_another_policy_counts_one(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out = tachograph(project, capsys, monkeypatch, "replay", DENIED, "--policy", POLICY)
    assert "  1 decision the same" in out
    assert json.loads(
        tachograph(project, capsys, monkeypatch, "replay", DENIED, "--policy", POLICY, "--json")[1]
    )
