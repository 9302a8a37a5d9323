"""Agents that the function of a tool runs: they are calls of the run, decided, counted and made again with it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypedDict

import pytest

import tachograph
from tachograph import Agent, Hooks, Policy, Tool
from tachograph.fail.errors import InputError, ToolError
from tachograph.runtime.log import events as log
from tachograph.runtime.log.file import LogFile
from tachograph.runtime.log.steps import steps_of
from tachograph.testing import run
from tachograph.views.outline import Node, outline
from tests.project import POLICY, cut, make_project, merged, proved, script

OWN = ["research", "reader", "look", "echo"]
CLOSED = {"type": "object", "additionalProperties": False}
TURNS: Any = [("research", {"topic": "someone@mail.test"}), ("echo", {"text": "x"})], "done"
ONE_CALL: Any = [("research", {"topic": "x"})], "done"
LOOKS: Any = [("look", {"path": "book/a.txt"})], "alpha"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "p", [])


def policy(**delta: Any) -> Policy:
    own = {"agents": {"max_depth": 1, "max_children": 4}, "on_deny": "inform"}
    return Policy.from_dict(merged(merged(POLICY, {"tool_registry": {"allowed": OWN}, **own}), delta))


def reader_in(project: Path, *turns: Any) -> Agent:
    rest: dict[str, Any] = {"root": project, "mounts": {"book": project / "book"}}
    return Agent(script(*(turns or LOOKS)), ["look"], policy(), **rest)


def lead_of(
    project: Path, research: Tool, of: Policy | None = None, turns: Any = TURNS, **rest: Any
) -> Agent:
    more: dict[str, Any] = {"root": project, "mounts": {"book": project / "book"}, **rest}
    return Agent(script(*turns), [research, "echo"], of or policy(), **more)


def research_of(reader: Agent, *tasks: str) -> Tool:
    @tachograph.tool(agents=[reader.as_tool("reader", "Reads.")])
    def research(topic: str) -> Generator[Any, Any, list[str]]:
        """Look it up."""
        found = []
        for task in tasks:
            found.append((yield "reader", task or topic))
        return [f"{it.get('ending', it.get('error'))}: {it.get('answer')}" for it in found]

    return research


def result_in(events: list[log.Event]) -> Any:
    (ended,) = [event for event in events if isinstance(event, log.CallEnded) and event.at == "1.c0.e"]
    return ended.told


def test_what_it_runs_is_recorded_and_made_again(project: Path) -> None:
    lead = lead_of(project, research_of(reader_in(project), "one", "two"))
    made = proved(lead, project / "out")
    assert result_in(made.events) == {"result": ["final_answer: alpha"] * 2}
    started = [event for event in made.events if isinstance(event, log.AgentStarted)]
    assert [(it.at, it.question) for it in started] == [("1.c0.g1/0", "one"), ("1.c0.g2/0", "two")]
    head: Any = made.events[0]
    assert [tool.name for tool in head.tools] == ["research", "echo"]  # the model is not offered the reader
    calls = steps_of(made.events)[0].calls
    assert [call.call.name for call in calls] == ["research", "reader", "reader", "echo"]
    for number in range(1, len(made.events)):
        cut(project / "out", number, project / f"again{number}")
        again = tachograph.resume(lead, project / f"again{number}")
        assert [(type(it), it.at) for it in again.events] == [(type(it), it.at) for it in made.events]


def test_what_it_runs_is_shown_below_its_call(project: Path) -> None:
    made = lead_of(project, research_of(reader_in(project), "one", "two")).run("?")

    def below(node: Node) -> dict[str, list[str]]:
        found = {node.at: [it.at for it in node.below]}
        for it in node.below:
            more = below(it)
            assert not found.keys() & more.keys()
            found |= more
        return found

    nodes = below(outline(made.events))
    assert nodes["1.c0"] == ["1.c0.d", "1.c0.g1", "1.c0.g2", "1.c0.e"]
    assert nodes["1.c0.g1/1"] == ["1.c0.g1/1.m1", "1.c0.g1/1.c0", "1.c0.g1/1.e"]


def test_it_is_the_same_in_an_event_loop_and_on_a_virtual_clock(project: Path) -> None:
    lead = lead_of(project, research_of(reader_in(project), "one"))
    made = asyncio.run(tachograph.arecord(lead, "?", out=project / "out"))
    calls = [("research", {"topic": "x"}), ("echo", {"text": "x"})]
    tools, mounts = lead.tools, {"book": project / "book"}
    scripted = run(policy().data, tools, script(calls, "done"), mounts=mounts)
    assert result_in(made.events) == result_in(scripted.events) == {"result": ["final_answer: alpha"]}


def test_no_secret_that_an_agent_finds_is_recorded(project: Path) -> None:
    """Nor one that code says, which a replay hears again when the key of the placeholders is gone."""
    reader = reader_in(project, "someone@mail.test knows")
    reader.instructions = told = "Someone@mail.test knows, or boss@mail.test."
    research = research_of(reader, "ask boss@mail.test", "ask us@mail.test")
    hides = policy(redact={"kinds": ["email"]})
    lead = lead_of(project, research, hides, ONE_CALL, instructions=f"Ask. {told}")
    assert "<secret:email:" in result_in(proved(lead, project / "out").events)["result"][1]
    for path in (project / "out").iterdir():
        assert b"@mail.test" not in path.read_bytes()


@pytest.mark.parametrize(("scope", "started"), [("1.c0.g1/", 2), ("1.c0", 1)])
async def test_a_stop_ends_an_agent_or_the_whole_call(project: Path, scope: str, started: int) -> None:
    worlds: list[Any] = []

    def listen(event: log.Event) -> None:
        if event.at == "1.c0.g1/1.m1":
            worlds[0].stop(scope, "cancelled")

    lead = lead_of(project, research_of(reader_in(project), "one", "two"))
    made = await tachograph.arecord(lead, "?", out=project / "out", started=worlds.append, listen=listen)
    assert made.ending == "final_answer"
    assert sum(isinstance(it, log.AgentStarted) for it in made.events) == started
    assert any(it.at == "1.c0.e" for it in made.events) == (started == 2)
    assert tachograph.replay(lead, project / "out").events == made.events


class Found(TypedDict):
    error: str


def test_a_result_may_look_like_a_failure(project: Path) -> None:
    @tachograph.tool(agents=[reader_in(project).as_tool("reader", "Reads.")])
    def research(topic: str) -> Generator[Any, Any, Found]:
        """Look it up."""
        yield "reader", "one"
        return {"error": "tool_failed"}

    assert proved(lead_of(project, research), project / "out").ending == "final_answer"


ONE = "reader", "one"
WRONG: list[tuple[Any, Any, str, str]] = [
    # what it yields, what it returns or raises then, and what is told of that
    (ONE, LookupError("the text of an exception"), "LookupError", "the text of an exception"),
    (ONE, type("x someone@mail.test", (Exception,), {})(), "", "<secret:email:"),
    (ONE, asyncio.CancelledError(), "CancelledError", "Cancelled"),
    (ONE, {"a": float("nan")}, "NotJson", "NaN"),
    (ONE, {"a": "b"}, "TypeError", "violates type at '/result/a'"),
    (("echo", "one"), {}, "LookupError", "no agent is called 'echo'; there is reader"),
    ((["reader"], "one"), {}, "TypeError", "unhashable"), (None, {}, "TypeError", "unpack"),
    ([("reader", f"{n}") for n in range(65)], {}, "LookupError", "yields 65 agents"),
    ([], {}, "LookupError", "yields 0 agents"),
]  # fmt: skip


@pytest.mark.parametrize(("asks", "end", "error", "said"), WRONG)
def test_a_function_that_does_wrong_fails(
    project: Path, asks: Any, end: Any, error: str, said: str, caplog: Any
) -> None:
    @tachograph.tool(agents=[reader_in(project).as_tool("reader", "Reads.")])
    def research(topic: str) -> Generator[Any, Any, dict[str, int]]:
        """Look it up."""
        yield asks
        if isinstance(end, BaseException):
            raise end
        return end

    told = {"on_failure": {"default": "inform", "max_failures": 3}, "redact": {"kinds": ["email"]}}
    lead = lead_of(project, research, policy(**told), ONE_CALL)
    made = tachograph.record(lead, "?", out=project / "out")
    assert made.ending == "final_answer" and error in result_in(made.events)["exception"]
    assert steps_of(made.events)[0].calls[0].status == "failed"
    assert "tool 'research': " in caplog.text and said in caplog.text and "someone@mail" not in caplog.text
    if error:  # what makes a secret itself is not made again
        assert tachograph.replay(lead, project / "out").events == made.events
    assert lead_of(project, research).run("?").ending == "failure_mode_terminal"
    state = (project / "out/state.jsonl").read_bytes()
    assert b"the text of" not in state and b"someone@mail" not in state


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # of the function that will not end
@pytest.mark.parametrize("denied", ["terminate", "inform"])
def test_what_ends_a_run_is_not_for_a_function_to_catch(project: Path, denied: str) -> None:
    @tachograph.tool(agents=[reader_in(project).as_tool("reader", "Reads.")])
    def research(topic: str) -> Generator[Any, Any, str]:
        """Look it up until there is an answer."""
        while True:
            try:
                found = yield "reader", "one"
            except BaseException:  # noqa: BLE001 - as bad code does
                continue
            if found.get("answer"):
                return ""

    refuses = policy(agents={"max_children": 0}, on_deny=denied, loop_budget={"max_tool_calls": 6})
    made = lead_of(project, research, refuses).run("?")
    assert made.ending == ("policy_denial_terminal" if denied == "terminate" else "loop_budget")
    assert sum(isinstance(it, log.Proposed) for it in made.events) <= 6


def test_a_function_whose_calls_are_all_denied_has_failed(project: Path) -> None:
    @tachograph.tool(agents=[reader_in(project).as_tool("reader", "Reads.")])
    def research(topic: str) -> Generator[Any, Any, str]:
        """Look it up until there is an answer."""
        while not (yield "reader", "one").get("answer"):
            pass
        return ""

    failing = {"default": "inform", "max_failures": 1}
    refuses = policy(agents={"max_children": 0}, loop_budget={"max_tool_calls": 999}, on_failure=failing)
    made = lead_of(project, research, refuses).run("?")
    assert (made.ending, result_in(made.events)["exception"]) == ("final_answer", "RecursionError")


def test_what_a_function_gets_is_its_own(project: Path) -> None:
    @tachograph.tool(agents=[reader_in(project).as_tool("reader", "Reads.")])
    def research(topic: str) -> Generator[Any, Any, str]:
        """Change it."""
        (yield "reader", str((yield "reader", "one"))).clear()
        return ""

    def later(about: dict[str, Any]) -> dict[str, Any] | None:
        is_first = about["call"] == {"name": "reader", "arguments": {"task": "one"}}
        return {"arguments": {"task": "x", "background": True}} if is_first else None

    # a hook that gives a result back gives its keys in another order than the log keeps
    hooks = Hooks("late", before_call=later, after_call=lambda about: {"result": about["result"]})
    proved(lead_of(project, research, hooks=hooks), project / "out")


def test_the_model_cannot_spoil_what_a_function_proposes(project: Path) -> None:
    turns = [("reader", {"task": "one"})], *ONE_CALL
    made = lead_of(project, research_of(reader_in(project), "one"), turns=turns).run("?")
    assert made.ending == "final_answer" and any(isinstance(it, log.AgentStarted) for it in made.events)


def test_its_arguments_are_its_own_and_a_large_result_is_not_kept(project: Path) -> None:
    @tachograph.tool(agents=[reader_in(project).as_tool("reader", "Reads.")])
    def research(topic: dict[str, Any]) -> Generator[Any, Any, str]:
        """Change it."""
        topic["a"].append("changed")
        yield "reader", "one"
        return "b" * 5000

    turns = [("research", {"topic": {"a": ["b"]}})], "done"
    proved(lead_of(project, research, turns=turns), project / "out")
    assert b"bbbbb" not in (project / "out/state.jsonl").read_bytes()


def test_a_failure_of_the_log_is_none_of_the_function(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: LogFile, line: bytes) -> None:
        if b'"proposed"' in line:
            raise OSError("the disk is full")
        write(self, line)

    write = LogFile.write
    monkeypatch.setattr(LogFile, "write", full)
    lead = lead_of(project, research_of(reader_in(project), "one"))
    with pytest.raises(OSError, match="the disk is full"):
        tachograph.record(lead, "?", out=project / "out")


def test_two_functions_of_a_reply_go_one_after_another(project: Path) -> None:
    def work(arguments: dict[str, Any], io: Any) -> Any:
        yield "reader", f"{arguments['n']}"
        return {}

    takes = {**CLOSED, "properties": {"n": {"type": "integer"}}}
    inner = [reader_in(project).as_tool("reader", "Reads.")]
    research = Tool("research", "Looks.", takes, CLOSED, "pure", work, idempotent=True, inner=inner)
    turns = [("research", {"n": number}) for number in (1, 2)], "done"
    places = [event.at for event in lead_of(project, research, turns=turns).run("?").events]
    assert places.index("1.c0.e") < places.index("1.c1.d")


def test_which_functions_may_have_agents_work(project: Path) -> None:
    agents = [reader_in(project).as_tool("reader", "Reads.")]

    def plain(topic: str) -> str:
        """Look."""
        return topic

    def with_io(topic: str, io: Any) -> Any:
        """Look."""
        yield "reader", topic

    def work(topic: str) -> Any:
        """Look."""
        yield "reader", topic

    handing = reader_in(project).as_tool("reader", "Reads.", hands_over=True)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (plain, {"agents": agents}, "generator"),
        (with_io, {"agents": agents}, "generator"),
        (work, {"agents": [handing]}, "as_tool"),
        (work, {"agents": [tachograph.tool(plain, effect="pure")]}, "as_tool"),
        (work, {"agents": [reader_in(project)]}, "as_tool"),
        (work, {"agents": agents, "effect": "external"}, "generator"),
        (work, {"agents": agents, "timeout_s": 1}, "generator"),
        (work, {"agents": [tachograph.delegate(agents)]}, "as_tool"),
        (work, {"agents": agents * 2}, "as_tool"),
    ]
    for function, options, said in wrong:
        with pytest.raises(ToolError, match=said):
            tachograph.tool(function, **options)
    other = reader_in(project, "another").as_tool("reader", "Reads.")
    with pytest.raises(InputError, match="called 'reader'"):
        Agent(script("x"), [research_of(reader_in(project), "one"), other], policy())
