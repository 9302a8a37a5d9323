"""Runs, tasks and index agree both ways. Each way to part them is named, each in its own words."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tachograph.evidence.recording import index
from tests.evidence.project import (
    DENIED,
    FEW,
    RETRIED,
    copy_inputs,
    edit_lines,
    edit_manifest,
    replaced,
    tachograph,
)
from tests.support import ROOT

TASK = "tasks/policy_gates/pg5_arg_schema.yaml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", FEW)


def _line_of(project: Path, name: str) -> str:
    (line,) = [line for line in (project / index.INDEX).read_text().split("\n") if f'"{name}"' in line]
    return line + "\n"


def _lost_line(project: Path) -> None:
    (project / index.INDEX).write_bytes(
        index.render({name: sha for name, sha in index.digests(project).items() if name != DENIED})
    )


def _lost_run_and_line(project: Path) -> None:
    _lost_line(project)
    shutil.rmtree(project / DENIED)


def _linked_run(project: Path) -> None:
    (project / DENIED).rename(project / "aside")
    (project / DENIED).symlink_to(project / "aside")


def _linked_file(project: Path) -> None:
    (project / DENIED / "trace.json").rename(project / "aside")
    (project / DENIED / "trace.json").symlink_to(project / "aside")


def _swapped(project: Path) -> None:
    state = project / RETRIED / "state.jsonl"
    lines = state.read_bytes().splitlines(keepends=True)
    state.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))


def _without_last_line(project: Path) -> None:
    state = project / DENIED / "state.jsonl"
    state.write_bytes(b"".join(state.read_bytes().splitlines(keepends=True)[:-1]))


def _forged_verdict(project: Path) -> None:
    edit_lines(project / DENIED, lambda lines: lines[1]["policy_decisions"][0].update(decision="allow"))


@dataclass(frozen=True)
class Damage:
    """What is done to a project, and what `check` and `verify` say of it; `verify` None: nothing."""

    do: Callable[[Path], object]
    check: str
    verify: str | None


def _same(do: Callable[[Path], object], said: str) -> Damage:
    return Damage(do, said, said)


DAMAGES = {
    "a deleted run": _same(
        lambda p: shutil.rmtree(p / DENIED), f"{DENIED}: is in the index, but the run is gone; "
    ),
    "a deleted scenario": _same(lambda p: (p / TASK).unlink(), f"{DENIED}: there is no task {TASK}; "),
    "a deleted line of the index": _same(_lost_line, f"{DENIED}: is not in the index; "),
    "a deleted run with its line": _same(_lost_run_and_line, f"{TASK}: has no recorded run; "),
    "a deleted index": _same(lambda p: (p / index.INDEX).unlink(), "runs/INDEX.json: is missing; "),
    "a file that is no index": _same(
        lambda p: (p / index.INDEX).write_text("[]\n"), "runs/INDEX.json: is not an index; "
    ),
    "an index nested without end": _same(
        lambda p: (p / index.INDEX).write_text("[" * 100_000), "runs/INDEX.json: is not an index; "
    ),
    "a line of the index twice": _same(
        lambda p: replaced(p / index.INDEX, _line_of(p, RETRIED), 2 * _line_of(p, RETRIED)),
        "runs/INDEX.json: is not as it was written; ",
    ),
    "a line of the index for no run": _same(
        lambda p: (p / index.INDEX).write_bytes(index.render({**index.digests(p), "x\x1b[31m": "00"})),
        "x\\u{1b}[31m: is in the index, but the run is gone; ",
    ),
    "a stray file in a run": _same(
        lambda p: (p / DENIED / "notes.txt").write_text("x"),
        f"{DENIED}: holds a file that does not belong to a run: 'notes.txt'; ",
    ),
    "a stray file of a kind": _same(
        lambda p: (p / "runs/policy_gates/notes.txt").write_text("x"),
        "runs/policy_gates/notes.txt: a file that belongs to no run; ",
    ),
    "a stray file among the kinds": _same(
        lambda p: (p / "runs/.hidden").write_text("x"), "runs/.hidden: a file that belongs to no run; "
    ),
    "a stale folder": _same(
        lambda p: shutil.copytree(p / DENIED, p / "runs/policy_gates/stale"),
        "runs/policy_gates/stale: is not in the index; ",
    ),
    "an empty folder": _same(
        lambda p: (p / "runs/policy_gates/empty").mkdir(), "runs/policy_gates/empty: is not a complete run; "
    ),
    "a recording that never finished": _same(
        lambda p: shutil.copytree(p / DENIED, p / (DENIED + ".partial")),
        f"{DENIED}.partial: is not a complete run; ",
    ),
    "a run behind a link": _same(_linked_run, f"{DENIED}: is a link; "),
    "a FIFO among the kinds": _same(lambda p: os.mkfifo(p / "runs/x"), "runs/x: is a FIFO or a device; "),
    "a file behind a link": _same(_linked_file, f"{DENIED}/trace.json: is a link; "),
    "a forged verdict": Damage(
        _forged_verdict,
        "step 1 /policy_decisions/0/decision: allow -> deny [VERDICT]",
        f"{DENIED}/state.jsonl:3: does not follow from the line before",
    ),
    "two lines swapped": Damage(
        _swapped,
        "state.jsonl line 2: first difference: step 2 ",
        f"{RETRIED}/state.jsonl:2: does not follow from the line before",
    ),
    "a lost last line": Damage(
        _without_last_line,
        "state.jsonl line 3: first difference: line 3 : nothing -> a line of type end",
        f"{DENIED}/state.jsonl:3: has no end line: the ledger is cut off",
    ),
    "a stable key of a manifest": Damage(
        lambda p: edit_manifest(p / DENIED, lambda m: m.update(seed=8)),
        "manifest.json: differs in seed",
        f"{DENIED}/manifest.json: /seed is 8, the ledger gives 7",
    ),
    "a volatile key of a manifest": _same(
        lambda p: edit_manifest(p / DENIED, lambda m: m["code"].update(git_sha="0" * 40)),
        f"{DENIED}/manifest.json: is not the one in the index; ",
    ),
    "a byte of a trace": Damage(
        lambda p: replaced(p / DENIED / "trace.json", '"policy_check"', '"policy_chick"'),
        "trace.json line 4: committed is not what the run gives",
        f"{DENIED}/trace.json:4: is not what the ledger gives",
    ),
    "a byte of a report": Damage(
        lambda p: replaced(p / DENIED / "run_report.md", "# ", "## "),
        "run_report.md line 1: committed is not what the run gives",
        f"{DENIED}/run_report.md:1: is not what the ledger gives",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named_at_its_place(
    name: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    damage = DAMAGES[name]
    damage.do(project)
    for verb, said in (("check", damage.check), ("verify", damage.verify)):
        code, out = tachograph(project, capsys, monkeypatch, verb)
        assert code == 1, (verb, out)
        assert said is not None and said in out, (verb, out)
        assert str(project) not in out and "\x1b" not in out
        closing = out.splitlines()[-1]
        assert closing.startswith((f"{verb}: ", "accept it: ", "nothing to accept: ")), closing
        code, document = tachograph(project, capsys, monkeypatch, verb, "--json")
        data = json.loads(document)
        assert code == 1 and (data.get("problems") or data.get("index") or data.get("drifted"))


def test_the_messages_differ() -> None:
    for verb in ("check", "verify"):
        said = [getattr(damage, verb) for damage in DAMAGES.values()]
        doubled = {text for text in said if said.count(text) > 1}
        assert doubled == {"runs/INDEX.json: is not an index; "}  # of two files that are none


def test_a_whole_project_agrees(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tachograph(project, capsys, monkeypatch, "check") == (
        0,
        "check: 3 runs re-derived, all files identical\n",
    )
    code, out = tachograph(project, capsys, monkeypatch, "verify")
    assert code == 0 and out == "verify: 3 runs whole and consistent; nothing was run\n"
    assert index.problems(ROOT) == []


def test_one_matter_is_told_once(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_manifest(project / DENIED, lambda m: m.update(timestamp="2000-01-01T00:00:00Z"))
    code, out = tachograph(project, capsys, monkeypatch, "verify")
    assert code == 1 and len(out.splitlines()) == 2 and out.endswith("verify: 1 problem\n")
    code, out = tachograph(project, capsys, monkeypatch, "check")
    assert code == 1 and len(out.splitlines()) == 2
    assert out.endswith("check: 3 runs re-derived, but runs, tasks and index disagree in 1 place\n")


def test_runs_that_are_named_are_looked_at_alone(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(project / RETRIED)
    assert tachograph(project, capsys, monkeypatch, "check", DENIED)[0] == 0
    assert tachograph(project, capsys, monkeypatch, "verify", DENIED)[0] == 0


def test_an_index_is_written_where_it_differs_and_only_there(project: Path) -> None:
    path = project / index.INDEX
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert not index.update(project)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    for name in (DENIED + ".partial", DENIED + ".old"):
        shutil.copytree(project / DENIED, project / name)
    assert not index.update(project)  # what is on its way is no run
    shutil.rmtree(project / DENIED)
    assert index.update(project) and DENIED not in json.loads(path.read_bytes())
    shutil.rmtree(project / "runs")
    assert not index.update(project) and not (project / "runs").exists()


def test_the_index_is_sorted_one_line_a_run() -> None:
    lines = (ROOT / index.INDEX).read_text().splitlines()
    names = [json.loads("{" + line.rstrip(",") + "}").popitem()[0] for line in lines[1:-1]]
    assert lines[0] == "{" and lines[-1] == "}" and names == sorted(names)
    assert names == sorted(index.digests(ROOT))
