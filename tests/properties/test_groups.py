"""The record of a run does not depend on the order in which the calls of a group are ready."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, Tool, ToolCall, VirtualClock
from tachograph.evidence.files.writer import Writer
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import CallCancelled, Cancelled
from tachograph.light_dataclasses import replace
from tachograph.runtime.core.effects import Effect, Invoke
from tests.group_orders import shuffled
from tests.support import Script, answer, ask, policy_data, probe, replay_of, tool, well_formed

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("TACHOGRAPH_GROUP_ORDERS") == "full"
ORDERS = 200 if FULL else 12
TASKS = 200 if FULL else 25
RECORDED = [
    path for path in sorted((ROOT / "tasks").glob("*/*.yaml")) if path.stem.endswith(("_calls", "_call"))
]

SECRETS = [f"ghp_{letter * 36}" for letter in "abcdefgh"]


def _look(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Read the file that is asked for, which may hold secrets, or stand behind a link."""
    if "path" not in arguments:
        return {"said": SECRETS[arguments.get("n", 0) % 8]}
    return {"said": io.read(arguments["path"]).decode()}


def _fault(draw: random.Random) -> Any:
    """What takes the place of a tool in one attempt, or None."""
    kind = draw.randrange(14)
    if kind < 3:
        return draw.choice([TimeoutError, ConnectionError])()
    if kind == 3:
        return ValueError(draw.choice(SECRETS))
    if kind == 4:
        return {"said": " and ".join(draw.sample(SECRETS, 3))}
    if kind == 5:
        return draw.choice([{"said": 1}, {"said": "x" * 400}, {draw.choice(SECRETS): 1}])
    if kind == 7 and draw.random() < 0.5:
        return CallCancelled("by the task")
    return Cancelled("by the task") if kind == 6 and draw.random() < 0.2 else None


class _World:
    """A generated run: a script of replies with several calls, a policy, and faults by place."""

    def __init__(self, seed: int, books: Path) -> None:
        draw = random.Random(seed)
        self.seed, self.books = seed, books
        self.replies: list[LLMOutput] = [
            *(ask(*self._calls(draw)) for _ in range(draw.randint(1, 3))),
            answer(),
        ]
        self.most = draw.choice([2, 3, 4, 8])
        self.cancelled_at_ms: int | None = None
        self.policy = policy_data(
            tool_registry={"allowed": ["probe", "look"]},
            redact={"kinds": ["github_token"]},
            on_deny=draw.choice(["inform", "inform", "terminate"]),
            on_failure=draw.choice(["inform", "inform", "terminate"]),
            cycle_detection={"max_repeats": draw.choice([1, 2, 3])},
            loop_budget={
                "max_result_bytes": draw.choice([200, 900, 10_000]),
                "max_tool_calls": draw.choice([3, 7, 30]),
            },
        )

    def _calls(self, draw: random.Random) -> list[ToolCall]:
        number = draw.randint(2, 8)
        if draw.random() < 0.3:  # all of them may run together
            return [probe("look", n=n) for n in draw.sample(range(9), number)]
        return [self._call(draw) for _ in range(number)]

    @staticmethod
    def _call(draw: random.Random) -> ToolCall:
        kind = draw.randrange(12)
        if kind == 0:
            return probe(n=draw.randrange(9))  # runs alone
        if kind == 1:
            return probe("look", path="elsewhere/a.md")
        if kind == 2:
            return probe("look", n="nine")
        if kind < 7:
            return probe("look", n=draw.randrange(3 if draw.random() < 0.4 else 9))
        return probe("look", path=f"books/{draw.choice(['a', 'b', 'c', 'd', 'gone', 'link'])}.md")

    def inject(self, effect: Effect, _io: Any, real: Any) -> Any:
        if not isinstance(effect, Invoke):
            return real()
        thing = _fault(random.Random(f"{self.seed}/{effect.step}/{effect.index}/{effect.attempt}"))
        if isinstance(thing, BaseException):
            raise thing
        return real() if thing is None else thing

    def agent(self) -> Agent:
        look = tool("look", _look, effect="read", transient=(ConnectionError,))
        plain: list[Tool] = [tool(), look]
        return Agent(
            Script(self.replies),
            plain,
            Policy.from_dict(self.policy),
            mounts={"books": self.books},
            max_parallel=self.most,
        )

    def ledger(self) -> tuple[Agent, list[str]]:
        agent, texts = self.agent(), []
        config = agent.configure_run("What?", run_id="r", clock=VirtualClock(), inject=self.inject)
        config = replace(config, cancelled_at_ms=self.cancelled_at_ms)
        agent.execute(config, on_line=lambda _line, text: texts.append(text))
        return agent, texts


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    for number, name in enumerate("abcd"):
        (folder / f"{name}.md").write_text(f"{SECRETS[number]} then {SECRETS[(number + 3) % 8]}")
    (folder / "link.md").symlink_to("a.md")
    return folder


@pytest.mark.parametrize("seed", range(TASKS))
def test_generated_groups_are_recorded_the_same_in_any_order(seed: int, books: Path) -> None:
    world = _World(seed, books)
    agent, in_sequence = world.ledger()
    for order in range(ORDERS):
        with shuffled(order) as sizes:
            _, texts = world.ledger()
        assert texts == in_sequence
        assert all(2 <= size <= world.most for size in sizes)
    lines, _ = well_formed("".join(f"{text}\n" for text in in_sequence).encode())
    assert replay_of(agent, lines) == in_sequence


def test_generated_runs_hold_what_they_are_to_show(books: Path) -> None:
    """Groups of 2 to 8 calls, and in them retries, early and late denials, secrets, budgets, cycles, cancellations."""
    seen: set[Any] = set()
    for seed in range(400):
        _, texts = _World(seed, books).ledger()
        lines, _ = well_formed("".join(f"{text}\n" for text in texts).encode())
        for step in lines[1:-1]:
            for group in step.get("groups", ()):
                seen.add(len(group))
                members = [result for result in step["tool_results"] if result["id"] in group]
                seen |= {result["status"] for result in members}
                seen |= {"retry" for result in members if len(result["attempts"]) > 1}
                seen |= {
                    (decision["phase"], decision["rule_id"])
                    for decision in step["policy_decisions"]
                    if decision["id"] in group and decision["decision"] == "deny"
                }
                seen |= {"secret" for result in members if "<secret:github_token:" in str(result["result"])}
            for decision in step["policy_decisions"] if "groups" in step else ():
                seen |= {decision["rule_id"]} if decision["decision"] == "deny" else set()
    assert {2, 3, 4, 5, 6, 7, 8} <= seen
    assert {"ok", "failed", "denied", "cancelled", "retry", "secret"} <= seen
    assert {("execution", "loop_budget"), ("execution", "sandbox_path")} <= seen
    assert {"sandbox_path", "arg_schema", "cycle_detection", "loop_budget"} <= seen


@pytest.mark.parametrize("task", RECORDED, ids=lambda path: path.stem)
def test_recorded_groups_are_made_again_in_any_order(task: Path) -> None:
    recorded = (ROOT / "runs" / task.parent.name / task.stem / "state.jsonl").read_text()
    for order in range(ORDERS):
        agent, config = build(load_task(task))
        writer = Writer(None)
        with shuffled(order) as sizes:
            agent.execute(replace(config), on_line=writer.line)
        assert sizes and writer.contents()["state.jsonl"].decode() == recorded


def test_there_are_recorded_groups() -> None:
    assert {path.stem for path in RECORDED} >= {"parallel_calls", "cancelled_calls"}


@pytest.mark.parametrize("seed", range(TASKS))
def test_a_cancelled_run_is_recorded_the_same_in_any_order_and_every_call_says_what_became_of_it(
    seed: int, books: Path
) -> None:
    world = _World(seed, books)
    world.cancelled_at_ms = random.Random(seed).randrange(200, 500)
    agent, in_sequence = world.ledger()
    for order in range(ORDERS):
        with shuffled(order):
            _, texts = world.ledger()
        assert texts == in_sequence
    lines, _ = well_formed("".join(f"{text}\n" for text in in_sequence).encode())
    assert replay_of(agent, lines) == in_sequence
    for step in lines[1:-1]:
        assert [call["id"] for call in step["tool_results"]] == [
            call["id"] for call in step["intended_tool_calls"]
        ]
    last = lines[-2]
    if last.get("stopped") == "cancelled":
        assert lines[-1]["terminal_reason"] == "cancelled"
        # decisions take their time and are not cancelled: they may end later
        attempts = {"m": last["llm_attempts"]} | {
            f"i{index}": call["attempts"] for index, call in enumerate(last["tool_results"])
        }
        ended = [
            last["stamps"][f"{what}.{attempt['attempt']}"][1]
            for what, made in attempts.items()
            for attempt in made
            if attempt["outcome"] != "cancelled"
        ]
        assert max(ended, default=0) <= world.cancelled_at_ms * 1_000_000 + 99
    else:
        assert all("told" in call for call in last["tool_results"] if call["status"] == "cancelled")


def test_a_group_is_cancelled_with_some_calls_over_and_others_under_way_or_waiting(books: Path) -> None:
    seen: set[Any] = set()
    for seed in range(120):
        world = _World(seed, books)
        world.cancelled_at_ms = random.Random(seed).randrange(200, 500)
        _, texts = world.ledger()
        lines, _ = well_formed("".join(f"{text}\n" for text in texts).encode())
        last = lines[-2]
        members = {name for group in last.get("groups", ()) for name in group}
        grouped = [call for call in last["tool_results"] if call["id"] in members]
        if last.get("stopped") == "cancelled" and grouped:
            seen.add(len({call["status"] for call in grouped}))
            seen |= {call["attempts"][-1]["outcome"] for call in grouped}
    assert {1, 2, "cancelled", "transient_failure", "success"} <= seen
