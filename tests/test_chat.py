"""`tachograph chat` at a pseudo-terminal: each key is typed when what comes before it has been printed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import select
import signal
import socket
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Capsys, exit_code, output_of
from tests.project import POLICY, edit, make_project, merged
from tests.providers.service import SECRET, Answer, O, Service, answer, whole

# only the processes that run these tests import them
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ["prompt_toolkit", "openai"])),
    reason="the package prompt_toolkit or openai is not installed",
)

PATIENCE = 60  # seconds that nothing here outlasts
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")
# each command is a process of its own, forked from one that has imported what takes long, and done nothing else
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["openai.resources.chat", "tachograph.cli.chat", "tachograph.cli.main"])
# a new session has the first terminal that it opens, and so the one that Ctrl-C comes from
PROGRAM = """
import os, sys
os.environ.clear()
os.environ.update(environment)
os.chdir(root)
os.setsid()
terminal = os.open(place, os.O_RDWR)
for n in range(3):
    os.dup2(terminal, n)
sys.stdin, sys.stdout, sys.stderr = (open(n, "rww"[n]) for n in range(3))
sys.argv = ["tachograph", *words]
from tachograph.__main__ import process
process()
"""
GATE = {
    "tool_registry": {"allowed": ["look", "save", "mail", "reader", "exit_plan"]},
    "agents": {"max_depth": 1, "max_children": 9},
    "loop_budget": {"max_iterations": 60, "max_tokens": 100_000, "max_tool_calls": 50},
    "approval": {"required_for": ["mail"], "timeout_s": 50},
    "on_deny": "inform",
}
TALKER = {
    "schema": "profile/v1", "description": "Talks.", "policy": {"file": "policy/talker.yaml"}, "agents": ["reader"],
    "tools": ["look", "save", "mail"], "mounts": {"book": "book"}, "model": "openai:gpt",
}  # fmt: skip


class Terminal:
    """The command at a pseudo-terminal."""

    service: Any = None

    def __init__(self, root: Path, *words: str, program: str = PROGRAM, command: str = "chat") -> None:
        self._master, self._slave = os.openpty()
        self.mode = termios.tcgetattr(self._master)
        termios.tcsetwinsize(self._slave, (40, 200))
        environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "OPENAI_API_KEY": SECRET}
        given = {"environment": environment, "root": str(root), "place": os.ttyname(self._slave)}
        self.process = FORKS.Process(target=exec, args=(program, {**given, "words": [command, *words]}))
        self.process.start()
        self.raw, self._end = b"", time.monotonic() + PATIENCE

    @property
    def text(self) -> str:
        return SEQUENCE.sub("", self.raw.decode(errors="replace")).replace("\r", "")

    def until(self, text: str, times: int = 1, label: str = ">") -> None:
        """Wait until a text was printed so many times, and the prompt was drawn after it."""
        while self.text.count(text) < times or label not in "".join(self.text.split(text)[times:]):
            assert self._read(), self.text

    def _read(self) -> bool:
        if not select.select([self._master], [], [], self._end - time.monotonic())[0]:
            return False
        with suppress(OSError):  # EIO: nobody has the other side any more
            if read := os.read(self._master, 65536):
                if not self.raw:  # the process has it
                    os.close(self._slave)
                self.raw += read
                return True
        return False

    def type(self, keys: str, then: str = "", times: int = 1, label: str = ">") -> None:
        os.write(self._master, keys.encode())
        if then:
            self.until(then, times, label)

    def ends(self) -> int | None:
        while self._read():
            pass
        self.process.join(max(1, self._end - time.monotonic()))
        return self.process.exitcode

    def is_as_before(self) -> bool:
        """Return whether what is typed is shown again, line by line."""
        return termios.tcgetattr(self._master) == self.mode

    def close(self) -> None:
        if not self.raw:
            os.close(self._slave)
        self.process.kill()
        self.process.join()
        os.close(self._master)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    row = {"name": "live", "turns": [], "expect": {}, "llm": {"live": ["openai:gpt", "openai:other"]}}
    short = {**row, "name": "short", "deadline_s": 1, "llm": {"live": ["openai:gpt"]}}
    root = make_project(tmp_path / "p", [row, short])
    (root / "profiles/talker.yaml").write_text(json.dumps(TALKER))
    (root / "policy/talker.yaml").write_text(json.dumps(merged(POLICY, GATE)))
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def begin(project: Path) -> Iterator[Callable[..., Any]]:
    """Begins a service if there are answers, and the command at a terminal, which greets or ends with a code."""
    services: list[Service] = []
    terminals: list[Terminal] = []

    def start(*words: str, answers: Sequence[Answer] = (), code: int | None = None, **how: str) -> Terminal:
        if answers:
            services.append(Service(*answers))
        url = ("--base-url", services[-1].url) if services else ()
        terminals.append(terminal := Terminal(project, *words, *url, **how))
        if code is None:
            terminal.until("/quit ends")
        else:
            assert terminal.ends() == code, terminal.text
        terminal.service = services[-1] if services else None
        return terminal

    yield start
    for it in terminals:
        it.close()
    for service in services:
        service.close()


def says(*pieces: str) -> bytes:
    return answer(whole(O, O.said(*pieces)))


def calls(name: str, **arguments: str) -> bytes:
    return answer(whole(O, O.call(0, name, json.dumps(arguments)), stop="tool_calls"))


def never(service: Service, connection: socket.socket) -> None:
    """Begin to answer, until the client hangs up."""
    connection.sendall(answer(O.start() + O.said("I begin\n")))
    with suppress(OSError):
        connection.recv(1)


def quits(terminal: Terminal, project: Path, turns: int) -> str:
    """End a conversation, and return its log, which holds."""
    terminal.type("/QUIT\r")
    assert terminal.ends() == 0, terminal.text
    name = "chats/talker_1"
    assert f"{name}: {turns} turn" in terminal.text and f"recorded in runs/{name}" in terminal.text
    for command in ("check", "verify", "replay"):
        assert exit_code(command, name) == 0
    files = {path.name: path.read_bytes() for path in (project / "runs" / name).iterdir()}
    assert len(files) == 4 and not any(SECRET.encode() in it for it in files.values())
    return files["state.jsonl"].decode()


def test_turns_are_shown_and_exported(project: Path, begin: Any) -> None:
    """Control characters that the model writes are harmless, also in two pieces, and no answer is shown twice."""
    evil = says("It ", "says \x1b", "]0;evil\x07 alpha\n", "and \x1b[2J more")
    failed = answer(b'{"error": {"message": "no such model"}}', "Content-Type: application/json", status=400)
    look = calls("look", path="book/a.txt")
    below = calls("look", path="out/a.txt"), calls("reader", task="t"), look, says("below"), says("fin")
    terminal = begin("talker", answers=[look, evil, *below, failed, says("well")])
    terminal.type("What is there?\r", "turn 1: 2 steps, 24 tokens")
    terminal.type("and out?\r", "turn 2: 5 steps")
    terminal.type("again\r", "turn 3: failure_mode_terminal (llm_failure)")
    terminal.type("//slash\r", "turn 4: 1 step")
    for command in ("/HELP", "/history", "/tools", "/model", "/histry", "/plan", "/export", "/export x.md"):
        terminal.type(f"{command}\r", f"> {command}\n")
    (project / "y.md").symlink_to("nowhere")
    for name in "xy":
        terminal.type(f"/export {name}.md\r", f"{name}.md: File exists; name another file")
    full = resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    terminal.type("/export full.md\r", "full.md: File too large; name another file")
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, full)
    assert not (project / "full.md").exists()
    log, text = quits(terminal, project, 4), terminal.text
    for line in (
        'look {"path":"book/a.txt"}  allow', 'look {"path":"out/a.txt"}  deny by sandbox_path: mount "out"',
        "4.c0/ below", "HTTP 400 no such model", "/undo ",
        "> and out?\nfin\n",
        "mail  external  Send a mail.", "openai:gpt  {", "used so far: 9 steps", "did you mean '/history'",
        "no policy for a plan",
    ):  # fmt: skip
        assert line in text, line
    assert b"\x1b[32m" in terminal.raw  # what is allowed is green
    assert b"\x1b]" not in terminal.raw and b"\x07" not in terminal.raw and b"\x1b[2J" not in terminal.raw
    assert "says \\u{1b}]0;evil\\u{7} alpha\nand \\u{1b}[2J more\n" in text and '"text":"/slash"' in log
    exported = (project / "talker_1.md").read_text()
    assert exported == (project / "x.md").read_text()
    assert "> fin" in exported and "\x1b" not in exported


def test_a_person_is_asked(project: Path, begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed before the question is not an answer, and is there afterwards; colours can be switched off."""
    monkeypatch.setenv("NO_COLOR", "1")
    asked, go = threading.Event(), calls("mail", path="x", text="two")

    def when_typed(service: Service, connection: socket.socket) -> None:
        assert asked.wait(PATIENCE)
        connection.sendall(go)

    answers = [calls("mail", path="x", text="one"), says("sent"), when_typed, says("kept")]
    terminal = begin("talker", answers=answers)
    terminal.type("send one\r", "approval: tool", label="[y/n]")
    terminal.type("perhaps\r", "[y/n] perhaps", label="[y/n]")
    terminal.type("y\r", "turn 1: ")
    terminal.type("send two\r", "> send two")
    terminal.type("yes", "yes", label="")
    asked.set()
    terminal.until("approval: tool", 2, label="[y/n]")
    terminal.type("n\r", "[y/n] n", label="Why not?")
    terminal.type("not now\r", "turn 2: ", label="yes")
    terminal.type("\x15")
    log = quits(terminal, project, 2)
    for said in ("allow (terminal)", "deny (terminal: not now)"):
        assert f"  a person said {said}" in terminal.text
    assert not re.search(rb"\x1b\[3[0-7]m", terminal.raw)
    assert [line for line in log.splitlines() if '"answered"' in line and '"by":"terminal"' in line][1:]


def test_a_line_that_was_typed_too_early_answers_no_other_question(project: Path, begin: Any) -> None:
    both = (O.call(n, "mail", json.dumps({"path": "x", "text": f"{n}"})) for n in (0, 1))
    terminal = begin("talker", answers=[answer(whole(O, b"".join(both), stop="tool_calls")), says("sent")])
    terminal.type("send two\r", "approval: tool", label="[y/n]")
    terminal.type("y\ry\r", "approval: tool", 2, label="[y/n]")
    terminal.type("n\r", "[y/n] n", label="Why not?")
    terminal.type("enough\r", "turn 1: 2 steps")
    log = quits(terminal, project, 1)
    assert [line.count('"answer":"allow"') for line in log.splitlines() if '"answered"' in line] == [1, 0]


def test_interrupts_a_summary_and_an_undo(project: Path, begin: Any) -> None:
    rest = calls("mail", path="x", text="one"), says("sum"), says("summed"), says("last")
    terminal = begin("talker", answers=[never, says("second"), never, *rest])
    terminal.type("work\r", "I begin", label="")
    terminal.type("other\r", "turn 1: cancelled (interrupted)")
    terminal.until("turn 2: 1 step")
    terminal.type("work again\r", "I begin", terminal.text.count("I begin") + 1, label="")
    terminal.type("\x03", "turn 3: cancelled (interrupted)")
    terminal.type("mail it\r", "approval: tool", label="[y/n]")
    terminal.type("\x03", "turn 4: cancelled (interrupted)")
    terminal.type("/compact the mails\r", "sums up")
    terminal.type("sum it up\r", "messages summed up")
    terminal.until("turn 5: ")
    assert "the mails" in json.dumps(terminal.service.requests[4][2])
    terminal.type("/undo\r", "2 messages taken back")
    terminal.type("what then?\r", "turn 6: ")
    last = json.dumps(terminal.service.requests[-1][2])
    assert "what then?" in last and "sum it up" not in last and "summed" not in last
    quits(terminal, project, 6)


def test_a_plan_is_refused_and_allowed(project: Path, begin: Any) -> None:
    profile = {**TALKER, "tools": [*TALKER["tools"], "exit_plan"], "plan": {"file": "policy/plan.yaml"}}
    (project / "profiles/talker.yaml").write_text(json.dumps(profile))
    allowed = {**GATE, "tool_registry": {"allowed": ["look", "exit_plan"]}}
    (project / "policy/plan.yaml").write_text(json.dumps(merged(POLICY, allowed)))
    first, second, third = (calls("exit_plan", plan=f"look\n{text}") for text in ("write", "less", "least"))
    terminal = begin("talker", answers=[first, second, says("planned"), third, says("again")])
    terminal.type("plan it\r", "The agent shows its plan:\nlook\nwrite\n", label="[y/n]")
    terminal.type("no\r", "[y/n] no", label="Why not?")
    terminal.type("less\r", "look\nless\n", label="[y/n]")
    terminal.type("yes\r", "turn 1: 3 steps")
    terminal.type("/plan\r", "makes a plan before")
    terminal.type("go\r", "look\nleast\n", label="[y/n]")
    terminal.type("yes\r", "turn 2: ")
    quits(terminal, project, 2)


def test_a_conversation_goes_on_after_its_process(project: Path, begin: Any, capsys: Capsys) -> None:
    terminal = begin("talker", answers=[never, says("still here"), says("hello")])
    terminal.type("work\r", "I begin", label="")
    os.kill(terminal.process.pid, signal.SIGKILL)
    assert terminal.ends() == -signal.SIGKILL
    terminal = begin("chats/talker_1")
    terminal.until("turn 1: ")
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.ends() == 130 and terminal.is_as_before()
    terminal = begin("chats/talker_1")
    terminal.until("1 turn so far")
    terminal.type("\x03", "press Ctrl-C again")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert f"left open; `tachograph chat chats/talker_1 --base-url {terminal.service.url}`" in terminal.text
    assert exit_code("run", "chats/talker_1") == exit_code("resume", "chats/talker_1") == 2
    said = capsys.readouterr().err
    assert "is a conversation; " in said and "needs a terminal" in said
    assert "its own model" in begin("chats/talker_1", "--llm", "openai:other", code=2).text
    terminal = begin("chats/talker_1", command="resume")
    terminal.until("1 turn so far; the last answer:\nstill here\n")
    terminal.type("\x1b[A", "work", label="")
    terminal.type(" more\r", "turn 2: ")
    assert '"text":"work more"' in quits(terminal, project, 2)
    assert "the conversation has ended" in begin("chats/talker_1", code=2).text


APP = """
from tachograph import Agent, LLMOutput, Policy, ToolCall

def model(asked):
    last = asked.messages[-1]
    if last["role"] == "user":
        return LLMOutput(tool_calls=[ToolCall("mail", {"path": "x", "text": last["content"]})])
    return LLMOutput(final_answer="so be it")

agent = Agent(model, ["mail"], Policy.load("policy/talker.yaml"))
"""


def test_an_agent_in_code_is_talked_with(project: Path, begin: Any) -> None:
    (project / "app.py").write_text(APP)
    words = ("mine/talk", "--agent", "app:agent")
    assert "options of a model" in begin(*words, "--llm", "openai:gpt", code=2).text
    terminal = begin(*words)
    terminal.type("one\r", "approval: tool", label="[y/n]")
    terminal.type("y\r", "turn 1: ")
    terminal.type("\x03", "press Ctrl-C again")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert "left open; `tachograph chat mine/talk --agent app:agent`" in terminal.text
    terminal = begin(*words)
    terminal.type("two\r", "approval: tool", label="[y/n]")
    terminal.type("n\r", "[y/n] n", label="Why not?")
    terminal.type("no\r", "turn 2: ")
    terminal.type("/quit\r")
    assert terminal.ends() == 0 and "2 turns, recorded in mine/talk" in terminal.text
    assert "the conversation has ended" in begin(*words, code=2).text
    for command in ("check", "replay"):
        begin(*words, command=command, code=0)


def test_an_effect_in_doubt(project: Path, begin: Any) -> None:
    edit(project / "tools/mail.py", "    return", "    import os\n    os.kill(os.getpid(), 9)\n    return")
    terminal = begin("talker", answers=[calls("mail", path="x", text="one"), says("well")])
    terminal.type("work\r", "approval: tool", label="[y/n]")
    terminal.type("y\r")
    assert terminal.ends() == -signal.SIGKILL
    assert "--done AT" in begin("chats/talker_1", code=3).text
    terminal = begin("chats/talker_1", "--done", "1.c0.i1")
    terminal.until("turn 1: ")
    quits(terminal, project, 1)


def test_a_deadline_ends_the_conversation(project: Path, begin: Any) -> None:
    text = begin("s/short", answers=[never], code=1).text
    assert "the deadline of the run passed" in text
    assert "chats/short_1: failure_mode_terminal, timeout, 0 turns, recorded in runs/chats/short_1" in text
    assert exit_code("check", "chats/short_1") == exit_code("verify", "chats/short_1") == 0


@pytest.mark.parametrize("keys", ["\x04", "\x03"])
def test_nothing_that_was_said_leaves_nothing(project: Path, begin: Any, keys: str) -> None:
    terminal = begin("talker")
    terminal.type(keys)
    if keys == "\x03":
        terminal.until("press Ctrl-C again")
        terminal.type(keys)
    assert terminal.ends() == (0 if keys == "\x04" else 130)
    assert not (project / "runs").exists() and not (project / "tasks/chats").exists()


HIDDEN = f"""
import sys
sys.modules.pop("tachograph.cli.chat", None)
sys.modules.update((name, None) for name in [*sys.modules, "prompt_toolkit"] if name.startswith("prompt_toolkit"))
{PROGRAM}"""


@pytest.mark.parametrize(
    ("words", "program", "said"),
    [
        (("talker",), HIDDEN, 'pip install "tachograph[chat]"'),
        (("nobody",), PROGRAM, "there is no such task"),
        (("talkr",), PROGRAM, "did you mean 'talker'?"),
        (("tasks/s",), PROGRAM, "there is no such task"),
        (("s/live",), PROGRAM, "does not name one model; give --llm"),
        (("talker", "--llm", "openai:"), PROGRAM, "PROVIDER:MODEL"),
    ],
)
def test_bad_input_is_one_line(
    project: Path, begin: Any, words: tuple[str, ...], program: str, said: str
) -> None:
    text = begin(*words, program=program, code=2).text
    assert said in text and len(text.splitlines()) == 1
    assert not (project / "runs").exists() and not (project / "tasks/chats").exists()


def test_without_a_terminal(project: Path, capsys: Capsys) -> None:
    assert output_of(capsys, "chat", "talker", code=2).err.count("\n") == 1
    assert not (project / "runs").exists()
