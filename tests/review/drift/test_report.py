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
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.compare import Findings
from tachograph.evidence.checking.drift import compare
from tachograph.evidence.files.accepted import ACCEPTED
from tachograph.evidence.queries.explain import as_text, explain_run
from tachograph.review.drift.annotations import commands, summary
from tachograph.review.drift.excerpt import excerpt
from tachograph.review.drift.page import drift_page
from tachograph.review.drift.report import DriftReport, drift_report
from tachograph.review.drift.text import lines
from tachograph.review.remedy.explain_denial import add_explanations
from tests.evidence.project import DENIED, RETRIED, edit_lines, replaced, tachograph
from tests.review import accepting
from tests.review.drift_changes import (
    ALLOWED,
    DEADLINE,
    GIVEN,
    INFORMED,
    LATE,
    MINUTES,
    POLICY,
    RUNS,
    task_of,
)
from tests.support import CANONICAL, environment

project, shipped = accepting.project, accepting.shipped
SHIFTED = sorted((CANONICAL, DENIED, RETRIED, LATE, INFORMED, DEADLINE))
REMARKED = (POLICY, "tool_registry:", "# who may act\ntool_registry:")


def plain(text: str, _colour: str) -> str:
    return text


def reviewed(project: Path, *runs: str) -> DriftReport:
    names = runs or [f"runs/{name}" for name in RUNS]
    return drift_report([examine(project / run, root=project) for run in names], project)


# ---- lines that have other numbers -------------------------------------------------------------------------


def test_runs_in_which_only_policy_lines_moved_are_one_block(project: Path) -> None:
    replaced(project / REMARKED[0], *REMARKED[1:])
    found = reviewed(project)
    assert list(lines(found, plain)) == [
        f"check: 7 of 7 runs drifted; likely cause: {POLICY} moved (7 of them)",
        "TEXT  6 runs, in which only the lines of the policy have other numbers: " + " ".join(SHIFTED),
        "    policy/v1.yaml:4 -> :5      allowed: [search, fetch, read, write, summarize]",
        "    policy/v1.yaml:6 -> :7      url_allowlist:",
        '    policy/v1.yaml:7 -> :8      - "https://corpus.test/"',
        "    policy/v1.yaml:11 -> :12    corpus: read",
        "    policy/v1.yaml:13 -> :14    arg_schema_enforcement: strict",
        f"{'DIGEST-ONLY'}  1 run: {GIVEN}",
        'accept it: tachograph accept --all --reason "..."',
    ]
    made = drift_page(found)
    assert made.count("<article") == 2 and '<article id="shifted"' in made
    assert '<a href="#shifted">TEXT 6 runs, in which only' in made and "#run-" not in made
    assert "<dt>policy/v1.yaml:6 -&gt; :7</dt><dd>url_allowlist:</dd>" in made
    assert all(f"<li>{run}</li>" in made for run in SHIFTED)
    first, second = commands(found)
    assert first.startswith("::error title=TEXT%3A 6 runs drifted%2C in which only the lines of the policy")
    assert first.endswith("::" + " ".join(SHIFTED)) and second.startswith("::error title=DIGEST-ONLY")
    text = summary(found)
    assert "TEXT in 6 runs, in which only" in text and "| class |" not in text
    assert '- `policy/v1.yaml:7 -> :8`: `- "https://corpus.test/"`' in text
    data = found.to_dict()
    assert sorted(data["classes"]) == sorted(f"runs/{name}" for name in RUNS)
    moved = {item["run"]: item["lines_moved"] for item in data["findings"]}
    then = {"then": f"{POLICY}:13", "now": f"{POLICY}:14", "text": "arg_schema_enforcement: strict"}
    assert moved[DENIED] == [then] and moved[GIVEN] == []


def test_a_run_that_differs_in_more_is_told_by_itself(project: Path) -> None:
    replaced(project / REMARKED[0], *REMARKED[1:])
    replaced(project / task_of(DENIED), "seed: 7", "seed: 8")
    found = reviewed(project)
    assert [run.run for run in found.loud] == [DENIED]
    assert sorted(run.run for run in found.shifted) == sorted(set(SHIFTED) - {DENIED})
    alone = reviewed(project, RETRIED)
    assert [run.run for run in alone.loud] == [RETRIED] and alone.shifted == ()


def test_a_touched_record_is_not_folded(project: Path) -> None:
    """A line number changed by hand is no shift, even if all that differs is a line number."""
    for run in (DENIED, RETRIED):
        edit_lines(
            project / run,
            lambda found: found[1]["policy_decisions"][0].update(at=f"{POLICY}:99"),
            chain=True,
        )
    found = reviewed(project, DENIED, RETRIED)
    assert found.shifted == () and all(run.edited_by_hand for run in found.loud)


@pytest.mark.parametrize(
    ("then", "now", "shift"),
    [
        ("policy/v1.yaml:4", "policy/v1.yaml:5", True),
        ("policy/v1.yaml:4", "policy/v2.yaml:4", False),
        ("policy/v1.yaml:4", "policy/v1.yaml", False),
        ("policy/v1.yaml:4", "policy/v1.yaml:x", False),
        ("policy/v1.yaml:4", None, False),
        (4, "policy/v1.yaml:4", False),
    ],
)
def test_what_is_a_shift(then: Any, now: Any, shift: bool) -> None:
    def ledger(at: Any) -> list[dict[str, Any]]:
        return [{"type": "step", "step_index": 1, "prev": f"{at}", "policy_decisions": [{"at": at}]}]

    assert compare(ledger(then), ledger(now)).shifts == (((then, now),) if shift else ())
    more = ledger(now)
    more[0]["llm_output"] = {"text": "more"}
    assert compare(ledger(then), more).shifts == ()


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
    many = Findings("runs/a/b", ["x"] * 13)
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
    for edit in (MINUTES, REMARKED):
        replaced(project / edit[0], *edit[1:])
    shown = at_a_terminal(project, "check")
    piped = list(lines(reviewed(project), plain))
    assert max(map(len, piped)) > 200 and max(map(len, shown)) == 80
    whole = "".join("\n".join(shown).split())
    assert all("".join(line.split()) in whole for line in piped)
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
    replaced(project / REMARKED[0], *REMARKED[1:])
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
