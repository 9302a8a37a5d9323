"""A project of a few runs, and a command in it: what tests of the command line stand on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tachograph.cli import main as command_line
from tests.evidence.project import FEW, copy_inputs

RUN = "runs/canonical/v1"
TASK = "tasks/canonical/v1.yaml"
GIVEN = "policy_gates/approval_given"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("bad") / "project", (*FEW, GIVEN))


@pytest.fixture
def project(shared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shared, tmp_path / "project"))


@pytest.fixture
def say(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """Exit code, output and complaint of a command in the project."""
    monkeypatch.chdir(project)
    monkeypatch.delenv("CI", raising=False)

    def said(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = command_line.main(list(words))
        except SystemExit as left:
            code = int(str(left.code))
        return code, *capsys.readouterr()

    return said
