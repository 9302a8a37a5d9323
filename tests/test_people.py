"""People who are asked in live runs: only a clear yes allows, and what they say is in the record."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, Answer, AskPerson, Policy
from tachograph.cli.approval import approve_at_terminal
from tachograph.runtime.log.events import Answered, Event, StopAsked, ToolReturned
from tachograph.runtime.log.values import Call
from tachograph.runtime.world.real import Real
from tests.deaths import ended, forked
from tests.project import POLICY, hanging, make_project, merged, script

BOUND = 60


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", [])


def agent_of(project: Path, approve: Any, **approval: Any) -> Agent:
    policy = Policy.from_dict(merged(POLICY, {"approval": {"required_for": ["echo"], **approval}}))
    return Agent(script([("echo", {"text": "a"})], "done"), ["echo"], policy, root=project, approve=approve)


def said_in(events: list[Event]) -> Answered:
    (found,) = [event for event in events if isinstance(event, Answered)]
    return found


async def soon(question: AskPerson) -> Answer:
    await asyncio.sleep(0)
    return Answer("allow", "lead", "no harm")


def cancel(question: AskPerson) -> Any:
    raise asyncio.CancelledError


async def cancel_later(question: AskPerson) -> Any:
    raise asyncio.CancelledError


UNPRINTABLE: Any = type("Unprintable", (), {"__str__": lambda self: 1 / 0})()
PEOPLE: list[tuple[Any, str, str]] = [
    (lambda question: True, "allow", "final_answer"),
    (lambda question: Answer("allow", "lead", "\ud800"), "allow", "final_answer"),
    (lambda question: Answer(type("Said", (str,), {})("allow")), "allow", "final_answer"),  # type: ignore[arg-type]
    (soon, "allow", "final_answer"),
    (lambda question: False, "deny", "approval_refused"),
    (lambda question: Answer("deny"), "deny", "approval_refused"),
    (None, "silence", "approval_refused"),
    (lambda question: None, "silence", "approval_refused"),
    (lambda question: "allow", "silence", "approval_refused"),
    (lambda question: 1, "silence", "approval_refused"),
    (lambda question: Answer("yes"), "silence", "approval_refused"),  # type: ignore[arg-type]
    (lambda question: Answer("allow", why=UNPRINTABLE), "silence", "approval_refused"),
    (lambda question: 1 / 0, "silence", "approval_refused"),
    (sys.exit, "silence", "approval_refused"),
    (cancel, "silence", "approval_refused"),
    (cancel_later, "silence", "approval_refused"),
]


@pytest.mark.parametrize(("approve", "answer", "ending"), PEOPLE)
def test_only_a_clear_yes_allows(
    project: Path, approve: Any, answer: str, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent, out = agent_of(project, approve), project / "out"
    result = tachograph.record(agent, "?", out=out)
    assert (said_in(result.events).answer, result.ending) == (answer, ending)
    is_told = answer == "silence" and approve not in (None, cancel, cancel_later)
    assert bool(caplog.messages) == is_told  # whoever wrote it is told why
    assert tachograph.replay(agent_of(project, None), out).events == result.events
    assert tachograph.check(agent_of(project, None), out) == []


def test_a_word_that_decides_nothing_is_named(project: Path) -> None:
    made = agent_of(project, lambda question: Answer("yes")).run("?")  # type: ignore[arg-type]
    assert said_in(made.events).why == "'yes' is neither allow nor deny"


def test_a_person_sees_the_call_and_why(project: Path) -> None:
    seen: list[AskPerson] = []
    made = agent_of(project, seen.append, timeout_s=77).run("?")
    (question,) = seen
    assert question.run_id == made.run_id
    assert (question.call.name, question.call.arguments) == ("echo", {"text": "a"})
    assert (question.rule, question.timeout_s) == ("approval", 77)
    assert question.place.endswith("#/approval/required_for/echo")


def test_a_person_changes_no_call(project: Path) -> None:
    def change(question: AskPerson) -> bool:
        assert question.call.arguments is not None
        question.call.arguments["text"] = "b"
        return True

    result = agent_of(project, change).run("?")
    (returned,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert returned.result == {"text": "a"}


def test_nobody_answers_in_time(project: Path) -> None:
    result = agent_of(project, hanging(asyncio.Event()), timeout_s=1).run("?")
    assert (said_in(result.events).answer, result.ending) == ("silence", "approval_refused")


@pytest.mark.parametrize("scope", ["", "1.c0"])
async def test_a_question_can_be_stopped(project: Path, scope: str) -> None:
    worlds: list[Real] = []

    async def never(question: AskPerson) -> Any:
        worlds[0].stop(scope)
        await asyncio.Event().wait()

    result = await agent_of(project, never).arun("?", started=worlds.append)
    assert result.ending == ("final_answer" if scope else "cancelled")
    assert not [event for event in result.events if isinstance(event, Answered)]


async def test_an_answer_and_a_stop_at_once(project: Path) -> None:
    """Whichever comes first counts, and the run comes to a whole end."""
    for _ in range(20):
        worlds: list[Real] = []

        def both(question: AskPerson, worlds: list[Real] = worlds) -> bool:
            threading.Thread(target=worlds[0].stop, args=("1.c0",)).start()
            return True

        result = await agent_of(project, both).arun("?", started=worlds.append)
        assert result.ending == "final_answer"
        assert len([event for event in result.events if isinstance(event, StopAsked)]) <= 1


@pytest.mark.parametrize(
    ("keys", "ending"),
    [
        (b"y\n", "final_answer"), (b"what\nYes\n", "final_answer"), (b"n\nnot now\n", "approval_refused"),
        (b"\n\n", "approval_refused"), (b"\4\4", "approval_refused"), (None, "approval_refused"),
    ],
)  # fmt: skip
def test_a_person_at_a_terminal(project: Path, keys: bytes | None, ending: str) -> None:
    """The keys are pressed once the question is there; None is for nobody."""

    def ask() -> None:
        for fd in range(3):
            os.dup2(end, fd)
        sys.stdin, sys.stdout, sys.stderr = (open(fd, mode) for fd, mode in enumerate("rww"))  # noqa: SIM115
        result = agent_of(project, approve_at_terminal, timeout_s=BOUND if keys else 1).run("?")
        print(result.ending, result.messages[-1]["content"], flush=True)

    terminal, end = pty.openpty()
    child = forked(ask)
    os.close(end)
    said = b""
    try:
        while piece := os.read(terminal, 4096):
            said += piece
            if keys and b"Allow" in said:
                os.write(terminal, keys)
                keys = None
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    assert ended(child) == 0, said
    assert b'echo {"text":"a"}' in said
    assert ending.encode() in said


async def test_a_key_that_comes_late_is_not_taken_for_the_next_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal, end = pty.openpty()
    said = list[str]()

    async def shown(number: int) -> None:
        while "".join(said).count("Allow") < number:
            await asyncio.sleep(0)
            said.append(capsys.readouterr().err)

    question = AskPerson(Call("tc_1_0", "echo", {}), "approval", "", "", "", BOUND, "run")
    with open(end, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        first, second = (asyncio.create_task(approve_at_terminal(question)) for _ in "ab")
        await shown(1)
        os.write(terminal, b"y\n")
        select.select([end], [], [])
        first.cancel()
        await shown(2)
        assert first.cancelled() and "no answer" in "".join(said)
        os.write(terminal, b"n\nlater\n")
        assert await second == Answer("deny", "terminal", "later")
    os.close(terminal)


def test_without_a_terminal_nobody_allows(project: Path) -> None:
    assert said_in(agent_of(project, tachograph.approve_at_terminal).run("?").events).answer == "deny"
