"""A folder that a run writes holds neither its policy, tools and tasks nor the answers of a person."""

from __future__ import annotations

import asyncio
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Hooks, Mount, Policy, Stub, Tool, load_module, tool
from tachograph.fail.errors import CorpusError
from tachograph.runtime.core.effects import Answer, AskHuman
from tachograph.runtime.driver.file_approvals import ByFile
from tests.support import policy_data
from tests.support import tool as make_tool

POLICY = "schema: policy/v1\n"
SOURCE = '''"""Say hello."""
DESCRIPTION = "Say hello."
INPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
OUTPUT_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
EFFECT, IDEMPOTENT, TRANSIENT = "pure", True, ()


def run(args, io):
    return {}
'''


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


def agent(box: Path, *tools: Tool, **given: Any) -> Agent:
    box.mkdir(parents=True, exist_ok=True)
    data = policy_data(sandbox=None, tool_registry={"allowed": [item.name for item in tools], "denied": []})
    data["sandbox"] = {"mounts": {"box": "write"}}
    return Agent(
        Stub([{"answer": "Yes."}]),
        tools,
        Policy.from_dict(data),
        mounts={"box": Mount(box, "box", "write")},
        **given,
    )


def refused(made: Agent, approve: ByFile | None = None) -> str:
    with pytest.raises(CorpusError) as first:
        made.run("?", approve=approve)
    with pytest.raises(CorpusError) as second:
        asyncio.run(made.arun("?", approve=approve))
    assert str(first.value) == str(second.value) and "\n" not in str(first.value)
    return str(first.value)


@pytest.mark.parametrize("answers", ["box", "box/deep/answers", "link"])
def test_the_answers_of_a_person_are_in_no_folder_that_the_run_writes(tmp_path: Path, answers: str) -> None:
    (tmp_path / "link").symlink_to("box")
    made = agent(tmp_path / "box", make_tool())
    said = refused(made, ByFile(tmp_path / answers))
    assert "mount 'box' is for writing and holds the answers of a person; give it a folder of its own" in said
    assert made.run("?", approve=ByFile(tmp_path / "other")).ok


def test_a_tool_is_in_no_folder_that_the_run_writes_where_the_policy_was_made_in_code(tmp_path: Path) -> None:
    (tmp_path / "project/tools").mkdir(parents=True)
    (tmp_path / "project/tools/hello.py").write_text(SOURCE, encoding="utf-8")
    hello = load_module(tmp_path / "project/tools/hello.py", file="tools/hello.py")
    for box in ("project", "project/tools", "."):
        said = refused(agent(tmp_path / box, hello))
        assert "holds the code of tool 'hello'" in said
    assert agent(tmp_path / "project/out", hello).run("?").ok


def test_a_function_of_the_caller_is_in_no_folder_that_the_run_writes() -> None:
    here = Path(__file__).parent

    @tool(effect="pure")
    def twice(text: str) -> str:
        """Say it twice."""
        return text + text

    assert "holds the code of tool 'twice'" in refused(agent(here, twice))
    bare = make_tool(run=partial(lambda args, io, _: args, _=1))
    assert "holds the code of tool" in refused(agent(here, bare))
    hooks = Hooks(before_call=lambda data: None, name="careful")
    assert "holds the code of hooks 'careful'" in refused(agent(here, make_tool(run=len), hooks=hooks))


@pytest.mark.parametrize("name", ["policy", "tools", "tasks"])
def test_the_project_around_is_in_no_folder_that_the_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    project = tmp_path / "project"
    for folder in ("policy", name, "src/deep"):
        (project / folder).mkdir(parents=True, exist_ok=True)
    (project / "policy/v1.yaml").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(project / "src/deep")
    assert "holds the project's policy/" in refused(agent(project, make_tool()))
    assert "holds the project's policy/" in refused(agent(tmp_path, make_tool()))
    said = refused(agent(project / name, make_tool()))
    assert f"lies in a project's {name}/" in said
    assert agent(project / "out", make_tool()).run("?").ok


@pytest.mark.parametrize("box", ["tasks", "tasks/first", "tools", "."])
def test_a_project_without_a_policy_file_is_guarded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: str
) -> None:
    project = tmp_path / "project"
    for folder in ("tasks/first", "tools"):
        (project / folder).mkdir(parents=True)
    monkeypatch.chdir(project)
    assert agent(project / box, make_tool()).run("?").ok  # a folder of that name is no project yet
    (project / "tasks/first/one.yaml").write_text("id: first-one\nschema: 'task/v1'\n", encoding="utf-8")
    said = refused(agent(project / box, make_tool()))
    where = f"lies in a project's {box.partition('/')[0]}/" if box != "." else "holds the project's tools/"
    assert where in said
    assert agent(project / "out", make_tool()).run("?").ok


def test_answers_are_guarded_behind_what_wraps_or_binds_their_reader(tmp_path: Path) -> None:
    answers = ByFile(tmp_path / "box/answers")

    @wraps(answers)
    def told(asked: AskHuman) -> Answer | None:
        return answers(asked)

    made = agent(tmp_path / "box", make_tool())
    for approve in (partial(answers), answers.__call__, told, partial(answers.__call__)):
        with pytest.raises(CorpusError, match="holds the answers of a person"):
            made.run("?", approve=approve)
