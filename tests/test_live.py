"""Live runs: an event loop, threads, time limits, stops from outside; each replays from its log to the same bytes."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tachograph import Agent, LLMInput, LLMOutput, Policy, SyncSession, Tool, ToolCall, arecord, check
from tachograph.evidence.agent_runs import AgentRun
from tachograph.evidence.check import replay
from tachograph.evidence.verify import verify
from tachograph.fail.errors import InputError, ModelError, SystemFailure, TransientModelError
from tachograph.runtime import clock
from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.log.events import Event, Failed, RunEnded, StopAsked, Stopped, ToolReturned, Waited
from tachograph.runtime.log.lines import LineWriter, read_log
from tachograph.runtime.mcp.connection import ServerPlace, offered_at
from tachograph.runtime.run import make_run
from tachograph.runtime.world import perform, real
from tachograph.runtime.world.real import Real
from tachograph.runtime.world.virtual import run_now
from tests.project import POLICY, hanging, merged

CLOSED = {"type": "object", "additionalProperties": False}
TEXT = {**CLOSED, "properties": {"text": {"type": "string"}}}
NAMES = ["wait", "think", "hang", "deaf", "late", "never"]
OWN = {"tool_registry": {"allowed": NAMES, "denied": []}, "loop_budget": {"max_tokens": 10**6}}
BASE = merged(POLICY, OWN)
BOUND = 60  # seconds in which everything has to happen


def tool(name: str, run: Any, **rest: Any) -> Tool:
    return Tool(name, name, TEXT, TEXT, rest.pop("effect", "pure"), run, **rest)


def script(*turns: Any) -> Any:
    """A model: text is an answer, a list names tools, each with a text of its own."""

    def model(asked: LLMInput) -> LLMOutput:
        turn = turns[min(asked.step_index, len(turns)) - 1]
        if isinstance(turn, str):
            return LLMOutput(final_answer=turn)
        calls = [ToolCall(name, {"text": f"{asked.step_index}.{n}"}) for n, name in enumerate(turn)]
        return LLMOutput(tool_calls=calls)

    return model


def agent(model: Any, *tools: Tool, **delta: Any) -> Agent:
    return Agent(model, tools, Policy.from_dict(merged(BASE, delta)))


def replayed(of: Agent, events: list[Event]) -> None:
    """Make a run again from its log alone: every line has to be the same."""
    writer = LineWriter()
    lines = read_log(b"".join(writer.line(canonical(event)) for event in events))
    head: Any = events[0]
    spec = of.spec(head.question, run_id=head.run_id, seed=head.seed)
    assert run_now(make_run(spec, head, None, lines)).journal.events == events


def test_a_plain_function_that_returns_something_to_await() -> None:
    async def later() -> dict[str, str]:
        return {"text": "x"}

    made = agent(script(["late"], "done"), tool("late", lambda arguments, io: later()))
    assert made.run("?").ending == "final_answer"


def test_calls_that_only_read_go_side_by_side() -> None:
    """Each of two calls waits for the other to have begun."""
    met = threading.Barrier(2, timeout=BOUND)

    def wait(arguments: Any, io: Any) -> Any:
        met.wait()
        return arguments

    made = agent(script(["wait", "wait"], "done"), tool("wait", wait))
    result = made.run("?")
    assert result.ending == "final_answer"
    replayed(made, result.events)


def test_random_live_runs_replay_to_the_same_bytes(tmp_path: Path) -> None:
    """Tools take a random time, in the loop and in threads; some fail, and some calls or runs are stopped."""

    def made_for(draw: random.Random, is_steady: bool) -> Agent:
        async def think(arguments: Any, io: Any) -> Any:
            await asyncio.sleep(draw.randrange(4) / 1000)
            if draw.random() < 0.2 and not is_steady:
                raise ConnectionError
            return arguments

        turns = [
            draw.choices(["think", "wait"], [3, 1], k=draw.randint(1, 4)) for _ in range(draw.randint(1, 3))
        ]
        return agent(
            script(*turns, "done"), tool("think", think, transient=(ConnectionError,)),
            tool("wait", lambda arguments, io: arguments),
            retry={"backoff_base_ms": 0, "backoff_cap_ms": 0}, loop_budget={"max_tool_calls": 99},
        )  # fmt: skip

    async def one(number: int, draw: random.Random) -> None:
        worlds: list[Real] = []
        out = tmp_path / str(number)
        run = asyncio.ensure_future(arecord(agents[number], f"run {number}", out=out, started=worlds.append))
        for _ in range(draw.randrange(60)):
            await asyncio.sleep(0)
        if draw.random() < 0.3 and worlds:
            worlds[0].stop(draw.choice(["", "1.c0", "2.c1"]))
        await run

    async def every() -> None:
        await asyncio.gather(*(one(number, random.Random(-number)) for number in range(200)))

    agents = [made_for(random.Random(number), number % 4 == 0) for number in range(200)]
    asyncio.run(asyncio.wait_for(every(), BOUND))
    orders, words = set(), set()
    for number, of in enumerate(agents):
        out = tmp_path / str(number)
        made = replay(AgentRun.of(of, out), out, "run")
        assert made.journal.data == (out / "state.jsonl").read_bytes()
        assert verify(out, "run") == []
        if number % 4 == 0:
            assert check(of, out) == [], number
        orders.add(tuple(event.at for event in made.journal.events if ".i" in event.at))
        words |= {type(event) for event in made.journal.events}
    assert len(orders) > 20
    assert words >= {Failed, Waited, StopAsked, Stopped, ToolReturned}


@pytest.mark.parametrize(
    ("scope", "why", "mode"),
    [("", "cancelled", "cancelled"), ("", "interrupted", "interrupted"), ("1.c0", "cancelled", "")],
)
async def test_a_stop_from_another_thread(scope: str, why: str, mode: str) -> None:
    begun, worlds = threading.Event(), []

    def stop() -> None:
        assert begun.wait(BOUND)
        worlds[0].stop(scope, why)

    made = agent(script(["hang"], "done"), tool("hang", hanging(begun)))
    thread = threading.Thread(target=stop)
    thread.start()
    result = await made.arun("?", started=worlds.append)
    thread.join(BOUND)
    assert (result.ending, result.mode) == ("final_answer" if scope else "cancelled", mode)
    assert any(isinstance(event, StopAsked) and event.scope == scope for event in result.events)
    replayed(made, result.events)


@pytest.mark.parametrize("wrong", [("", "tired"), (None, "cancelled")])
async def test_a_stop_that_no_log_can_hold_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="cancelled, interrupted, deadline"):
        await agent(script("done")).arun("?", started=lambda world: world.stop(*wrong))


async def test_a_thread_that_hangs_is_left_behind_and_touches_nothing_more() -> None:
    begun, free, tried = threading.Event(), threading.Event(), []
    worlds: list[Real] = []

    def deaf(arguments: Any, io: Any) -> Any:
        begun.set()
        free.wait(BOUND)
        try:
            io.read("box/a.txt")
        except PermissionError as error:
            tried.append(str(error))
        return arguments

    made = agent(script(["deaf"]), tool("deaf", deaf, effect="read"))
    run = asyncio.ensure_future(made.arun("?", started=worlds.append))
    await asyncio.to_thread(begun.wait, BOUND)
    worlds[0].stop()
    result = await run
    free.set()
    assert result.ending == "cancelled"
    assert [event.left for event in result.events if isinstance(event, Stopped)] == [True]
    replayed(made, result.events)


def test_a_time_limit_is_a_time_out() -> None:
    made = agent(script(["hang"]), tool("hang", hanging(asyncio.Event()), timeout_s=0.01), retry=None)
    result = made.run("?")
    assert (result.ending, result.mode) == ("failure_mode_terminal", "timeout")
    replayed(made, result.events)


async def test_the_caller_cancels() -> None:
    """The run ends, its log is whole, and the cancellation is raised again."""
    begun, events = asyncio.Event(), []

    made = agent(script(["hang"]), tool("hang", hanging(begun)))
    run = asyncio.ensure_future(made.arun("?", listen=events.append))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert isinstance(events[-1], RunEnded) and events[-1].ending == "cancelled"
    replayed(made, events)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, StopIteration, SystemExit, GeneratorExit, MemoryError]
)
@pytest.mark.parametrize("is_async", [True, False])
def test_what_foreign_code_raises_is_its_failure(error: type[BaseException], is_async: bool) -> None:
    async def think(arguments: Any, io: Any) -> Any:
        raise error

    def wait(arguments: Any, io: Any) -> Any:
        raise error

    made = agent(script(["wait"]), tool("wait", think if is_async else wait))
    result = made.run("?")
    assert (result.ending, result.mode) == ("failure_mode_terminal", "catalogued_unhandled")
    assert [event.kind for event in result.events if isinstance(event, Failed)] == ["other"]
    replayed(made, result.events)


@pytest.mark.parametrize(
    ("module", "name", "full", "error"),
    [
        (perform, "_judged", Mock(side_effect=MemoryError), MemoryError),
        (clock, "threading", Mock(**{"Thread.return_value.start.side_effect": RuntimeError}), SystemFailure),
    ],
)
def test_what_runs_out_in_our_own_code_is_no_fault_of_the_tool(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, full: Mock, error: type[Exception]
) -> None:
    made = agent(script(["wait"]), tool("wait", lambda arguments, io: arguments))
    monkeypatch.setattr(module, name, full)
    with pytest.raises(error):
        made.run("?")


def test_where_no_thread_begins_the_system_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
    with pytest.raises(SystemFailure), SyncSession(agent(script("x")), tmp_path / "talk"):
        pass
    with pytest.raises(SystemFailure):
        offered_at(ServerPlace(("sh",)))


def test_each_attempt_gets_arguments_of_its_own() -> None:
    seen = []

    def wait(arguments: Any, io: Any) -> Any:
        seen.append(dict(arguments))
        arguments["text"] = "changed"
        if len(seen) == 1:
            raise ConnectionError
        return {"text": "x"}

    waiting = tool("wait", wait, transient=(ConnectionError,))
    made = agent(script(["wait"], "done"), waiting, retry={"backoff_base_ms": 0})
    result = made.run("?")
    assert seen == [{"text": "1.0"}] * 2
    replayed(made, result.events)


def test_a_model_cannot_change_the_history() -> None:
    asked = []

    def model(request: LLMInput) -> LLMOutput:
        asked.append([message["content"] for message in request.messages])
        for message in request.messages:
            message["content"] = "forged"
        if len(asked) == 1:
            raise TransientModelError
        return LLMOutput(final_answer="done")

    made = agent(model, retry={"backoff_base_ms": 0})
    replayed(made, made.run("the question").events)
    assert asked == [["the question"]] * 2


async def test_many_runs_at_once() -> None:
    made = agent(script(["wait", "wait"], "done"), tool("wait", lambda arguments, io: arguments))
    results = await asyncio.gather(*(made.arun(f"{n}") for n in range(50)))
    assert len({result.run_id for result in results}) == 50
    for result in results:
        assert sum(isinstance(event, ToolReturned) for event in result.events) == 2
        replayed(made, result.events)


BARE = type("Bare", (ModelError,), {"__init__": lambda self: None})()  # sets none of the fields


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (TransientModelError("nobody answers"),) * 2, ("a", "no LLMOutput"), (LLMOutput(), "neither"),
        (ModelError("no words", service_text={"a": 1}), "no words"), (BARE, "Bare"),  # type: ignore[arg-type]
        (InputError("of an agent that the model asks"), "of an agent"),
        (LLMOutput(tool_calls=type("Broken", (list,), {"__iter__": lambda self: 1 / 0})()), "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_why_a_model_fails_is_told(said: Any, word: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def model(asked: LLMInput) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    assert agent(model, retry=None).run("?").ending == "failure_mode_terminal"
    assert str(word) in caplog.text


PASSED = [0.0]


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock a test puts forward."""

    def time(self) -> float:
        return super().time() + PASSED[0]


@pytest.mark.parametrize(("seconds", "mode"), [(500, ""), (700, "timeout")])
def test_a_deadline_stops_a_run_and_its_resume(
    seconds: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step takes 3000 seconds, the second one others; a resume goes on after the first."""

    async def model(asked: LLMInput) -> LLMOutput:
        PASSED[0] += (3000, seconds)[asked.step_index - 1]
        for _ in range(99):  # time for a stop to come
            await asyncio.sleep(0)
        return script(["wait"], "done")(asked)

    async def resumed() -> Any:
        with made.workspace() as workspace:
            world = Real(workspace, leaves=False, listens=False, approve=None)
            return await make_run(spec, head, world, past)

    monkeypatch.setattr(real, "monotonic_ns", lambda: clock.monotonic_ns() + int(PASSED[0] * 1e9))
    made, writer = agent(model, tool("wait", lambda arguments, io: arguments)), LineWriter()
    with asyncio.Runner(loop_factory=Ahead) as runner:
        result = runner.run(made.arun("?", deadline_s=3600))
        head: Any = result.events[0]
        spec = made.spec("?", run_id=head.run_id, deadline_s=3600)
        kept = [event for event in result.events if event.at.startswith(("0", "1."))]
        past = read_log(b"".join(writer.line(canonical(event)) for event in kept))
        PASSED[0] = 0.0  # the clock of another process
        again = runner.run(resumed())
    stops = [(event.scope, event.why) for event in result.events if isinstance(event, StopAsked)]
    assert (again.ended.mode, result.mode, stops) == (mode, mode, [("", "deadline")] if mode else [])
    replayed(made, result.events)
