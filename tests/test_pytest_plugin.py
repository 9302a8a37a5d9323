"""Tests of policies as tests of pytest: each by its name, and what fails in the words of the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Capsys, output_of
from tests.project import write_policy_tests

ROOT = Path(__file__).parents[1]
CALL = {"tool": "search", "arguments": {"query": "seals"}}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "call": CALL, "expect": "allow", **more}


OPTIONS = ["-p", "no:cacheprovider", "-v", "--continue-on-collection-errors", "--color=no"]
FILES = {
    "good": [named("it is allowed"), named("so is it here")],
    "bad": [named("it passes"), named("it is denied ##vso[x]\u202e", expect="deny", rule="none")],
    "broken": [named("it asks nothing", call=None)],
    "misspelt": [{"nam": "it has no name"}],
}


def test_each_test_is_one_of_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    for folder in ("policy", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    tests = tmp_path / "policy" / "tests"
    for name, rows in FILES.items():
        write_policy_tests(tmp_path, "policy/v1.yaml", *rows, name=name)
    (tmp_path / "tests").mkdir()
    for none in ("tests/other.yaml", "policy/other.yaml", "policy/tests/other.txt"):
        shutil.copy(tests / "broken.yaml", tmp_path / none)
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "tachograph.pytest_plugin", *OPTIONS]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    for passed in ("good.yaml::it is allowed", "good.yaml::so is it here", "bad.yaml::it passes"):
        assert f"policy/tests/{passed} PASSED" in done.stdout
    assert "policy/tests/v1.yaml::" in done.stdout and "other." not in done.stdout
    printed = done.stdout.splitlines()
    for name, code, lines in (("bad", 1, 2), ("broken", 2, 1), ("misspelt", 2, 1)):
        out, err = output_of(capsys, "policy", "test", f"policy/tests/{name}.yaml", code=code)
        assert out.startswith("1 of 2 tests", out.rfind("\n", 0, -1) + 1) or not out
        said = [line.removeprefix("tachograph: ") for line in (out + err).splitlines()]
        said = [line for line in said if line.startswith(f"policy/tests/{name}.yaml:")]
        assert len(said) == lines and [line for line in said if line in printed] == said
    assert "Traceback" not in done.stdout and "pytest_plugin.py" not in done.stdout
    assert "1 failed" in printed[-1] and "2 errors" in printed[-1]
