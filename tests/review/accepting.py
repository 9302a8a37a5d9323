"""A project whose runs drift, and commands in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tachograph.evidence.files import accepted
from tests.evidence.project import copy_inputs, replaced
from tests.review.drift_changes import RUNS

ACCEPTED = accepted.ACCEPTED
Edit = tuple[str, str, str]
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("accept") / "project", RUNS)


@pytest.fixture
def project(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "project"))


@pytest.fixture
def say(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """A command in the project: exit code, standard output, standard error."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(project)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command_line.main(list(words))
        return code, *capsys.readouterr()

    return run


def edit(project: Path, *edits: Edit) -> None:
    for file, old, new in edits:
        replaced(project / file, old, new)


def entries(project: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project / ACCEPTED).read_text(encoding="utf-8").splitlines()]


def stable(run: Path) -> str:
    return accepted.digest_of((run / "manifest.json").read_bytes())
