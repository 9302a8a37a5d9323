"""Whole sessions with a live model: a project of one's own, the command line, what it wrote."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as command_line
from tests.evidence.project import replaced
from tests.providers.protocols import Turn
from tests.providers.servers import Server
from tests.support import FILES, ROOT, TASK

ANSWER = Turn("The driver stops at the next safe place.")
SEARCH = Turn("I search.", (("search", '{"query": "recorder fails"}'),))
READ = Turn("I read.", (("read", '{"path": "corpus/op-a4.md"}'),))


@dataclass
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Project:
    """A copy of what runs are made from, and the command line in it.

    It has one task, the canonical one, under the shipped policy with `overlay` over it.
    """

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("policy", "tools", "data"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tasks/canonical").mkdir(parents=True)
        shutil.copy(ROOT / TASK, folder / TASK)
        monkeypatch.chdir(folder)
        self.folder = folder
        self.task = folder / TASK
        self._capsys = capsys

    def overlay(self, text: str) -> None:
        """Lay a policy over the shipped one."""
        (self.folder / "policy/overlays/mine.yaml").write_text(text, encoding="utf-8")
        replaced(
            self.task, "file: policy/v1.yaml", "file: policy/v1.yaml\n  overlays: [policy/overlays/mine.yaml]"
        )

    def __call__(self, *words: str) -> Said:
        """Run a command in this process."""
        self._capsys.readouterr()
        before = list(logging.getLogger("tachograph").handlers)
        try:
            code = command_line.main(list(words))
        finally:
            logging.getLogger("tachograph").handlers[:] = before
        return Said(code, *self._capsys.readouterr())

    def run(self, server: Server, provider: str, *more: str, name: str = "v1") -> Said:
        """Record the task with a live model that `server` plays."""
        return self(*self.words(server, provider, *more, name=name))

    @staticmethod
    def words(server: Server, provider: str, *more: str, name: str = "v1") -> tuple[str, ...]:
        where = ("--base-url", server.base_url(provider), "--out", f"made/live/{name}")
        return ("run", TASK, "--llm", f"{provider}:some-model", *where, *more)

    def place(self, name: str = "v1") -> Path:
        return self.folder / "made/live" / name

    def lines(self, name: str = "v1") -> list[dict[str, Any]]:
        text = (self.place(name) / "state.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def proven(self, name: str = "v1") -> None:
        """The record stands on its own: replayed, checked and verified, nothing changed by that."""
        place = f"made/live/{name}"
        before = {file: (self.folder / place / file).read_bytes() for file in FILES}
        for verb, word in (("replay", "identical"), ("check", "identical"), ("verify", "consistent")):
            said = self(verb, place)
            assert (said.code, said.err) == (0, "") and word in said.out, (verb, said)
        assert {file: (self.folder / place / file).read_bytes() for file in FILES} == before


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path / "project", capsys, monkeypatch)


def impatient(monkeypatch: pytest.MonkeyPatch, wait_s: float = 0.3, total_s: float = 1.0) -> None:
    """Let the command line wait for a model as long as tests can."""
    from tachograph.cli.commands import run as running

    monkeypatch.setattr(running, "_WAIT_S", wait_s)
    monkeypatch.setattr(running, "_TOTAL_S", total_s)


def differing(one: Any, other: Any, at: str = "") -> set[str]:
    """Where two pieces of JSON data differ, as pointers; places in lists are written as `*`."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = one.keys() | other.keys()
        found = [differing(one.get(key), other.get(key), f"{at}/{key}") for key in keys]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        found = [differing(a, b, f"{at}/*") for a, b in zip(one, other, strict=True)]
    else:
        return set() if one == other else {at}
    return set().union(*found)


# a program that runs a command and then says which of the SDKs came with it, and whom it spoke to
WATCHED = """
import sys
spoken = []
sys.addaudithook(lambda event, args: spoken.append(event) if event.startswith("socket.") else None)
from tachograph.cli.main import main
code = main(sys.argv[1:])
names = ("anthropic", "openai", "httpx", "httpx2", "pydantic", "tachograph.runtime.models.providers")
print(sorted(name for name in names if name in sys.modules), sorted(set(spoken)), code)
"""


def watched(*words: str) -> tuple[str, ...]:
    """The command line as a program that tells what it brought along."""
    return (sys.executable, "-c", WATCHED, *words)


def everything_below(folder: Path) -> Iterable[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), path.read_bytes()
