"""Graphs of agents: what works on a task one after another, side by side, by choice, or again and again.

A node is the name of an agent, as the function of a tool yields it, a tool that starts one, or another graph. A graph
goes on in the function of a tool, so each of its agents is started by a call, which is decided, counted and recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

from ..fail.errors import InputError, ModelError, ToolError
from .agent import Agent
from .formats.strict_json import NotJson, parse
from .log.values import ModelName
from .models.types import LLMInput, LLMOutput, ToolCall
from .policy.policy import Policy
from .tools.agents import ENDED, TASK
from .tools.contract import Tool

FINAL: Final = "final_answer"
Ended = dict[str, Any]
"""What a node came to: `ending` and `answer`."""
Work = Generator[Any, Any, Ended]


class Task(NamedTuple):
    """What a node works on.

    Attributes:
        question: What the graph was asked.
        so_far: What others have made of it.
    """

    question: str
    so_far: str = ""

    @property
    def text(self) -> str:
        """What an agent is told."""
        return f"{self.question}\n\nWork so far: {self.so_far}" if self.so_far else self.question


class Graph:
    """What works on a task by agents; made by `sequence`, `parallel`, `route` and `loop_until`.

    Args:
        nodes: Its nodes.
        work: Works on a task.

    Attributes:
        work: Works on a task.
        agents: The tools that start its agents, also those of graphs in it; none where nodes are names.
    """

    def __init__(self, nodes: list[Node], work: Callable[[Task], Work]) -> None:
        for node in nodes:
            if not isinstance(node, str | Graph) and not _starts_agent(node):
                what = f"{type(node).__name__} is not a node of a graph"
                raise InputError(what, remedy="give agent.as_tool(...), the name of an agent, or a graph")
        if not nodes:
            raise InputError("a graph has no node", remedy="give it one")
        self.work = work
        agents = [node for node in nodes if isinstance(node, Tool)]
        agents += [tool for node in nodes if isinstance(node, Graph) for tool in node.agents]
        self.agents: list[Tool] = [*dict.fromkeys(agents)]

    def run(self, arguments: dict[str, Any], io: Any = None) -> Work:
        """Work on the argument `task`: the `run` of a tool in `tools/NAME.py`."""
        return (yield from self.work(Task(arguments["task"])))

    def as_tool(self, name: str, description: str) -> Tool:
        """Return a tool whose calls have the graph work on a task.

        Args:
            name: The name of the tool.
            description: What a model reads about it.

        Raises:
            ToolError: No tool can have the name, or nodes are names.
        """
        if len({tool.name for tool in self.agents}) < max(1, len(self.agents)):
            raise ToolError("the graph names an agent, or two are called the same", remedy="use as_tool")
        return Tool(name, description, TASK, ENDED, "write", self.run, idempotent=True, inner=self.agents)

    def as_agent(self, policy: Policy, *, name: str = "graph", **rest: Any) -> Agent:
        """Return an agent that has the graph work on what it is asked, and asks no model of its own.

        Where the graph does not come to its end, the agent ends with a failure, and no answer.

        Args:
            policy: Its policy, which lists the tool `name` and all agents.
            name: The name of the tool that is the graph.
            **rest: Further arguments of Agent.

        Raises:
            InputError: As of Agent.
        """
        if given := rest.keys() & {"window", "output_type", "plan"}:
            raise InputError(f"a graph does not take {min(given)}", remedy="give it to an agent of the graph")
        return Agent(_Starter(name), [self.as_tool(name, "Works on a task.")], policy, **rest)


class _Starter:
    """Stands for a model: has a graph work on what is asked, and answers with its answer, or fails without one."""

    def __init__(self, name: str) -> None:
        self._tool, self.name = name, ModelName("graph", name)

    def __call__(self, asked: LLMInput) -> LLMOutput:
        backwards = reversed(asked.messages)
        last = next(it for it in backwards if it["role"] == "user" or it.get("name") == self._tool)
        usage = {"input_tokens": 1, "output_tokens": 1}  # zeros are of services that count nothing
        if last["role"] == "user":
            return LLMOutput(tool_calls=[ToolCall(self._tool, {"task": last["content"]})], usage=usage)
        ended = json.loads(last["content"])
        if ended.get("ending") != FINAL:
            raise ModelError("the graph did not come to its end", service_text=last["content"])
        return LLMOutput(final_answer=ended["answer"], usage=usage)


Node = str | Tool | Graph


def sequence(*nodes: Node) -> Graph:
    """Return a graph whose nodes work one after another, each with the answer before; one without an answer ends it.

    Args:
        *nodes: The nodes.

    Raises:
        InputError: There is none, or one of them is not a node.
    """

    def work(task: Task) -> Work:
        ended: Ended = {}
        for node in nodes:
            ended = yield from _done(node, task)
            if ended["ending"] != FINAL:
                break
            task = Task(task.question, ended["answer"])
        return ended

    return Graph([*nodes], work)


def parallel(*nodes: Node) -> Graph:
    """Return a graph whose nodes work on the same task; it answers with all that they answer, under their names.

    Agents go side by side, as many as the policy allows. Graphs among the nodes go step by step with each other.

    Args:
        *nodes: The nodes.

    Raises:
        InputError: There is none, or one of them is not a node.
    """

    def work(task: Task) -> Work:
        working = [_done(node, task) for node in nodes]
        ended: dict[int, Ended] = {}
        told: dict[int, Any] = dict.fromkeys(range(len(nodes)))
        while told:
            asked: dict[int, list[Any]] = {}
            for number, results in told.items():
                try:
                    asked[number] = working[number].send(results)
                except StopIteration as end:
                    ended[number] = end.value
            results = iter((yield [it for several in asked.values() for it in several]) if asked else ())
            told = {number: [next(results) for _ in several] for number, several in asked.items()}
        every = [ended[number] for number in range(len(nodes))]
        answers = [it["answer"] if it["ending"] == FINAL else f"no answer ({it['ending']})" for it in every]
        words = [f"{_name(node)}: {answer}" for node, answer in zip(nodes, answers, strict=True)]
        has_answer = any(it["ending"] == FINAL for it in every)
        return {"ending": FINAL, "answer": "\n\n".join(words)} if has_answer else every[0]

    return Graph([*nodes], work)


def route(choose: Callable[[str], str] | Node, nodes: Mapping[str, Node]) -> Graph:
    """Return a graph in which one of several nodes works on the task.

    Args:
        choose: Says which: a function of the task that returns a key, or a node that answers with one.
        nodes: The nodes, by key; the one under "" works where no key is named.

    Raises:
        InputError: One of them is not a node.
    """

    def work(task: Task) -> Work:
        if isinstance(choose, Node):
            chosen = yield from _done(choose, task)
            if chosen["ending"] != FINAL:
                return chosen
            key = _key(chosen["answer"])
        else:
            key = choose(task.text)
        node = nodes.get(key, nodes.get(""))
        if node is None:
            return {"ending": "no_route", "answer": f"there is no branch called {key[:80]!r}"}
        return (yield from _done(node, task))

    return Graph([*([choose] if isinstance(choose, Node) and nodes else []), *nodes.values()], work)


def loop_until(
    node: Node, is_done: Callable[[str], bool], *, reviewer: Node | None = None, most: int = 3
) -> Graph:
    """Return a graph in which a node works until its work is done, or until it has worked so often.

    It is told each time what it came to before, and what a reviewer said of that. With the ending `not_done` the graph
    returns the last work.

    Args:
        node: The node that works.
        is_done: Whether the work is done, given what the reviewer says, or the work itself without one.
        reviewer: A node that is given task and work.
        most: How often the node works at most.

    Raises:
        InputError: One of them is not a node, or `most` is not a positive number.
    """
    if type(most) is not int or most < 1:
        raise InputError(f"a loop cannot run {most} times", remedy="give `most` a number from 1")

    def work(task: Task) -> Work:
        given, ended = task, Ended()
        for _ in range(most):
            ended = yield from _done(node, given)
            if ended["ending"] != FINAL:
                return ended
            said = ended["answer"]
            if reviewer is not None:
                review = yield from _done(reviewer, Task(f"Task: {task.question}\n\nWork: {said}"))
                if review["ending"] != FINAL:
                    return review
                said = review["answer"]
            if is_done(said):
                return ended
            review_of = "" if reviewer is None else f"A reviewer says: {said}"
            given = Task(task.question, "\n\n".join(filter(None, (task.so_far, ended["answer"], review_of))))
        return {**ended, "ending": "not_done"}

    return Graph([node, *([] if reviewer is None else [reviewer])], work)


def _key(answer: str) -> str:
    """Return the key that an answer names; one of a type without named fields stands under `result`."""
    try:
        read = parse(answer)
    except NotJson:
        return answer.strip()
    named = read.get("result") if isinstance(read, dict) else None
    return named if isinstance(named, str) else answer.strip()


def _done(node: Node, task: Task) -> Work:
    if isinstance(node, Graph):
        return (yield from node.work(task))
    (ended,) = yield [(_name(node), task.text)]
    ending = ended.get("ending", ended.get("error", "refused"))
    return {"ending": ending, "answer": ended.get("answer")}  # without the mode of a failure


def _starts_agent(node: Any) -> bool:
    is_agent = isinstance(node, Tool) and node.agent is not None and not node.stays
    return is_agent and "task" in node.input_schema["properties"]


def _name(node: Node) -> str:
    return node if isinstance(node, str) else node.name if isinstance(node, Tool) else "graph"
