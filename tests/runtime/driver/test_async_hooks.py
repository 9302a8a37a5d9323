"""Hooks in an event loop, sync and async: the same ledger, a loop that goes on, and nothing left when a run ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, AgentEvent, AskHuman, Hooks, Policy, Scope, Stub, VirtualClock
from tests.support import policy_data, tool

SCRIPT = [
    {"calls": [{"tool": "probe", "arguments": {"n": n}} for n in (1, 2, 3, 4)]},
    {"answer": "one"},
    {"answer": "two"},
]


def _before_call(data: dict[str, Any]) -> Any:
    given: dict[int, Any] = {1: {"deny": "not this"}, 2: {"arguments": {"n": 7}}, 3: {"escalate": "look"}}
    return given.get(data["call"]["arguments"]["n"])


def _after_call(data: dict[str, Any]) -> Any:
    return {"result": {"said": "replaced"}} if data["call"]["arguments"]["n"] == 4 else None


def _on_stop(data: dict[str, Any]) -> Any:
    return {"send_back": "Once more."} if data["answer"] == "one" else None


def _raises(data: dict[str, Any]) -> Any:
    raise KeyError("a private word")


def _awaited(hook: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    async def asked(data: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return hook(data)

    return asked


def _agent(hooks: Hooks) -> Agent:
    policy = policy_data(on_deny="inform", tool_registry={"allowed": ["probe"], "denied": []})
    return Agent(Stub(SCRIPT), [tool()], Policy.from_dict(policy), hooks=hooks)


class _Yes:
    """An answer that is the same in every run, so that their bytes can be compared."""

    is_scripted = True

    def __call__(self, question: AskHuman) -> bool:
        return True


_yes = _Yes()


def _run(agent: Agent, file: Path) -> None:
    agent.run("What now?", run_id="same", clock=VirtualClock(), approve=_yes, ledger=file)


def _arun(agent: Agent, file: Path) -> None:
    given: dict[str, Any] = {"run_id": "same", "clock": VirtualClock(), "approve": _yes}
    asyncio.run(agent.arun("What now?", ledger=file, **given))


def _stream(agent: Agent, file: Path) -> None:
    given: dict[str, Any] = {"run_id": "same", "clock": VirtualClock(), "approve": _yes}

    async def heard() -> list[AgentEvent]:
        return [event async for event in agent.stream("What now?", ledger=file, **given)]

    events = asyncio.run(heard())
    decided = [event.data for event in events if event.what == "decision"]
    recorded = [
        decision
        for line in file.read_text().splitlines()
        for decision in json.loads(line).get("policy_decisions", ())
    ]
    assert [(said["decision"], said["rule_id"]) for said in decided] == [
        (said["decision"], said["rule_id"]) for said in recorded
    ]


@pytest.mark.parametrize("asks", [_run, _arun, _stream], ids=["run", "arun", "stream"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("raises", [False, True], ids=["answers", "raises"])
def test_the_ledger_is_the_same_however_hooks_are_asked(
    tmp_path: Path, asks: Callable[[Agent, Path], None], is_async: bool, raises: bool
) -> None:
    made = {
        "before_model": lambda data: None,
        "before_call": _raises if raises else _before_call,
        "after_call": _after_call,
        "on_stop": _on_stop,
    }
    _run(_agent(Hooks(**made)), tmp_path / "sync.jsonl")
    hooks = Hooks(**{event: _awaited(hook) if is_async else hook for event, hook in made.items()})
    asks(_agent(hooks), tmp_path / "run.jsonl")
    found = (tmp_path / "run.jsonl").read_bytes()
    assert found == (tmp_path / "sync.jsonl").read_bytes()
    answers = [entry for line in found.splitlines() for entry in json.loads(line).get("hooks", ())]
    assert len(answers) > 8 and any("fault" in entry for entry in answers) is raises
    assert b"a private word" not in found


def test_a_hook_does_not_hold_up_the_event_loop() -> None:
    """The hook waits for something that only the loop can do."""
    went_on = threading.Event()

    def waits(data: dict[str, Any]) -> None:
        assert went_on.wait(20)

    async def main() -> Any:
        run = asyncio.create_task(_agent(Hooks(before_model=waits)).arun("What now?"))
        await asyncio.sleep(0.05)
        went_on.set()
        return await run

    assert asyncio.run(main()).answer == "one"


def test_an_async_hook_is_awaited_in_the_loop_of_the_caller() -> None:
    """So that it can use what belongs to that loop, such as a pool of connections."""
    seen: list[object] = []

    async def hook(data: dict[str, Any]) -> None:
        seen.append(asyncio.get_running_loop())

    async def main() -> Any:
        await _agent(Hooks(before_model=hook)).arun("What now?")
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert seen == [loop, loop]


def _waiting() -> tuple[Hooks, threading.Event, list[str]]:
    """Hooks that wait for long, what says that they began, and what became of them."""
    began, ended = threading.Event(), list[str]()

    async def waits(data: dict[str, Any]) -> None:
        began.set()
        try:
            await asyncio.sleep(1)
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("by its run")
            raise

    return Hooks(before_call=waits), began, ended


async def _until(began: threading.Event) -> None:
    while not began.is_set():
        await asyncio.sleep(0.01)


def test_a_caller_that_leaves_while_a_hook_is_asked_ends_the_run_with_a_whole_record(tmp_path: Path) -> None:
    hooks, began, ended = _waiting()
    file = tmp_path / "ledger.jsonl"

    async def main() -> None:
        run = asyncio.create_task(_agent(hooks).arun("What now?", ledger=file))
        await _until(began)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    assert ended == ["by its run"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[-1]["terminal_reason"] == "cancelled" and lines[1]["stopped"] == "cancelled"
    assert all(result["attempts"] == [] for result in lines[1]["tool_results"])


def test_a_scope_that_is_cancelled_while_a_hook_is_asked_ends_the_run() -> None:
    hooks, began, ended = _waiting()
    scope = Scope()

    async def main() -> Any:
        run = asyncio.create_task(_agent(hooks).arun("What now?", cancel=scope))
        await _until(began)
        scope.cancel()
        return await run

    assert asyncio.run(main()).ending == "cancelled"
    assert ended == ["by its run"]


def test_closing_a_stream_while_a_hook_is_asked_cancels_the_run() -> None:
    hooks, began, ended = _waiting()

    async def main() -> str:
        stream = _agent(hooks).stream("What now?")
        async for event in stream:
            await _until(began)
            await stream.aclose()
            return event.what
        raise AssertionError("there was no event")

    assert asyncio.run(main()) == "run_started"
    assert ended == ["by its run"]
