"""A task may name an agent in code: its module is imported from the project, and its sources are inputs."""

from __future__ import annotations

import json
import os
import py_compile
import sys
from pathlib import Path

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.code.agent import is_of_project
from tachograph.evidence.tasks.code.project_modules import source_files
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import InputError
from tests.evidence.project import replaced
from tests.evidence.tasks.code.code_project import code_project, write_task
from tests.support import cli

RUN = "runs/code/notes"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return code_project(tmp_path / "project")


def _recorded(project: Path, agent: str = "crew.notes:agent", more: str = "") -> Path:
    task = load_task(write_task(project, agent, more))
    record_run(*build(task), project / RUN)
    return project / RUN


def _manifest(run: Path) -> dict[str, object]:
    manifest: dict[str, object] = json.loads((run / "manifest.json").read_bytes())
    return manifest


@pytest.mark.parametrize("name", ["agent", "make"])
def test_a_scripted_run_is_made_again_in_full(project: Path, name: str) -> None:
    run = _recorded(project, f"crew.notes:{name}")
    assert examine(run, root=project).lines == [] == verify(run, project)
    assert replayed(run, root=project).lines == []
    replaced(project / "data/notes/first.md", "a note", "another note")
    found = examine(run, root=project)
    assert found.kind == "EFFECT" and found.accept is not None


def test_modules_of_the_project_are_inputs(project: Path) -> None:
    run = _recorded(project)
    inputs = _manifest(run)["inputs"]
    assert isinstance(inputs, list)
    assert [item["path"] for item in inputs] == [
        "crew/__init__.py",
        "crew/notes.py",
        "crew/words.py",
        "data/notes/first.md",
        "policy/v1.yaml",
        "tasks/code/notes.yaml",
        "tools/read.py",
    ]


def test_a_changed_module_is_named_as_the_cause(project: Path) -> None:
    run = _recorded(project)
    replaced(project / "crew/words.py", "a note", "a tote")  # of the same size, in the same second
    found = examine(run, root=project)
    assert found.kind == "ANSWER" and list(found.moved) == ["crew/words.py"]
    done = cli("check", RUN, cwd=project)
    assert done.returncode == 1 and "crew/words.py moved" in done.stdout
    replaced(project / "crew/words.py", "a tote", "a note")
    assert examine(run, root=project).ok


def test_cached_bytecode_is_not_used(project: Path) -> None:
    words = project / "crew/words.py"
    py_compile.compile(str(words))
    made = words.stat().st_mtime_ns
    replaced(words, "a note", "a tote")
    os.utime(words, ns=(made, made))  # so that Python takes the bytecode for that of this source
    assert b"a tote" in (_recorded(project) / "state.jsonl").read_bytes()


def test_the_same_bytes_from_any_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _recorded(project)
    other = code_project(tmp_path / "an other place")
    monkeypatch.chdir(tmp_path)
    again = _recorded(other)
    for name in ("state.jsonl", "trace.json", "run_report.md"):
        assert (run / name).read_bytes() == (again / name).read_bytes()
    assert str(tmp_path) not in (run / "state.jsonl").read_text()
    done = cli("check", "--root", str(project), "code/notes", cwd=other)
    assert done.returncode == 0, done.stdout
    assert Path.cwd() == tmp_path


def test_the_project_that_was_imported_last_is_not_taken_for_another(project: Path, tmp_path: Path) -> None:
    _recorded(project)
    other = code_project(tmp_path / "other")
    replaced(other / "crew/words.py", "a note", "b note")
    _recorded(other)
    assert b"b note" in (other / RUN / "state.jsonl").read_bytes()
    assert examine(project / RUN, root=project).ok and examine(other / RUN, root=other).ok
    assert [path for path in sys.path if path.startswith(str(tmp_path))] == [str(other.resolve())]


def test_a_live_run_is_answered_from_its_record(project: Path) -> None:
    run = _recorded(project, "crew.notes:live", 'live: {models: ["callable:model"]}\n')
    assert examine(run, root=project).lines == [] == verify(run, project)
    assert replayed(run, root=project).lines == []
    replaced(project / "crew/words.py", "a note", "a tote")
    found = examine(run, root=project)
    assert found.kind == "DIGEST-ONLY"  # the recorded model answered
    replaced(project / "data/notes/first.md", "a note", "another note")
    found = examine(run, root=project)
    assert found.kind == "BROKEN" or found.kind == "EFFECT"
    assert found.accept == "tachograph run tasks/code/notes.yaml --out runs/code/notes --replace"


def test_what_it_expects_holds(project: Path) -> None:
    task = write_task(project, more="expected: {ending: loop_budget}\n")
    done = cli("run", str(task), cwd=project)
    assert done.returncode == 1 and "expected loop_budget, found final_answer" in done.stderr
    assert not (project / RUN).exists()


def test_the_command_says_what_it_executes(project: Path) -> None:
    write_task(project)
    done = cli("run", "tasks/code/notes.yaml", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "crew.notes:agent, code of the project, which is executed" in done.stderr
    for words in (["check"], ["verify"], ["replay"], ["explain", "code/notes"], ["ls"]):
        assert cli(*words, cwd=project).returncode == 0, words
    replaced(project / "crew/words.py", "a note", "my note")
    accepted = cli("accept", "code/notes", "--reason", "another answer", cwd=project)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert cli("check", cwd=project).returncode == 0
    assert not list(project.glob("crew/__pycache__"))  # nothing is left beside the sources


WRONG = {
    "crew.none:agent": ":5:1: there is no module 'crew.none' in the project; make crew/none.py",
    "none:agent": ":5:1: there is no module 'none' in the project; make none.py",
    "crew.notes:agnt": ":5:1: the module crew.notes has no 'agnt'; did you mean 'agent'?",
    "crew.notes:number": ":5:1: crew.notes:number is of type int, and not an Agent; name an Agent",
    "json:loads": ":5:1: the module json is not one of the project's, but __init__.py of an installed package",
    "crew.notes:live": ":5:1: the model of the agent is callable:model, but the task does not say `live:",
    "crew.notes": ":5:8: ",
    "crew/notes.py:agent": ":5:8: ",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_leads_to_no_agent(project: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        build(load_task(write_task(project, name)))
    said = str(caught.value)
    assert said.startswith(f"tasks/code/notes.yaml{WRONG[name]}") and "\n" not in said and "; " in said, said


def test_a_folder_that_an_installed_package_hides_is_named(project: Path) -> None:
    (project / "yaml").mkdir()
    (project / "yaml/mine.py").write_text("agent = 1\n")
    with pytest.raises(InputError) as caught:
        build(load_task(write_task(project, "yaml.mine:agent")))
    said = str(caught.value)
    assert "an installed package is also called 'yaml', and hides" in said and "add yaml/__init__.py" in said


RAISING = {
    "x = 1\nraise ValueError('no\\nkey')\n": "crew/bad.py:2: crew.bad raised ValueError while it was imported: no",
    "import not_there\n": "crew/bad.py:1: crew.bad raised ModuleNotFoundError while it was imported: No module",
    "def f(:\n": "crew/bad.py:1: crew.bad raised SyntaxError while it was imported",
    "raise GeneratorExit\n": "crew/bad.py:1: crew.bad raised GeneratorExit while it was imported",
    "class Odd(BaseException): pass\nraise Odd\n": "crew/bad.py:2: crew.bad raised Odd while it was imported",
    "raise SystemExit(3)\n": "crew/bad.py:1: crew.bad raised SystemExit while it was imported: 3",
    "from tachograph import Policy\nPolicy.load('policy/none.yaml')\n": "policy/none.yaml: no such policy file",
    "from tachograph import Agent\nAgent(3, [], None)\n": "crew/bad.py:2: crew.bad raised InputError while",
    "def agent():\n    raise ValueError('no key')\n": "crew/bad.py:2: crew.bad:agent raised ValueError when it",
    "def agent(given):\n    return given\n": "tasks/code/notes.yaml:5:1: crew.bad:agent raised TypeError when it",
}


@pytest.mark.parametrize("text", RAISING)
def test_a_module_that_raises(project: Path, text: str) -> None:
    (project / "crew/bad.py").write_text(text)
    here = os.getcwd()
    with pytest.raises(InputError) as caught:
        build(load_task(write_task(project, "crew.bad:agent")))
    said = str(caught.value)
    assert said.startswith(RAISING[text]) and "\n" not in said and "; " in said, said
    assert os.getcwd() == here
    done = cli("run", "tasks/code/notes.yaml", cwd=project)
    assert done.returncode == 2 and RAISING[text] in done.stderr.replace("\\u{a}", "\n"), done.stderr
    assert not (project / "runs").exists()


def test_an_agent_has_its_own_parts(project: Path) -> None:
    for key, text in {
        "policy": "{file: policy/v1.yaml}",
        "tools": "[read]",
        "llm": "{stub: {turns: []}}",
    }.items():
        with pytest.raises(InputError, match=f"'{key}' stands beside an agent in code"):
            load_task(write_task(project, more=f"{key}: {text}\n"))
    path = write_task(project)
    replaced(path, "agent: crew.notes:agent\n", "tools: []\n")
    with pytest.raises(InputError, match="lacks 'policy'; add it, or name an agent in code"):
        load_task(path)


def test_a_script_does_not_pass_for_a_live_model(project: Path) -> None:
    task = load_task(write_task(project, more='live: {models: ["*:*"]}\n'))
    with pytest.raises(
        InputError, match="the model of the agent is a script, but the task is for a live one"
    ):
        build(task)


def test_sources_are_found_by_the_imports_in_them(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "",
        "p/a.py": "def f():\n    from . import b\n    import p.c as c\n",
        "p/b.py": "from .sub.d import *\nimport json\n",
        "p/c.py": "from p import a\nfrom tachograph import Agent\nimport .wrong\n",
        "p/sub/d.py": "from ..e import x\n",
        "p/e.py": "from .... import far\n",
        "p/not_needed.py": "",
        ".venv/lib/site-packages/q.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    names = [path.relative_to(tmp_path).as_posix() for path in source_files("p.a", tmp_path)]
    assert names == ["p/__init__.py", "p/a.py", "p/b.py", "p/c.py", "p/e.py", "p/sub/d.py"]


def test_a_run_that_stopped_goes_on_with_its_own_model(project: Path) -> None:
    replaced(
        project / "crew/notes.py",
        "    return LLMOutput(final_answer=ANSWER)",
        "    if not Path('key').exists():\n        raise InputError('the key is missing')\n"
        "    return LLMOutput(final_answer=ANSWER)",
    )
    replaced(project / "crew/notes.py", "import Agent,", "import Agent, InputError,")
    write_task(project, "crew.notes:live", 'live: {models: ["callable:*"]}\n')
    done = cli("run", "tasks/code/notes.yaml", cwd=project)
    assert done.returncode == 2 and "the key is missing" in done.stderr
    (project / "key").write_text("")
    changed = project / "crew/words.py"
    replaced(changed, "a note", "a tote")
    done = cli("resume", RUN, cwd=project)
    assert done.returncode == 2 and "under other inputs: crew/words.py changed" in done.stderr
    replaced(changed, "a tote", "a note")
    done = cli("resume", RUN, cwd=project)
    assert done.returncode == 0 and "a note" in done.stdout, done.stderr
    assert cli("check", cwd=project).returncode == 0


@pytest.mark.parametrize(
    ("file", "is_part"),
    [
        ("crew/notes.py", True),
        (".venv/lib/crew.py", False),
        ("venv/lib/site-packages/crew.py", False),
        ("pages/node_modules/crew.py", False),
        ("../crew.py", False),
    ],
)
def test_an_environment_in_the_project_is_no_part_of_it(tmp_path: Path, file: str, is_part: bool) -> None:
    """Packages that are installed there are no inputs of a run, and no agents of the project."""
    assert is_of_project(tmp_path / "project" / file, tmp_path / "project") == is_part
