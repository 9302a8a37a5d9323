"""Runs of agents in code: recorded, verified, replayed, checked, resumed; and nothing of this machine in a record."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tachograph
from tachograph import Agent, Hooks, LLMInput, LLMOutput, Piece, Policy, Session, Tool, ToolCall, WindowLimits
from tachograph.evidence.folder import partial_of
from tachograph.evidence.record_files import NAMES
from tachograph.evidence.verify import verify
from tachograph.fail.errors import InputError, OutputError, PolicyError, RecordError
from tachograph.runtime.log.events import Arrived, Event, Made, ModelReplied, RunEnded, RunStarted, TurnEnded
from tachograph.runtime.log.journal import Diverged
from tachograph.runtime.log.values import Usage
from tachograph.runtime.world.real import Real
from tests.commands import exit_code, output_of
from tests.project import HERE, POLICY, hanging, interrupted, make_project, merged, proved, script

NAMED = ["look", "log"]
SEES = script(
    [("look", {"path": "book/a.txt"})], [("log", {"path": "box/x.txt", "text": "seen"})], *["done"] * 4
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", [])


def agent_of(project: Path, model: Any = SEES, **delta: Any) -> Agent:
    policy = Policy.from_dict(merged(POLICY, delta))
    return Agent(model, NAMED, policy, mounts={"book": project / "book"}, root=project)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_way_of_a_recorded_run(project: Path) -> None:
    out, asked = project / "out/first", list[LLMInput]()
    agent = agent_of(project, lambda it: asked.append(it) or SEES(it))
    result = proved(agent, out, "What is in a?", deadline_s=600)
    assert (result.ending, result.answer, result.steps) == ("final_answer", "done", 3)
    assert sorted(files(out)) == sorted(NAMES)
    assert len(asked) == 3  # neither a replay nor a check asks the model
    for content in files(out).values():
        assert os.fsencode(project) not in content
    assert b"book/a.txt" in (out / "manifest.json").read_bytes()
    assert b"tools/look.py" in (out / "manifest.json").read_bytes()


def test_what_moved_is_found(project: Path) -> None:
    out = project / "out"
    tachograph.record(agent_of(project), "?", out=out)
    (project / "book/a.txt").write_text("other", encoding="utf-8")
    assert {found.kind for found in tachograph.check(agent_of(project), out)} >= {"EFFECT", "INPUT"}
    other = agent_of(project, cycle_detection={"max_repeats": 1})
    with pytest.raises(Diverged, match="0 RunStarted is not as the log says: "):
        tachograph.replay(other, out)


def test_a_record_is_replaced_only_if_told(project: Path) -> None:
    out = project / "out"
    tachograph.record(agent_of(project), "first?", out=out)
    before = files(out)
    with pytest.raises(OutputError):
        tachograph.record(agent_of(project), "second?", out=out)
    assert files(out) == before
    tachograph.record(agent_of(project), "second?", out=out, replace=True)
    assert b"second?" in (out / "state.jsonl").read_bytes()


def test_a_record_lies_where_it_began(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = agent_of(project, lambda asked: os.chdir(project) or SEES(asked))
    tachograph.record(agent, "?", out="out")
    assert verify(tmp_path / "out", "out") == []


@pytest.mark.parametrize("replace", [False, True])
def test_where_no_record_can_lie(
    project: Path, replace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(project)
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    for out in ("", ".", "..", "notes", "file", "file/run", "run.partial"):
        with pytest.raises(OutputError) as refused:
            tachograph.record(agent, "?", out=out, replace=replace)
        assert "replace=True" not in str(refused.value)
    assert Path("notes/mine.txt").read_text() == Path("file").read_text() == "mine"
    Path("empty").mkdir()
    assert tachograph.record(agent, "?", out="empty", replace=replace).answer == "done"


def test_an_interrupt_leaves_a_run_that_goes_on(project: Path) -> None:
    out = project / "out"
    with pytest.raises(KeyboardInterrupt) as raised:
        tachograph.record(agent_of(project, interrupted(SEES)), "?", out=out)
    assert [str(out) in note for note in raised.value.__notes__] == [True] and not out.exists()
    agent = agent_of(project)

    async def main() -> tachograph.RunResult:
        for name, call in (
            ("arun", lambda: agent.run("?")), ("arecord", lambda: tachograph.record(agent, "?", out=out)),
            ("aresume", lambda: tachograph.resume(agent, out)), ("acheck", lambda: tachograph.check(agent, out)),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=f"await `{name}`"):
                call()
        return await tachograph.aresume(agent, out)

    assert asyncio.run(main()).ending == "final_answer"
    assert b"stop_asked" not in (out / "state.jsonl").read_bytes()

    def late(event: Event) -> None:
        if isinstance(event, RunEnded):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tachograph.record(agent, "?", out=project / "late", listen=late)
    assert verify(project / "late", "late") == []


async def test_a_cancelled_run_can_be_left_to_a_resume(project: Path) -> None:
    asked = asyncio.Event()

    agent, out = agent_of(project, hanging(asked)), project / "out"
    task = asyncio.ensure_future(tachograph.arecord(agent, "?", out=out, leaves=True))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    made = await tachograph.aresume(agent, out, started=lambda world: world.stop("", "cancelled"))
    assert made.ending == "cancelled" and verify(out, "out") == []


@pytest.mark.parametrize("ending", ["cancelled", "final_answer"])
async def test_a_cancelled_run_leaves_a_whole_record(project: Path, ending: str) -> None:
    """It is cancelled while the model is asked, or while the files are put on the disk, which no loop waits for."""
    out = project / "out"

    async def model(asked: LLMInput) -> Any:
        if ending == "final_answer":
            return LLMOutput(final_answer="done")
        task.cancel()
        return await asyncio.Event().wait()

    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):
            loop.call_soon(task.cancel)

    agent, loop = agent_of(project, model), asyncio.get_running_loop()
    task = loop.create_task(tachograph.arecord(agent, "?", out=out, listen=listen))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await tachograph.acheck(agent, out) == []
    assert verify(out, "out") == []
    assert f'"ending":"{ending}"' in (out / "state.jsonl").read_text()


def test_the_name_of_hooks_may_be_any_text() -> None:
    refusing = Hooks("\ud800", before_call=lambda about: {"deny": "no"})
    result = Agent(SEES, NAMED, Policy.from_dict(POLICY), root=HERE / "kit", hooks=refusing).run("?")
    assert [it.place for it in result.denials] == ["hooks/?"]


async def test_a_run_that_is_over_is_stopped_no_more(project: Path) -> None:
    worlds: list[Any] = []
    await agent_of(project).arun("?", started=worlds.append)
    worlds[0].stop()


@pytest.mark.parametrize("line", range(1, 4))
@pytest.mark.parametrize("ends", [False, True])
def test_a_stop_from_a_thread_comes_while_a_run_begins_or_ends(line: int, ends: bool) -> None:
    """The thread waits at a line of its way, until the model is asked, or until the run is over."""
    waits, goes_on, passed = threading.Event(), threading.Event(), list[int]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        passed.extend([1] if event == "line" and frame.f_code is Real.enter.__code__ else [])
        if len(passed) == line and not waits.is_set():
            waits.set()
            goes_on.wait(60)
        return trace

    def stop() -> None:
        sys.settrace(trace)
        try:
            worlds[0].stop()
        finally:
            waits.set()

    def begin() -> None:
        stopping.append(pool.submit(stop))
        assert waits.wait(60)

    async def model(asked: LLMInput) -> Any:
        if ends:
            begin()
            return LLMOutput(final_answer="done")
        goes_on.set()
        return await asyncio.Event().wait()

    def started(world: Real) -> None:
        worlds.append(world)
        if not ends:
            begin()

    worlds, stopping = list[Real](), list[Future[None]]()
    agent = Agent(model, [], Policy.from_dict(POLICY))
    with ThreadPoolExecutor(1) as pool:
        result = asyncio.run(agent.arun("?", started=started, deadline_s=30))
        goes_on.set()
        stopping[0].result(60)
    assert result.mode == ("" if ends else "cancelled")


def test_a_run_goes_on_from_messages(project: Path) -> None:
    agent = agent_of(project)
    first = agent.run("first?")
    out = project / "out"
    second = tachograph.record(agent, "second?", out=out, history=first.messages)
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[len(first.messages)] == {"role": "user", "content": "second?"}
    assert tachograph.replay(agent, out).messages == second.messages


@pytest.mark.parametrize("first", ["look", "nothing"])
def test_the_messages_of_any_ending_are_a_history(project: Path, first: str) -> None:
    """The first call of a reply ends the run: it fails, or is denied."""

    def model(asked: LLMInput) -> LLMOutput:
        if asked.messages[-1]["content"] == "second?":
            return LLMOutput(final_answer="done")
        return LLMOutput(tool_calls=[ToolCall(name, {"path": "book/none.txt"}) for name in (first, "log")])

    agent = agent_of(project, model)
    result = agent.run("first?")
    assert f"; {first}: " in result.reason
    assert result.messages[-1]["content"] == '{"error":"not_reached","executed":false}'
    assert agent.run("second?", history=result.messages).answer == "done"


CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "b", "arguments": "{}"}]}
RESULT = {"role": "tool", "tool_call_id": "a", "name": "b", "content": "{}"}


@pytest.mark.parametrize("history", [
    5, ["text"], [{"role": "system", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": float("nan")}],
    [{"role": "user", "content": "\ud800"}], [CALL], [RESULT], [CALL, RESULT, RESULT],
    [CALL, {"role": "user", "content": "x"}, RESULT],
])  # fmt: skip
def test_what_is_no_history_is_refused_and_leaves_nothing(project: Path, history: Any) -> None:
    with pytest.raises(InputError):
        tachograph.record(agent_of(project), "?", out=project / "out", history=history)
    assert not partial_of(project / "out").exists()


def test_a_changed_line_is_named(project: Path) -> None:
    agent, out = agent_of(project), project / "out"
    tachograph.record(agent, "?", out=out)
    log = (out / "state.jsonl").read_bytes()
    (out / "state.jsonl").write_bytes(log.replace(b'"seen"', b'"SEEN"', 1))
    (found,) = tachograph.check(agent, out)
    assert found.kind == "DAMAGE"
    with pytest.raises(RecordError) as refused:
        tachograph.replay(agent, out)
    assert [str(refused.value)] == verify(out, str(out))
    out.rename(partial_of(out))
    with pytest.raises(RecordError, match=r"state.jsonl:\d+: was changed"):
        tachograph.resume(agent, out)


def test_folders_without_a_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (tachograph.replay, tachograph.check, tachograph.resume):
        with pytest.raises(RecordError, match="cannot be read"):
            call(agent_of(project), project / "nothing")
    for ask, *given in ((Policy.load, 5), (tachograph.check, 5, "out"), (Session, agent_of(project), "\0")):
        with pytest.raises(InputError, match="is no"):
            ask(*given)  # type: ignore[operator]
    (project / "out.partial").mkdir()
    (project / "out.partial/state.jsonl").write_bytes(b'{"event"')  # its process ended in the first line
    with pytest.raises(RecordError, match="record the run"):
        tachograph.resume(agent_of(project), project / "out")
    tachograph.record(agent_of(project), "?", out=project / "out")
    with pytest.raises(RecordError, match="has ended"):
        tachograph.resume(agent_of(project), project / "out")
    monkeypatch.chdir(project / "out")
    assert tachograph.check(agent_of(project), ".") == []
    (project / "out").rename(project / "out.partial")
    for check in (tachograph.replay, tachograph.check):
        with pytest.raises(RecordError, match="has not ended"):
            check(agent_of(project), project / "out")


class Talking:
    """Tells its answer in pieces."""

    __call__ = staticmethod(SEES)

    async def ask(self, asked: LLMInput, told: Any) -> Any:
        reply = SEES(asked)
        for letter in reply.final_answer or "":
            told(letter)
            await asyncio.sleep(0)
        return reply


@pytest.mark.parametrize("is_turn", [False, True])
async def test_a_run_or_a_turn_is_streamed(project: Path, is_turn: bool) -> None:
    refused: list[type] = []

    def refuse(event: object, what: type = Event) -> None:
        refused.append(type(event))
        if isinstance(event, what):
            raise ValueError

    agent = agent_of(project, Talking())
    if is_turn:
        async with Session(agent, project / "talk", listen=refuse) as session:
            told = [event async for event in session.stream("?")]
            assert [event for event in told if not isinstance(event, Piece)] == session.turns[0].events[1:]
            turn = await session.ask("again?", tell=refuse)  # of which nobody else is told
            assert (await session.ask("more?")).answer == turn.answer == "done"
            assert refused == [RunStarted, Arrived]
            await session.ask("more?", tell=partial(refuse, what=Piece))
            assert refused[-1] is Piece and refused.count(Piece) == 1
    else:
        told = [event async for event in agent.stream("?")]
    assert isinstance(told[-1], TurnEnded if is_turn else RunEnded)
    assert "".join(item.text for item in told if isinstance(item, Piece)) == "done"
    assert {item.at for item in told if isinstance(item, Piece)} == {"3.m1"}
    made = "1.c0.d 1.e 2.c0.d 2.c0.i1.s 2.e 3.e".split()
    made = ["1.r", *made, "3.t"] if is_turn else ["0", *made, "end"]
    assert [item.at for item in told if isinstance(item, Made)] == made


async def test_leaving_a_stream_stops_the_run(project: Path) -> None:
    over, begun = list[str](), asyncio.Event()

    async def never(asked: LLMInput) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.append("over")

    stream = agent_of(project, never).stream("?")
    async for _ in stream:
        await begun.wait()
        break
    await stream.aclose()
    assert over == ["over"]


async def test_what_a_stream_raises(project: Path) -> None:
    with pytest.raises(InputError):
        async for _ in agent_of(project).stream("?", history=[{}]):
            raise AssertionError


def test_a_listener_changes_nothing(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It gets copies, and one that raises is told nothing more."""
    told: list[str] = []

    def listen(event: Any) -> None:
        told.append(event.at)
        if isinstance(event, ModelReplied) and event.calls:
            event.calls[0].arguments.clear()
        if event.at == "2.e":
            raise ValueError("secret words")

    out = project / "out"
    result = tachograph.record(agent_of(project), "?", out=out, listen=listen)
    assert (result.ending, told[-1]) == ("final_answer", "2.e")
    assert "ValueError" in caplog.text and "secret words" not in caplog.text
    assert verify(out, "out") == []
    assert tachograph.check(agent_of(project), out) == []


def test_a_report_outside_of_a_project_links_to_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows where the policy lies from there."""
    monkeypatch.chdir(project)
    Path("own.yaml").write_text(json.dumps(POLICY), encoding="utf-8")
    tachograph.record(Agent(SEES, NAMED, Policy.load("own.yaml"), mounts={"book": "book"}), "?", out="out")
    report = Path("out/run_report.md").read_text(encoding="utf-8")
    assert "own.yaml#/sandbox/mounts/book" in report and "](" not in report


SAY = "from tachograph import tool\nfrom . import words\n\n\n"
SAY += "@tool(effect='pure')\ndef say() -> str:\n    'Say it.'\n    return words.HELLO\n"
GUARD = """\
from tachograph import Hooks, LLMOutput, ToolCall


class Guard:
    def __call__(self, about):
        return None


hooks = Hooks(before_call=Guard())


def model(asked):
    if asked.step_index == 1:
        return LLMOutput(tool_calls=[ToolCall("say", {})])
    return LLMOutput(final_answer="done")
"""
APP = "from tachograph import Agent, Policy\nfrom . import guard, say\n\n"
APP += f"agent = Agent(guard.model, [say.say], Policy.from_dict({POLICY | {'tool_registry': {'allowed': ['say']}}}))\n"
OF_CODE = {
    "app": APP,
    "say": SAY,
    "guard": GUARD,
    "words": "from .below import HELLO\n",
    "below": "HELLO = 'hello'\n",
    "other": SAY.replace("say", "other"),
    "\udcff": GUARD,  # the name is not UTF-8
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Agent]:
    """A project that is the package `desk_of_code`; makes the agent that it holds."""
    Path(tmp_path, "desk_of_code").mkdir()
    for name, text in OF_CODE.items():
        Path(tmp_path, f"desk_of_code/{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("desk_of_code")]:
        monkeypatch.delitem(sys.modules, name)
    say, other, guard = (importlib.import_module(f"desk_of_code.{it}") for it in ("say", "other", "guard"))
    policy = Policy.from_dict(merged(POLICY, {"tool_registry": {"allowed": ["say"]}}))

    def made(root: str = ".", model: Any = guard.model) -> Agent:
        return Agent(model, [say.say, other.other], policy, hooks=guard.hooks, root=root)

    return made


def test_the_modules_of_an_agent_in_code_are_inputs(desk: Callable[..., Agent]) -> None:
    Path("desk_of_code/other.py").write_text("", encoding="utf-8")  # of a tool that is not called
    model = importlib.import_module("desk_of_code.\udcff").model
    for name in ("say", "words", "below", "guard"):
        tachograph.record(desk(model=model), "?", out="out", replace=True)
        assert tachograph.check(desk(model=model), "out") == []
        with open(f"desk_of_code/{name}.py", "a", encoding="utf-8") as file:
            file.write("# changed\n")
        found = [(one.kind, one.at) for one in tachograph.check(desk(model=model), "out")]
        assert found[0] == ("INPUT", f"desk_of_code/{name}.py")
    Path("elsewhere").mkdir()
    tachograph.record(desk("elsewhere"), "?", out="other")
    assert b"desk_of_code" in Path("out/manifest.json").read_bytes()
    assert b"desk_of_code" not in Path("other/manifest.json").read_bytes()


def test_commands_take_the_records_of_an_agent_that_is_named(
    desk: Callable[..., Agent], capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("out", "--agent", "desk_of_code.app:agent")
    tachograph.record(importlib.import_module("desk_of_code.app").agent, "?", out="out")
    for command in ("check", "replay", "explain"):
        assert "out" in output_of(capsys, command, *named).out or command == "check"
        for wrong in ("desk_of_code.app", "desk_of_code.app:guard", "nowhere:agent"):
            assert "MODULE:NAME" in output_of(capsys, command, "out", "--agent", wrong, code=2).err
        program = "from desk_of_code.app import agent\nagent.run('?')\n"
        Path("program.py").write_text(program, encoding="utf-8")
        assert "__main__" in output_of(capsys, command, "out", "--agent", "program:agent", code=2).err
        # neither names a record
        assert exit_code(command, *named[1:]) == exit_code(command, "desk_of_code", *named[1:]) == 2
    Path("runs/code").mkdir(parents=True)
    os.rename("out", "runs/code/out")
    for run in ((), ("code/out",), ("runs/code/out",)):
        assert "1 of 1 run" in output_of(capsys, "check", *run, *named[1:]).out
    os.rename("runs/code/out", "out")
    assert "say" in output_of(capsys, "policy", "suggest", *named).out
    tachograph.record(importlib.import_module("desk_of_code.app").agent, "?", out="runs/code/out")
    assert exit_code("check", "code/out", *named[1:]) == 0  # as a project calls it
    Path("runs/code/out").rename("runs/code/out.partial")
    assert "has not ended" in output_of(capsys, "check", "code/out.partial", *named[1:], code=2).err
    Path("desk_of_code/say.py").write_text(f"{SAY}# changed\n", encoding="utf-8")
    assert "desk_of_code/say.py: has changed" in output_of(capsys, "check", *named, code=1).out


def test_what_has_moved_is_named_from_where_the_command_is_called(
    desk: Callable[..., Agent], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".git").mkdir()
    inner = "from desk_of_code import app, guard, say\nfrom tachograph import Agent\n"
    inner += "agent = Agent(guard.model, [say.say], app.agent.policy, root='desk_of_code')\n"
    Path("inner.py").write_text(inner, encoding="utf-8")
    tachograph.record(importlib.import_module("inner").agent, "?", out="out")
    Path("out/trace.json").write_text("", encoding="utf-8")
    words = ("check", "out", "--agent", "inner:agent", "--github")
    assert "file=out/trace.json" in output_of(capsys, *words, code=1).out
    tachograph.record(importlib.import_module("inner").agent, "?", out="out", replace=True)
    Path("desk_of_code/words.py").write_text(OF_CODE["words"] + "#", encoding="utf-8")
    said = output_of(capsys, *words, code=1).out
    assert "git diff -- desk_of_code/words.py" in said and "file=desk_of_code/words.py" in said


def test_a_resume_may_find_other_functions_in_code(desk: Callable[..., Agent]) -> None:
    """The module that recorded a run is edited to resume it; the lines say whether its functions still fit."""
    with pytest.raises(KeyboardInterrupt):
        tachograph.record(desk(model=interrupted(desk().models[0])), "?", out="out")
    Path("desk_of_code/say.py").write_text(f"{SAY}# resume\n", encoding="utf-8")
    assert tachograph.resume(desk(), "out").ending == "final_answer"


def test_what_a_tool_raised_is_told_and_not_recorded(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tools").mkdir()
    raising = "    raise ValueError('why\\x1b[2J')\n    return {"
    source = (project / "tools/echo.py").read_text().replace("    return {", raising, 1)
    (tmp_path / "tools/echo.py").write_text(source)
    model = script([("echo", {"text": "a"})])
    with caplog.at_level(logging.INFO, "tachograph"):
        made = Agent(model, ["echo"], Policy.from_dict(POLICY), root=tmp_path).run("What?")
    assert "tachograph: " not in caplog.text and "Traceback" not in caplog.text
    line = source.partition("    raise")[0].count("\n") + 1
    assert f"tools/echo.py:{line}: ValueError: why\\u{{1b}}[2J\n" in caplog.text
    assert made.ending == "failure_mode_terminal"
    assert "why" not in repr(made.events)
    with caplog.at_level(logging.DEBUG, "tachograph"):
        Agent(model, ["echo"], Policy.from_dict(POLICY), root=tmp_path).run("What?")
    assert f'tools/echo.py", line {line}, in run\n' in caplog.text
    wrong = source.replace("raise ValueError('why\\x1b[2J')", "return {'text': chr(0xD800)}")
    (tmp_path / "tools/echo.py").write_text(wrong)
    Agent(model, ["echo"], Policy.from_dict(POLICY), root=tmp_path).run("What?")
    assert "tools/echo.py: the result cannot be used: dict: half of a character\n" in caplog.text


def test_an_exception_that_raises_while_it_is_told_is_a_failure_of_the_tool() -> None:
    raised: list[type[BaseException]] = [SystemExit]

    class Odd(Exception):
        def __str__(self) -> str:
            raise raised[-1]

    @tachograph.tool(effect="pure")
    def fail() -> str:
        """Fail."""
        raise Odd

    policy = Policy.from_dict(merged(POLICY, {"tool_registry": {"allowed": ["fail"]}}))
    agent = Agent(script([("fail", {})]), [fail], policy)
    assert agent.run("?").mode == "catalogued_unhandled"
    raised.append(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        agent.run("?")


def test_another_process_is_given_what_was_made_or_raised() -> None:
    agent = Agent(script('{"result": 5}'), [], Policy.from_dict(POLICY), output_type=int)
    held = [tachograph.AnswerMismatch("/a", "b"), tachograph.InDoubt(["1.c0"])]
    made, *told = pickle.loads(pickle.dumps([agent.run(type("Said", (str,), {})("?")), *held]))
    place = agent.policy.place("/tools")
    assert pickle.loads(pickle.dumps(agent.policy)).place("/tools") == place
    assert made.output == 5 and [(str(it), vars(it)) for it in told] == [(str(it), vars(it)) for it in held]


@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("window", {"max_bytes": 5000}), ("window", WindowLimits(400)), ("window", 7), ("approve", "yes"),
        ("window", WindowLimits(5000, 0)), ("window", WindowLimits(5000, 9, -1)), ("window", WindowLimits(5000, 1.5)),  # type: ignore[arg-type]
        ("tools", [Agent(SEES, [], Policy.from_dict(POLICY)).as_tool("a", 5)]),  # type: ignore[arg-type]
        ("mounts", 5), ("mounts", {"box": 5}), ("mounts", {"box": ""}), ("hosts", {"a": "x" * 256}),
        ("hosts", ["a.test"]), ("instructions", "\ud800"), ("instructions", 5),
        ("output_retries", -1), ("root", "/nowhere"), ("hooks", Hooks(before_call=5)),  # type: ignore[arg-type]
        ("plan", Policy.from_dict(POLICY)),  # without exit_plan
    ],
)  # fmt: skip
def test_what_no_agent_can_be_made_of_is_refused(what: str, given: Any) -> None:
    with pytest.raises(InputError, match=what):
        Agent(**{"llm": script("a"), "tools": [], "policy": Policy.from_dict(POLICY), what: given})


@pytest.mark.parametrize(
    "rules", [{"approval": {"required_for": ["ehco"], "timeout_s": 5}}, {"tools": {"ehco": {}}}]
)
def test_a_misspelt_tool_of_a_policy_is_refused(rules: Any, project: Path) -> None:
    def agent(registry: Any) -> Agent:
        return Agent(script("a"), ["echo"], Policy.from_dict({**POLICY, **rules, **registry}), root=project)

    with pytest.raises(PolicyError, match="mapping"):
        Policy.from_dict(None)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="'echo'"):
        agent({})
    for word in ("allowed", "denied"):  # a policy may also be of other agents, which have that tool
        assert agent({"tool_registry": {word: ["ehco"]}}).tools


def test_a_result_tells_tokens_and_denials_of_all_agents(project: Path) -> None:
    def agent(*tools: Tool, calls: list[str], tokens: int) -> Agent:
        usage = {"input_tokens": tokens, "output_tokens": 1, "cached_tokens": tokens // 2}
        proposed = LLMOutput(tool_calls=[ToolCall(name, {"task": "t"}) for name in calls], usage=usage)
        answer = LLMOutput(final_answer="done", usage=usage if tools else None)
        return Agent(lambda asked: proposed if asked.step_index == 1 else answer, tools, policy)

    allowed = {"tool_registry": {"allowed": ["below"]}, "agents": {"max_depth": 1, "max_children": 1}}
    policy = Policy.from_dict(merged(POLICY, {**allowed, "on_deny": "inform"}))
    below = agent(calls=["shell"], tokens=40)
    made = agent(below.as_tool("below", "Asks."), calls=["below", "shell"], tokens=600).run("?")
    assert [it.at for it in made.denials] == ["1.c0/1.c0.d", "1.c1.d"]
    assert made.usage.cached_tokens == 20 + 300 + 300 and made.usage.estimated
    assert made.usage.input_tokens > 40 + 600 + 600
    assert Agent(lambda asked: 1 / 0, [], policy).run("?").usage == Usage()  # no reply
