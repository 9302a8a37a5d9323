"""Task files: those of the card load, and bad input is one line with its place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tachograph.evidence.project import Project
from tachograph.evidence.record import record
from tachograph.evidence.tasks import Task, load_task
from tachograph.fail.errors import InputError, TaskError, TransientModelError
from tachograph.runtime.formats.strict_json import digest
from tests.tables.rows import roomy

ROOT = Path(__file__).parents[1]
TASK = """\
schema: task/v1
id: kind-name
title: A task
question: What is there?
seed: 7
clock:
  start: "2026-01-01T00:00:00Z"
policy:
  file: policy/p.yaml
tools: [read, write]
mounts:
  book: data
setup:
  - {path: box/a.txt, text: in the box}
  - {path: box/link, link: a.txt}
hosts:
  good.test: {folder: data, redirects: {/old: /a.txt}}
llm:
  stub:
    turns:
      - calls:
          - tool: read
            arguments: {path: {$join: [book/, a.txt]}}
      - answer: {$result: 0, at: /text}
faults:
  - {target: tool, step: 1, call: 0, attempt: 2, raises: TimeoutError, delays_ms: 5}
  - {target: io, step: 2, call: 1, raises: ConnectionError}
  - {target: model, step: 3, raises: TransientModelError}
expected:
  ending: final_answer
  decisions: [allow]
  modes: []
  spans: {tool_call: 1}
"""
POLICY = roomy(["read", "write"], sandbox={"mounts": {"book": "read", "box": "write", "other": "read"}})


def project(root: Path, task: str = TASK) -> Path:
    """Make a project, and return the place of its task."""
    for folder in ("policy", "tasks/kind", "data"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "tools", root / "tools", dirs_exist_ok=True)
    (root / "policy" / "p.yaml").write_text(json.dumps(POLICY))
    (root / "data" / "a.txt").write_text("alpha")
    path = root / "tasks" / "kind" / "name.yaml"
    path.write_text(task)
    return path


def made(root: Path, task: str = TASK) -> Task:
    return load_task(project(root, task))


def test_a_task_is_read(tmp_path: Path) -> None:
    task = made(tmp_path)
    assert (task.root, task.file, task.spec.id, task.run_id, task.folder) == (
        tmp_path.resolve(), "tasks/kind/name.yaml", "kind-name", "kind-name-s7", "kind/name",
    )  # fmt: skip
    assert (task.spec.question, task.spec.seed, task.began) == ("What is there?", 7, 1_767_225_600 * 10**9)
    assert task.policy.file == "policy/p.yaml" and [tool.name for tool in task.tools] == ["read", "write"]
    assert task.head().model.path == "stub" and task.spec.expected.spans == {"tool_call": 1}
    commented, other = made(tmp_path, f"# more\n{TASK}"), made(tmp_path, TASK.replace("7", "8"))
    assert commented.digest == task.digest != other.digest


def test_its_faults_stand_at_addresses(tmp_path: Path) -> None:
    task = made(tmp_path)
    found = {at: task.fault(at) for at in ("1.c0.i2", "2.c1.i1", "2.c1.i9", "3.m1", "3.m4")}
    assert [type(fault and fault.error) for fault in found.values()] == [
        TimeoutError, ConnectionError, ConnectionError, TransientModelError, TransientModelError,
    ]  # fmt: skip
    assert [fault and (fault.delay_ns, fault.in_io) for fault in found.values()] == [
        (5_000_000, False), (0, True), (0, True), (0, False), (0, False),
    ]  # fmt: skip
    others = "1.c0.i1 1.c0.i2.w 1.c0.i2.s 2.c1.i1.w 2.c11.i1 12.c1.i1 13.m1 3.m1.w 3.e 0".split()
    assert [at for at in others if task.fault(at) is not None] == []


def test_what_a_run_never_comes_to_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    late = "approvals:\n  - {step: 2, answer: allow}\nfaults:\n  - {target: tool, step: 1, delays_ms: 5}"
    task = made(tmp_path, TASK.replace("attempt: 2, raises: TimeoutError, ", "").replace("faults:", late))
    record(task, tmp_path / "runs/kind/name")
    assert [it.split(":")[1] for it in caplog.messages] == ["26", "29", "30", "31"]


def test_its_workspace_holds_what_it_says(tmp_path: Path) -> None:
    task, reads = made(tmp_path), []
    with task.workspace(lambda *read: reads.append(read)) as workspace:
        task.set_up(workspace)
        assert {name: root.private for name, root in workspace.roots.items()} == {"book": False, "box": True}
        box = workspace.roots["box"].fd
        assert os.readlink("link", dir_fd=box) == "a.txt"
        with os.fdopen(os.open("a.txt", os.O_RDONLY, dir_fd=box)) as file:
            assert file.read() == "in the box"
        reads.clear()
        workspace.on_read("data/a.txt", digest("alpha"))
    assert reads == [("data/a.txt", digest("alpha"))]


def test_a_policy_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    for policy in ("policy/none.yaml", "{}"):
        task = made(tmp_path, TASK.replace("policy/p.yaml", f'"{policy}"'))
        with pytest.raises(InputError):
            _ = task.policy


@pytest.mark.parametrize(
    ("start", "began"),
    [
        ("1970-01-01T00:00:00Z", 0), ("2024-02-29T23:59:59Z", 1_709_251_199), ("1969-12-31T23:59:59Z", None),
        ("2026-02-29T00:00:00Z", None), ("2026-13-01T00:00:00Z", None), ("2026-00-01T00:00:00Z", None),
        ("2026-01-00T00:00:00Z", None), ("2026-01-32T00:00:00Z", None), ("2026-01-01T24:00:00Z", None),
        ("2026-01-01T00:60:00Z", None), ("2026-01-01T00:00:60Z", None), ("2026-01-01 00:00:00Z", None),
        ("2026-01-01T00:00:00+01:00", None), ("2026-01-01", None), ("\u0662026-01-01T00:00:00Z", None), ("", None),
    ],
)  # fmt: skip
def test_when_it_begins(tmp_path: Path, start: str, began: int | None) -> None:
    text = TASK.replace("2026-01-01T00:00:00Z", start)
    if began is not None:
        assert made(tmp_path, text).began == began * 10**9
    else:
        with pytest.raises(TaskError, match=r"^tasks/kind/name.yaml:7:3: "):
            made(tmp_path, text)


# what stands in the file, what is put there, and the place of the error
WRONG: list[tuple[str, str, str]] = [
    ("schema: task/v1", "schema: task/v2", "1:1"),
    ("schema: task/v1\n", "", "1:1"),
    ("id: kind-name", "id: other-name", "2:1"),
    ("id: kind-name", "id: kind/name", "2:1"),
    ("title: A task", "title: 7", "3:1"),
    ("title: A task", "title: A task\ntitle: B", "4:1"),
    ("title: A task", "tittle: A task", "3:1"),
    *(("seed: 7", f"seed: {it}", "5:1") for it in ("-1", "1.5", "true", '"7"')),
    ("seed: 7", "seed: !!int 7", "5:7"),
    ("file: policy/p.yaml", "files: policy/p.yaml", "9:3"),
    ("tools: [read, write]", "tools: read", "10:1"),
    ("tools: [read, write]", "tools: [read, 7]", "10:15"),
    ("tools: [read, write]", "tools: &a [read, write]", "10:8"),
    ("book: data", "book: [data]", "12:3"),
    ("{path: box/a.txt, text: in the box}", "{path: box/a.txt}", "14:5"),
    ("{path: box/a.txt, text: in the box}", "{path: box/a.txt, text: a, link: b}", "14:5"),
    ("{path: box/a.txt, text: in the box}", "{path: box/a.txt, txt: a}", "14:23"),
    ("folder: data, redirects", "folder: data, redirect", "17:29"),
    ("- tool: read", "- tool: 7", "22:13"),
    ("- tool: read", "- name: read", "22:13"),
    ("arguments: {path: {$join: [book/, a.txt]}}", "arguments: text", "23:13"),
    ("- answer: {$result: 0, at: /text}", "- anwser: {$result: 0, at: /text}", "24:9"),
    ("- {target: tool, step: 1", "- {target: tools, step: 1", "26:6"),
    ("- {target: tool, step: 1", "- {target: tool, step: 0", "26:20"),
    ("- {target: tool, step: 1", "- {target: tool, stap: 1", "26:20"),
    ("attempt: 2", "attempt: 0", "26:38"),
    *(
        ("raises: TimeoutError", f"raises: {it}", "26:50")
        for it in ("TimeOutError", "UnicodeDecodeError", "KeyboardInterrupt", "len")
    ),
    ("delays_ms: 5", "delays_ms: 5.5", "26:72"),
    (", raises: ConnectionError", "", "27:5"),
    ("modes: []", "modes: {}", "32:3"),
    ("ending: final_answer", "endings: [final_answer]", "30:3"),
    ("ending: final_answer", "ending: final_anser", "30:3"),
    ("decisions: [allow]", "decisions: [alow]", "31:15"),
    ("- answer: {", "- usage: {inputtokens: 80}\n        answer: {", "24:17"),
    ("- answer: {", "- usage: {input_tokens: -80}\n        answer: {", "24:17"),
    ("- answer: {", "- finish_reason: lenght\n        answer: {", "24:9"),
    ("spans: {tool_call: 1}", "spans: {tool_call: many}", "33:11"),
    *((TASK, it, "1:1") for it in ("", "[]", "\ufeff")),
]


def names_place(error: Exception, place: str, root: Path) -> None:
    said = str(error)
    assert said.startswith(f"tasks/kind/name.yaml:{place}: ") and said.isprintable() and str(root) not in said


@pytest.mark.parametrize(("old", "new", "place"), WRONG)
def test_bad_input_is_told_with_its_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert TASK.count(old) == 1
    with pytest.raises(TaskError) as refused:
        made(tmp_path, TASK.replace(old, new))
    names_place(refused.value, place, tmp_path)


LATE: list[tuple[str, str, str]] = [  # what only a run finds out
    ("file: policy/p.yaml", "file: ../p.yaml", "9:3"),
    ("file: policy/p.yaml", "file: /etc/passwd", "9:3"),
    ("file: policy/p.yaml", 'file: "policy/\\0"', "9:3"),
    ("book: data", "book: ..", "12:3"),
    ("book: data", "book: out", "12:3"),
    ("folder: data, redirects", "folder: ../x, redirects", "17:15"),
    ("path: box/a.txt", "path: box/../a.txt", "14:6"),
    ("path: box/a.txt", "path: book/a.txt", "14:6"),
    ("path: box/a.txt", "path: none/a.txt", "14:6"),
    ("path: box/link", "path: box/a.txt", "15:6"),
    ("path: box/link", "path: box/a.txt/b", "15:6"),
]


@pytest.mark.parametrize(("old", "new", "place"), LATE)
def test_what_only_a_run_finds_is_told_with_its_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert TASK.count(old) == 1
    path = project(tmp_path, TASK.replace(old, new))
    (tmp_path / "out").symlink_to("..")
    with pytest.raises(InputError) as refused:
        task = load_task(path)
        with task.workspace(lambda *_: None) as workspace:
            task.set_up(workspace)
    names_place(refused.value, place, tmp_path)


def test_a_task_lies_in_a_project(tmp_path: Path) -> None:
    path = project(tmp_path / "one")
    (tmp_path / "two" / "policy").mkdir(parents=True)
    assert load_task(path, tmp_path).file == "one/tasks/kind/name.yaml"
    with pytest.raises(TaskError, match="outside"):
        load_task(path, tmp_path / "two")
    shutil.copy(path, path.parent.parent / "name.yaml")
    with pytest.raises(TaskError, match="KIND/NAME"):
        load_task(path.parent.parent / "name.yaml")
    (tmp_path / "one" / "policy" / "p.yaml").unlink()
    (tmp_path / "one" / "policy").rmdir()
    with pytest.raises(TaskError, match="policy/"):
        load_task(path)
    for missing in (tmp_path / "two" / "tasks" / "none.yaml", tmp_path / "two" / "policy"):
        with pytest.raises(TaskError):
            load_task(missing)


CARD = ["pg1_off_allowlist_url", "pg2_sandbox_escape", "pg3_loop_budget", "pg3_loop_budget_tokens"]
CARD += ["pg4_forbidden_tool", "pg4_forbidden_tool_with_arg_schema_violation", "pg5_arg_schema"]
CARD = ["canonical/v1", *(f"policy_gates/{name}" for name in CARD)]
CARD += [f"failure_modes/{name}" for name in ("tool_call_failure", "retry_exhaustion", "schema_mismatch")]
CARD += [f"failure_modes/{name}" for name in ("cycle_detection", "catalogued_unhandled")]


def test_the_tasks_of_the_card_are_there() -> None:
    assert {*CARD} <= {*Project(ROOT).task_names()}  # tests/smoke/test_tree.py loads all
