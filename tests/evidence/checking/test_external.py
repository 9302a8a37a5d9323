"""An external effect takes place when a run is made, and never again while its record stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dev import build as making
from dev import regression
from tachograph import LLMOutput, ToolCall
from tachograph.cli import main as command_line
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.review.suggest.suggest import suggest
from tests.evidence.project import replaced
from tests.support import ROOT

TASK = "tasks/mail/one.yaml"
RUN = "runs/mail/one"

TOOL = '''"""Send a mail; how often is counted in a file beside the project."""

from typing import Any

COUNTER = {counter!r}
DESCRIPTION = "Send a mail."
INPUT_SCHEMA = {{
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {{"text": {{"type": "string", "maxLength": 100, "x-resource": "none"}}}},
}}
OUTPUT_SCHEMA = {{
    "type": "object",
    "additionalProperties": False,
    "required": ["sent"],
    "properties": {{"sent": {{"type": "integer"}}}},
}}
EFFECT = "external"
IDEMPOTENT = False
TRANSIENT = (ConnectionRefusedError,)


def run(args, io):
    """Count one more mail."""
    with open(COUNTER, "a") as file:
        file.write(args["text"] + "\\n")
    with open(COUNTER) as file:
        count = len(file.readlines())
    if args["text"] == "refused":
        raise ConnectionRefusedError
    if args["text"] == "kept":
        io.write("sandbox/kept.md", "copy number " + str(count))
    if args["text"] == "away":
        io.get("https://corpus.test/moved")
    return {{"sent": count}}
'''

POLICY = """\
schema: policy/v1
tool_registry: {allowed: [send, read]}
url_allowlist: ["https://corpus.test/"]
sandbox: {mounts: {corpus: read, sandbox: write}}
loop_budget: {max_iterations: 10, max_tokens: 50000, max_tool_calls: 40, max_result_bytes: 1000000}
cycle_detection: {max_repeats: 3}
retry: {max_retries: 2, backoff_base_ms: 100, backoff_cap_ms: 2000}
arg_schema_enforcement: strict
on_deny: terminate
"""

SCENARIO = """\
schema: task/v1
id: mail-one
title: Send one mail
question: "Tell them."
policy: {file: policy/v1.yaml}
tools: [send, read]
mounts: {corpus: data}
hosts:
  corpus.test:
    folder: data
    redirects: {"/moved": "https://corpus.test/note.md"}
llm:
  stub:
    turns:
      - calls:
          - {tool: send, arguments: {text: first}}
      - calls:
          - {tool: send, arguments: {text: second}}
      - answer: done
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    for folder in ("policy", "tools", "data", "tasks/mail"):
        (place / folder).mkdir(parents=True)
    (place / "policy" / "v1.yaml").write_text(POLICY)
    (place / "tools" / "send.py").write_text(TOOL.format(counter=str(tmp_path / "counter")))
    shutil.copy(ROOT / "tools" / "read.py", place / "tools")
    (place / "data" / "note.md").write_text("note")
    (place / TASK).write_text(SCENARIO)
    monkeypatch.chdir(place)
    return place


def sent(project: Path) -> list[str]:
    counter = project.parent / "counter"
    return counter.read_text().split() if counter.exists() else []


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = command_line.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def recorded(project: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    assert command(capsys, "run", TASK)[0] == 0
    return files(project)


def files(project: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (project / RUN).iterdir()}


def results(project: Path) -> list[Any]:
    lines = [json.loads(text) for text in (project / RUN / "state.jsonl").read_text().split("\n")[:-1]]
    return [result["result"] for line in lines[1:-1] for result in line["tool_results"]]


def test_it_is_performed_once_whatever_is_done_with_the_record(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(project, capsys)
    assert sent(project) == ["first", "second"] and results(project) == [{"sent": 1}, {"sent": 2}]
    assert examine(project / RUN, root=project).lines == []
    assert replayed(project / RUN, root=project).lines == []
    for words in (
        ["check"],
        ["verify"],
        ["replay"],
        ["explain", RUN],
        ["replay", "--policy", "policy/v1.yaml"],
    ):
        assert command(capsys, *words)[0] == 0, words
    assert making.main([]) == 0 and making.main(["--check"]) == 0
    assert sent(project) == ["first", "second"]
    assert files(project) == before


def test_run_over_a_record_performs_nothing_and_says_so(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(project, capsys)
    code, _, said = command(capsys, "run", TASK)
    assert code == 0 and "external tools are not called" in said and "--perform-effects" in said
    assert sent(project) == ["first", "second"] and files(project) == before


def test_run_performs_again_when_it_is_told_to(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(project, capsys)
    assert command(capsys, "run", TASK, "--perform-effects")[0] == 0
    assert sent(project) == ["first", "second", "first", "second"]
    assert results(project) == [{"sent": 3}, {"sent": 4}]
    assert command(capsys, "check")[0] == 0
    assert len(sent(project)) == 4


def test_effects_of_a_run_that_missed_its_expectations_are_not_repeated(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / TASK).write_text(SCENARIO + "expected: {ending: refused}\n")
    assert command(capsys, "run", TASK)[0] == 1 and not (project / RUN).exists()
    replaced(project / TASK, "ending: refused", "ending: final_answer")
    code, _, said = command(capsys, "run", TASK)
    assert code == 0 and "the record in .tachograph/rejected/mail-one answers for them" in said
    assert sent(project) == ["first", "second"] and results(project) == [{"sent": 1}, {"sent": 2}]
    assert command(capsys, "check")[0] == 0 and len(sent(project)) == 2


def test_a_run_that_a_rejected_one_answers_is_resumed_without_an_effect(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / TASK).write_text(SCENARIO + "expected: {ending: refused}\n")
    assert command(capsys, "run", TASK)[0] == 1
    replaced(project / TASK, "{text: second}", "{text: other}")
    assert command(capsys, "run", TASK, "--durability", "effect")[0] == 1
    code, _, err = command(capsys, "resume", RUN)
    assert code == 1 and 'send {"text":"other"}' in err
    shutil.rmtree(project / ".tachograph/rejected")
    code, _, err = command(capsys, "resume", RUN)
    assert code == 2 and "was answered by a record that is gone" in err
    assert sent(project) == ["first", "second"]


MOVED = {
    "another argument": ("{text: second}", "{text: other}", 'send {"text":"other"}'),
    "another order": (
        "{text: first}}\n      - calls:\n          - {tool: send, arguments: {text: second}}",
        "{text: second}}\n      - calls:\n          - {tool: send, arguments: {text: first}}",
        'send {"text":"second"}',
    ),
    "one more call": (
        "      - answer: done",
        "      - calls: [{tool: send, arguments: {text: third}}]\n      - answer: done",
        'send {"text":"third"}',
    ),
    "another step": (
        "    turns:\n",
        "    turns:\n      - calls: [{tool: read, arguments: {path: corpus/note.md}}]\n",
        'send {"text":"first"}',
    ),
    "another run": ("id: mail-one\n", "id: mail-one\nseed: 5\n", 'send {"text":"first"}'),
}


@pytest.mark.parametrize("name", MOVED)
def test_a_call_that_moved_has_no_answer_and_is_not_performed(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(project, capsys)
    old, new, call = MOVED[name]
    replaced(project / TASK, old, new)
    remedy = f"tachograph run {TASK} --perform-effects"
    found = examine(project / RUN, root=project)
    assert found.unrecorded and found.kind == "EFFECT" and not found.tampered
    assert call in found.lines[0] and "no recorded result" in found.lines[0] and found.accept == remedy
    for words in (
        ["check"],
        ["accept", RUN, "--reason", "why"],
        ["accept", "--all", "--reason", "why"],
        ["run", TASK],
    ):
        code, out, err = command(capsys, *words)
        assert code == 1 and call in out + err and remedy in out + err, (words, out, err)
    assert making.main(["mail"]) == 1
    assert sent(project) == ["first", "second"] and files(project) == before
    assert not (project / f"{RUN}.partial").exists()
    assert command(capsys, "run", TASK, "--perform-effects")[0] == 0
    assert command(capsys, "check")[0] == 0


def test_a_change_that_moves_no_external_call_is_accepted_without_an_effect(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(project, capsys)
    replaced(project / TASK, "answer: done", "answer: all done")
    assert command(capsys, "check")[0] == 1
    assert command(capsys, "accept", RUN, "--reason", "another answer")[0] == 0
    assert command(capsys, "check")[0] == 0
    assert sent(project) == ["first", "second"]


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_record_that_cannot_be_read_answers_nothing_and_performs_nothing(
    damage: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(project, capsys)
    state = project / RUN / "state.jsonl"
    if damage == "cut":
        state.write_bytes(state.read_bytes()[:-40])
    else:
        state.unlink()
    assert not examine(project / RUN, root=project).ok
    code, _, err = command(capsys, "run", TASK)
    assert (code == 2 and "--perform-effects" in err) or "restore" in err
    assert sent(project) == ["first", "second"]


def test_failed_attempts_and_facts_met_on_the_way_are_answered_too(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(project / TASK, "{text: first}", "{text: away}")
    replaced(project / TASK, "{text: second}", "{text: refused}")
    code, _, _ = command(capsys, "run", TASK)
    assert code == 1 and sent(project) == ["away", "refused", "refused", "refused"]
    assert examine(project / RUN, root=project).lines == []
    assert len(sent(project)) == 4


def test_a_denial_that_the_policy_takes_back_has_no_answer(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(project / "policy" / "v1.yaml", "https://corpus.test/", "https://corpus.test/moved")
    replaced(project / TASK, "{text: first}", "{text: away}")
    assert command(capsys, "run", TASK)[0] == 1
    assert examine(project / RUN, root=project).lines == []
    replaced(project / "policy" / "v1.yaml", "https://corpus.test/moved", "https://corpus.test/")
    found = examine(project / RUN, root=project)
    assert found.unrecorded and "was denied while it ran" in found.lines[0]
    assert sent(project) == ["away"]


def test_a_file_that_an_external_call_wrote_is_read_from_the_record(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(project / TASK, "{text: first}", "{text: kept}")
    replaced(
        project / TASK,
        "{tool: send, arguments: {text: second}}",
        "{tool: read, arguments: {path: sandbox/kept.md}}",
    )
    recorded(project, capsys)
    assert results(project)[1]["text"] == "copy number 1"
    assert examine(project / RUN, root=project).lines == []
    assert sent(project) == ["kept"]


def test_a_fault_of_the_task_keeps_its_place_and_its_time(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / TASK).write_text(
        SCENARIO
        + "faults:\n  - {target: tool, step: 1, call: 0, attempt: 1, raises: ConnectionRefusedError, delays_ms: 70}\n"
    )
    recorded(project, capsys)
    assert sent(project) == ["first", "second"]
    assert examine(project / RUN, root=project).lines == []
    assert len(sent(project)) == 2


def test_regression_performs_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(project, capsys)
    index.update(project)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@a", "commit", "-qm", "x"],
    ):
        regression._git(project, *words)
    assert regression.main(["HEAD"]) == 0
    assert sent(project) == ["first", "second"]


def test_a_run_of_a_live_model_is_checked_without_an_effect(project: Path) -> None:
    replaced(project / TASK, "{text: first}", "{text: kept}")
    task = load_task(project / TASK, root=project)
    replies = [
        LLMOutput(tool_calls=[ToolCall("send", {"text": "kept"})]),
        LLMOutput(tool_calls=[ToolCall("read", {"path": "sandbox/kept.md"})]),
        LLMOutput(final_answer="done"),
    ]
    agent, config = build(task, model=lambda request: replies[request.step_index - 1])
    assert record_run(agent, config, project / "live").ok
    found = examine(project / "live", root=project)
    assert found.lines == []
    assert sent(project) == ["kept"]


def test_the_recorded_scenario_reports_nothing_when_it_is_checked() -> None:
    """Its tool writes a line to a file of the project: `run --perform-effects` does, a check does not."""
    workshop = ROOT / ".tachograph" / "workshop.txt"
    before = workshop.read_bytes() if workshop.exists() else None
    run = ROOT / "runs" / "code" / "defect_reported"
    assert examine(run, root=ROOT).lines == []
    assert (workshop.read_bytes() if workshop.exists() else None) == before
    ledger = [json.loads(line) for line in (run / "state.jsonl").read_text().split("\n")[:-1]]
    assert [tool["effect"] for tool in ledger[0]["tools"]] == ["external"]
    assert ledger[1]["tool_results"][0]["result"] == {"ticket": "8672c191"}


def test_a_drafted_policy_keeps_what_an_external_tool_may_have_reached(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(project, capsys)
    text = suggest(project / RUN, root=project).text
    assert "# kept: send, the record does not say what it reached" in text
    assert "send ran, and the record notes no file of it" in text
    assert len(sent(project)) == 2


def test_a_run_that_the_record_answers_is_resumed_without_an_effect(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(project, capsys)
    replaced(project / TASK, "{text: second}", "{text: other}")
    assert command(capsys, "run", TASK, "--durability", "effect")[0] == 1
    assert (project / f"{RUN}.partial" / "journal.jsonl").exists()
    for words in (["resume", RUN], ["run", TASK, "--resume"]):
        code, _, err = command(capsys, *words)
        assert code == 1 and 'send {"text":"other"}' in err, err
    assert sent(project) == ["first", "second"] and files(project) == before


def test_a_result_beyond_the_budget_is_answered_like_any_other(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record holds no result that no model has read; whoever lets it through has to perform the call anew."""
    replaced(project / "policy/v1.yaml", "max_result_bytes: 1000000", "max_result_bytes: 5")
    assert command(capsys, "run", TASK)[0] == 1
    before = files(project)
    assert sent(project) == ["first"] and results(project) == [None]
    assert command(capsys, "check")[0] == 0
    assert replayed(project / RUN, root=project).lines == []
    assert command(capsys, "run", TASK)[0] == 1
    assert sent(project) == ["first"] and files(project) == before
    replaced(project / "policy/v1.yaml", "max_result_bytes: 5", "max_result_bytes: 500")
    found = examine(project / RUN, root=project)
    assert found.unrecorded and found.kind == "EFFECT", found.lines
    assert found.accept == f"tachograph run {TASK} --perform-effects"
    assert 'send {"text":"first"}' in found.lines[0]
    assert command(capsys, "check")[0] == 1
    assert sent(project) == ["first"] and files(project) == before
    replaced(project / "policy/v1.yaml", "max_result_bytes: 500", "max_result_bytes: 9")
    assert examine(project / RUN, root=project).lines, "the reason names another limit"
    assert sent(project) == ["first"]
