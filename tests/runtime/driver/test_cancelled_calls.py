"""One call of a run is cancelled by its id: it alone is ended, the model is told, and the run goes on."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Scope, SystemClock, Tool
from tachograph.runtime.tools.loader import load_named
from tests.support import answer, ask, policy_data, probe, replay_of
from tests.support import tool as made_tool

TOLD = {
    "error": "cancelled",
    "reason": "the call was cancelled, and what it did is not known",
    "retryable": False,
}


class _Model:
    """Asks for some calls, then answers; keeps what it was asked last."""

    def __init__(self, *calls: Any) -> None:
        self.calls = calls
        self.read: list[Any] = []

    def __call__(self, asked: Any) -> Any:
        self.read = list(asked.messages)
        return ask(*self.calls) if asked.step_index == 1 else answer("done")


def _agent(model: Any, *tools: Tool, mounts: Any = None, **policy: Any) -> Agent:
    given = {item.name: item for item in (made_tool(), made_tool("echo"), *tools)}
    policy = {"tool_registry": {"allowed": list(given)}, "on_failure": "terminate", **policy}
    return Agent(model, list(given.values()), Policy.from_dict(policy_data(**policy)), mounts=mounts)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["awaited", "thread"])
def test_one_call_of_a_group_is_cancelled_and_the_others_and_the_run_go_on(kind: str, tmp_path: Path) -> None:
    order: list[str] = []
    go_on = threading.Event()

    async def run_async(args: dict[str, Any], io: Any) -> Any:
        order.append(f"{args['n']} begun")
        try:
            await asyncio.sleep(30 if args["n"] == 2 else 0.01)
        except asyncio.CancelledError:
            order.append(f"{args['n']} ended")
            raise
        return {"said": "ok"}

    def run(args: dict[str, Any], io: Any) -> Any:
        order.append(f"{args['n']} begun")
        if args["n"] == 2:
            go_on.wait(30)
        return {"said": "ok"}

    model, scope, file = _Model(probe(n=1), probe(n=2), probe(n=3)), Scope(), tmp_path / "ledger.jsonl"
    agent = _agent(model, made_tool(run=run_async if kind == "awaited" else run, effect="read"))

    async def main() -> Any:
        under_way = asyncio.ensure_future(agent.arun("q", cancel=scope, ledger=file))
        while "2 begun" not in order:
            await asyncio.sleep(0.001)
        assert not scope.cancel_call("tc_1_7") and scope.cancel_call("tc_1_1")
        return await under_way

    result = asyncio.run(main())
    go_on.set()
    assert result.answer == "done" and result.mode is None and not scope.is_set()
    assert kind == "thread" or order.count("2 ended") == 1
    lines = _lines(file)
    assert [call["status"] for call in lines[1]["tool_results"]] == ["ok", "cancelled", "ok"]
    assert lines[1]["tool_results"][1]["told"] == TOLD and "stopped" not in lines[1]
    told = [json.loads(message["content"]) for message in model.read if message["role"] == "tool"]
    assert told == [{"said": "ok"}, TOLD, {"said": "ok"}]
    assert replay_of(agent, lines) == file.read_text().splitlines()


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
    io.write("box/pid", str(os.getpid()))
    time.sleep(30)
    return {}
"""


@pytest.mark.parametrize("is_async", [True, False])
def test_the_process_of_an_isolated_call_is_ended_before_the_next_effect(
    is_async: bool, tmp_path: Path
) -> None:
    (tmp_path / "nap.py").write_text(ISOLATED, encoding="utf-8")
    box = tmp_path / "box"
    box.mkdir()
    scope, file = Scope(), tmp_path / "ledger.jsonl"
    alive: list[bool] = []

    def model(asked: Any) -> Any:
        if asked.step_index == 1:
            return ask(probe("nap"))
        alive.append(os.path.exists(f"/proc/{(box / 'pid').read_text()}"))
        return answer("done")

    is_over = threading.Event()

    def cancel() -> None:
        while not ((box / "pid").exists() and (box / "pid").read_text()) and not is_over.is_set():
            pass
        scope.cancel_call("tc_1_0")

    agent = _agent(model, load_named("nap", tmp_path), mounts={"box": box})
    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    given: dict[str, Any] = {"cancel": scope, "ledger": file}
    result = asyncio.run(agent.arun("q", **given)) if is_async else agent.run("q", **given)
    is_over.set()
    cancelling.join()
    assert result.answer == "done" and alive == [False]
    call = _lines(file)[1]["tool_results"][0]
    assert call["told"] == TOLD and call["attempts"][0]["writes"][0][0] == "box/pid"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_call_that_waits_for_another_attempt_is_cancelled(is_async: bool, tmp_path: Path) -> None:
    scope, file = Scope(), tmp_path / "ledger.jsonl"

    def run(args: dict[str, Any], io: Any) -> Any:
        threading.Timer(0.05, lambda: scope.cancel_call("tc_1_0")).start()
        raise ConnectionError

    agent = _agent(
        _Model(probe()),
        made_tool(run=run, effect="read"),
        retry={"backoff_base_ms": 600_000, "backoff_cap_ms": 600_000},
    )
    given: dict[str, Any] = {"cancel": scope, "ledger": file, "clock": SystemClock()}
    result = asyncio.run(agent.arun("q", **given)) if is_async else agent.run("q", **given)
    lines = _lines(file)
    call = lines[1]["tool_results"][0]
    assert result.answer == "done" and call["told"] == TOLD
    assert [attempt["outcome"] for attempt in call["attempts"]] == ["transient_failure"]
    assert replay_of(agent, lines) == file.read_text().splitlines()


def test_cancelling_the_run_still_ends_it_where_a_call_was_cancelled_too() -> None:
    scope = Scope()

    async def run(args: dict[str, Any], io: Any) -> Any:
        scope.cancel_call("tc_1_0")
        scope.cancel()
        await asyncio.sleep(30)

    agent = _agent(_Model(probe()), made_tool(run=run, effect="read"))
    result = asyncio.run(agent.arun("q", cancel=scope))
    assert result.ending == "cancelled" and scope.open_below == 0
