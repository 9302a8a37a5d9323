"""Team mates in code: when they work and rest, what they are told, what counts, and what they take off the board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, Hooks, LLMInput, LLMOutput, Policy, SyncSession, ToolCall
from tachograph.runtime.log import events as log
from tests.commands import Capsys, output_of
from tests.project import BOARD, POLICY, TEAM, make_project, merged, proved, rewrite

NAMES = [*TEAM, *BOARD, "anna", "ben", "exit_plan"]
WIDE = {
    "tool_registry": {"allowed": NAMES},
    "loop_budget": {"max_iterations": 99, "max_tokens": 10_000, "max_tool_calls": 99},
    "agents": {"max_depth": 1, "max_children": 9, "max_parallel": 3},
    "cycle_detection": {"max_repeats": 9},
    "on_deny": "inform",
}


def policy(**delta: Any) -> Policy:
    return Policy.from_dict(merged(merged(POLICY, WIDE), delta))


class Scripted:
    """A model that gives its turns in order, and keeps what it is asked: a text is an answer, a list are calls."""

    def __init__(self, *turns: Any) -> None:
        self._turns, self.asked = list(turns), list[LLMInput]()

    def __call__(self, asked: LLMInput) -> LLMOutput:
        self.asked.append(asked)
        turn = self._turns.pop(0) if self._turns else "done"
        usage = {"input_tokens": 1, "output_tokens": 1}
        if isinstance(turn, str):
            return LLMOutput(final_answer=turn, usage=usage)
        return LLMOutput(tool_calls=[ToolCall(*call) for call in turn], usage=usage)

    def heard(self) -> list[str]:
        """What it was told, also by others, without results."""
        return [it["content"] for it in self.asked[-1].messages if it["role"] == "user"]


def team(lead: Scripted, of: Policy | None = None, **mates: Scripted) -> Agent:
    tools = [
        Agent(it, [*TEAM, *BOARD], policy()).as_tool(name, "Works.", stays=True) for name, it in mates.items()
    ]
    return Agent(lead, [*tools, *TEAM, *BOARD], of or policy())


def told(name: str, task: str) -> tuple[str, dict[str, Any]]:
    return name, {"task": task}


def claim(todo: str) -> tuple[str, dict[str, Any]]:
    return "claim_todo", {"todo": todo}


def todo(name: str, *after: str) -> tuple[str, dict[str, Any]]:
    return "create_todo", {"todo": name, "title": name, "after": [*after]}


def answers_of(events: list[log.Event], key: str) -> list[Any]:
    ended = [event.told for event in events if isinstance(event, log.CallEnded)]
    return [it[key] for it in ended if key in it]


def count_of(events: list[log.Event], kind: type[log.Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


def test_a_mate_goes_on_with_what_it_knows_and_each_answer_is_told_once(tmp_path: Path) -> None:
    lead = Scripted([told("anna", "first")], "wait", [told("anna", "second")], "wait", "all")
    anna = Scripted("one", "two")
    made = proved(team(lead, anna=anna), tmp_path / "run", "go")
    assert anna.heard() == ["first", "Message from the agent of the run: second"]
    assert lead.heard() == ["go", "Message from anna: one", "Message from anna: two"]
    counts = [count_of(made.events, kind) for kind in (log.AgentStarted, log.TurnEnded)]
    assert (made.answer, counts) == ("all", [1, 2])
    assert [event.ending for event in made.events if isinstance(event, log.AgentEnded)] == ["final_answer"]


def test_who_waits_for_something_on_the_board_is_told_when_it_is_free() -> None:
    lead = Scripted(
        [todo("note", "find"), todo("find"), told("anna", "note"), told("ben", "find")], *["wait"] * 5
    )
    twice = [claim("note"), claim("note")]
    anna = Scripted(twice, "I wait", [claim("note")], [("complete_todo", {"todo": "note"})], "written")
    ben = Scripted([claim("")], [("complete_todo", {"todo": "find"})], "found")
    made = team(lead, anna=anna, ben=ben).run("go")
    assert anna.heard() == ["note", "Message from ben: note is free now"]
    assert answers_of(made.events, "claimed") == [False, False, True, True]
    assert answers_of(made.events, "free") == [["note"], []]


def test_what_a_stopped_mate_has_claimed_is_free_again() -> None:
    stop = [("stop_agent", {"agent": "anna"}), ("list_agents", {})]
    lead = Scripted([todo("find"), told("anna", "find")], "wait", stop, [("list_todos", {})], "done")
    made = team(lead, anna=Scripted([claim("find")], "mine")).run("go")
    assert answers_of(made.events, "stopped") == [True] and answers_of(made.events, "agents") == [[]]
    assert [it["state"] for it in answers_of(made.events, "todos")[0]] == ["free"]


def test_a_mate_that_rests_leaves_the_tokens_to_others() -> None:
    lead = Scripted([told("anna", "1")], "wait", [told("anna", "2")], "wait", "done")
    anna = Scripted("a", "b")
    team(lead, anna=anna).run("go")
    most = [asked.max_output_tokens for asked in (*lead.asked, *anna.asked)]
    alone, beside = [most[0], most[2], most[4]], [most[1], most[3], most[5], most[6]]
    assert min(alone) > 9_900 and all(4_900 < it < 5_100 for it in beside)


def test_a_mate_stays_from_turn_to_turn_and_ends_with_the_conversation(tmp_path: Path) -> None:
    lead = Scripted([told("anna", "1")], "wait", "one", [told("anna", "2")], "wait", "two")
    anna = Scripted("a", "b")
    with SyncSession(team(lead, anna=anna), tmp_path / "talk") as session:
        assert [session.ask("go").answer, session.ask("on").answer] == ["one", "two"]
        assert [turn.number for turn in session.turns] == [1, 2]
        with session.fork(1, tmp_path / "fork") as other:
            assert [turn.answer for turn in other.turns] == ["one"]
        done = session.close()
    assert anna.heard() == ["1", "Message from the agent of the run: 2"]
    assert (count_of(done.events, log.AgentStarted), count_of(done.events, log.AgentEnded)) == (1, 1)
    assert [type(event) for event in done.events[-2:]] == [log.AgentEnded, log.RunEnded]
    assert (tmp_path / "talk/run_report.md").read_text().count("## Turn ") == 2


def test_mates_write_to_each_other_by_name() -> None:
    lead = Scripted([told("anna", "ask"), told("ben", "wait")], *["wait"] * 4)
    anna = Scripted([("send_message", {"to": "ben", "text": "where?"})], "asked", "thanks")
    ben = Scripted("I wait", [("send_message", {"to": "anna", "text": "here"})], "told")
    made = team(lead, anna=anna, ben=ben).run("go")
    assert ben.heard()[1:] == ["Message from anna: where?"] and anna.heard()[1:] == ["Message from ben: here"]
    assert answers_of(made.events, "sent") == [True, True]


def test_hooks_on_results_see_the_answers_of_a_mate_which_then_does_not_stay() -> None:
    lead = Scripted([told("anna", "1")], [told("anna", "2")], "done")
    anna = Agent(Scripted("a", "b"), [], policy()).as_tool("anna", "Works.", stays=True)
    seen: list[Any] = []

    def after_call(about: dict[str, Any]) -> None:
        seen.append(about["result"].get("answer"))

    made = Agent(lead, [anna], policy(), hooks=Hooks("guard", after_call=after_call)).run("go")
    assert (made.answer, seen, count_of(made.events, log.AgentStarted)) == ("done", ["a", "b"], 2)


def test_an_undo_takes_back_one_turn_after_another(tmp_path: Path) -> None:
    model = Scripted("a", "b", "c", "d", "e")
    agent = Agent(model, [], policy())
    with SyncSession(agent, tmp_path / "talk") as session:
        for text in ("1", "2", "3"):
            session.ask(text)
        session.undo()
        session.undo()
        session.ask("4")
        assert model.heard() == ["1", "4"]
        for _ in range(3):
            session.undo()
        session.ask("5")
        assert model.heard() == ["5"]
        with pytest.raises(tachograph.fail.errors.InputError):
            session.plan()
        done = session.close()
    assert [event.undone for event in done.events if isinstance(event, log.Compacted)] == [2, 2, 2, 2, 0]
    assert tachograph.check(agent, tmp_path / "talk") == []


def handing_over(first: Scripted, second: Scripted, anna: Scripted, **rest: Any) -> Agent:
    """Return an agent that may hand over to another one; both may start the same mate."""
    tools = [Agent(anna, [*BOARD], policy()).as_tool("anna", "Works.", stays=True), *TEAM]
    of = policy(tool_registry={"allowed": [*NAMES, "to_other"]}, agents={"max_depth": 2})
    other = Agent(second, tools, of, **rest).as_tool("to_other", "Goes on.", hands_over=True)
    return Agent(first, [*tools, other], of)


@pytest.mark.parametrize("has_hooks", [False, True])
def test_a_mate_of_before_a_hand_over_is_not_told_more(tmp_path: Path, has_hooks: bool) -> None:
    """It acts under less than the policies that hold then, and hooks on results do not see what it answers."""
    seen: list[Any] = []
    guard = Hooks("guard", after_call=lambda about: seen.append(about["result"].get("answer")))
    hooks = [guard] if has_hooks else []
    lead, anna = Scripted([told("anna", "1")], "wait", [("to_other", {})]), Scripted("a", "b")
    other = Scripted([told("anna", "2")], *(["done"] if has_hooks else ["wait", "done"]))
    made = proved(handing_over(lead, other, anna, hooks=hooks), tmp_path / "run", "go")
    assert (made.answer, count_of(made.events, log.AgentStarted), anna.heard()) == ("done", 3, ["2"])
    assert ("b" in seen) == has_hooks
    places = [event.at for event in made.events]
    assert places.index("1.c0/end") < places.index("5.m1")  # the first one is no more


def test_hooks_on_results_of_who_goes_on_are_not_passed_by() -> None:
    lead, other = Scripted([told("anna", "1"), ("to_other", {})]), Scripted("wait", "done")
    handing_over(lead, other, Scripted("a"), hooks=[Hooks("guard", after_call=lambda about: None)]).run("go")
    assert "Message from anna: I ended without an answer: cancelled" in other.heard()


def test_a_plan_is_asked_of_who_goes_on(tmp_path: Path) -> None:
    lead, other = Scripted([("to_other", {})]), Scripted([("exit_plan", {"plan": "p"})], "done", "again")
    rest = {"plan": policy(tool_registry={"allowed": [*NAMES, "to_other"]}, agents={"max_depth": 2})}
    agent = handing_over(lead, other, Scripted(), **rest)
    agent.approve = lambda asked: True
    with SyncSession(agent, tmp_path / "talk") as session:
        assert session.ask("go").answer == "done"
        session.plan()
        assert session.ask("on").answer == "again"
        assert answers_of(session.close().events, "planning") == [False, True]


async def test_a_call_to_a_mate_that_ended_meanwhile_is_decided_anew() -> None:
    lead = Scripted([told("anna", "1")], "wait", [told("anna", "2")], "done")
    worlds: list[Any] = []

    def before_call(about: dict[str, Any]) -> None:
        if about["call"]["arguments"]["task"] == "2":
            worlds[0].stop("1.c0/", "cancelled")

    hooks = Hooks("guard", before_call=before_call)
    anna = Agent(Scripted("a", "b"), [], policy()).as_tool("anna", "Works.", stays=True)
    agent = Agent(lead, [anna], policy(agents={"max_children": 1}), hooks=hooks)
    events = (await agent.arun("go", started=worlds.append)).events
    assert count_of(events, log.AgentStarted) == 1
    assert [it.rule for it in events if isinstance(it, log.Decided) and it.decision == "deny"] == ["agents"]


def test_an_interrupt_while_mates_rest_is_one_of_nothing(tmp_path: Path) -> None:
    lead = Scripted([told("anna", "1")], "wait", "one", "two")
    with SyncSession(team(lead, anna=Scripted("a")), tmp_path / "talk") as session:
        session.ask("go")
        turn = session.interrupt("on")
        assert turn is not None and (turn.number, turn.answer) == (2, "two")
        session.close()


DONE = {"name": "x", "turns": ["done"], "expect": {}}


def test_a_function_starts_the_same_agents_everywhere(tmp_path: Path, capsys: Capsys) -> None:
    named = {"functions": {"pipeline": ["anna"]}, "agents": ["reader"]}
    allowed = {"tool_registry": {"allowed": ["pipeline", "anna"]}}
    root = make_project(tmp_path / "p", [{**DONE, **named, "policy": allowed}])
    rewrite(root / "profiles/reader.yaml", functions={"pipeline": ["ben"]})
    said = output_of(capsys, "run", str(root / "tasks/s/x.yaml"), code=2).err
    assert "two tools are called 'pipeline'" in said


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"echo": ["anna"]}, "generator function"),
        ({"pipeline": ["nobody"]}, "there is no profile 'nobody'"),
        ({"nothing": ["anna"]}, "tools/nothing.py"),
    ],
)
def test_what_cannot_start_agents_is_refused(
    tmp_path: Path, capsys: Capsys, functions: dict[str, list[str]], words: str
) -> None:
    allowed = {"tool_registry": {"allowed": ["echo", "pipeline", "anna"]}}
    root = make_project(tmp_path / "p", [{**DONE, "functions": functions, "policy": allowed}])
    said = output_of(capsys, "run", str(root / "tasks/s/x.yaml"), code=2).err
    assert words in said and len(said.splitlines()) == 1
