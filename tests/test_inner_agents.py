"""Agents that the function of a tool runs: they are calls of the run, decided, counted and made again with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, LLMInput, LLMOutput, Policy, Tool, ToolCall
from tachograph.evidence.verify import verify
from tachograph.fail.errors import InputError, ToolError
from tachograph.runtime.log import events as log
from tachograph.runtime.log.file import LogFile
from tachograph.testing import run
from tests.project import POLICY, make_project, merged

OWN = ["research", "reader", "look", "echo"]
LOOKS: Any = [("look", {"path": "book/a.txt"})], "alpha"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "p", [])


def policy(**delta: Any) -> Policy:
    own = {
        "tool_registry": {"allowed": OWN},
        "agents": {"max_depth": 1, "max_children": 4},
        "on_deny": "inform",
    }
    return Policy.from_dict(merged(merged(POLICY, own), delta))


def script(*turns: Any) -> Any:
    def model(asked: LLMInput) -> LLMOutput:
        turn = turns[asked.step_index - 1]
        if isinstance(turn, str):
            return LLMOutput(final_answer=turn)
        return LLMOutput(tool_calls=[ToolCall(*call) for call in turn])

    return model


def reader_in(project: Path, *turns: Any) -> Agent:
    rest: dict[str, Any] = {"root": project, "mounts": {"book": project / "book"}}
    return Agent(script(*(turns or LOOKS)), ["look"], policy(), **rest)


def lead_of(project: Path, research: Tool, of: Policy | None = None, **rest: Any) -> Agent:
    calls = [("research", {"topic": "someone@mail.test"}), ("echo", {"text": "x"})]
    more: dict[str, Any] = {"root": project, "mounts": {"book": project / "book"}, **rest}
    return Agent(script(calls, "done"), [research, "echo"], of or policy(), **more)


def research_of(reader: Agent, *tasks: str) -> Tool:
    @tachograph.tool(agents=[reader.as_tool("reader", "Reads.")])
    async def research(topic: str) -> list[str]:
        """Look it up."""
        found = [await reader.arun(task or topic) for task in tasks]
        return [f"{it.ending}: {it.answer}" for it in found]

    return research


def result_in(events: list[log.Event]) -> Any:
    (ended,) = [event for event in events if isinstance(event, log.CallEnded) and event.at == "1.c0.e"]
    return ended.told


def test_what_it_runs_is_recorded_and_made_again(project: Path) -> None:
    lead = lead_of(project, research_of(reader_in(project), "one", "two"))
    made = tachograph.record(lead, "?", out=project / "out")
    assert result_in(made.events) == {"result": ["final_answer: alpha"] * 2}
    started = [event for event in made.events if isinstance(event, log.AgentStarted)]
    assert [(it.at, it.question) for it in started] == [("1.c2/0", "one"), ("1.c3/0", "two")]
    assert [it.by for it in made.events if isinstance(it, log.Proposed)] == ["1.c0", "1.c0"]
    head: Any = made.events[0]
    assert [tool.name for tool in head.tools] == ["research", "echo"]  # the model is not offered the reader
    assert verify(project / "out", "run") == [] == tachograph.check(lead, project / "out")
    assert tachograph.replay(lead, project / "out").events == made.events
    lines = (project / "out/state.jsonl").read_bytes().splitlines(keepends=True)
    for number in range(1, len(lines)):
        partial = project / f"again{number}.partial"
        partial.mkdir()
        (partial / "state.jsonl").write_bytes(b"".join(lines[:number]))
        again = tachograph.resume(lead, project / f"again{number}")
        assert [(type(it), it.at) for it in again.events] == [(type(it), it.at) for it in made.events]


def test_it_is_the_same_in_an_event_loop_and_on_a_virtual_clock(project: Path) -> None:
    lead = lead_of(project, research_of(reader_in(project), "one"))
    made = asyncio.run(tachograph.arecord(lead, "?", out=project / "out"))
    calls = [("research", {"topic": "x"}), ("echo", {"text": "x"})]
    tools, mounts = lead.tools, {"book": project / "book"}
    scripted = run(policy().data, tools, script(calls, "done"), mounts=mounts)
    assert result_in(made.events) == result_in(scripted.events) == {"result": ["final_answer: alpha"]}


def test_it_may_do_no_more_than_the_agent(project: Path) -> None:
    research = research_of(reader_in(project), "one")
    without = policy(tool_registry={"allowed": ["research", "echo", "look"]})
    told = lead_of(project, research, without).run("?")
    assert result_in(told.events) == {"result": ["policy_denied: None"]}
    ended = lead_of(project, research, policy(agents={"max_children": 0}, on_deny="terminate")).run("?")
    assert ended.ending == "policy_denial_terminal"
    assert not [event for event in ended.events if isinstance(event, log.CallEnded)]


def test_what_it_uses_up_counts(project: Path) -> None:
    research = research_of(reader_in(project), *"abcd")
    made = lead_of(project, research, policy(loop_budget={"max_iterations": 4})).run("?")
    assert made.ending == "loop_budget" and sum(isinstance(it, log.ModelReplied) for it in made.events) == 4


def test_no_secret_of_a_task_is_recorded(project: Path) -> None:
    hides = policy(redact={"kinds": ["email"]})
    lead = lead_of(project, research_of(reader_in(project), "ask someone@mail.test", ""), hides)
    tachograph.record(lead, "?", out=project / "out")
    for path in (project / "out").iterdir():
        assert b"someone@mail.test" not in path.read_bytes()
    assert tachograph.check(lead, project / "out") == []


def test_a_stop_ends_it_too(project: Path) -> None:
    worlds: list[Any] = []

    def listen(event: log.Event) -> None:
        if event.at == "1.c2/1.m1":
            worlds[0].stop("1.c2/", "cancelled")

    lead = lead_of(project, research_of(reader_in(project), "one", "two"))
    going = tachograph.arecord(lead, "?", out=project / "out", started=worlds.append, listen=listen)
    made = asyncio.run(going)
    assert result_in(made.events)["result"][1] == "final_answer: alpha"
    assert tachograph.replay(lead, project / "out").events == made.events


async def sleeps(reader: Agent) -> Any:
    await asyncio.sleep(0)


async def fails(reader: Agent) -> Any:
    await reader.arun("one")
    raise LookupError("the text of an exception")


async def gives_another_type(reader: Agent) -> Any:
    return {1, 2}


async def runs_another_agent(reader: Agent) -> Any:
    await Agent(script("x"), [], policy()).arun("one")


async def gives_options(reader: Agent) -> Any:
    await reader.arun("one", seed=7)


WRONG = [
    (sleeps, "TypeError"), (fails, "LookupError"), (gives_another_type, "TypeError"),
    (runs_another_agent, "InputError"), (gives_options, "InputError"),
]  # fmt: skip


@pytest.mark.parametrize(("work", "error"), WRONG, ids=lambda it: getattr(it, "__name__", it))
def test_what_a_function_may_not_do_is_its_failure(project: Path, work: Any, error: str) -> None:
    reader = reader_in(project)

    @tachograph.tool(agents=[reader.as_tool("reader", "Reads.")])
    async def research(topic: str) -> dict[str, int]:
        """Look it up."""
        found: dict[str, int] = await work(reader)
        return found

    told = lead_of(project, research, policy(on_failure={"default": "inform", "max_failures": 3}))
    made = tachograph.record(told, "?", out=project / "out")
    assert (made.ending, result_in(made.events)["exception"]) == ("final_answer", error)
    assert tachograph.replay(told, project / "out").events == made.events
    assert lead_of(project, research).run("?").ending == "failure_mode_terminal"
    assert b"the text of" not in (project / "out/state.jsonl").read_bytes()


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


def test_which_functions_may_run_agents(project: Path) -> None:
    agents = [reader_in(project).as_tool("reader", "Reads.")]

    def plain(topic: str) -> str:
        """Look."""
        return topic

    async def with_io(topic: str, io) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return topic

    async def with_nothing(topic: str) -> str:
        """Look."""
        return topic

    for function in (plain, with_io):
        with pytest.raises(ToolError, match="coroutine function"):
            tachograph.tool(function, agents=agents)
    handing = reader_in(project).as_tool("reader", "Reads.", hands_over=True)
    wrong: list[Any]
    for wrong in ([handing], [tachograph.tool(plain, effect="pure")], [reader_in(project)]):
        with pytest.raises(ToolError, match="as_tool"):
            tachograph.tool(with_nothing, agents=wrong)
    with pytest.raises(InputError, match="called 'reader'"):
        other = reader_in(project, "another").as_tool("reader", "Reads.")
        Agent(script("x"), [research_of(reader_in(project), "one"), other], policy())
