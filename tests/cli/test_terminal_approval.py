"""A person at a terminal: what is shown, what counts as an answer."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tachograph.cli.terminal_approval import Terminal
from tachograph.fail.errors import InputError
from tachograph.runtime.core.effects import Answer, AskHuman, Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
POLICY = Policy.load(ROOT / "policy/v1.yaml", [ROOT / "policy/overlays/approve_write.yaml"], root=ROOT)
_RUN = (sys.executable, "-m", "tachograph", "run", "tasks/policy_gates/approval_given.yaml")
AT = POLICY.at("/approval/required_for/0")


def asked(timeout_s: int = 60, **arguments: object) -> AskHuman:
    call = Call("tc_1_0", "write", freeze(arguments))
    return AskHuman(1, 0, call, 'tool "write" needs a person', AT, timeout_s, POLICY.version, "demo")


class Desk:
    """A terminal of our own: what is shown on it, and a hand that types."""

    def __init__(self) -> None:
        self.hand, inside = pty.openpty()
        self.read = open(inside, encoding="utf-8", closefd=False)  # noqa: SIM115
        self.write = open(inside, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        self.inside = inside
        self.seen = ""
        self._answered = 0
        self._watch = Thread(target=self._watching, daemon=True)
        self._watch.start()

    def _watching(self) -> None:
        while True:
            try:
                data = os.read(self.hand, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data.decode("utf-8", "replace")

    def ask(self, question: AskHuman, *typed: str) -> Answer | None:
        desk = Terminal(POLICY, lambda text, _: text, stdin=self.read, out=self.write)
        found: list[Answer | None] = []
        asking = Thread(target=lambda: found.append(desk(question)))
        asking.start()
        for line in typed:
            self._until_asked(asking)
            os.write(self.hand, f"{line}\n".encode())
        asking.join(timeout=30)
        assert not asking.is_alive()
        print("<drained>", end="", file=self.write, flush=True)
        end = time.monotonic() + 30
        while "<drained>" not in self.seen and time.monotonic() < end:
            time.sleep(0.01)
        return found[0]

    def _until_asked(self, asking: Thread) -> None:
        end = time.monotonic() + 30
        while not self._is_asked() and asking.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        assert self._is_asked(), self.seen
        self._answered = len(self.seen)

    def _is_asked(self) -> bool:
        return self.seen[self._answered :].rstrip().endswith(">")

    def close(self) -> None:
        self.read.close()
        self.write.close()
        os.close(self.inside)
        os.close(self.hand)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def test_everything_is_shown_and_yes_allows(desk: Desk) -> None:
    question = asked(path="sandbox/a.md", content="hi")
    assert desk.ask(question, "y", "looks fine") == Answer("allow", "terminal", "looks fine", question.digest)
    for text in ('"content": "hi"', AT, "required_for: [write]", question.digest[:16], POLICY.version):
        assert text in desk.seen


@pytest.mark.parametrize("word", ["n", "no", "deny", " N "])
def test_no_refuses(desk: Desk, word: str) -> None:
    said = desk.ask(asked(path="a"), word, "")
    assert said is not None and (said.answer, said.why) == ("deny", None)


def test_anything_else_is_asked_again(desk: Desk) -> None:
    said = desk.ask(asked(path="a"), "", "yy", "sure", "1", "n", "")
    assert said is not None and said.answer == "deny"
    assert desk.seen.count("y allows this one call") == 4


def test_what_was_not_shown_cannot_be_allowed(desk: Desk) -> None:
    lines = {f"line{number:03}": number for number in range(60)}
    said = desk.ask(asked(**lines), "y", "a", "y", "")
    assert said is not None and said.answer == "allow"
    assert "more lines" in desk.seen and "not all of it was shown" in desk.seen
    assert '"line059": 59' in desk.seen.partition("not all of it was shown")[2]
    assert '"line059": 59' not in desk.seen.partition("not all of it was shown")[0]


def test_long_and_hostile_arguments_are_wrapped_and_inert(desk: Desk) -> None:
    text = "\x1b[2Jallow this call? y\r\n\u202egnp" + "x" * 400
    desk.ask(asked(content=text), "n", "")
    assert "\x1b" not in desk.seen and "\u202e" not in desk.seen
    assert "".join(desk.seen.split()).count("x" * 400) == 1
    assert max(map(len, desk.seen.split("\r\n"))) <= 100


def test_silence_is_no_answer(desk: Desk) -> None:
    assert desk.ask(asked(timeout_s=0, path="a")) is None
    assert "no answer in time: the call is refused" in desk.seen


def test_the_end_of_what_is_typed_is_no_answer_and_not_late(desk: Desk) -> None:
    assert desk.ask(asked(path="a"), "\x04") is None  # Ctrl-D
    assert "no answer was given: the call is refused" in desk.seen and "in time" not in desk.seen


def test_what_is_told_of_ctrl_c_begins_on_a_line_of_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("select.select", press)
    terminal = Terminal(POLICY, lambda text, _: text, stdin=desk.read, out=desk.write)
    with pytest.raises(KeyboardInterrupt):
        terminal(asked(path="a"))
    print("<told>", end="", file=desk.write, flush=True)
    end = time.monotonic() + 30
    while "<told>" not in desk.seen and time.monotonic() < end:
        time.sleep(0.01)
    assert desk.seen.endswith(" > \r\n<told>")


def test_what_was_typed_before_the_question_is_dropped(desk: Desk) -> None:
    os.write(desk.hand, b"y\ny\n")
    time.sleep(0.05)
    said = desk.ask(asked(path="a"), "n", "")
    assert said is not None and said.answer == "deny"


def test_a_pipe_is_no_person(tmp_path: Path) -> None:
    with (tmp_path / "in").open("w+") as pipe, pytest.raises(InputError, match="no terminal"):
        Terminal(POLICY, lambda text, _: text, stdin=pipe)
    done = subprocess.run(
        [*_RUN, "--approve", "ask", "--out", str(tmp_path / "run")],
        cwd=ROOT,
        input="y\n\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "there is no terminal to ask a person at" in done.stderr
    assert not (tmp_path / "run").exists()
