"""Every row of the fault matrix is covered by something that exists, and what needs rights says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import registry, run
from tests.faults.covered import COVERED, NOT_OURS
from tests.faults.lab import Lab
from tests.faults.registry import FAULTS, Entry
from tests.support import ROOT, environment


def _exists(reference: str) -> bool:
    if reference.startswith("fault:"):
        return reference.removeprefix("fault:") in FAULTS
    file, _, name = reference.partition("::")
    return (ROOT / file).is_file() and f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", COVERED)
def test_what_covers_a_row_exists(row: str) -> None:
    assert COVERED[row]
    missing = [reference for reference in COVERED[row] if not _exists(reference)]
    assert missing == []


def test_every_row_is_covered_or_says_why_not() -> None:
    corpora = os.environ.get("TACHOGRAPH_CORPORA")
    matrix = Path(corpora or "/").parent / "faults" / "fault_matrix.jsonl"
    if not corpora or not matrix.is_file():
        pytest.skip("there is no fault matrix beside the corpora, or TACHOGRAPH_CORPORA is not set")
    rows = {json.loads(line)["id"] for line in matrix.read_text(encoding="utf-8").splitlines()}
    assert len(rows) >= 50
    assert rows - set(COVERED) - set(NOT_OURS) == set(), "rows that nothing covers"
    assert {*COVERED, *NOT_OURS} - rows == set(), "rows that there are not"


def test_every_fault_names_needs_that_are_known() -> None:
    assert len(FAULTS) > 30
    for entry in FAULTS.values():
        assert entry.words and set(entry.needs) <= set(registry.NEEDS)


class _Server:
    """Stands where a lab would be."""


def test_the_suite_tells_what_it_cannot_make_and_what_was_not_survived(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def good(_lab: Lab):
        yield "one"
        yield "two"

    def bad(_lab: Lab):
        yield "one"
        yield "the case that goes wrong"
        raise AssertionError("here")

    monkeypatch.setitem(registry.NEEDS, "wings", ("wings", lambda: False))
    entries = [
        Entry(c.__name__, "words", needs, c) for c, needs in ((good, ()), (bad, ()), (good, ("wings",)))
    ]
    server: Lab = _Server()  # type: ignore[assignment]
    assert [run._made(server, entry) for entry in entries] == [True, False, None]
    said = capsys.readouterr().out
    assert "survived      good                   2 cases" in said
    assert "MISSED        bad                the case that goes wrong" in said
    assert "not run here  good               needs wings" in said


def test_the_command_lists_its_faults_and_refuses_others() -> None:
    def suite(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.faults.run", *words]
        return subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )

    listed = suite("--list")
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == len(FAULTS)
    assert suite("--only", "nothing").returncode == 2
