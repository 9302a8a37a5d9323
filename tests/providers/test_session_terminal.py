"""Tokens at a terminal as they come, and nowhere else; the record holds the whole reply."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.providers import sessions
from tests.providers.protocols import Turn
from tests.providers.servers import Server, _Handler
from tests.providers.sessions import Project
from tests.support import ROOT, environment

project = sessions.project

BOUND_S = 60
TEXT = "I look at whatever the corpus\x1b[2J has.\nSecond line of it."
GATED = b'"ver"'  # texts come in pieces of three


def gated(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let servers send the first piece of the text at once, and the rest when this is set."""
    gate = threading.Event()
    send = _Handler._chunk

    def chunk(handler: _Handler, data: bytes) -> None:
        if GATED in data:
            gate.wait(BOUND_S)
        send(handler, data)

    monkeypatch.setattr(_Handler, "_chunk", chunk)
    return gate


class Terminal:
    """What a process prints at a terminal of its own."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._master = master
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 4096):
                self.shown += data
        except OSError:  # the last one at the other end has gone
            return

    def await_text(self, text: bytes) -> bool:
        limit = time.monotonic() + BOUND_S
        while text not in self.shown and time.monotonic() < limit:
            time.sleep(0.02)
        return text in self.shown

    def end(self) -> int:
        code = self.process.wait(BOUND_S)
        self._reader.join(2)
        return code


@contextmanager
def at_a_terminal(project: Project, words: tuple[str, ...]) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tachograph", *words],
        cwd=project.folder,
        env=environment({"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.DEVNULL,
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_tokens_appear_as_they_come(project: Project, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gated(monkeypatch)
    calls = (("search", '{"query": "recorder"}'),)
    with (
        Server([Turn(TEXT, calls), Turn("Done.")]) as server,
        at_a_terminal(project, project.words(server, provider)) as terminal,
    ):
        assert terminal.await_text(b"I look at"), terminal.shown
        assert b"Second" not in terminal.shown and b"call" not in terminal.shown
        assert len(server.requests) == 1
        gate.set()
        assert terminal.end() == 0
    shown = terminal.shown.decode()
    assert "Second line of it." in shown and "\x1b[2J" not in shown, shown
    assert shown.index("Second line") < shown.index("call search") < shown.index("answer    Done.")
    assert project.lines()[1]["llm_output"]["text"] == TEXT
    project.proven()


def test_in_one_piece_it_is_shown_too(project: Project) -> None:
    pytest.importorskip("openai")
    with (
        Server([Turn("All at once.", (("search", '{"query": "recorder"}'),)), Turn("Done.")]) as server,
        at_a_terminal(project, project.words(server, "openai", "--no-stream")) as terminal,
    ):
        assert terminal.end() == 0
    assert b"All at once." in terminal.shown


@pytest.mark.parametrize("how", ["--no-color", "--quiet", "--json"])
def test_in_a_pipe_there_are_none(project: Project, provider: str, how: str) -> None:
    with Server([Turn("I look at it.", (("search", '{"query": "recorder"}'),)), Turn("Done.")]) as server:
        said = project.run(server, provider, how)
    assert said.code == 0 and "I look at it" not in said.out and said.out.count("Done.") == 1
    assert project.lines()[1]["llm_output"]["text"] == "I look at it."


@pytest.mark.parametrize("how", ["--quiet", "--json"])
def test_nor_at_a_terminal_that_wants_none(project: Project, how: str) -> None:
    pytest.importorskip("openai")
    with (
        Server([Turn("I look at it.", (("search", '{"query": "recorder"}'),)), Turn("Done.")]) as server,
        at_a_terminal(project, project.words(server, "openai", how)) as terminal,
    ):
        assert terminal.end() == 0
    assert b"I look at it" not in terminal.shown and b"Done." in terminal.shown


def test_how_it_was_shown_changes_no_record(project: Project) -> None:
    pytest.importorskip("openai")
    script = [Turn("I look at it.", (("search", '{"query": "recorder"}'),)), Turn("Done.")]
    ledgers: list[Any] = []
    for name, more in (("shown", ()), ("whole", ("--no-stream",)), ("piped", ())):
        with Server(script) as server:
            words = project.words(server, "openai", *more, name=name)
            if name == "piped":
                assert project(*words).code == 0
            else:
                with at_a_terminal(project, words) as terminal:
                    assert terminal.end() == 0
        ledgers.append([line["llm_output"] for line in project.lines(name)[1:-1]])
        for said in ledgers[-1]:
            said.pop("model")  # the server of these tests names another one in a stream
    assert ledgers[0] == ledgers[1] == ledgers[2]
