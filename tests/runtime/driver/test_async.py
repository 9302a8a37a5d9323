"""Runs in an event loop: the same bytes, nothing blocked, everything ended that is cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import (
    Agent,
    Policy,
    Scope,
    Stub,
    SystemClock,
    Tool,
    ToolCall,
    ToolError,
    VirtualClock,
    arecord,
    record,
    tool,
)
from tachograph.evidence.files import manifest
from tachograph.evidence.files.manifest import MANIFEST
from tachograph.evidence.files.writer import Writer
from tachograph.evidence.recording.recorder import recorded_run
from tachograph.evidence.recording.sync_async import InLoop
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.tools.loader import load_named
from tests.evidence.project import acts_outside
from tests.support import answer, ask, policy_data, probe
from tests.support import tool as made_tool

ROOT = Path(__file__).resolve().parents[3]


def _scripted() -> list[str]:
    found = []
    for path in sorted((ROOT / "runs").glob("*/*/manifest.json")):
        record = json.loads(path.read_bytes())
        if record["model"]["execution_path"] == "stub" and not acts_outside(path.parent):
            found.append(path.parent.relative_to(ROOT / "runs").as_posix())
    return found


SCRIPTED = _scripted()


def test_there_are_scripted_runs_and_one_performs_calls_together() -> None:
    assert len(SCRIPTED) > 40 and "loop/parallel_calls" in SCRIPTED


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_committed_run_made_by_the_async_driver_has_the_committed_bytes(name: str) -> None:
    folder = ROOT / "runs" / name
    agent, config = build(load_task(ROOT / "tasks" / f"{name}.yaml", root=ROOT))
    writer = Writer(None)
    result = asyncio.run(agent.execute_async(config, on_line=writer.line, keep_steps=False))
    stable = manifest.stable(writer.finish(result.inputs))
    for file, data in writer.contents().items():
        assert data == (folder / file).read_bytes(), file
    assert stable == manifest.stable(manifest.read((folder / MANIFEST).read_bytes()))


@pytest.mark.parametrize("durability", ["off", "effect"])
@pytest.mark.parametrize("name", SCRIPTED)
def test_a_committed_run_recorded_in_an_event_loop_has_the_committed_bytes(
    name: str, durability: str, tmp_path: Path
) -> None:
    folder = ROOT / "runs" / name
    agent, config = build(load_task(ROOT / "tasks" / f"{name}.yaml", root=ROOT))
    asked = None if durability == "off" else durability
    asyncio.run(recorded_run(InLoop(), agent, config, tmp_path / "run", durability=asked))
    for file in ("state.jsonl", "trace.json", "run_report.md"):
        assert (tmp_path / "run" / file).read_bytes() == (folder / file).read_bytes(), file
    made, committed = (manifest.read((place / MANIFEST).read_bytes()) for place in (tmp_path / "run", folder))
    assert manifest.stable(made) == manifest.stable(committed)


# ---- what runs in the loop -------------------------------------------------------------------------------


def _agent(model: Any, *tools: Tool, **policy: Any) -> Agent:
    given = {item.name: item for item in (made_tool(), made_tool("echo"), *tools)}
    return Agent(model, list(given.values()), Policy.from_dict(policy_data(**policy)))


class _Model:
    """An async model over a script."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies

    async def __call__(self, asked: Any) -> Any:
        await asyncio.sleep(0)
        return self.replies[asked.step_index - 1]


def _lines(agent: Agent, tmp_path: Path, **given: Any) -> list[dict[str, Any]]:
    file = tmp_path / "ledger.jsonl"
    asyncio.run(agent.arun("What now?", ledger=file, **given))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_async_models_and_tools_are_awaited_in_the_callers_loop(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def run(args: dict[str, Any], io: Any) -> Any:
        seen.append((asyncio.get_running_loop(), threading.current_thread()))
        await asyncio.sleep(0)
        return {"said": "ok"}

    async def main() -> Any:
        result = await _agent(_Model(ask(probe()), answer("done")), made_tool(run=run)).arun("What now?")
        return result, asyncio.get_running_loop(), threading.current_thread()

    result, loop, thread = asyncio.run(main())
    assert result.answer == "done" and seen == [(loop, thread)]


def test_the_same_agent_gives_the_same_ledger_without_an_event_loop(tmp_path: Path) -> None:
    async def run(args: dict[str, Any], io: Any) -> Any:
        await asyncio.sleep(0)
        return {"said": "ok"}

    agent = _agent(_Model(ask(probe()), answer("done")), made_tool(run=run))
    lines = _lines(agent, tmp_path, run_id="same", clock=VirtualClock())
    file = tmp_path / "sync.jsonl"
    agent.run("What now?", run_id="same", clock=VirtualClock(), ledger=file)
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines


def test_a_sync_tool_and_a_sync_model_do_not_block_the_event_loop() -> None:
    order: list[str] = []
    gate = threading.Event()

    def model(asked: Any) -> Any:
        if asked.step_index == 1:
            return ask(probe())
        return answer("done")

    def run(args: dict[str, Any], io: Any) -> Any:
        order.append("tool begins")
        assert gate.wait(5)
        order.append("tool ends")
        return {"said": "ok"}

    async def main() -> Any:
        agent = _agent(model, made_tool(run=run, effect="read"))
        under_way = asyncio.ensure_future(agent.arun("What now?"))
        while not order:
            await asyncio.sleep(0.001)
        order.append("the loop goes on")
        gate.set()
        return await under_way

    assert asyncio.run(main()).answer == "done"
    assert order == ["tool begins", "the loop goes on", "tool ends"]


def test_a_decorated_coroutine_function_is_awaited_and_its_time_is_limited() -> None:
    left: list[str] = []

    @tool(effect="read", timeout_s=0.05)
    async def wait(seconds: float) -> int:
        """Wait."""
        try:
            await asyncio.sleep(seconds)
        finally:
            left.append(asyncio.get_running_loop().__class__.__name__)
        return 1

    reply = ask(ToolCall("wait", '{"seconds": 5}'))
    result = asyncio.run(Agent(_Model(reply, answer()), [wait]).arun("What now?"))
    assert result.steps[0].calls[0]["told"]["exception"] == "TimeoutError" and len(left) == 1


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), asyncio.CancelledError(), ValueError("x")])
@pytest.mark.parametrize("is_async", [True, False])
def test_what_a_tool_raises_is_its_own_failure(error: BaseException, is_async: bool, tmp_path: Path) -> None:
    def run(args: dict[str, Any], io: Any) -> Any:
        raise error

    async def run_async(args: dict[str, Any], io: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(error, StopIteration):  # Python turns it into a RuntimeError in any coroutine
            raise RuntimeError
        raise error

    made = made_tool(run=run_async if is_async else run, effect="read")
    lines = _lines(_agent(_Model(ask(probe()), answer()), made), tmp_path)
    assert lines[-1]["failure_mode"] == "catalogued_unhandled"
    wanted = "RuntimeError" if is_async and isinstance(error, StopIteration) else type(error).__name__
    assert lines[1]["errors"][0]["exception"] == wanted


def test_a_coroutine_function_cannot_be_isolated(tmp_path: Path) -> None:
    (tmp_path / "nap.py").write_text(ISOLATED.replace("def run", "async def run"), encoding="utf-8")
    with pytest.raises(ToolError, match="a coroutine function cannot run in a worker"):
        load_named("nap", tmp_path)


# ---- cancelling ------------------------------------------------------------------------------------------


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def _never(order: list[str]) -> Callable[..., Awaitable[Any]]:
    async def run(args: dict[str, Any], io: Any) -> Any:
        order.append("begun")
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            order.append("ended")
            raise
        order.append("finished by itself")

    return run


@pytest.mark.parametrize("by", ["task", "scope", "session"])
def test_cancelling_ends_an_async_tool_before_anything_else_is_done(by: str, tmp_path: Path) -> None:
    order: list[str] = []
    file = tmp_path / "ledger.jsonl"
    session = Scope()
    scope = session.child()

    async def main() -> Any:
        agent = _agent(
            _Model(ask(probe(), probe(n=2)), answer()), made_tool(run=_never(order), effect="write")
        )
        heard = [lambda event: order.append(event.line["type"]) if event.line else None]
        under_way = asyncio.ensure_future(
            agent.arun("What now?", ledger=file, cancel=scope, listeners=heard, clock=SystemClock())
        )
        await _until(lambda: "begun" in order)
        {"task": under_way.cancel, "scope": scope.cancel, "session": session.cancel}[by]()
        if by != "task":
            return await under_way
        with pytest.raises(asyncio.CancelledError):
            await under_way
        return None

    result = asyncio.run(main())
    assert order == ["run", "begun", "ended", "step", "end"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[-1]["terminal_reason"] == "cancelled"
    assert [call["status"] for call in lines[1]["tool_results"]] == ["cancelled", "not_reached"]
    assert lines[1]["errors"] == [] and lines[1]["tool_results"][0]["attempts"] == [
        {"attempt": 1, "outcome": "cancelled"}
    ]
    assert result is None or result.ending == "cancelled"


def test_cancelling_ends_every_call_of_a_group(tmp_path: Path) -> None:
    order: list[str] = []

    async def main() -> Any:
        agent = _agent(
            _Model(ask(probe(), probe(n=2)), answer()), made_tool(run=_never(order), effect="read")
        )
        under_way = asyncio.ensure_future(agent.arun("What now?", ledger=tmp_path / "ledger.jsonl"))
        await _until(lambda: order.count("begun") == 2)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way

    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert order == ["begun", "begun", "ended", "ended"]
    assert [call["status"] for call in lines[1]["tool_results"]] == ["cancelled", "cancelled"]


def test_cancelling_ends_an_async_model(tmp_path: Path) -> None:
    order: list[str] = []
    never = _never(order)

    async def model(asked: Any) -> Any:
        return await never({}, None)

    async def main() -> None:
        under_way = asyncio.ensure_future(_agent(model).arun("What now?", ledger=tmp_path / "ledger.jsonl"))
        await _until(lambda: order)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way

    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert order == ["begun", "ended"] and lines[1]["llm_attempts"] == [
        {"attempt": 1, "outcome": "cancelled"}
    ]


def test_a_sync_tool_that_is_given_up_does_nothing_more(tmp_path: Path) -> None:
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()
    met: list[BaseException] = []

    def run(args: dict[str, Any], io: Any) -> Any:
        begun.set()
        go_on.wait(30)
        for use in (lambda: io.write("box/late", "x"), lambda: io.read("box/late"), lambda: io.list("box")):
            try:
                use()
            except PermissionError as error:
                met.append(error)
        over.set()
        return {"said": "ok"}

    async def main() -> Any:
        made = made_tool(run=run, effect="write")
        scope = Scope()
        agent = _agent(_Model(ask(probe()), answer()), made)
        under_way = asyncio.ensure_future(agent.arun("What now?", cancel=scope))
        await _until(begun.is_set)
        scope.cancel()
        return await under_way

    result = asyncio.run(main())
    assert result.ending == "cancelled" and not over.is_set()
    go_on.set()
    assert over.wait(30) and [str(error) for error in met] == ["the attempt is over"] * 3


ISOLATED = """
import os
import time

DESCRIPTION = "Wait."
INPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
OUTPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
EFFECT = "write"
IDEMPOTENT = False
TRANSIENT = ()
ISOLATE = True
IMPORTS = ("os", "time")


def run(args, io):
    io.write("box/pid", str(os.getpid()))
    time.sleep(20)
    return {}
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("is_async", [True, False])
def test_cancelling_ends_the_process_of_an_isolated_tool_before_the_next_line(
    is_async: bool, tmp_path: Path
) -> None:
    (tmp_path / "nap.py").write_text(ISOLATED, encoding="utf-8")
    box = tmp_path / "box"
    box.mkdir()
    nap = load_named("nap", tmp_path)
    data = policy_data()
    data["tool_registry"]["allowed"].append("nap")
    agent = Agent(
        Stub([{"calls": [{"tool": "nap"}]}]),
        [nap],
        Policy.from_dict(data),
        mounts={"box": box},
        known_tools=["probe", "echo"],
    )
    scope = Scope()
    at_step: list[bool] = []

    def hear(event: Any) -> None:
        if event.line and event.line["type"] == "step":
            at_step.append(_alive(int((box / "pid").read_text())))

    def cancel() -> None:
        while not (box / "pid").exists():
            pass
        scope.cancel()

    waiting = threading.Thread(target=cancel)
    waiting.start()
    if is_async:
        result = asyncio.run(agent.arun("What now?", cancel=scope, listeners=[hear]))
    else:
        result = agent.run("What now?", cancel=scope, listeners=[hear])
    waiting.join()
    assert result.ending == "cancelled" and at_step == [False]


# ---- events ----------------------------------------------------------------------------------------------


def test_closing_the_iterator_cancels_the_run() -> None:
    order: list[str] = []

    async def main() -> None:
        agent = _agent(_Model(ask(probe()), ask(probe(n=2)), answer()), made_tool(run=_second(order)))
        events = agent.stream("What now?")
        async for event in events:
            if event.what == "step":
                await _until(lambda: "begun" in order)
                break
        await events.aclose()
        order.append("closed")

    asyncio.run(main())
    assert order == ["first", "begun", "ended", "closed"]


def _second(order: list[str]) -> Callable[..., Awaitable[Any]]:
    never = _never(order)

    async def run(args: dict[str, Any], io: Any) -> Any:
        if "n" in args:
            return await never(args, io)
        order.append("first")
        return {"said": "ok"}

    return run


# ---- records ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["model", "tool"])
@pytest.mark.parametrize("in_a_loop", [False, True])
def test_a_coroutine_that_a_sync_run_waits_for_ends_where_the_run_is_cancelled(
    tmp_path: Path, which: str, in_a_loop: bool
) -> None:
    scope, ended = Scope(), []

    async def endless() -> Any:
        threading.Thread(target=scope.cancel).start()
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        except asyncio.CancelledError:
            ended.append(which)
            raise

    async def model(asked: Any) -> Any:
        return await endless() if which == "model" else ask(probe())

    async def run(args: dict[str, Any], io: Any) -> Any:
        return await endless()

    def act() -> str:
        agent = _agent(model, made_tool(run=run))
        return record(agent, "What now?", tmp_path / "run", cancel=scope).ending

    async def main() -> str:
        return act()

    assert (asyncio.run(main()) if in_a_loop else act()) == "cancelled"
    assert ended == [which]


def test_a_run_is_recorded_without_blocking_the_event_loop(tmp_path: Path) -> None:
    agent = Agent(Stub([{"answer": "done"}]), ["search"], Policy.shipped())
    result = asyncio.run(arecord(agent, "What now?", tmp_path / "one", run_id="same"))
    record(agent, "What now?", tmp_path / "two", run_id="same")
    assert result.answer == "done"
    for name in ("state.jsonl", "trace.json", "run_report.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_recording_awaits_in_the_callers_loop_and_performs_calls_at_the_same_time(tmp_path: Path) -> None:
    """Each of the two calls waits for the other one, which never comes where they run one after another."""
    loops: list[Any] = []

    async def main() -> Any:
        both = asyncio.Barrier(2)

        async def run(args: dict[str, Any], io: Any) -> Any:
            loops.append(asyncio.get_running_loop())
            await both.wait()
            return {"said": "ok"}

        agent = _agent(_Model(ask(probe(), probe(n=2)), answer("done")), made_tool(run=run, effect="read"))
        async with asyncio.timeout(30):
            result = await arecord(agent, "What now?", tmp_path / "run", durability="effect")
        return result, asyncio.get_running_loop()

    result, loop = asyncio.run(main())
    assert result.answer == "done" and loops == [loop, loop]
    assert len(result.steps[0]["groups"]) == 1


@pytest.mark.parametrize("durability", ["off", "effect"])
def test_cancelling_a_recording_ends_the_request_under_way(tmp_path: Path, durability: str) -> None:
    ended: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def model(asked: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("request")

        agent = _agent(model)
        task = asyncio.ensure_future(arecord(agent, "What?", tmp_path / "run", durability=durability))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["request"] and not (tmp_path / "run.partial").exists()
    lines = [json.loads(line) for line in (tmp_path / "run" / "state.jsonl").read_text().splitlines()]
    assert lines[-1]["terminal_reason"] == "cancelled"


def test_a_task_cancelled_before_its_recording_begins_leaves_a_record_of_nothing_done(tmp_path: Path) -> None:
    asked: list[Any] = []

    async def main() -> None:
        task = asyncio.ensure_future(arecord(_agent(asked.append), "What?", tmp_path / "run"))
        await asyncio.sleep(0)  # it waits for the folder now
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "run" / "state.jsonl").read_text().splitlines()]
    assert lines[-1]["terminal_reason"] == "cancelled" and asked == []


def test_a_cancelled_recording_leaves_a_complete_record(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def run(args: dict[str, Any], io: Any) -> Any:
        begun.set()
        go_on.wait(5)
        return {"said": "ok"}

    async def main() -> None:
        agent = _agent(_Model(ask(probe(), probe(n=2)), answer()), made_tool(run=run))
        task = asyncio.ensure_future(arecord(agent, "What now?", tmp_path / "run"))
        await _until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # which waits for the record, and not for the tool in its thread
        assert (tmp_path / "run" / "manifest.json").exists()
        go_on.set()

    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "run" / "state.jsonl").read_text().splitlines()]
    assert lines[-1]["terminal_reason"] == "cancelled"
    assert [call["status"] for call in lines[1]["tool_results"]] == ["cancelled", "not_reached"]
