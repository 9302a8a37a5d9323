"""A check performs again what can be performed, takes the rest from the record, and says what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence import record_files
from tachograph.evidence.accept import accept
from tachograph.evidence.check import check
from tachograph.evidence.compare import Comparison, Origin
from tachograph.evidence.record import record
from tachograph.evidence.record_files import recorded_log
from tachograph.evidence.tasks import Task, load_task
from tachograph.evidence.verify import verify
from tests.project import ROWS, edit, make_project, recorded


def count_calls(task: Task) -> list[str]:
    """Return a list to which each tool of a task adds its name when it runs."""
    calls: list[str] = []
    for tool in task.tools:
        tool.run = _counting(tool.run, tool.name, calls)
    return calls


def _counting(run: Any, name: str, calls: list[str]) -> Any:
    def counted(arguments: dict[str, Any], io: Any) -> Any:
        calls.append(name)
        return run(arguments, io)

    return counted


def test_external_effects_are_answered_and_all_others_performed(tmp_path: Path) -> None:
    task, folder = recorded(tmp_path, "sent_once")
    calls = count_calls(task)
    assert check(task, folder, "run") == []
    assert calls == ["look"]


def test_what_timed_out_is_answered(tmp_path: Path) -> None:
    for name, performed in (("timeout_repeated", "page"), ("file_of_a_call_that_timed_out", "look")):
        task, folder = recorded(tmp_path / name, name)
        calls = count_calls(task)
        assert check(task, folder, "run") == []
        assert calls == [performed]  # what comes after, and reads no file that is not there


STOP = {"target": "model", "step": 2, "cancels": True}
DELAY = {"target": "tool", "step": 1, "call": 0, "delays_ms": 9}
CHANGES = [
    # what is edited, how, and the kinds of differences that follow; others stand in test_drift.py
    ("sent_once", "tools/mail.py", "nothing of it goes", "nothing goes", {"INPUT"}),
    ("call", "tools/echo.py", 'args["text"] *', 'args["text"].upper() *', {"EFFECT", "ASKED", "INPUT"}),
    ("call", "tasks/s/call.yaml", '"answer": "done"', '"answer": "finished"', {"ASKED", "ENDING", "INPUT"}),
    ("call", "tasks/s/call.yaml", '"text": "hi"', '"text": "ho"', {"ASKED", "INPUT"}),
    ("call", "tasks/s/call.yaml", '"faults": [', f'"faults": [{json.dumps(STOP)}', {"ENDING", "INPUT"}),
    ("call", "tasks/s/call.yaml", '"faults": [', f'"faults": [{json.dumps(DELAY)}', {"EFFECT", "INPUT"}),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "kinds"), CHANGES)
def test_a_changed_input_is_found(
    tmp_path: Path, name: str, file: str, old: str, new: str, kinds: set[str]
) -> None:
    recorded(tmp_path, name)
    edit(tmp_path / file, old, new)
    found = check(load_task(tmp_path / f"tasks/s/{name}.yaml"), tmp_path / "runs/s" / name, "run")
    assert kinds <= {difference.kind for difference in found}, found


@pytest.mark.parametrize("file", ["policy/call.yaml", "tasks/s/call.yaml"])
def test_comments_and_layout_move_nothing(tmp_path: Path, file: str) -> None:
    _, folder = recorded(tmp_path, "call")
    path = tmp_path / file
    path.write_text("# a comment\n\n" + path.read_text().replace(", ", ",\n  "))
    assert check(load_task(tmp_path / "tasks/s/call.yaml"), folder, "run") == []


def test_a_log_that_was_rewritten_is_found(tmp_path: Path) -> None:
    """Whoever writes all four files anew passes `verify`, and not `check`."""
    task, folder = recorded(tmp_path, "call")
    turns = [[["echo", {"text": "bye"}]], "done"]
    other = make_project(tmp_path / "other", [{**ROWS["call"], "turns": turns}])
    record(load_task(other / "tasks/s/call.yaml"), other / "runs/s/call")
    for file in (other / "runs/s/call").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    assert {difference.kind for difference in check(task, folder, "run")} >= {"ASKED"}


def test_lines_in_another_order_are_found(tmp_path: Path) -> None:
    made = [line.event for line in recorded_log(recorded(tmp_path, "call")[1], "run")]
    record, origin = [made[0], made[2], made[1], *made[3:]], Origin(set(), set(), {})
    (found,) = Comparison(origin, record, made, {}, None).differences(is_cut_off=False)
    assert (found.kind, found.at) == ("OTHER", "1.c0.d")


def test_a_script_says_what_enters(tmp_path: Path) -> None:
    _, folder = recorded(tmp_path, "conversation_with_an_interrupt")
    file = tmp_path / "tasks/s/conversation_with_an_interrupt.yaml"
    edit(file, "rather this", "rather that")
    assert [it.words[:8] for it in check(load_task(file), folder, "run") if ".a" in it.at] == ["text was"]


@pytest.mark.parametrize("kind", ["path:write", "any"])
@pytest.mark.parametrize("said", [["go"], ["go", {"say": "rather this", "at_ms": 1250}]])
def test_a_script_says_what_enters_where_the_record_answers(tmp_path: Path, kind: str, said: Any) -> None:
    """What a tool wrote is not there, so that a later call reads nothing, marked or not, ended or stopped."""
    turns = [[["mail", {"path": "box/m.txt", "text": "a"}]], [["look", {"path": "box/m.txt"}]], "done"]
    row = {"name": "c", "question": "", "said": said, "turns": turns, "expect": {"ending": "final_answer"}}
    row["faults"] = [{"target": "tool", "step": 1, "call": 0, "delays_ms": 900}]
    tool = make_project(tmp_path, [row]) / "tools/mail.py"
    written = tool.read_text().replace('"text"}', f'"{kind}"}}', 1)
    tool.write_text(written.replace("return {", 'io.write(args["path"], args["text"])\n    return {'))
    file, folder = tmp_path / "tasks/s/c.yaml", tmp_path / "runs/s/c"
    record(load_task(file), folder)
    assert check(load_task(file), folder, "run") == []
    assert ('"wrote"' in (folder / "state.jsonl").read_text()) == (kind == "any" and said == ["go"])
    file.write_text(file.read_text().replace('"say": "go"', '"say": "stay"'))
    assert [it.words[:8] for it in check(load_task(file), folder, "run") if ".a" in it.at] == ["text was"]
    task = load_task(file)
    task.spec.turns.clear()
    record(task, folder)
    assert "1.a1" in {it.at for it in check(load_task(file), folder, "run")}


def test_a_changed_renderer_damages_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests that hold, and files that would be others today, are drift: it is told, and accepted."""
    task, folder = recorded(tmp_path, "call")
    monkeypatch.setattr(record_files, "report", lambda events, steps: "# another report\n")
    assert [found.kind for found in check(task, folder, "run")] == ["OTHER", "OTHER"]
    assert verify(folder, "run") != []
    accept(task, folder, "run")
    assert check(task, folder, "run") == verify(folder, "run") == []
    (folder / "run_report.md").write_text("# a report by hand\n", encoding="utf-8")
    assert {found.kind for found in check(task, folder, "run")} == {"DAMAGE"}
