"""What a command says where a script, a tool, the output or a folder is in its way: one line with a remedy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import TaskError
from tachograph.evidence.recording import index
from tachograph.evidence.tasks.script_calls import calls_of_no_tool
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import OutputError
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.models.types import LLMInput, Messages
from tests import cli_project
from tests.cli_project import RUN, TASK, Say
from tests.evidence.project import replaced
from tests.runtime.workspace.test_safe_open import as_nobody
from tests.support import ROOT, cli

shared, project, say = cli_project.shared, cli_project.project, cli_project.say


def test_a_call_of_no_tool_is_told_with_the_tool_that_was_meant(say: Say, project: Path) -> None:
    replaced(project / TASK, "tool: fetch\n", "tool: fetsh\n")
    code, _, err = say("run", TASK)
    number = (project / TASK).read_text(encoding="utf-8").partition("fetsh")[0].count("\n") + 1
    said = "the script calls 'fetsh', which is no tool of the task; did you mean 'fetch'?"
    assert code == 1 and f": {said}\n" in err and f"tachograph: {TASK}:{number}:" in err


def test_a_denial_that_the_task_expects_is_not_hinted_at(tmp_path: Path) -> None:
    folder = tmp_path / "tasks/policy_gates"
    folder.mkdir(parents=True)
    file = folder / "pg4_forbidden_tool.yaml"
    text = (ROOT / "tasks/policy_gates/pg4_forbidden_tool.yaml").read_text(encoding="utf-8")
    for expected, hints in (("deny:tool_registry", 0), ("allow", 1)):
        file.write_text(text.replace('"deny:tool_registry"', expected), encoding="utf-8")
        assert len(calls_of_no_tool(load_task(file, root=tmp_path), ["read"])) == hints


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            {"error": "tool_failed", "kind": "retry_exhaustion", "exception": "OSError", "retryable": False},
            "since the call failed: retry_exhaustion, OSError (at /0/answer); fix what the tool met",
        ),
        ({"words": 3, "path": "a"}, "finds nothing in result 0 (at /0/answer); the result has words, path"),
    ],
)
def test_a_pointer_that_finds_nothing_says_what_is_there(result: Any, said: str) -> None:
    message = json.dumps({"role": "tool", "content": json.dumps(result)})
    asked = LLMInput("r", 1, Messages([message], 1), (), 100)
    with pytest.raises(TaskError) as caught:
        Stub([{"answer": {"$result": 0, "at": "/nope"}}])(asked)
    assert said in str(caught.value)


def test_a_tool_that_closes_the_output_is_told_in_one_line(project: Path) -> None:
    """The run is recorded whole all the same."""
    tool = project / "tools/read.py"
    text = tool.read_text(encoding="utf-8")
    head, mark, body = text.partition("\ndef run(")
    assert mark, "the tool has a function called run"
    first = body.index("\n", body.index(":\n")) + 1
    body = f"{body[:first]}    sys.stdout.close()\n{body[first:]}"
    head = head.replace("from typing", "import sys\nfrom typing", 1) + '\nIMPORTS = ("sys",)\n'
    tool.write_text(f"{head}{mark}{body}", encoding="utf-8")
    done = cli("run", TASK, "--out", "my-runs/one", cwd=project)
    said = "tachograph: a tool closed the output; what was recorded stays, see `tachograph ls`\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert (project / "my-runs/one/run_report.md").is_file()


def test_a_run_whose_record_cannot_be_read_is_not_called_different(say: Say, project: Path) -> None:
    (project / RUN / "state.jsonl").write_text("x\n")
    code, out, _ = say("replay", RUN)
    assert code == 1 and out.startswith(f"not replayed  {RUN}\n")


def _shut(place: Path, act: Callable[[], Any]) -> str:
    """The complaint of `act` while nobody may look into `place`."""
    before = place.stat().st_mode
    place.chmod(0o555 if place.name == "runs" else 0)
    try:
        with as_nobody(), pytest.raises((TaskError, OutputError)) as caught:
            act()
    finally:
        place.chmod(before)
    return str(caught.value)


def test_what_may_not_be_read_or_written_is_told_as_that() -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o755)
        (root / "policy").mkdir()
        (root / "policy/v1.yaml").write_text("schema: policy/v1\n")
        (root / "runs").mkdir()
        (root / "tasks/a").mkdir(parents=True)
        task = root / "tasks/a/b.yaml"
        task.write_text((ROOT / TASK).read_text().replace("id: canonical-v1", "id: a-b"))
        said = _shut(root / "policy", lambda: build(load_task(task, root=root)))
        assert (
            "'policy/v1.yaml' cannot be read (Permission denied); check the permissions of its folders"
            in said
        )
        said = _shut(root / "runs", lambda: index.update(root))
    assert said == (
        "runs/INDEX.json: cannot be written (Permission denied), and the runs stay as they are; "
        "check the folder and its permission, then write it with `tachograph index`"
    )
