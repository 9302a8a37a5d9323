"""What the caller of a run raises into it, and what concerns the whole process, is no failure of a tool or model."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Hooks, Policy, Tool
from tachograph.cli.main import _told as _told_by_command
from tachograph.runtime.tools.loader import load_named
from tachograph.runtime.workspace import tool_io
from tests.support import answer, ask, policy_data, probe
from tests.support import tool as made_tool

ROOT = Path(__file__).resolve().parents[3]


def _agent(model: Any, *tools: Tool, hooks: Any = (), mounts: Any = None, **policy: Any) -> Agent:
    given = {item.name: item for item in (made_tool(), made_tool("echo"), *tools)}
    policy.setdefault("tool_registry", {"allowed": list(given)})
    return Agent(
        model, list(given.values()), Policy.from_dict(policy_data(**policy)), hooks=hooks, mounts=mounts
    )


def _asks(*calls: Any) -> Callable[[Any], Any]:
    return lambda asked: ask(*calls) if asked.step_index == 1 else answer()


def _told(file: Path) -> list[str]:
    return [json.loads(line)["type"] for line in file.read_text().splitlines()]


def _fail(*_: Any) -> Any:
    raise MemoryError


async def _fail_awaited(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise MemoryError


# ---- no memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("run", "effect"),
    [(_fail, "pure"), (_fail, "read"), (_fail_awaited, "read")],
    ids=["here", "thread", "awaited"],
)
@pytest.mark.parametrize("calls", [1, 3], ids=["alone", "group"])
def test_a_memory_error_that_a_tool_raises_is_its_failure(
    is_async: bool, run: Any, effect: str, calls: int, tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    made = made_tool(run=run, effect=effect)
    agent = _agent(_asks(*(probe(n=n) for n in range(calls))), made)
    result = asyncio.run(agent.arun("q", ledger=file)) if is_async else agent.run("q", ledger=file)
    assert result.mode == "catalogued_unhandled"
    assert _told(file) == ["run", "step", "end"]


def _lacks_memory(module: str) -> Callable[..., Any]:
    """A function of a module that finds no memory."""
    namespace: dict[str, Any] = {"__name__": module}
    exec("def fail(*_):\n    raise MemoryError", namespace)
    return namespace["fail"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("calls", [1, 3], ids=["alone", "group"])
def test_a_memory_error_of_the_runtime_below_a_tool_passes(
    is_async: bool, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    file = tmp_path / "ledger.jsonl"
    monkeypatch.setattr(tool_io, "read_file", _lacks_memory("tachograph.runtime.workspace.safe_open"))
    made = made_tool(run=lambda args, io: io.read("box/a"), effect="read")
    agent = _agent(_asks(*(probe(n=n) for n in range(calls))), made, mounts={"box": box})
    with pytest.raises(MemoryError):
        asyncio.run(agent.arun("q", ledger=file)) if is_async else agent.run("q", ledger=file)
    assert _told(file) == ["run"]


def test_the_other_calls_of_a_group_are_over_when_a_memory_error_passes() -> None:
    order: list[str] = []
    fail = _lacks_memory("tachograph.runtime.driver.driver")

    async def run(args: dict[str, Any], io: Any) -> Any:
        if args["n"] == 1:
            fail()
        await asyncio.sleep(0.05)
        order.append(f"call {args['n']} is over")
        return {"said": "ok"}

    async def main() -> None:
        agent = _agent(_asks(probe(n=1), probe(n=2)), made_tool(run=run, effect="read"))
        with pytest.raises(MemoryError):
            await agent.arun("q")
        order.append("the run is over")

    asyncio.run(main())
    assert order == ["call 2 is over", "the run is over"]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("where", ["model", "person", "hook"])
def test_a_memory_error_elsewhere_is_treated_alike(where: str, is_async: bool) -> None:
    approval = {"required_for": ["probe"], "timeout_s": 2} if where == "person" else None
    for fail in (_fail, _lacks_memory("tachograph.runtime.core.clock")):
        agent = _agent(
            fail if where == "model" else _asks(probe()),
            hooks=Hooks(before_call=fail) if where == "hook" else (),
            approval=approval,
        )
        given = {"approve": fail} if where == "person" else {}
        if fail is _fail:
            result = asyncio.run(agent.arun("q", **given)) if is_async else agent.run("q", **given)
            assert result.ending != "final_answer"
            continue
        with pytest.raises(MemoryError):
            asyncio.run(agent.arun("q", **given)) if is_async else agent.run("q", **given)


ISOLATED = """
import os
import time

DESCRIPTION = "Do."
INPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
OUTPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
EFFECT = "write"
IDEMPOTENT = False
TRANSIENT = ()
ISOLATE = True
IMPORTS = ("os", "time")


def run(args, io):
    BODY
"""


def _isolated(folder: Path, body: str) -> Tool:
    (folder / "worker.py").write_text(ISOLATED.replace("BODY", body), encoding="utf-8")
    return load_named("worker", folder)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_memory_error_of_a_worker_is_the_tools_own(is_async: bool, tmp_path: Path) -> None:
    agent = _agent(_asks(probe("worker")), _isolated(tmp_path, "raise MemoryError"))
    result = asyncio.run(agent.arun("q")) if is_async else agent.run("q")
    assert result.mode == "catalogued_unhandled"
    assert result.steps[0]["errors"][0]["exception"] == "MemoryError"


def test_a_command_says_in_one_line_that_there_is_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / "journal.jsonl").touch()
    told = []
    for recorded in (None, out):
        assert _told_by_command(argparse.Namespace(command="run", recorded=recorded), _fail, []) == 2
        told.append(capsys.readouterr().err)
    assert told[0] == "tachograph: no memory is left\n"
    assert told[1] == f"tachograph: no memory is left; go on with `tachograph resume {out}`\n"


# ---- a cancelled task, and a coroutine that is closed ----------------------------------------------------


@pytest.mark.parametrize("manner", ["thread", "isolated"])
def test_the_callers_cancellation_is_no_failure_of_what_is_called_in_a_thread(
    manner: str, tmp_path: Path
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    begun = box / "begun"
    file = tmp_path / "ledger.jsonl"

    def run(args: dict[str, Any], io: Any) -> Any:
        begun.touch()
        time.sleep(1)
        return {"said": "ok"}

    body = "io.write('box/begun', ''); time.sleep(20)"
    made = made_tool(run=run, effect="read") if manner == "thread" else _isolated(tmp_path, body)

    async def main() -> None:
        agent = _agent(_asks(probe(made.name)), made, mounts={"box": box})
        under_way = asyncio.ensure_future(agent.arun("q", ledger=file))
        while not begun.exists():
            await asyncio.sleep(0.001)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way

    asyncio.run(main())
    step, end = (json.loads(line) for line in file.read_text().splitlines()[1:])
    assert step["errors"] == [] and step["tool_results"][0]["status"] == "cancelled"
    assert end["terminal_reason"] == "cancelled"


@pytest.mark.parametrize("calls", [1, 3], ids=["alone", "group"])
def test_closing_the_coroutine_of_a_run_ends_its_tools_and_records_no_failure(
    calls: int, tmp_path: Path
) -> None:
    order: list[str] = []
    file = tmp_path / "ledger.jsonl"

    async def run(args: dict[str, Any], io: Any) -> Any:
        order.append("begun")
        try:
            await asyncio.sleep(20)
        finally:
            order.append("ended")
        order.append("finished by itself")

    async def main() -> int:
        agent = _agent(_asks(*(probe(n=n) for n in range(calls))), made_tool(run=run, effect="read"))
        coroutine = agent.arun("q", ledger=file)
        while order.count("begun") < calls:
            future = coroutine.send(None)  # as a task does
            if future is None:
                await asyncio.sleep(0)
                continue
            future._asyncio_future_blocking = False
            await asyncio.wait({future}, timeout=0.01)
            if not future.done():
                break
        while order.count("begun") < calls:
            await asyncio.sleep(0.001)
        coroutine.close()
        await asyncio.sleep(0.01)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    assert order == ["begun"] * calls + ["ended"] * calls
    assert _told(file) == ["run"]


# ---- Ctrl-C ----------------------------------------------------------------------------------------------


INTERRUPTED = """
import asyncio, sys
from tachograph import Agent, Policy, tool
from tests.support import answer, ask, policy_data, probe, tool as made_tool

async def run(args, io):
    print("begun", flush=True)
    try:
        await asyncio.sleep(30)
    finally:
        print("ended", flush=True)

def asks(asked):
    return ask(probe(), probe(n=2)) if asked.step_index == 1 else answer()

agent = Agent(asks, [made_tool(run=run, effect="write"), made_tool("echo")], Policy.from_dict(policy_data()))
asyncio.run(agent.arun("q", ledger=sys.argv[1]))
"""


def test_ctrl_c_under_asyncio_leaves_a_whole_record(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out == "ended\n" and err.rstrip().endswith("KeyboardInterrupt")
    step, end = (json.loads(line) for line in file.read_text().splitlines()[1:])
    assert step["errors"] == [] and end["terminal_reason"] == "cancelled"
    assert [call["status"] for call in step["tool_results"]] == ["cancelled", "not_reached"]


def test_a_keyboard_interrupt_of_a_coroutine_tool_stops_the_run_as_interrupted(tmp_path: Path) -> None:
    async def run(args: dict[str, Any], io: Any) -> Any:
        raise KeyboardInterrupt

    file = tmp_path / "ledger.jsonl"
    agent = _agent(_asks(probe()), made_tool(run=run, effect="read"))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(agent.arun("q", ledger=file))
    assert json.loads(file.read_text().splitlines()[-1])["failure_mode"] == "interrupted"
