"""Events of calls that run together: what came of a call is told as soon as it and the calls before it are over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import (
    Agent,
    AgentEvent,
    EventListener,
    Hooks,
    Policy,
    VirtualClock,
    arecord,
    events_of,
    record,
    record_stream,
)
from tests.support import answer, ask, policy_data, probe, tool

FIRST, SECOND = "tc_1_0", "tc_1_1"


def _agent(run: Any, calls: int = 2, **given: Any) -> Agent:
    replies = [ask(*(probe(n=n) for n in range(calls))), answer()]
    policy = Policy.from_dict(policy_data(redact={"kinds": ["github_token"]}))
    return Agent(
        lambda asked: replies[asked.step_index - 1],
        [tool(run=run, effect="read"), tool("echo")],
        policy,
        **given,
    )


def _told(heard: list[AgentEvent], call: str | None = None) -> list[str]:
    """Return what was heard of the calls of the first step, or of one of them, once they are decided."""
    within = ("attempt_started", "attempt_ended", "attempt", "result")
    of_calls = [event for event in heard if event.call and event.step == 1 and event.what in within]
    return [
        event.what if call else f"{event.what} {event.call}"
        for event in of_calls
        if call in (None, event.call)
    ]


OVER = ["attempt_started", "attempt_ended", "attempt", "result"]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_where_calls_are_performed_one_after_another_the_result_of_each_is_told_before_the_next(
    is_recorded: bool, tmp_path: Path
) -> None:
    heard: list[AgentEvent] = []
    notices: list[Any] = []
    seen: list[Any] = []

    def run(_arguments: Any, _io: Any) -> Any:
        performed = [each.item.position for each in notices if each.what == "performed"]
        seen.append((_told(heard, FIRST), performed))
        return {"said": "ok"}

    hears = [EventListener(heard.append), notices.append]
    if is_recorded:
        record(_agent(run), "What?", tmp_path / "run", listeners=hears)
    else:
        _agent(run).run("What?", listeners=hears)
    assert seen == [(["attempt_started"], ["m.1"]), (OVER, ["m.1", "i0.1"])]
    assert any("groups" in event.data for event in heard if event.what == "step")


async def _run(agent: Agent, _out: Path, hear: Callable[[AgentEvent], None]) -> None:
    await agent.arun("What?", listeners=[EventListener(hear)])


async def _record(agent: Agent, out: Path, hear: Callable[[AgentEvent], None]) -> None:
    await arecord(agent, "What?", out, listeners=[EventListener(hear)])


async def _heard(events: AsyncIterator[AgentEvent], hear: Callable[[AgentEvent], None]) -> None:
    async for event in events:
        hear(event)


async def _stream(agent: Agent, _out: Path, hear: Callable[[AgentEvent], None]) -> None:
    await _heard(agent.stream("What?"), hear)


async def _record_stream(agent: Agent, out: Path, hear: Callable[[AgentEvent], None]) -> None:
    await _heard(record_stream(agent, "What?", out), hear)


@pytest.mark.parametrize("way", [_run, _record, _stream, _record_stream])
def test_a_result_is_told_while_another_call_of_the_group_is_open(way: Any, tmp_path: Path) -> None:
    heard: list[AgentEvent] = []

    async def main() -> None:
        is_told = asyncio.Event()

        def hear(event: AgentEvent) -> None:
            heard.append(event)
            if event.what == "result" and event.call == FIRST:
                is_told.set()

        async def run(arguments: Any, _io: Any) -> Any:
            if arguments["n"] == 1:  # over only once somebody has heard what came of the call before it
                await asyncio.wait_for(is_told.wait(), 30)
            return {"said": "ok"}

        await way(_agent(run), tmp_path / "run", hear)

    asyncio.run(main())
    lines = [event.data for event in heard if event.what in ("run_started", "step", "ended")]
    assert [entry["status"] for entry in lines[1]["tool_results"]] == ["ok", "ok"] and "groups" in lines[1]
    assert _told(heard).index(f"result {FIRST}") < _told(heard).index(f"attempt_ended {SECOND}")
    if way in (_record, _record_stream):
        recorded = (tmp_path / "run" / "state.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in recorded] == lines


def test_a_call_that_is_over_first_is_told_of_in_its_turn_and_as_the_ledger_has_it() -> None:
    heard: list[AgentEvent] = []

    async def main() -> None:
        is_over = asyncio.Event()

        def hear(event: AgentEvent) -> None:
            heard.append(event)
            if event.what == "attempt_ended" and event.call == SECOND:
                is_over.set()

        async def run(arguments: Any, _io: Any) -> Any:
            if arguments["n"] == 0:
                await asyncio.wait_for(is_over.wait(), 30)
            return {"said": f"ghp_{'ab'[arguments['n']] * 36}"}

        agent = _agent(run)
        await agent.arun("What?", listeners=[EventListener(hear)], clock=VirtualClock())

    asyncio.run(main())
    told = _told(heard)
    assert told.index(f"attempt_ended {SECOND}") < told.index(f"attempt_ended {FIRST}")
    assert told[-4:] == [f"attempt {FIRST}", f"result {FIRST}", f"attempt {SECOND}", f"result {SECOND}"]
    lines = [event.data for event in heard if event.what in ("run_started", "step", "ended")]
    results = [event for event in heard if event.what == "result"]
    assert results == [event for event in events_of(lines) if event.what == "result"]
    # numbered in the order of the calls, although the second secret was met first
    assert [event.data["result"]["said"] for event in results] == [
        "<secret:github_token:1>",
        "<secret:github_token:2>",
    ]


def test_a_failed_attempt_is_told_before_the_next_and_while_others_are_open() -> None:
    heard: list[AgentEvent] = []
    tries: list[list[str]] = []

    async def main() -> None:
        is_over = asyncio.Event()

        async def run(arguments: Any, _io: Any) -> Any:
            if arguments["n"] == 1:
                await asyncio.wait_for(is_over.wait(), 30)
                return {"said": "ok"}
            tries.append(_told(heard, FIRST))
            if len(tries) == 1:
                raise ConnectionError("gone")
            is_over.set()
            return {"said": "ok"}

        await _agent(run).arun("What?", listeners=[EventListener(heard.append)], clock=VirtualClock())

    asyncio.run(main())
    started, ended = OVER[:2]
    assert tries == [[started], [started, ended, "attempt", started]]
    outcomes = [event.data["outcome"] for event in heard if event.what == "attempt" and event.call == FIRST]
    assert outcomes == ["transient_failure", "success"]


def test_where_a_hook_is_asked_about_results_they_are_told_when_all_calls_are_over() -> None:
    heard: list[AgentEvent] = []
    hooks = Hooks(after_call=lambda _data: None)
    _agent(lambda _arguments, _io: {"said": "ok"}, hooks=[hooks]).run(
        "What?", listeners=[EventListener(heard.append)]
    )
    told = _told(heard)
    assert (
        told.index(f"attempt_ended {SECOND}") < told.index(f"result {FIRST}") < told.index(f"result {SECOND}")
    )
