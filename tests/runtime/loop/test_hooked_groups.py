"""Calls that run together with hooks that are asked about their results: one record, whichever is ready first."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Hooks, Policy, Tool, VirtualClock, arecord, record
from tachograph.evidence.checking.hook_answers import hook_problems
from tachograph.evidence.checking.verify import verify
from tachograph.fail.errors import Cancelled
from tests.group_orders import overlapped, shuffled
from tests.support import Script, answer, ask, policy_data, probe, replay_of, tool, well_formed

ORDERS = 200


def _policy(**more: Any) -> Policy:
    allowed = {"allowed": ["look"]}
    retry = {"max_retries": 2, "backoff_base_ms": 100, "backoff_cap_ms": 2000}
    return Policy.from_dict(policy_data(tool_registry=allowed, on_deny="inform", retry=retry, **more))


class _World:
    """A tool that fails at first where its number is odd, and hooks that deny, replace and leave results."""

    def __init__(self) -> None:
        self.tried: set[int] = set()
        self.asked: list[int] = []

    def run(self, arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
        number = arguments["n"]
        if number % 2 and number not in self.tried:
            self.tried.add(number)
            raise TimeoutError
        return {"said": "x" * number}

    def after_call(self, data: dict[str, Any]) -> Any:
        number = data["call"]["arguments"]["n"]
        self.asked.append(number)
        return [None, {"deny": "no"}, {"result": {"said": "other"}}, {"result": {"wrong": 1}}, None][
            number % 5
        ]

    def look(self) -> Tool:
        return tool("look", effect="read", run=self.run)


def _agent(world: _World, size: int, **hooks: Any) -> Agent:
    replies = [ask(*(probe("look", n=n) for n in range(size))), answer()]
    hooks = hooks or {"after_call": world.after_call, "on_stop": lambda data: None}
    return Agent(Script(replies), [world.look()], _policy(), hooks=Hooks(**hooks), max_parallel=4)


def _texts(agent: Agent, **more: Any) -> list[str]:
    texts: list[str] = []
    config = agent.configure_run("What?", run_id="r", clock=VirtualClock(), **more)
    agent.execute(config, on_line=lambda _line, text: texts.append(text))
    return texts


def _step(texts: list[str]) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(texts[1])
    return line


def test_calls_with_hooks_on_results_run_together_and_hooks_are_asked_in_their_order() -> None:
    world = _World()
    with shuffled(1) as sizes:
        step = _step(_texts(_agent(world, 7)))
    assert sizes == [4, 3] and world.asked == list(range(7))
    assert step["groups"] == [["tc_1_0", "tc_1_1", "tc_1_2", "tc_1_3"], ["tc_1_4", "tc_1_5", "tc_1_6"]]
    assert [entry["position"] for entry in step["hooks"]] == [f"k{n}.1" for n in range(7)]
    assert min(step["stamps"][f"k{n}.1"][0] for n in range(4)) > max(
        step["stamps"][f"i{n}.1"][1] for n in range(4)
    )
    assert [result["status"] for result in step["tool_results"]] == ["ok", "denied", "ok", "denied"] + [
        "ok"
    ] * 2 + ["denied"]


def test_calls_with_hooks_before_them_run_alone() -> None:
    world = _World()
    agent = _agent(world, 4, before_call=lambda data: None, after_call=world.after_call)
    assert "groups" not in _step(_texts(agent))


def test_no_order_of_the_calls_shows_in_the_record() -> None:
    draw = random.Random(5)
    for size in range(2, 9):
        whole = _texts(_agent(_World(), size))
        lines, _ = well_formed("".join(f"{text}\n" for text in whole).encode())
        assert list(hook_problems(lines)) == []
        assert replay_of(_agent(_World(), size), lines) == whole
        for order in range(ORDERS // 7):
            world = _World()
            with (shuffled if draw.random() < 0.7 else overlapped)(order):
                assert _texts(_agent(world, size)) == whole
            assert world.asked == list(range(size))


def test_an_event_loop_gives_the_same_record(tmp_path: Path) -> None:
    record(_agent(_World(), 6), "What?", tmp_path / "one", clock=VirtualClock(), run_id="r")
    asyncio.run(arecord(_agent(_World(), 6), "What?", tmp_path / "two", clock=VirtualClock(), run_id="r"))
    ledgers = [(tmp_path / name / "state.jsonl").read_bytes() for name in ("one", "two")]
    assert ledgers[0] == ledgers[1] and b'"groups"' in ledgers[0]


@pytest.mark.parametrize("place", range(4))
def test_what_stops_the_run_in_a_hook_leaves_a_record_that_can_be_made_again(place: int) -> None:
    def stopping(data: dict[str, Any]) -> None:
        if data["call"]["arguments"]["n"] == place:
            raise Cancelled("by the task")

    ledgers = []
    for order in range(6):
        with shuffled(order):
            ledgers.append(_texts(_agent(_World(), 4, after_call=stopping)))
    assert all(texts == ledgers[0] for texts in ledgers)
    lines, _ = well_formed("".join(f"{text}\n" for text in ledgers[0]).encode())
    assert lines[-1]["terminal_reason"] == "cancelled"
    statuses = [result["status"] for result in lines[1]["tool_results"]]
    assert statuses == ["cancelled" if n == place else "ok" for n in range(4)]
    assert list(hook_problems(lines)) == []
    assert replay_of(_agent(_World(), 4, after_call=stopping), lines) == ledgers[0]


def test_a_recorded_group_with_hooks_holds_in_itself(tmp_path: Path) -> None:
    with overlapped(3):
        record(_agent(_World(), 5), "What?", tmp_path / "run", clock=VirtualClock())
    assert verify(tmp_path / "run", tmp_path) == []


def test_secrets_of_calls_are_numbered_before_those_of_the_hooks_that_are_asked_about_them() -> None:
    def secret(letter: str) -> dict[str, Any]:
        return {"said": f"ghp_{letter * 36}"}

    def after_call(data: dict[str, Any]) -> Any:
        return {"result": secret("z")} if data["call"]["arguments"]["n"] == 0 else None

    def texts() -> list[str]:
        look = tool("look", effect="read", run=lambda arguments, _io: secret("ab"[arguments["n"]]))
        replies = [ask(*(probe("look", n=n) for n in range(2))), answer()]
        policy = _policy(redact={"kinds": ["github_token"]})
        return _texts(Agent(Script(replies), [look], policy, hooks=Hooks(after_call=after_call)))

    whole = texts()
    first, second = _step(whole)["tool_results"]
    assert first["attempts"][0]["returned"]["said"] == "<secret:github_token:1>"
    assert first["result"]["said"] == "<secret:github_token:3>"
    assert second["result"]["said"] == "<secret:github_token:2>"
    for order in range(4):
        with shuffled(order):
            assert texts() == whole
