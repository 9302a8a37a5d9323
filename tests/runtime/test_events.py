"""Events: each comes when it happens, and is what the ledger says; pieces of text are shown and never recorded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, AgentEvent, EventListener, Policy, RunEvent, VirtualClock, events_of
from tachograph.evidence.tasks.task import build, load_task
from tests.runtime.driver.test_async import SCRIPTED
from tests.support import ROOT, answer, ask, policy_data, probe
from tests.support import tool as made_tool

WITHIN = ("attempt_started", "attempt_ended")


def _agent(model: Any, run: Any = None, **given: Any) -> Agent:
    probing = made_tool() if run is None else made_tool(run=run, effect="read")
    return Agent(model, [probing, made_tool("echo")], Policy.from_dict(policy_data()), **given)


def _set_of(events: Iterable[AgentEvent]) -> Counter[str]:
    return Counter(json.dumps([event.what, event.step, event.call, event.data]) for event in events)


def _of_calls(events: Iterable[AgentEvent]) -> dict[Any, list[AgentEvent]]:
    calls: dict[Any, list[AgentEvent]] = {}
    for event in events:
        # what is judged when all calls of a group are over does not follow the attempt that it judges
        calls.setdefault((event.step, event.call, event.what in WITHIN), []).append(event)
    return calls


def _check(heard: Sequence[AgentEvent], lines: Sequence[dict[str, Any]]) -> None:
    """Hold what was heard of a run against its ledger: the same order too, but for calls that ran together."""
    told = list(events_of(lines))
    assert _set_of(heard) == _set_of(told)
    if any("groups" in line for line in lines):
        assert _of_calls(heard) == _of_calls(told)
    else:
        assert heard == told


@pytest.mark.parametrize("name", SCRIPTED)
def test_what_is_heard_and_streamed_of_a_run_is_what_its_ledger_tells(name: str) -> None:
    lines = [json.loads(line) for line in (ROOT / "runs" / name / "state.jsonl").read_text().splitlines()]
    agent, config = build(load_task(ROOT / "tasks" / f"{name}.yaml", root=ROOT))
    heard: list[AgentEvent] = []
    agent.execute(config, listeners=[EventListener(heard.append)])
    _check(heard, lines)

    agent, config = build(load_task(ROOT / "tasks" / f"{name}.yaml", root=ROOT))

    async def arun(_question: str, *, listeners: Any) -> Any:
        return await agent.execute_async(config, listeners=listeners)

    async def main() -> list[AgentEvent]:
        return [event async for event in agent.stream(config.question)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "arun", arun)
        _check(asyncio.run(main()), lines)


def test_events_come_in_order_of_what_happened() -> None:
    heard: list[AgentEvent] = []
    replies = [ask(probe()), answer()]
    agent = _agent(lambda asked: replies[asked.step_index - 1])
    agent.run("What now?", listeners=[EventListener(heard.append)])
    attempt = [*WITHIN, "attempt"]
    calls = [*attempt, "call_proposed", "decision", *attempt, "result", "step"]
    assert [event.what for event in heard] == ["run_started", *calls, *attempt, "step", "ended"]
    assert [event.call for event in heard[4:9]] == ["tc_1_0"] * 5


def test_a_call_is_proposed_and_decided_before_it_runs_and_not_when_its_step_is_over() -> None:
    heard: list[str] = []
    before: list[list[str]] = []

    def run(_arguments: Any, _io: Any) -> Any:
        before.append(list(heard))
        return {"said": "ok"}

    replies = [ask(probe(n=1), probe(n=2)), answer()]
    agent = _agent(lambda asked: replies[asked.step_index - 1], run, max_parallel=1)
    agent.run("What now?", listeners=[EventListener(lambda event: heard.append(event.what))])
    opened = ["run_started", *WITHIN, "attempt", "call_proposed", "call_proposed"]
    call = ["decision", "attempt_started"]
    assert before == [[*opened, *call], [*opened, *call, "attempt_ended", "attempt", "result", *call]]


def test_no_more_calls_than_the_bound_are_ever_open_and_events_show_it() -> None:
    begun = 0

    async def run(_arguments: Any, _io: Any) -> Any:
        nonlocal begun
        begun += 1
        wave = 4 * ((begun + 3) // 4)
        while begun < wave:  # as many as may be are begun before the first of them is over
            await asyncio.sleep(0)
        return {"said": "ok"}

    async def main() -> list[AgentEvent]:
        replies = [ask(*(probe(n=n) for n in range(8))), answer()]
        agent = _agent(lambda asked: replies[asked.step_index - 1], run, max_parallel=4)
        return [event async for event in agent.stream("What now?")]

    heard = asyncio.run(main())
    is_open: set[str] = set()
    most = 0
    for event in heard:
        if event.call is not None and event.what == "attempt_started":
            is_open.add(event.call)
            most = max(most, len(is_open))
        elif event.call is not None and event.what == "attempt_ended":
            is_open.remove(event.call)
    assert most == 4 and not is_open
    lines = [dict(event.data) for event in heard if event.what in ("run_started", "step", "ended")]
    assert [len(group) for group in lines[1]["groups"]] == [4, 4]
    _check(heard, lines)


def test_a_listener_of_events_hears_no_notices_and_others_hear_no_events() -> None:
    events: list[Any] = []
    notices: list[Any] = []
    agent = _agent(lambda _asked: answer())
    agent.run("What now?", listeners=[EventListener(events.append), notices.append])
    assert {type(event) for event in events} == {AgentEvent}
    assert {type(notice) for notice in notices} == {RunEvent}
    assert {notice.what for notice in notices} == {"line", "performed"}


def test_a_listener_that_raises_is_dropped_and_the_run_goes_on() -> None:
    def hear(_event: AgentEvent) -> None:
        raise ValueError("not today")

    heard: list[AgentEvent] = []
    with pytest.warns(UserWarning, match="a listener raised ValueError and was dropped"):
        result = _agent(lambda _asked: answer("done")).run(
            "What now?", listeners=[EventListener(hear), EventListener(heard.append)]
        )
    assert result.answer == "done" and heard[-1].what == "ended"


# ---- pieces of text --------------------------------------------------------------------------------------


def _typing(asked: Any) -> Any:
    """A model that gives its answer word by word where somebody listens."""
    for word in ("At ", "the ", "depot."):
        if asked.on_text is not None:
            asked.on_text(word)
    return answer("At the depot.")


async def _typing_async(asked: Any) -> Any:
    await asyncio.sleep(0)
    return _typing(asked)


def _texts(heard: Iterable[AgentEvent]) -> list[Any]:
    return [event.data["text"] for event in heard if event.what == "text_delta"]


@pytest.mark.parametrize("model", [_typing, _typing_async])
@pytest.mark.parametrize("is_async", [False, True])
def test_pieces_of_text_are_heard_and_change_no_byte_of_the_record(
    model: Callable[..., Any], is_async: bool, tmp_path: Path
) -> None:
    ledgers = []
    for name in ("heard", "unheard"):
        heard: list[AgentEvent] = []
        given: dict[str, Any] = {"run_id": "same", "clock": VirtualClock(), "ledger": tmp_path / name}
        if name == "heard":
            given["listeners"] = [EventListener(heard.append)]
        agent = _agent(model)
        result = asyncio.run(agent.arun("Where?", **given)) if is_async else agent.run("Where?", **given)
        assert result.answer == "At the depot."
        ledgers.append((tmp_path / name).read_bytes())
        if name == "heard":
            assert _texts(heard) == ["At ", "the ", "depot."]
            what = [event.what for event in heard]
            assert what[1:6] == ["attempt_started", *["text_delta"] * 3, "attempt_ended"]
            assert {event.step for event in heard if event.what == "text_delta"} == {1}
    assert ledgers[0] == ledgers[1] and b"text_delta" not in ledgers[0]


def test_where_nobody_listens_a_model_has_nowhere_to_say_pieces() -> None:
    seen = []

    def model(asked: Any) -> Any:
        seen.append(asked.on_text)
        return answer()

    agent = _agent(model)
    agent.run("What now?", listeners=[lambda _notice: None])
    asyncio.run(agent.arun("What now?"))
    assert seen == [None, None]


def test_pieces_of_an_attempt_that_failed_are_told_by_its_number() -> None:
    attempts = iter([ConnectionError("gone"), None])

    def model(asked: Any) -> Any:
        asked.on_text("At ")
        if failed := next(attempts):
            raise failed
        return answer("At the depot.")

    heard: list[AgentEvent] = []
    _agent(model).run("Where?", clock=VirtualClock(), listeners=[EventListener(heard.append)])
    assert [event.data["attempt"] for event in heard if event.what == "text_delta"] == [1, 2]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_piece_that_comes_after_the_reply_is_dropped(is_async: bool) -> None:
    kept: list[Any] = []

    def model(asked: Any) -> Any:
        kept.append(asked.on_text)
        return answer() if len(kept) == 2 else ask(probe())

    def run(_arguments: Any, _io: Any) -> Any:
        kept[0]("too late")
        return {"said": "ok"}

    heard: list[AgentEvent] = []
    agent = _agent(model, run)
    given = {"listeners": [EventListener(heard.append)]}
    result = asyncio.run(agent.arun("What now?", **given)) if is_async else agent.run("What now?", **given)
    kept[1]("far too late")
    assert result.ok and _texts(heard) == []


def test_pieces_of_threads_of_a_model_are_heard_in_the_thread_of_the_event_loop() -> None:
    heard: list[tuple[str, int]] = []

    def model(asked: Any) -> Any:
        others = [threading.Thread(target=asked.on_text, args=("piece ",)) for _ in range(3)]
        for other in others:
            other.start()
        for other in others:
            other.join()
        return answer()

    def hear(event: AgentEvent) -> None:
        heard.append((event.what, threading.get_ident()))

    asyncio.run(_agent(model).arun("What now?", listeners=[EventListener(hear)]))
    assert [what for what, _ in heard].count("text_delta") == 3
    assert {thread for _, thread in heard} == {threading.get_ident()}


def test_what_is_no_text_fails_the_model() -> None:
    def model(asked: Any) -> Any:
        asked.on_text(b"bytes")
        return answer()

    heard: list[AgentEvent] = []
    result = _agent(model).run("What now?", listeners=[EventListener(heard.append)])
    assert result.mode == "llm_failure" and _texts(heard) == []
    assert result.steps[0]["llm_attempts"][0]["fault"]["exception"] == "TypeError"
