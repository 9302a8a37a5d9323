"""Drift is told by consequence: its class, where the ledgers first part, the likely cause, how to accept it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.cause import causes, in_words
from tachograph.evidence.checking.differences.drift import compare
from tachograph.evidence.files.json_diff import CLASSES
from tests.evidence.project import DENIED, RETRIED, copy_inputs, replaced, tachograph
from tests.support import CANONICAL

GIVEN, LATE = "runs/policy_gates/approval_given", "runs/failure_modes/timeout"
RUNS = tuple(name.removeprefix("runs/") for name in (CANONICAL, DENIED, RETRIED, GIVEN, LATE))
POLICY, PAGE = "policy/v1.yaml", "data/corpus/v1/op-a4.md"


def task_of(run: str) -> str:
    return f"tasks{run.removeprefix('runs')}.yaml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", RUNS)


@dataclass(frozen=True)
class Change:
    """`old` becomes `new` in `file`; `run` then drifts with `kind`.

    `first` is the first difference of substance: (step, pointer, before, after), the values as told; `gravest`
    is the pointer of the first one of the class itself where that is another.
    """

    file: str
    old: str
    new: str
    run: str
    kind: str
    first: tuple[int | None, str, str, str]
    gravest: str | None = None


ALLOWED = "  allowed: [search, fetch, read, write, summarize]\n  denied: []"
CHANGES = {
    "a rule added": Change(
        POLICY,
        ALLOWED,
        "  allowed: [search, read, write, summarize]\n  denied: [fetch]",
        CANONICAL,
        "VERDICT",
        (2, "/policy_decisions/0/decision", "allow", "deny"),
    ),
    "a page of the corpus": Change(
        PAGE,
        "20 minutes",
        "21 minutes",
        RETRIED,
        "EFFECT",
        (
            1,
            "/tool_results/0/result/text",
            "…t Ollerbeck within 20 minutes",
            "…t Ollerbeck within 21 minutes",
        ),
    ),
    "a tool": Change(
        "tools/summarize.py",
        '{"summary": " "',
        '{"summary": "In short: " + " "',
        RETRIED,
        "EFFECT",
        (2, "/tool_results/0/result/summary", "", "In short: "),
    ),
    "a call of the model": Change(
        task_of(GIVEN),
        "path: sandbox/note.md",
        "path: sandbox/nota.md",
        GIVEN,
        "EFFECT",
        (1, "/intended_tool_calls/0/arguments/path", "sandbox/note.md", "sandbox/nota.md"),
    ),
    "an answer of the model": Change(
        task_of(GIVEN),
        "The note is in ",
        "It is in ",
        GIVEN,
        "ANSWER",
        (2, "/llm_output/final_answer", "The note is in sandbox/note.md.", "It is in sandbox/note.md."),
    ),
    "an exception": Change(
        task_of(LATE),
        "raises: TimeoutError",
        "raises: ZeroDivisionError",
        LATE,
        "ENDING",
        (1, "/tool_results/0/attempts/0/fault/exception", "TimeoutError", "ZeroDivisionError"),
        "/failure_mode",
    ),
    "a limit": Change(
        POLICY,
        "max_tokens: 50000",
        "max_tokens: 50001",
        RETRIED,
        "BUDGET",
        (None, "/policy/limits/max_tokens", "50000", "50001"),
    ),
    "the tokens of a reply": Change(
        task_of(GIVEN),
        "input_tokens: 380",
        "input_tokens: 381",
        GIVEN,
        "BUDGET",
        (1, "/llm_output/usage/0", "380", "381"),
    ),
    "a retry setting": Change(
        POLICY,
        "backoff_base_ms: 100",
        "backoff_base_ms: 200",
        RETRIED,
        "RETRY",
        (None, "/policy/limits/backoff_base_ms", "100", "200"),
    ),
    "a fault less": Change(
        task_of(RETRIED),
        "  - {target: tool, step: 1, call: 0, attempt: 2, raises: TimeoutError, delays_ms: 5000}\n",
        "",
        RETRIED,
        "RETRY",
        (1, "/tool_results/0/attempts/1/backoff_ms", "198", "nothing"),
    ),
    "the time of a decision": Change(
        task_of(GIVEN),
        'start: "2026-01-01T00:00:00Z"',
        'start: "2026-01-01T00:00:00Z"\n  costs_ms: {decision: 2}',
        GIVEN,
        "SHAPE",
        (1, "/stamps/d0/1", "201000001", "202000001"),
    ),
    "the start of the clock": Change(
        task_of(GIVEN),
        "2026-01-01T00:00:00Z",
        "2026-01-02T00:00:00Z",
        GIVEN,
        "SHAPE",
        (None, "/clock/start", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    ),
    "what the model says beside a call": Change(
        task_of(GIVEN),
        "say: I write the note.",
        "say: I write it down.",
        GIVEN,
        "TEXT",
        (1, "/llm_output/text", "I write the note.", "I write it down."),
    ),
    "the question": Change(
        task_of(GIVEN),
        "number?",
        "number, please?",
        GIVEN,
        "TEXT",
        (
            None,
            "/question",
            "Can you note down the dispatch room's number?",
            "Can you note down the dispatch room's number, please?",
        ),
    ),
    "a rule that no call asks for": Change(
        POLICY,
        "private_networks: []",
        "private_networks: [10.9.0.0/16]",
        GIVEN,
        "DIGEST-ONLY",
        (None, "/policy/version", "", ""),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_classed_and_led_back_to_its_cause(
    name: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = CHANGES[name]
    replaced(project / change.file, change.old, change.new)
    found = examine(project / change.run, root=project)
    assert not found.ok and found.kind == change.kind
    assert found.drift is not None and found.drift.first is not None and found.drift.gravest is not None
    first = found.drift.first
    step, pointer, before, after = change.first
    assert (first.step, first.pointer) == (step, pointer)
    told = first.to_dict()
    assert told["before"].startswith(before) and told["after"].startswith(after)
    assert told["before"] != told["after"]
    gravest = found.drift.gravest
    assert gravest.kind == change.kind and gravest.pointer == (change.gravest or pointer)
    assert list(found.moved) == [change.file]
    cause = in_words(causes([found]))
    assert cause == f"{change.file} moved (1 of them)"
    accept = None if found.missed else f'tachograph accept {change.run} --reason "..."'
    code, out = tachograph(project, capsys, monkeypatch, "check", change.run)
    lines = out.splitlines()
    assert code == 1 and lines[0] == f"check: 1 of 1 runs drifted; likely cause: {cause}"
    assert lines[1] == f"{change.kind}  {change.run}"
    assert found.accept == accept
    assert lines[-1] == (
        f"accept it: {accept}"
        if accept
        else "nothing to accept: fix the inputs named above, or restore the run's folder"
    )
    assert any(f"first difference: {first} [{first.kind}]" in line for line in lines)
    grave = [line for line in lines if f"gravest: {gravest} [{gravest.kind}]" in line]
    assert bool(grave) == (change.gravest is not None)


def test_the_changes_cover_every_class() -> None:
    # ASKED is a class of live runs, which test_asked.py changes, and EXPOSURE has test_exposure.py
    assert {change.kind for change in CHANGES.values()} == set(CLASSES) - {"ASKED", "EXPOSURE"}


def test_what_is_accepted_is_clean_unless_the_task_expects_otherwise(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(project / PAGE, "20 minutes", "21 minutes")
    _, out = tachograph(project, capsys, monkeypatch, "check", RETRIED)
    monkeypatch.delenv("CI", raising=False)
    words = shlex.split(out.splitlines()[-1].removeprefix("accept it: tachograph "))
    assert tachograph(project, capsys, monkeypatch, *words)[0] == 0
    assert tachograph(project, capsys, monkeypatch, "check", RETRIED)[0] == 0
    change = CHANGES["a rule added"]
    replaced(project / change.file, change.old, change.new)
    found = examine(project / CANONICAL, root=project)
    assert any(
        line.startswith("expected: ending: expected final_answer, found policy_") for line in found.lines
    )
    assert f"fix {task_of(CANONICAL)} first" in found.lines[-1]


# ---- many runs at once ---------------------------------------------------------------------------------


def test_runs_where_only_digests_moved_stand_in_one_line(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = CHANGES["a rule that no call asks for"]
    replaced(project / change.file, change.old, change.new)
    code, out = tachograph(project, capsys, monkeypatch, "check")
    names = " ".join(sorted((CANONICAL, DENIED, RETRIED, GIVEN, LATE)))
    assert code == 1 and out.splitlines() == [
        f"check: 5 of 5 runs drifted; likely cause: {POLICY} moved (5 of them)",
        f"DIGEST-ONLY  5 runs: {names}",
        "guess  the cause was not found by trying: there is no git history here",
        'accept it: tachograph accept --all --reason "..."',
    ]


def test_the_gravest_come_first_and_each_has_its_command(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("an answer of the model", "a rule that no call asks for", "a page of the corpus"):
        change = CHANGES[name]
        replaced(project / change.file, change.old, change.new)
    code, out = tachograph(project, capsys, monkeypatch, "check", "--verbose")
    heads = [line for line in out.splitlines() if not line.startswith("  ")]
    assert code == 1 and [line.split()[0] for line in heads[1:]] == [
        *("EFFECT", "EFFECT", "ANSWER", "DIGEST-ONLY", "guess", "accept"),
    ]
    assert heads[1:4] == [f"EFFECT  {CANONICAL}", f"EFFECT  {RETRIED}", f"ANSWER  {GIVEN}"]
    assert f'  accept this one: tachograph accept {GIVEN} --reason "..."' in out.splitlines()
    assert heads[0] == (
        f"check: 5 of 5 runs drifted; likely cause: {PAGE} moved (2 of them), "
        f"{task_of(GIVEN)} moved (1 of them), {POLICY} moved (2 of them)"
    )
    assert heads[-1] == 'accept it: tachograph accept --all --reason "..."'


def test_a_touched_record_is_not_hidden_among_moved_digests(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = CHANGES["a rule that no call asks for"]
    replaced(project / change.file, change.old, change.new)
    replaced(project / DENIED / "trace.json", '"deny"', '"DENY"')
    replaced(project / task_of(GIVEN), "ending: final_answer", "ending: cancelled")
    code, out = tachograph(project, capsys, monkeypatch, "check")
    lines = out.splitlines()
    assert code == 1 and f"BROKEN  {DENIED}" in lines and f"BROKEN  {GIVEN}" in lines
    assert "  the record does not hold in itself: its ledger gives another trace.json" in lines
    assert "  expected: ending: expected cancelled, found final_answer" in lines
    assert [line for line in lines if line.startswith("DIGEST-ONLY  3 runs: ")]


def test_as_json(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    change = CHANGES["a limit"]
    replaced(project / change.file, change.old, change.new)
    code, out = tachograph(project, capsys, monkeypatch, "check", RETRIED, GIVEN, "--json")
    data = json.loads(out)
    assert code == 1 and out.count("\n") == 1
    assert data["runs"] == 2 and data["index"] == []
    assert data["cause"] == f"{POLICY} moved (2 of them)"
    assert data["classes"] == {RETRIED: "BUDGET", GIVEN: "BUDGET"}
    assert data["accept"][GIVEN] == f'tachograph accept {GIVEN} --reason "..."'
    assert data["accept_all"] == 'tachograph accept --all --reason "..."'
    first = data["first"][RETRIED]
    assert first.pop("rows") == [["-", "50000"], ["+", "50001"]] and first.pop("context") == {}
    assert first == {
        "line": 1,
        "step": None,
        "pointer": "/policy/limits/max_tokens",
        "before": "50000",
        "after": "50001",
        "class": "BUDGET",
    }
    assert data["drifted"][RETRIED] == examine(project / RETRIED, root=project).lines
    replaced(project / change.file, change.new, change.old)
    clean = json.loads(tachograph(project, capsys, monkeypatch, "check", "--json")[1])
    assert clean["drifted"] == clean["accept"] == clean["first"] == {} and clean["cause"] is None


def test_what_comes_behind_the_first_difference_is_counted_by_class() -> None:
    def ledger(word: str) -> list[dict[str, Any]]:
        policy = {"limits": {"max_tokens": word}, "version": word}
        return [
            {"type": "run", "policy": policy},
            {
                "type": "step",
                "step_index": 1,
                "prev": word,
                "policy_decisions": [{"at": word, "decision": word}],
            },
            {"type": "end", "final_answer": word},
        ]

    drift = compare(ledger("a"), ledger("b"))
    assert drift.first is not None and drift.first.pointer == "/policy/limits/max_tokens"
    # the policy's version stands behind its limits; what stands before the first is none of its consequences
    assert drift.behind == {"DIGEST-ONLY": 2, "VERDICT": 1, "TEXT": 1, "ANSWER": 1}
    assert drift.grave is not None and drift.grave.pointer == "/policy_decisions/0/decision"
    assert [line.split(": ")[1] for line in drift.summary_lines("x")] == ["first difference", "gravest"]
    assert drift.first.sides == (ledger("a")[0], ledger("b")[0])
