"""Profiles as the agent of a run, `delegate`, hand-offs and plans in code, each through the public door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

import tachograph
from tachograph import Agent, Policy, Session, Tool
from tachograph.cli.live import task_for_question
from tachograph.evidence.check import check
from tachograph.evidence.live_tasks import LiveRun
from tachograph.evidence.manifest import read_manifest
from tachograph.evidence.project import Project
from tachograph.evidence.record import record
from tachograph.evidence.tasks import load_task
from tachograph.fail.errors import InputError, PolicyError, ToolError
from tachograph.review.explain import explain
from tachograph.review.replays import flips
from tachograph.runtime.log.events import AgentStarted, Decided, HandedOver, ModelReplied
from tachograph.runtime.log.values import ModelChoice, ModelName
from tests.commands import Capsys, output_of
from tests.project import POLICY, ROWS, edit, make_project, merged, proved, rewrite, script, task_of_row

CLOSED = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}}
LOOK = {"tool": "look", "arguments": {"path": "book/a.txt"}}
PROFILE: dict[str, Any] = {
    "schema": "profile/v1", "description": "Looks.", "policy": {"file": "policy/reader.yaml"}, "tools": ["look"],
    "instructions": "Of {{ who }} in {{where}}.", "variables": {"who": "nobody", "where": "Rome"},
    "mounts": {"book": "book"},
}  # fmt: skip
TASK: dict[str, Any] = {
    "schema": "task/v1", "id": "s-asked", "title": "t", "question": "What is there?", "profile": "looker",
    "variables": {"who": "Ann"}, "llm": {"stub": {"turns": [{"calls": [LOOK]}, {"answer": "alpha"}]}},
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_project(tmp_path / "p", [])
    monkeypatch.chdir(root)
    write(root, {}, {})
    return root


def write(root: Path, profile: dict[str, Any], task: dict[str, Any]) -> None:
    for name, data in (("profiles/looker", PROFILE | profile), ("tasks/s/asked", TASK | task)):
        text = json.dumps({key: value for key, value in data.items() if value is not None})
        (root / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_a_profile_says_all_of_the_agent_of_a_run(project: Path) -> None:
    file, out = project / "tasks/s/asked.yaml", project / "runs/s/asked"
    head: Any = record(load_task(file), out).journal.events[0]
    assert (head.instructions, head.tools[0].name) == ("Of Ann in Rome.", "look")
    inputs, _ = read_manifest((out / "manifest.json").read_bytes(), "manifest")
    assert {"profiles/looker.yaml", "policy/reader.yaml", "tasks/s/asked.yaml"} <= inputs.keys()
    assert check(load_task(file), out, "run") == []
    write(project, {"variables": {"where": "Oslo"}}, {})
    found = check(load_task(file), out, "run")
    assert {("INPUT", "profiles/looker.yaml"), ("ASKED", "0")} <= {(it.kind, it.at) for it in found}


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"profile": "looked"}, "tasks/s/asked.yaml:1:"),
    ({}, {"tools": ["echo"]}, "cannot be set beside a profile"),
    ({}, {"instructions": "Look."}, "cannot be set beside a profile"),
    ({"instructions": "Of {{whom}}."}, {}, "profiles/looker.yaml:1:"),
    ({"policy": None}, {}, "names no policy"),
    ({"policy": {"file": "../policy.yaml"}}, {}, "outside of the project"),
    ({"plan": {"file": "policy/none.yaml"}}, {}, "policy/none.yaml"),
    ({"hand_over_to": ["none"]}, {}, "'none'"),
    ({"tools": ["delegate"]}, {}, "delegate"),
    ({"modle": "x"}, {}, "modle"),
    ({"agents": ["nobody"]}, {}, "profiles/looker.yaml:1:"),
    ({"plan": {"file": ""}}, {}, "profiles/looker.yaml:1:"),
    ({"variables": {"who": 1}}, {}, "profiles/looker.yaml:1:"),
]


@pytest.mark.parametrize(("profile", "task", "said"), WRONG)
def test_what_is_wrong_is_one_line(
    project: Path, profile: dict[str, Any], task: dict[str, Any], said: str, capsys: Capsys
) -> None:
    write(project, profile, task)
    (line,) = output_of(capsys, "run", "s/asked", code=2).err.splitlines()
    assert said in line and not [path for path in (project / "runs").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("looker",), "takes one question"),
        (("lookr", "What?"), "did you mean 'looker'"),
        (("looker", "What?"), "name one model"),
        (("looker", "", "--llm", "openai:m"), "a question"),
        (("looker", "What", "now?", "--llm", "openai:m"), "in quotes"),
        (("nobody", "What?", "--llm", "openai:m"), "`tachograph profiles`"),
        (("looker", "What?", "--llm", "openai:m", "--llm-option", "x"), "NAME=VALUE"),
        (("looker", "What?", "--llm", "openai:m", "--base-url", "not a url"), "base URL"),
        (("looker", "What?", "--llm", "nobody:m"), "nobody:m"),
    ],
)
def test_a_profile_that_cannot_be_asked_leaves_nothing(
    project: Path, words: tuple[str, ...], said: str, capsys: Capsys
) -> None:
    (line,) = output_of(capsys, "run", "--profile", *words, code=2).err.splitlines()
    assert said in line and not (project / "tasks/asked").exists() and not (project / "runs").exists()


def test_whoever_asks_at_the_same_time_has_a_task_of_its_own(project: Path) -> None:
    """Each task is there before the other is numbered, and is given back since no run has begun."""
    with click.Context(click.Command("run")):
        asked = [task_for_question(Project(project), "looker", it, "openai:m") for it in ("a", "b\udcff")]
        assert [load_task(project / task.file).spec.question for task in asked] == ["a", "b?"]
    assert not (project / "tasks/asked").exists()


def test_what_a_policy_holds_against_the_cost_has_a_price(project: Path) -> None:
    limits = {"loop_budget": {"max_cost": "1 USD"}, "prices": {"openai:known": {"input": "1", "output": "1"}}}
    own = {"tool_registry": {"allowed": ["reader"]}, "agents": {"max_depth": 1, "max_children": 1}}
    lead_policy = json.dumps(merged(merged(POLICY, limits), own))
    (project / "policy/lead.yaml").write_text(lead_policy, encoding="utf-8")
    edit(project / "profiles/reader.yaml", '{"schema"', '{"model": "openai:dear", "schema"')
    lead = {"policy": {"file": "policy/lead.yaml"}, "tools": [], "agents": ["reader"], "mounts": None}
    write(project, lead, {"llm": {"live": ["openai:known"]}})
    task = load_task(project / "tasks/s/asked.yaml")
    known, dear = (ModelChoice(ModelName("openai", name)) for name in ("known", "dear"))
    with pytest.raises(PolicyError, match="'openai:dear'"):
        LiveRun(task, [known], {"openai:dear": dear}).run_spec()


def test_what_a_policy_below_allows_in_vain_is_told_and_may_not_hide_more(
    project: Path, capsys: Capsys
) -> None:
    write(project, {"agents": ["helper"]}, {})
    told = output_of(capsys, "run", "s/asked").err.splitlines()
    assert any(it.startswith("tachograph: policy/helper.yaml allows ") and "reader.yaml" in it for it in told)
    rewrite(project / "policy/helper.yaml", redact={"kinds": ["email"]})
    *_, line = output_of(capsys, "run", "s/asked", code=2).err.splitlines()  # after what is allowed in vain
    assert line.startswith("tachograph: policy/helper.yaml:1:") and "email is not redacted" in line


def test_a_long_name_of_a_profile(project: Path) -> None:
    name = "n" * 64
    (project / "profiles/reader.yaml").rename(project / f"profiles/{name}.yaml")
    write(project, {"agents": [name]}, {})
    assert [tool.name for tool in load_task(project / "tasks/s/asked.yaml").own_tools] == ["look", name]


def test_an_edit_of_a_plan_that_changes_no_decision_flips_no_run(tmp_path: Path) -> None:
    names = ("an_agent_below_plans", "handed_over_twice_after_a_plan")
    root = make_project(tmp_path / "p", [ROWS[name] for name in names])
    for name in names:
        record(task_of_row(root, name), root / "runs/s" / name)
    file = root / "policy/planning.yaml"
    old = Policy.load(file, name="policy/planning.yaml")
    for swap, number in ((("1000", "2000"), 0), (('"look"', '"page"'), 0), (('"exit_plan"', '"page"'), 2)):
        edit(file, *swap)
        found, tried = flips(Project(root), old, Policy.load(file, name="policy/planning.yaml"))
        assert (len(found), tried) == (number, 2)


def test_profiles_are_listed(project: Path, capsys: Capsys) -> None:
    write(project, {"model": "openai:gpt", "hand_over_to": ["helper"]}, {})
    lines = output_of(capsys, "profiles").out.splitlines()
    at = lines.index("looker: Looks.")
    assert lines[at + 1].split() == ["policy/reader.yaml,", "openai:gpt,", "look,", "helper"]
    (project / "profiles").rename(project / "others")
    assert output_of(capsys, "profiles").out.count("\n") == 1


# ---- in code ---------------------------------------------------------------------------------------------------------


def policy(*names: str, **delta: Any) -> Policy:
    own = {"agents": {"max_depth": 2, "max_children": 4}, "on_deny": "inform"}
    return Policy.from_dict(merged(merged(POLICY, {"tool_registry": {"allowed": names}, **own}), delta))


def test_one_tool_starts_agents_on_two_levels(project: Path) -> None:
    leaf = Agent(script("alpha"), [], policy()).as_tool("leaf", "Reads.")
    call = [("delegate", {"type": "leaf", "description": "d", "prompt": "p"})]
    middle = Agent(script(call, "beta"), [tachograph.delegate([leaf])], policy("delegate"))
    tools = [middle.as_tool("middle", "Leads."), tachograph.delegate([leaf])]
    lead = Agent(script([("middle", {"task": "t"})], "done"), tools, policy("delegate", "middle"))
    made = proved(lead, project / "out")
    assert [it.at for it in made.events if isinstance(it, AgentStarted)] == ["1.c0/0", "1.c0/1.c0/0"]
    other = tachograph.delegate([leaf, middle.as_tool("middle", "Leads.")])
    with pytest.raises(ToolError, match="'delegate'"):
        Agent(script("x"), [tools[0], other], policy("delegate"))


def test_who_goes_on_has_all_chances_of_its_own(project: Path) -> None:
    """Answers that do not fit, and those that are sent back, count for each agent and each turn."""
    fields = {"required": ["n"], "properties": {"n": {"type": "string"}}}
    schema = {"type": "object", "additionalProperties": False, **fields}
    rest: dict[str, Any] = {"output_retries": 1}
    clerk = Agent(script("", "", "?", '{"n": "1"}'), [], policy(), output_type=schema, **rest)
    to_clerk = clerk.as_tool("to_clerk", "C.", hands_over=True)
    asked = Agent(script("?", [("to_clerk", {})]), [to_clerk], policy("to_clerk"), output_type=schema, **rest)
    assert proved(asked, project / "out").answer == '{"n": "1"}'
    turns = Agent(script("?", '{"n": "1"}', "?", '{"n": "2"}'), [], policy(), output_type=schema, **rest)
    with tachograph.SyncSession(turns, project / "talk") as session:
        assert [session.ask(text).answer for text in "ab"] == ['{"n": "1"}', '{"n": "2"}']


@pytest.mark.parametrize(
    ("kind", "answer", "value"), [(None, "as you like", None), (list[int], '{"result":[3]}', [3])]
)
def test_an_answer_is_read_as_of_who_gave_it(project: Path, kind: Any, answer: str, value: Any) -> None:
    own = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}}
    clerk = Agent(script("", answer, answer), [], policy(), output_type=kind)
    to_clerk = clerk.as_tool("to_clerk", "C.", hands_over=True)
    front = Agent(script([("to_clerk", {})]), [to_clerk], policy("to_clerk"), output_type=own)
    wrong = Agent(script('{"n": "?"}'), [], policy(), output_type=own, output_retries=0)
    assert "/n" in wrong.run("?").reason
    made = front.run("?")
    assert (made.answer, made.output) == (answer, value)
    assert repr(answer) in repr(made) and "RunStarted" not in repr(made)
    with tachograph.SyncSession(front, project / "talk") as session:
        assert [session.ask(text).output for text in "ab"] == [value, value]


def test_delegate_is_for_agents(project: Path) -> None:
    agent = Agent(script("done"), [], policy())
    assert "a: A." in json.dumps(tachograph.delegate([agent.as_tool("a", "A.")]).input_schema)
    for wrong in ([], [tachograph.tool(effect="pure")(len_of)], [agent.as_tool("a", "A.", hands_over=True)]):
        with pytest.raises(ToolError):
            tachograph.delegate(wrong)


def len_of(text: str) -> int:
    """Count."""
    return len(text)


async def test_a_conversation_goes_on_with_whom_it_was_handed_over_to(project: Path) -> None:
    model = script("", "so it is", [("echo", {"text": "x"})], "again")
    clerk = Agent(model, ["echo"], policy("echo"), instructions="A clerk.")
    to_clerk = clerk.as_tool("to_clerk", "Knows more.", hands_over=True)
    front = Agent(script([("to_clerk", {})]), [to_clerk], policy("to_clerk", "echo"))
    async with Session(front, project / "out") as session:
        assert (await session.ask("a")).answer == "so it is"
    async with Session(front, project / "out") as session:  # as after the death of the process
        assert (await session.ask("b")).answer == "again"
        made = await session.close()
    (handed,) = [event for event in made.events if isinstance(event, HandedOver)]
    assert (handed.at, handed.instructions) == ("1.c0.h", "A clerk.")
    assert [it.name for it in handed.tools] == ["echo"]
    assert tachograph.replay(front, project / "out").events == made.events
    assert await tachograph.acheck(front, project / "out") == []


def test_the_policy_for_a_plan_hides_nothing_that_the_run_shows(project: Path) -> None:
    with pytest.raises(InputError, match="redact"):
        Agent(script("done"), [], policy(), plan=policy(redact={"kinds": ["github_token"]}))


def test_calls_go_one_after_another_where_one_policy_says_so(project: Path) -> None:
    """A tool of a server only reads by the policy for the plan, and is external by the own one."""
    send = Tool("send", "Sends.", CLOSED, CLOSED, "external", lambda arguments, io: {}, is_foreign=True)
    reads = policy("send", "exit_plan", tools={"send": {"effect": "read"}})
    calls = [("send", {"n": number}) for number in (1, 2)]
    made = Agent(script(calls, "done"), [send], policy("send", "exit_plan"), plan=reads).run("?")
    places = [event.at for event in made.events]
    assert places.index("1.c0.i1") < places.index("1.c1.d")


def test_an_allowed_call_is_explained_once(tmp_path: Path) -> None:
    name = "a_plan_is_revised"
    task = task_of_row(make_project(tmp_path / "p", [ROWS[name]]), name)
    record(task, tmp_path / "out")
    lines = explain(task, tmp_path / "out", "run")
    first = next(it for it in lines if "look" in it)
    assert [line for line in lines if line.startswith("1.c0.d")] == [first]


def test_after_a_hand_off_the_rest_of_the_reply_is_not_made(project: Path) -> None:
    clerk = Agent(script("", "done"), ["echo"], policy("echo"))
    calls = [("to_clerk", {}), ("echo", {"text": "x"})]
    tools = [clerk.as_tool("to_clerk", "C.", hands_over=True), "echo"]
    made = proved(Agent(script(calls), tools, policy("to_clerk", "echo")), project / "out")
    assert [event.decision for event in made.events if isinstance(event, Decided)] == ["allow"]
    told = [json.loads(it["content"]) for it in made.messages if it["role"] == "tool"]
    assert [it.get("state") or it["error"] for it in told] == ["handed over", "not_reached"]
    assert [it.at for it in made.events if isinstance(it, ModelReplied)] == ["1.m1", "2.m1"]
