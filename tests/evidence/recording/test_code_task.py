"""`record(..., task=)` writes the task of an agent in code, so that a check makes the run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, InputError, OutputError, Stub, record
from tachograph.evidence.checking.check import examine
from tachograph.evidence.recording import index
from tachograph.evidence.recording.code_task import name_of
from tachograph.evidence.tasks.code.agent import load_code_agent
from tests.evidence.project import replaced
from tests.evidence.tasks.code.code_project import QUESTION, code_project, write_task
from tests.support import cli, environment, tree

TASK = "tasks/code/notes.yaml"
RUN = "runs/code/notes"
NAMED = "crew.notes:agent"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return code_project(tmp_path / "project")


def _agent(project: Path, name: str = NAMED) -> Agent:
    """The agent as a program has it that imports its module."""

    def error(message: str, remedy: str) -> InputError:
        return InputError(message, remedy=remedy)

    load_code_agent(name, project, error)
    agent = getattr(sys.modules["crew.notes"], name.partition(":")[2])
    assert isinstance(agent, Agent)
    return agent


def test_the_task_is_written_and_the_run_made_again(project: Path) -> None:
    result = record(_agent(project), QUESTION, task=project / TASK, seed=4)
    assert result.answer == "a note" and result.run_id == "code-notes-s4" and len(result.steps) == 2
    text = (project / TASK).read_text()
    assert text.split("\n")[1:] == [
        "schema: task/v1",
        "id: code-notes",
        f'title: "{QUESTION}"',
        f'question: "{QUESTION}"',
        "agent: crew.notes:agent",
        "seed: 4",
        "",
    ]
    assert examine(project / RUN, root=project).ok and index.problems(project) == []
    before = tree(project)
    assert cli("run", TASK, cwd=project).returncode == 0
    assert record(_agent(project), QUESTION, task=project / TASK, seed=4).ok
    assert tree(project) == before


def test_by_name_and_from_a_function(project: Path) -> None:
    record("crew.notes:make", QUESTION, project / RUN, task=project / TASK)
    assert "agent: crew.notes:make\n" in (project / TASK).read_text()
    assert examine(project / RUN, root=project).ok


def test_a_live_model_is_named_in_the_task(project: Path) -> None:
    result = record(_agent(project, "crew.notes:live"), QUESTION, task=project / TASK)
    assert result.answer == "a note"
    assert 'live: {models: ["callable:model"]}\n' in (project / TASK).read_text()
    assert examine(project / RUN, root=project).ok
    before = tree(project)
    head = (project / TASK).read_text().splitlines()[0]
    assert "`tachograph check` makes this run again" in head
    assert f"`tachograph run {TASK} --replace` records a new one" in head
    with pytest.raises(OutputError, match="already holds the record of run "):
        record("crew.notes:live", QUESTION, task=project / TASK)
    done = cli("run", TASK, cwd=project)
    assert done.returncode == 2
    assert "give --replace to record a new run in its place, or name another folder" in done.stderr
    assert tree(project) == before
    assert cli("check", RUN, cwd=project).returncode == 0
    assert tree(project) == before
    assert record("crew.notes:live", QUESTION, task=project / TASK, replace=True).ok


def test_a_program_that_is_a_module_itself(project: Path) -> None:
    replaced(project / "crew/notes.py", "from .words", "from crew.words")
    with (project / "crew/notes.py").open("a") as file:
        file.write(
            'if __name__ == "__main__":\n    from tachograph import record\n\n'
            f'    print(record(agent, "{QUESTION}", task="{TASK}").answer)\n'
        )
    command = [sys.executable, "-m", "crew.notes"]
    done = subprocess.run(
        command, cwd=project, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "a note\n"), done.stderr
    assert "agent: crew.notes:agent\n" in (project / TASK).read_text()
    assert cli("check", cwd=project).returncode == 0


def test_a_module_that_records_while_it_is_imported(project: Path) -> None:
    with (project / "crew/notes.py").open("a") as file:
        file.write(f'from tachograph import record\nrecord(agent, "{QUESTION}", "mine")\n')
    with pytest.raises(InputError) as caught:
        record(NAMED, QUESTION, task=project / TASK)
    said = str(caught.value)
    assert said.startswith("crew/notes.py:") and '`if __name__ == "__main__":`' in said
    assert not (project / "tasks").exists() and not (project / "mine").exists()


def test_another_task_is_not_overwritten(project: Path) -> None:
    agent = _agent(project)
    record(agent, QUESTION, task=project / TASK)
    before = tree(project)
    for given, said in {
        (QUESTION + "?", 0, NAMED): "its question is not the given one",
        (QUESTION, 1, NAMED): "its seed is not the given one",
        (QUESTION, 0, "crew.notes:make"): "its agent is not the given one",
    }.items():
        question, seed, name = given
        with pytest.raises(InputError, match=said):
            record(name, question, task=project / TASK, seed=seed)
    with pytest.raises(InputError, match=r"runs/code/other is the place of a run of tasks/code/other.yaml"):
        record(agent, QUESTION, project / "runs/code/other", task=project / TASK)
    assert tree(project) == before


def test_a_task_that_is_there_says_more(project: Path) -> None:
    write_task(project, more="expected: {ending: loop_budget}\n")
    with pytest.raises(Exception, match="expected loop_budget, found final_answer"):
        record(_agent(project), QUESTION, task=project / TASK)
    assert not (project / RUN).exists() and (project / TASK).exists()


def test_bad_input_writes_nothing(project: Path) -> None:
    agent = _agent(project)
    before = tree(project)
    nameless = Agent(Stub([{"answer": "so"}]), [], agent.policy)
    cases = [
        (nameless, TASK, {}, "not the value of a name at the top of a module of the project"),
        ("crew.notes:agnt", TASK, {}, "did you mean 'agent'"),
        (agent, "tasks/notes.yaml", {}, "is no place of a task"),
        (agent, "tasks/code/notes.yml", {}, "is no place of a task"),
        (agent, "tasks/Code/notes.yaml", {}, "id must be KIND-NAME"),
        (agent, TASK, {"run_id": "a"}, "run_id is given beside task"),
        (agent, TASK, {"approve": lambda _asked: True}, "approve is given beside task"),
        ("crew.notes:broken", TASK, {}, "raised ValueError when it was called: no key"),
    ]
    for given, place, more, said in cases:
        with pytest.raises(InputError, match=said):
            record(given, QUESTION, task=project / place, **more)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give both, or a task"):
        record(NAMED, QUESTION, project / "mine")
    assert tree(project) == before


def test_a_run_that_is_refused_its_input_leaves_no_task(project: Path) -> None:
    replaced(project / "crew/notes.py", '    {"answer": ANSWER},\n', "")  # the script runs out
    with pytest.raises(InputError, match="the script has 1 turn "):
        record(NAMED, QUESTION, task=project / TASK)
    assert not (project / "tasks").exists() and not (project / "runs").exists()


def test_a_question_with_a_secret_is_not_written(project: Path) -> None:
    with (project / "policy/v1.yaml").open("a") as file:
        file.write("redact: [email]\n")
    with pytest.raises(InputError, match="the question holds a secret"):
        record(NAMED, "Who is jan@example.org?", task=project / TASK)
    assert not (project / "tasks").exists()


def test_who_only_imports_an_agent_does_not_name_it(project: Path) -> None:
    (project / "crew/a_user.py").write_text("from crew.notes import agent, live as other\n")

    def error(message: str, remedy: str) -> InputError:
        return InputError(message, remedy=remedy)

    load_code_agent("crew.a_user:agent", project, error)
    module = sys.modules["crew.notes"]
    assert name_of(module.agent, project) == NAMED
    assert name_of(module.live, project) == "crew.notes:live"


SECRET = "ghp_" + "a" * 36
TEMPLATE = "You answer drivers of {depot}."
EARLIER = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]


@pytest.fixture
def templated(project: Path) -> Path:
    """A project whose agent has instructions with a variable."""
    with (project / "crew/notes.py").open("a") as file:
        file.write("\nfrom tachograph import Agent, Stub\n")
        file.write(f"asked = Agent(Stub([{{'answer': 'Yes.'}}]), instructions={TEMPLATE!r})\n")
    return project


def test_variables_and_history_stand_in_the_task(templated: Path) -> None:
    given: dict[str, Any] = {"variables": {"depot": "Oslo"}, "history": EARLIER}
    result = record("crew.notes:asked", QUESTION, task=templated / TASK, **given)
    assert [message["content"] for message in result.history] == ["Hello", "Good morning", QUESTION, "Yes."]
    text = (templated / TASK).read_text()
    assert 'variables: {"depot": "Oslo"}\n' in text and '{"content": "Hello", "role": "user"}' in text
    assert examine(templated / RUN, root=templated).ok
    before = tree(templated)
    assert record("crew.notes:asked", QUESTION, task=templated / TASK, **given).ok
    assert record("crew.notes:asked", QUESTION, task=templated / TASK).ok, "the file may say more"
    assert cli("run", TASK, cwd=templated).returncode == 0
    assert tree(templated) == before
    for key, other in (("variables", {"depot": "Bergen"}), ("history", EARLIER[:1])):
        with pytest.raises(InputError, match=f"is the task of another run: its {key} is not the given one"):
            record("crew.notes:asked", QUESTION, task=templated / TASK, **{**given, key: other})
    assert tree(templated) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the instructions name the variable 'depot', which has no value"),
        ({"variables": {"depot": 3}}, "variables.depot must be of type string"),
        ({"variables": {"depot": SECRET}}, "the variables hold a secret"),
        (
            {"variables": {"depot": "x"}, "history": [{"role": "user", "content": SECRET}]},
            "the history holds a secret",
        ),
        ({"variables": {"depot": "x"}, "history": "hello"}, "the history must be a list of messages"),
    ],
    ids=str,
)
def test_what_does_not_fit_writes_no_task(templated: Path, given: dict[str, Any], said: str) -> None:
    before = tree(templated)
    with pytest.raises(InputError) as caught:
        record("crew.notes:asked", QUESTION, task=templated / TASK, **given)
    assert said in str(caught.value) and SECRET not in str(caught.value) and tree(templated) == before
