"""Conversations in code: turns, processes that end, interrupts, forks."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, LLMInput, LLMOutput, Policy, Session, SyncSession, ToolCall, WritePath, tool
from tachograph.evidence.record_files import lines_in
from tachograph.evidence.verify import verify
from tachograph.fail.errors import InputError, OutputError, RecordError
from tachograph.runtime.driver import InDoubt
from tachograph.runtime.log.events import Event, RunEnded
from tests.deaths import deaths
from tests.project import POLICY, cut, hanging, make_project, merged, script

TOLD = {"tool_registry": {"allowed": ["wait"]}, "loop_budget": {"max_iterations": 99}, "on_deny": "inform"}

ALLOWED = {"tool_registry": {"allowed": ["next", "exit_plan"]}, "agents": {"max_depth": 1, "max_children": 1}}
HANDING = Policy.from_dict(merged(POLICY, ALLOWED))


def talker(started: asyncio.Event | None = None) -> Agent:
    """Return an agent that repeats what it hears, and waits where it is told to."""

    @tool(effect="pure")
    async def wait(how: str) -> str:
        """Wait for nothing, or for ever."""
        if started is not None:
            started.set()
        await (asyncio.sleep(0) if how == "briefly" else asyncio.Event().wait())
        return "waited"

    def model(asked: LLMInput) -> LLMOutput:
        last = [*asked.messages][-1]
        if last["role"] == "user" and last["content"].startswith("wait "):
            return LLMOutput(tool_calls=[ToolCall("wait", {"how": last["content"].partition(" ")[2]})])
        return LLMOutput(final_answer=f"{last['content']} ({len(asked.messages)})")

    return Agent(model, [wait], Policy.from_dict(merged(POLICY, TOLD)), root=Path(__file__).parent / "kit")


def holds(agent: Agent, folder: Path) -> None:
    assert verify(folder, folder.name) == [] and tachograph.check(agent, folder) == []
    tachograph.replay(agent, folder)


def test_a_conversation_goes_on_in_another_session(tmp_path: Path) -> None:
    agent, place = talker(), tmp_path / "talk"
    with SyncSession(agent, place) as session:
        assert session.ask("hello").answer == "hello (1)"
        assert session.ask("wait briefly").ending == "final_answer"
    assert [path.name for path in tmp_path.iterdir()] == ["talk.partial"]
    late = SyncSession(agent, place)
    with SyncSession(agent, place) as session:
        assert [turn.number for turn in session.turns] == [1, 2]
        assert session.ask("again").answer == "again (7)"
        done = session.close()
    assert (done.ending, done.answer, done.steps) == ("final_answer", "again (7)", 4)
    holds(agent, place)
    for begin in (late.__enter__, lambda: SyncSession(agent, place)):
        with pytest.raises(OutputError, match=r"name another folder$"):
            begin()


async def test_a_turn_that_was_under_way_is_finished(tmp_path: Path) -> None:
    """The process ends while the model is asked."""
    asked = asyncio.Event()

    async with Session(Agent(hanging(asked), [], Policy.from_dict(POLICY)), tmp_path / "talk") as session:
        waiting = [asyncio.create_task(it) for it in (session.ask("hello"), session.close())]
        await asked.wait()
    for task in waiting:
        with pytest.raises(InputError, match="was left"):
            await task
    agent = Agent(script("here", "here"), [], Policy.from_dict(POLICY))
    with SyncSession(agent, tmp_path / "talk") as session:
        assert session.ask("are you there?").number == 2
        assert [turn.answer for turn in session.turns] == ["here", "here"]


async def test_an_interrupt_ends_a_turn_and_the_history_stays_whole(tmp_path: Path) -> None:
    started = asyncio.Event()
    agent = talker(started)
    async with Session(agent, tmp_path / "talk") as session:
        asking = asyncio.create_task(session.ask("wait for ever"))
        await started.wait()
        with pytest.raises(InputError):
            session.undo()
        turn = await session.interrupt("what now?")
        assert turn is not None and turn.answer == "what now? (4)"
        assert ((await asking).ending, (await asking).mode) == ("cancelled", "interrupted")
        done = await session.close()
    roles = [message["role"] for message in done.messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    await asyncio.to_thread(holds, agent, tmp_path / "talk")


async def test_what_a_call_wrote_before_it_was_stopped_is_not_looked_for(tmp_path: Path) -> None:
    make_project(tmp_path, [])
    written = asyncio.Event()

    @tool(effect="write", name="log")
    async def write(path: WritePath, io: Any) -> str:
        """Write it."""
        io.write(path, "x")
        written.set()
        await asyncio.Event().wait()
        return "x"

    calls = [[(name, {"path": "box/a.txt"})] for name in ("log", "look")]
    agent = Agent(script(*calls, None), [write, "look"], Policy.from_dict(POLICY), root=tmp_path)
    async with Session(agent, tmp_path / "talk") as session:
        asking = asyncio.create_task(session.ask("write"))
        await written.wait()
        turn = await session.interrupt("read")
        assert turn is not None and (await asking).ending == "cancelled" and "x" in turn.answer
        await session.close()
    await asyncio.to_thread(holds, agent, tmp_path / "talk")


async def test_an_interrupt_at_once_ends_the_turn_that_was_asked_for_before_it(tmp_path: Path) -> None:
    async with Session(talker(), tmp_path / "talk") as session:
        said, stopped = session.ask("wait for ever"), session.interrupt("next")
        first, second = await asyncio.gather(said, stopped)
        assert second is not None and (first.ending, second.number) == ("cancelled", 2)
        ended = asyncio.create_task(session.ended())
        assert await session.close() == await ended


def test_an_interrupt_of_nothing_leaves_the_next_turn_alone(tmp_path: Path) -> None:
    with SyncSession(agent := talker(), tmp_path / "talk") as session:
        assert session.interrupt() is None
        session.ask("a")
        turn = session.interrupt("b")
        assert turn is not None and (turn.ending, turn.answer) == ("final_answer", "b (3)")
        session.close()
    holds(agent, tmp_path / "talk")


@pytest.mark.parametrize("then", ["wait", "answer"])
async def test_an_interrupt_stops_the_agents_of_a_turn(tmp_path: Path, then: str) -> None:
    """Also where the agent has answered and waits for them; what they ended with is read with the next turn."""
    started, below = asyncio.Event(), asyncio.Event()

    def model(request: LLMInput) -> LLMOutput:
        last = [*request.messages][-1]
        if last["content"] == "first":
            return LLMOutput(tool_calls=[ToolCall("leaf", {"task": "x", "background": True})])
        if last["role"] == "tool" and then == "wait":
            return LLMOutput(tool_calls=[ToolCall("wait", {"how": "for ever"})])
        started.set()
        return LLMOutput(final_answer=last["content"])

    more = {"tool_registry": {"allowed": ["wait", "leaf"]}, "agents": {"max_depth": 1, "max_children": 1}}
    policy = Policy.from_dict(merged(merged(POLICY, TOLD), more))
    leaf = Agent(hanging(below), [], policy).as_tool("leaf", "Help.")
    agent = Agent(model, [*talker(started).tools, leaf], policy)
    async with Session(agent, tmp_path / "talk") as session:
        asking = asyncio.create_task(session.ask("first"))
        await asyncio.gather(started.wait(), below.wait())
        turn = await session.interrupt("second")
        assert (await asking).ending == "cancelled" and "interrupted" in (await asking).reason
        assert turn is not None and (turn.number, turn.answer) == (2, "second")
        done = await session.close()
    both = [(it.usage.input_tokens, len(it.events), len(it.denials)) for it in session.turns]
    assert [*map(sum, zip(*both, strict=True))] == [done.usage.input_tokens, len(done.events) - 2, 0]
    assert [it["role"] for it in done.messages][-3:] == ["user", "user", "assistant"]
    await asyncio.to_thread(holds, agent, tmp_path / "talk")


async def test_those_who_ask_at_the_same_time_get_turns_of_their_own(tmp_path: Path) -> None:
    async with Session(talker(), tmp_path / "talk") as session:
        turns = await asyncio.gather(*(session.ask(text) for text in "abc"))
        assert [turn.answer for turn in turns] == ["a (1)", "b (3)", "c (5)"]


async def test_a_conversation_that_was_not_entered_can_be_begun_again(tmp_path: Path) -> None:
    entering = asyncio.create_task(Session(talker(), tmp_path / "talk").__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    await asyncio.wait([entering])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await Session(talker(), tmp_path / "talk").__aenter__()


async def set_soon(left: threading.Event) -> None:
    """Set an event when all has happened that follows from a cancellation at once."""
    for _ in range(9):
        await asyncio.sleep(0)
    left.set()


async def test_what_is_being_put_on_the_disk_is_when_a_conversation_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, left, done, fsync = threading.Event(), threading.Event(), list[int](), os.fsync

    def late(fd: int) -> None:
        begun.set()
        left.wait(60)
        done.append(fsync(fd) or fd)

    async with Session(talker(), tmp_path / "talk") as session:
        monkeypatch.setattr(os, "fsync", late)
        asking = asyncio.create_task(session.ask("hello"))
        await asyncio.to_thread(begun.wait, 60)
        leaving = asyncio.create_task(set_soon(left))
    assert len(done) == 1
    await asyncio.wait([asking, leaving])


async def test_a_conversation_that_is_left_while_its_files_are_written_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are written in a thread, which waits here until the session was left."""
    agent, left, fsync = talker(), threading.Event(), os.fsync
    log = tmp_path / "talk.partial/state.jsonl"

    def late(fd: int) -> None:
        if log.exists() and b'"run_ended"' in log.read_bytes():
            left.wait(60)
        fsync(fd)

    ended = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):
            ended.set()

    async with Session(agent, tmp_path / "talk", listen=listen) as session:
        await session.ask("hello")
        monkeypatch.setattr(os, "fsync", late)
        closing = asyncio.create_task(session.close())
        await ended.wait()
        leaving = asyncio.create_task(set_soon(left))
    await asyncio.wait([closing, leaving])
    monkeypatch.setattr(os, "fsync", fsync)
    await asyncio.to_thread(holds, agent, tmp_path / "talk")
    assert [path.name for path in tmp_path.iterdir()] == ["talk"]


def test_a_fork_has_the_same_lines_up_to_its_turn(tmp_path: Path) -> None:
    with SyncSession(agent := talker(), tmp_path / "one") as session:
        for text in "abc":
            session.ask(type("Said", (str,), {})(text))
        for turn in (0, 4, "1", True):
            with pytest.raises(InputError):
                session.fork(turn, tmp_path / "two")  # type: ignore[arg-type]
        with session.fork(2, tmp_path / "two") as other:
            assert other.ask("d").answer == "d (5)"
            other.close()
        session.close()
    one, two = lines_in(tmp_path / "one"), lines_in(tmp_path / "two")
    assert two[0].forked.turn == 2 and two[0].forked.run_id == one[0].run_id  # type: ignore[attr-defined]
    ends = [n for n, event in enumerate(two) if event.at.endswith(".t")]
    assert one[1 : ends[1] + 1] == two[1 : ends[1] + 1] and len(ends) == 3
    for folder in (tmp_path / "one", tmp_path / "two"):
        holds(agent, folder)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_check_of_a_fork_knows_its_documents(tmp_path: Path, is_closed: bool) -> None:
    """It names those that turns behind it read, too."""
    for name in "ab":
        (tmp_path / name).write_text(name)

    def model(request: LLMInput) -> LLMOutput:
        last = [*request.messages][-1]
        if last["content"] in ("a", "b"):
            return LLMOutput(tool_calls=[ToolCall("look", {"path": f"book/{last['content']}"})])
        return LLMOutput(final_answer="done")

    agent = Agent(model, ["look"], Policy.from_dict(POLICY), mounts={"book": tmp_path}, root=talker().root)
    with SyncSession(agent, tmp_path / "talk") as session:
        for name in "ab":
            session.ask(name)
        if is_closed:
            session.close()
        with session.fork(1, tmp_path / "fork") as fork:
            fork.ask("more")
            fork.close()
    holds(agent, tmp_path / "fork")


def test_a_fork_that_dies_while_it_is_made_is_whole_or_none(tmp_path: Path) -> None:
    agent, turns, talk, fork = talker(), set[int](), tmp_path / "talk", tmp_path / "runs/fork"
    with SyncSession(agent, talk) as session:
        session.ask("a")
    box = tmp_path / "talk.partial/mounts/box"
    (box / ".tachograph-1-0.tmp").touch()  # is being written
    for _ in deaths(fork, lambda: Session(agent, talk).fork(1, fork)):
        assert not [*fork.parent.rglob(".tachograph*")]
        with SyncSession(agent, fork) as session:
            turns.add(len(session.turns))
            session.ask("b")
    assert turns == {0, 1}
    (box / "link").symlink_to("nowhere")
    Session(agent, talk).fork(1, tmp_path / "last")
    os.mkfifo(box / "fifo")
    with pytest.raises(OutputError, match=r"copied \(`[^\[]+fifo"):
        Session(agent, talk).fork(1, tmp_path / "no/fork")
    assert not [*(tmp_path / "no").iterdir()]
    locked = SyncSession(Agent("openai:any", [], agent.policy), talk)  # without a key
    with pytest.raises(InputError):
        locked.__enter__()
    assert not locked.turns


def test_what_a_conversation_refuses(tmp_path: Path) -> None:
    with SyncSession(talker(), tmp_path / "talk") as session:
        session.ask("hello")
        with pytest.raises(InputError):
            session.ask("half of \ud800")
        with pytest.raises(OutputError), SyncSession(talker(), tmp_path / "talk"):
            pass
    with pytest.raises(RecordError, match="a `Session` at the same path goes on with it"):
        tachograph.replay(talker(), tmp_path / "talk")
    other = Agent(lambda request: LLMOutput(final_answer="x"), [], Policy.from_dict(POLICY))
    with pytest.raises(RecordError), SyncSession(other, tmp_path / "talk") as session:
        session.ask("hello")
    with SyncSession(talker(), tmp_path / "talk") as session:
        session.close()
        with pytest.raises(InputError):
            session.ask("hello")
    handing = Agent(script([["next", {}]]), [other.as_tool("next", "", hands_over=True)], HANDING)
    with SyncSession(handing, tmp_path / "handed") as session:
        session.ask("hello")
    with pytest.raises(RecordError), SyncSession(other, tmp_path / "handed"):
        pass
    tachograph.record(other, "hello", out=tmp_path / "run")
    cut(tmp_path / "run", 2, tmp_path / "open")
    with pytest.raises(InputError, match="not a conversation"), SyncSession(other, tmp_path / "open"):
        pass


def test_the_damaged_line_of_a_conversation_is_named(tmp_path: Path) -> None:
    with SyncSession(talker(), tmp_path / "talk") as session:
        session.ask("hello")
    log = tmp_path / "talk.partial/state.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"hello"', b'"hallo"'))
    with pytest.raises(RecordError, match=r"state\.jsonl:2: "), SyncSession(talker(), tmp_path / "talk"):
        pass
    with pytest.raises(RecordError, match=r"state\.jsonl:2: "):
        session.fork(1, tmp_path / "fork")


async def test_a_turn_is_told_up_to_its_end(tmp_path: Path) -> None:
    async def model(request: LLMInput) -> LLMOutput:
        session.plan()
        return LLMOutput(final_answer="done")

    async with Session(Agent(model, [], HANDING, plan=HANDING), tmp_path / "talk") as session:
        assert [event.at async for event in session.stream("go")][-1] == "1.t"


async def test_a_stop_of_the_run_ends_the_conversation(tmp_path: Path) -> None:
    started = asyncio.Event()
    async with Session(talker(started), tmp_path / "talk") as session:
        asking = asyncio.create_task(session.ask("wait for ever"))
        await started.wait()
        assert session.world is not None
        session.world.stop()
        with pytest.raises(InputError):
            await asking
        assert (await session.close()).ending == "cancelled"
    assert lines_in(tmp_path / "talk")[-1].ending == "cancelled"  # type: ignore[attr-defined]


async def test_a_conversation_in_doubt_goes_on_once_somebody_says_what_happened(tmp_path: Path) -> None:
    """What tools are given of the caller's own is that of the process at work, also in a fork."""
    begun = asyncio.Event()

    @tool(effect="external")
    async def send(text: tachograph.AnyText, context: tachograph.Context[str]) -> str:
        """Send it."""
        begun.set()
        await (asyncio.sleep(0) if text != "first" else asyncio.Event().wait())
        return context.deps

    def model(request: LLMInput) -> LLMOutput:
        last = [*request.messages][-1]
        if last["role"] == "user":
            return LLMOutput(tool_calls=[ToolCall("send", {"text": last["content"]})])
        return LLMOutput(final_answer=last["content"])

    agent = Agent(model, [send], Policy.from_dict(merged(POLICY, {"tool_registry": {"allowed": ["send"]}})))
    async with Session(agent, tmp_path / "talk", deps="one") as session:
        asking = asyncio.create_task(session.ask("first"))
        await begun.wait()
    asking.cancel()
    with pytest.raises(InDoubt), SyncSession(agent, tmp_path / "talk") as session:
        session.ask("second")
    with pytest.raises(InputError):
        tachograph.resume(agent, tmp_path / "talk", settled={"1.c0.i1": "done"})
    locked = Session(Agent("openai:any", [], agent.policy), tmp_path / "talk")  # without a key
    for call in (locked.__aenter__, lambda: locked.ask("second")):
        with pytest.raises(InputError):
            await call()
    with SyncSession(agent, tmp_path / "talk", deps="two", settled={"1.c0.i1": "done"}) as session:
        assert session.ask("second").answer == '{"result":"two"}'
        session.compact("names")
        with session.fork(1, tmp_path / "fork") as other:
            assert other.ask("third").answer == '{"result":"two"}'
        session.close()
    await asyncio.to_thread(holds, agent, tmp_path / "talk")


@pytest.mark.parametrize(
    "listen", [sys.exit, lambda _: signal.default_int_handler(2, None), lambda _: os.kill(os.getpid(), 2)]
)
def test_whoever_opens_a_conversation_is_told_what_breaks_it_off(tmp_path: Path, listen: Any) -> None:
    """And it can go on at once."""
    talk = tmp_path / "talk"
    with pytest.raises((SystemExit, KeyboardInterrupt)), SyncSession(talker(), talk, listen=listen):
        raise AssertionError("it is open")
    with SyncSession(talker(), talk) as session:
        session.close()
    holds(talker(), talk)


async def test_a_conversation_that_is_not_open_is_told_nothing(tmp_path: Path) -> None:
    session = SyncSession(talker(), tmp_path / "talk")
    with pytest.raises(InputError):
        session.ask("too early")
    with session:
        with pytest.raises(InputError):
            session.compact("half of \ud800")
        assert session.ask("hello").number == 1
    for late in (session.__enter__, lambda: session.ask("too late")):
        with pytest.raises(InputError):
            late()
    async with Session(talker(), tmp_path / "talk") as another:
        for call in (another.__aenter__, Session(talker(), tmp_path / "another").ended):
            with pytest.raises(InputError):
                await call()


async def test_a_cancellation_while_a_conversation_is_left_is_raised(tmp_path: Path) -> None:
    begun, cleans = asyncio.Event(), asyncio.Event()

    async def model(asked: LLMInput) -> Any:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cleans.set()
            await asyncio.Event().wait()

    async def leave() -> None:
        async with Session(agent, tmp_path / "talk") as session:
            asking.append(asyncio.create_task(session.ask("hello")))
            await begun.wait()

    agent, asking = Agent(model, [], talker().policy), list[asyncio.Task[Any]]()
    leaving = asyncio.create_task(leave())
    await cleans.wait()
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    async with Session(agent, tmp_path / "talk"):  # the other one has let go of it
        await asyncio.wait(asking)
