"""Graphs of agents in code, and what cannot be one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, Graph, LLMInput, LLMOutput, Policy, Tool, loop_until, parallel, route, sequence
from tachograph.fail.errors import InputError, ToolError
from tachograph.runtime.log import events as log
from tests.project import POLICY, cut, merged, proved, script

NAMES = ["find", "write", "judge", "fail", "graph", "to_graph"]
TEAM: dict[str, Any] = {
    "tool_registry": {"allowed": NAMES},
    "agents": {"max_depth": 2, "max_children": 20, "max_parallel": 3},
    "loop_budget": {"max_iterations": 99, "max_tokens": 10**6, "max_tool_calls": 99},
}
POLICIES = Policy.from_dict(merged(POLICY, merged(TEAM, {"on_deny": "inform"})))


def worker(name: str, says: Callable[[str], str], **rest: Any) -> Tool:
    """Return an agent as a tool that answers with what it makes of its task."""

    def model(asked: LLMInput) -> LLMOutput:
        return LLMOutput(final_answer=says(asked.messages[0]["content"]))

    return Agent(model, [], POLICIES).as_tool(name, "Works.", **rest)


def fails(task: str) -> str:
    raise ValueError(task)


FIND = worker("find", lambda task: f"found {task}")
WRITE = worker("write", lambda task: f"[{task}]")
FAIL = worker("fail", fails)


def judge(accepts: int) -> Tool:
    """Return a reviewer that says `fine` of the work that stands in so many brackets."""
    return worker("judge", lambda task: "fine" if task.count("[") >= accepts else "no")


def answer_of(graph: Graph, question: str = "x", of: Policy = POLICIES) -> str | None:
    return graph.as_agent(of).run(question).answer


def is_fine(said: str) -> bool:
    return said == "fine"


@pytest.mark.parametrize(
    ("graph", "answer"),
    [
        (sequence(FIND, WRITE), "[x\n\nWork so far: found x]"),
        (parallel(FIND, WRITE), "find: found x\n\nwrite: [x]"),
        (parallel(FIND, sequence(WRITE, FIND)), "find: found x\n\ngraph: found x\n\nWork so far: [x]"),
        (parallel(FIND, FAIL), "find: found x\n\nfail: no answer (failure_mode_terminal)"),
        (sequence(parallel(FIND, WRITE), WRITE), "[x\n\nWork so far: find: found x\n\nwrite: [x]]"),
        (route(lambda task: "a" if task == "x" else "b", {"a": FIND, "b": WRITE}), "found x"),
        (route(lambda task: "", {"": WRITE}), "[x]"),
        (route(sequence(FIND), {"found x": WRITE, "": FIND}), "[x]"),
        (route(WRITE, {"": FIND}), "found x"),
        (route(worker("judge", lambda task: '{"result": "a"}'), {"a": WRITE}), "[x]"),
        (loop_until(WRITE, lambda work: work.count("[") > 1), "[x\n\nWork so far: [x]]"),
        (loop_until(WRITE, is_fine, reviewer=judge(2)), "[x\n\nWork so far: [x]\n\nA reviewer says: no]"),
    ],
)
def test_what_a_graph_comes_to(tmp_path: Path, graph: Graph, answer: str) -> None:
    agent = graph.as_agent(POLICIES)
    assert proved(agent, tmp_path / "run", "x").answer == answer
    with tachograph.SyncSession(agent, tmp_path / "talk") as session:
        assert [session.ask("x").answer for _ in range(2)] == [answer, answer]
        session.close()


@pytest.mark.parametrize(
    ("graph", "ending", "agents"),
    [
        (sequence(FAIL, FIND), "failure_mode_terminal", 1),
        (parallel(FAIL, sequence(FAIL)), "failure_mode_terminal", 2),
        (route(FAIL, {"": FIND}), "failure_mode_terminal", 1),
        (route(lambda task: "none", {"a": FIND}), "no_route", 0),
        (loop_until(FAIL, is_fine), "failure_mode_terminal", 1),
        (loop_until(WRITE, is_fine, reviewer=FAIL), "failure_mode_terminal", 2),
        (loop_until(WRITE, is_fine, reviewer=judge(9), most=2), "not_done", 4),
        (sequence(loop_until(WRITE, is_fine, most=1), FIND), "not_done", 1),
    ],
)
def test_a_graph_without_an_end_fails(tmp_path: Path, graph: Graph, ending: str, agents: int) -> None:
    agent = graph.as_agent(POLICIES)
    made = tachograph.record(agent, "x", out=tmp_path / "run")
    (told,) = [event.told for event in made.events if isinstance(event, log.CallEnded)]
    (failed,) = [it for it in made.events if isinstance(it, log.Failed) and it.at == "2.m1"]
    assert told["ending"] == ending and f'"{ending}"' in failed.said
    assert (made.ending, made.mode, made.answer) == ("failure_mode_terminal", "llm_failure", None)
    assert sum(isinstance(event, log.AgentStarted) for event in made.events) == agents
    assert tachograph.check(agent, tmp_path / "run") == []
    assert tachograph.replay(agent, tmp_path / "run").events == made.events
    cut(tmp_path / "run", -3, tmp_path / "again")
    assert tachograph.resume(agent, tmp_path / "again").mode == "llm_failure"


@pytest.mark.parametrize("is_beside", [False, True])
def test_an_agent_above_reads_how_a_graph_failed(is_beside: bool) -> None:
    below = sequence(FAIL).as_agent(POLICIES).as_tool("find", "Works.")
    turns = [("find", {"task": "x", "background": is_beside})], "wait", "done"
    made = Agent(script(*turns), [below], POLICIES).run("x")
    (said,) = [it for it in made.messages if "_failure" in str(it)]
    assert "failure_mode_terminal" in said["content"] and "llm_failure" in said["content"]


def test_a_reviewer_is_given_the_question_and_the_work_alone() -> None:
    seen: list[str] = []

    def reviews(task: str) -> str:
        seen.append(task)
        return "fine"

    work = loop_until(worker("write", lambda task: "w"), is_fine, reviewer=worker("judge", reviews))
    assert answer_of(sequence(FIND, work)) == "w" and seen == ["Task: x\n\nWork: w"]


def test_agents_of_a_graph_go_side_by_side_so_far_as_the_policy_allows() -> None:
    def order(most: int) -> list[str]:
        policy = Policy.from_dict(merged(POLICY, merged(TEAM, {"agents": {"max_parallel": most}})))
        events = parallel(FIND, WRITE, FAIL).as_agent(policy).run("x").events
        kinds = {log.AgentStarted: "begin", log.AgentEnded: "end"}
        return [kinds[type(event)] for event in events if type(event) in kinds]

    assert order(1) == ["begin", "end"] * 3
    assert order(3)[:3] == ["begin"] * 3


def test_a_graph_goes_on_for_an_agent_that_hands_over_to_it() -> None:
    graph = sequence(FIND, WRITE).as_agent(POLICIES).as_tool("to_graph", "Goes on.", hands_over=True)
    made = Agent(script([("to_graph", {})]), [graph], POLICIES).run("x")
    assert made.answer == "[x\n\nWork so far: found x]"


def test_what_stands_for_a_model_counts_no_bytes() -> None:
    events = sequence(FIND).as_agent(POLICIES).run("x" * 500).events
    used = [it.usage for it in events if isinstance(it, log.ModelReplied) and "/" not in it.at]
    assert [(it.input_tokens, it.estimated) for it in used] == [(1, False)] * 2


def test_what_a_policy_denies_is_no_part_of_a_graph() -> None:
    few = Policy.from_dict(merged(POLICY, merged(TEAM, {"agents": {"max_children": 1}, "on_deny": "inform"})))
    assert sequence(FIND, WRITE).as_agent(few).run("x").ending == "failure_mode_terminal"
    assert answer_of(parallel(FIND, WRITE), of=few) == "find: found x\n\nwrite: no answer (policy_denied)"


@pytest.mark.parametrize(
    "make",
    [
        lambda: sequence(),
        lambda: parallel("find", 7),  # type: ignore[arg-type]
        lambda: sequence(worker("write", str, hands_over=True)),
        lambda: sequence(worker("write", str, stays=True)),
        lambda: sequence(tachograph.delegate([FIND])),
        lambda: route(FIND, {}),
        lambda: loop_until(FIND, is_fine, most=0),
        lambda: worker("write", str, hands_over=True, stays=True),
        lambda: sequence("find").as_tool("graph", "Names alone."),
        lambda: sequence(FIND, worker("find", str)).as_agent(POLICIES),
        lambda: tachograph.delegate([worker("write", str, stays=True)]),
        lambda: sequence(FIND).as_agent(POLICIES, window=tachograph.WindowLimits(5000)),
        lambda: sequence(FIND).as_agent(POLICIES, output_type=int),
    ],
)
def test_what_is_no_graph_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises((InputError, ToolError)) as refused:
        make()
    assert refused.value.remedy
