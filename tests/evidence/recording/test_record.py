"""Recording: four files, whole or not at all. Bad input, full disks, kills and rivals leave no mess."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Stub, record
from tachograph.evidence.checking.check import examine
from tachograph.evidence.files.folder import Folder
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import ExpectationError, InputError, OutputError
from tests.support import (
    CANONICAL,
    FILES,
    ROOT,
    TASK,
    attend_to_ctrl_c,
    cli,
    copy_project,
    environment,
    one_line,
    policy_data,
    tool,
    tree,
    well_formed,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project that every test leaves as it found it."""
    return copy_project(tmp_path_factory.mktemp("record") / "project")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_project(tmp_path / "project")


def _task(project: Path, change: Callable[[str], str], name: str = "v1") -> Path:
    text = (project / TASK).read_text()
    changed = change(text)
    assert changed != text
    path = project / "tasks" / "canonical" / f"{name}.yaml"
    path.write_text(changed)
    return path


# ---- bad input -----------------------------------------------------------------------------------------

SETUP = "setup:\n  - {path: sandbox/a, link: b}\n"
NEVER_ENDS = "- calls: [{tool: read, arguments: {path: corpus/op-a1.md}}]\n        #"
# the text of the task that is replaced, by what, and what stands on the line that the complaint names
BAD_TASKS: dict[str, tuple[str, str, str]] = {
    "no YAML": ("schema: task/v1", "schema: [", ""),
    "a tab": ("seed: 7", "seed:\t- 7", "seed:"),
    "an unknown key": ("seed: 7", "sead: 7", "sead"),
    "a double key": ("seed: 7", "seed: 7\nseed: 8", "seed: 8"),
    "another schema": ("schema: task/v1", "schema: task/v9", "task/v9"),
    "a seed that is none": ("seed: 7", "seed: seven", "seven"),
    "no such time": ('"2026-01-01T00:00:00Z"', '"2026-02-30T00:00:00Z"', "2026-02-30"),
    "no such policy": ("policy/v1.yaml", "policy/v7.yaml", "policy/v7.yaml"),
    "a policy outside": ("policy/v1.yaml", "../../etc/passwd", "etc/passwd"),
    "a policy with a NUL": ("file: policy/v1.yaml", 'file: "policy/\\0"', "file:"),
    "a policy of a long name": ("policy/v1.yaml", "a" * 300, "file: aaa"),
    "an unknown tool": ("[search, fetch", "[serch, fetch", "serch"),
    "no such corpus": ("corpus: data/corpus/v1", "corpus: data/corpus/v9", "data/corpus/v9"),
    "no such host folder": ("folder: data/corpus/v1", "folder: data/gone", "data/gone"),
    "an unknown mount": ("  corpus: data/corpus/v1", "  books: data/corpus/v1", "books"),
    "a dangling pointer": ("/hits/1/id", "/hits/7/id", "/hits/7/id"),
    "a pointer to the future": ("$result: 3", "$result: 4", "$result: 4"),
    "an answer that is no text": ("at: /summary", "at: /of", "at: /of"),
    "a script that runs out": ("- answer:", NEVER_ENDS, "calls"),
    "an unknown ending": ("ending: final_answer", "ending: final", "ending: final"),
    "a setup in a folder": ("mounts:", SETUP.replace("sandbox", "corpus") + "mounts:", "corpus/a"),
    "a setup through a link": ("mounts:", SETUP + "  - {path: sandbox/a/c, text: x}\nmounts:", "sandbox/a/c"),
    "a fault that is none": (
        "mounts:",
        "faults:\n  - {target: model, step: 1, raises: Oops}\nmounts:",
        "Oops",
    ),
    "a fault that needs arguments": (
        "mounts:",
        "faults:\n  - {target: model, step: 1, raises: UnicodeDecodeError}\nmounts:",
        "UnicodeDecodeError",
    ),
}


def _refused(project: Path, *arguments: Any, **options: Any) -> str:
    before = tree(project)
    done = cli(*arguments, cwd=project, **options)
    line = one_line(done)
    assert tree(project) == before
    assert "; " in line or ": check" in line, f"no remedy: {line}"
    assert str(project) not in line
    return line.removeprefix("tachograph: ")


@pytest.mark.parametrize("case", BAD_TASKS)
def test_a_bad_task_is_refused_at_its_place_and_nothing_is_written(shared: Path, case: str) -> None:
    old, new, there = BAD_TASKS[case]
    good = (shared / TASK).read_text()
    _task(shared, lambda text: text.replace(old, new, 1))
    try:
        # the second goes to a folder that is new
        for more in ((), ("--out", "new/folder/run")):
            file, line, column, _ = _refused(shared, "run", TASK, *more).split(":", 3)
            assert file == TASK and column.isdigit()
            assert there in (shared / TASK).read_text().split("\n")[int(line) - 1]
    finally:
        (shared / TASK).write_text(good)


BAD_TOOLS = {
    "no Python": "def",
    "raises on import": "raise OSError('text')",
    "imports what is missing": "import not_there_at_all",
    "lacks everything": "x = 1",
}


@pytest.mark.parametrize("case", BAD_TOOLS)
def test_a_bad_tool_is_refused(shared: Path, case: str) -> None:
    good = (shared / "tools/read.py").read_bytes()
    (shared / "tools/read.py").write_text(BAD_TOOLS[case])
    try:
        assert _refused(shared, "run", TASK).startswith("tools/read.py")
    finally:
        (shared / "tools/read.py").write_bytes(good)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("schema: policy/v1", "schema: ["),
        ("max_repeats: 3", "max_repeat: 3"),
        ("read\n", "red\n"),
        ("", "\0"),
    ],
)
def test_a_bad_policy_is_refused(shared: Path, old: str, new: str) -> None:
    good = (shared / "policy/v1.yaml").read_bytes()
    (shared / "policy/v1.yaml").write_text(good.decode().replace(old, new, 1))
    try:
        assert _refused(shared, "run", TASK).startswith("policy/v1.yaml:")
    finally:
        (shared / "policy/v1.yaml").write_bytes(good)


@pytest.mark.parametrize(
    "task", ["tasks/canonical/gone.yaml", "tasks", "a" * 300, "tasks/canonical/v1.yaml/x", ""]
)
def test_a_task_that_is_not_there_is_refused(shared: Path, task: str) -> None:
    _refused(shared, "run", task)


def test_a_task_that_is_no_text_or_outside_any_project_is_refused(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes((shared / TASK).read_bytes())
    assert "policy" in _refused(tmp_path, "run", "x.yaml", env={"PYTHONPATH": str(shared)})
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    _refused(shared, "run", tmp_path / "x.yaml", "--root", ".")


# ---- places to write to --------------------------------------------------------------------------------


def test_a_place_that_is_a_file_or_holds_foreign_files_is_refused(shared: Path) -> None:
    _refused(shared, "run", TASK, "--out", "policy/v1.yaml")
    _refused(shared, "run", TASK, "--out", "policy/v1.yaml/below")
    _refused(shared, "run", TASK, "--out", "policy")
    _refused(shared, "run", TASK, "--out", "/")
    _refused(shared, "run", TASK, "--out", ".")
    _refused(shared, "run", TASK, "--out", "/proc/none/here")
    _refused(shared, "run", TASK, "--out", "new/" + "a" * 300)


def test_a_partial_folder_of_someone_else_is_not_emptied(project: Path) -> None:
    (project / "new.partial").mkdir()
    (project / "new.partial" / "thesis.txt").write_text("mine")
    assert "new.partial" in _refused(project, "run", TASK, "--out", "new")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_permission_is_refused(project: Path) -> None:
    (project / "locked").mkdir(mode=0o500)
    _refused(project, "run", TASK, "--out", "locked/run")


def test_a_rival_is_told_and_leaves_no_trace(project: Path) -> None:
    with Folder(project / CANONICAL):
        line = _refused(project, "run", TASK)
    assert "another process" in line
    assert cli("run", TASK, "--quiet", cwd=project).returncode == 0


@pytest.mark.parametrize("limit", [100, 4096, 11_000, 13_000], ids=str)
def test_a_full_disk_leaves_the_old_run_and_nothing_else(project: Path, limit: int) -> None:
    file = project / "data/corpus/v1/op-a4.md"
    file.write_bytes(file.read_bytes().replace(b"20 minutes", b"25 minutes"))

    def tight() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    _refused(project, "run", TASK, "--quiet", preexec_fn=tight)
    _refused(project, "run", TASK, "--quiet", "--out", "new/run", preexec_fn=tight)


def test_a_run_through_a_link_goes_where_the_link_leads(project: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (project / "link").symlink_to(tmp_path / "real")
    assert cli("run", TASK, "--quiet", "--out", "link", cwd=project).returncode == 0
    assert (project / "link").is_symlink()
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == sorted(FILES)
    assert not list(tmp_path.glob("*.old")) and not list(project.glob("*.old"))


# ---- recording again -----------------------------------------------------------------------------------


def test_recording_again_touches_nothing(project: Path) -> None:
    before = tree(project)
    for extra in ((), ("--json",), ("--quiet",)):
        assert cli("run", TASK, *extra, cwd=project).returncode == 0
        assert tree(project) == before


@pytest.mark.parametrize("file", FILES)
def test_recording_again_mends_a_changed_file(project: Path, file: str) -> None:
    before = (project / CANONICAL / file).read_bytes()
    (project / CANONICAL / file).write_bytes(before.replace(b"canonical", b"Canonical"))
    assert cli("run", TASK, "--quiet", cwd=project).returncode == 0
    assert examine(project / CANONICAL).ok
    assert sorted(path.name for path in (project / "runs/canonical").iterdir()) == ["v1"]


def test_a_missed_expectation_is_kept_aside(project: Path) -> None:
    before = tree(project / "runs")
    _task(project, lambda text: text.replace("retry_attempt: 4", "retry_attempt: 9"))
    done = cli("run", TASK, "--quiet", cwd=project)
    assert done.returncode == 1
    assert "retry_attempt: expected 9, found 4" in done.stderr
    assert ".tachograph/rejected/canonical-v1" in done.stderr
    assert tree(project / "runs") == before
    kept = project / ".tachograph/rejected/canonical-v1"
    well_formed((kept / "state.jsonl").read_bytes())
    assert cli("run", TASK, "--quiet", cwd=project).returncode == 1  # and once more over the first


def test_expectations_compare_ending_decisions_modes_and_spans(tmp_path: Path) -> None:
    task = load_task(ROOT / TASK)
    wrong = {"ending": "cancelled", "decisions": ["allow"], "modes": ["timeout"], "spans": {"agent_step": 1}}
    for name, value in wrong.items():
        agent, setting = build(task)
        with pytest.raises(ExpectationError) as caught:
            record_run(
                agent, setting, tmp_path / name, expected={name: value}, rejected=tmp_path / "rejected"
            )
        assert len(caught.value.differences) == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rejected"]


# ---- killed, and two at once ---------------------------------------------------------------------------

_SLOW = """
import sys, time
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from pathlib import Path
task = load_task("tasks/canonical/v1.yaml")
agent, setting = build(task)
print("ready", flush=True)
def pause(notice):
    if not Path("hurry").exists():
        time.sleep(float(sys.argv[2]))
record_run(agent, setting, Path(sys.argv[1]), listeners=[pause])
print("done", flush=True)
"""


def _start(project: Path, out: str, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _SLOW, out, str(pause)]
    process = subprocess.Popen(command, cwd=project, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def _whole(project: Path, folder: str) -> bytes | None:
    """The ledger of a run that is whole, None where there is no run; fails where there is half of one."""
    place = project / folder
    if not place.exists():
        return None
    assert sorted(path.name for path in place.iterdir()) == sorted(FILES)
    state = (place / "state.jsonl").read_bytes()
    well_formed(state)
    manifest = json.loads((place / "manifest.json").read_bytes())
    assert manifest["ledger_head"]
    return state


def test_a_killed_recording_leaves_the_old_run_or_the_new_one(project: Path) -> None:
    old = _whole(project, CANONICAL)
    file = project / "data/corpus/v1/op-a4.md"
    file.write_bytes(file.read_bytes().replace(b"20 minutes", b"25 minutes"))
    for delay in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15):
        process = _start(project, CANONICAL, 0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
        state = _whole(project, CANONICAL)
        assert state is not None and (state == old or b"25 minutes" in state)
    assert cli("run", TASK, "--quiet", cwd=project).returncode == 0
    assert examine(project / CANONICAL).ok
    assert sorted(path.name for path in (project / "runs/canonical").iterdir()) == ["v1"]


def test_a_finish_that_was_cut_between_its_renames_is_put_right(project: Path) -> None:
    runs = project / "runs" / "canonical"
    before = (runs / "v1" / "state.jsonl").read_bytes()
    (runs / "v1").rename(runs / "v1.old")
    (runs / "v1.partial").mkdir()
    (runs / "v1.partial" / "state.jsonl").write_text("half")
    with Folder(runs / "v1") as folder:
        assert (runs / "v1" / "state.jsonl").read_bytes() == before
        folder.discard()
    assert [path.name for path in runs.iterdir()] == ["v1"]


def test_a_finish_that_was_cut_after_its_renames_is_put_right(project: Path) -> None:
    runs = project / "runs" / "canonical"
    (runs / "v1.old").mkdir()
    (runs / "v1.old" / "state.jsonl").write_text("an earlier run")
    with Folder(runs / "v1") as folder:
        folder.discard()
    assert [path.name for path in runs.iterdir()] == ["v1"]


def test_two_at_once_one_records_and_the_other_says_so(project: Path) -> None:
    process = _start(project, "new", 1.0)  # slow until told otherwise, so that it outlasts the other process
    deadline = time.monotonic() + 30
    while not (project / "new.partial" / "state.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    line = one_line(cli("run", TASK, "--quiet", "--out", "new", cwd=project))
    assert "another process" in line
    (project / "hurry").touch()
    assert process.communicate(timeout=30)[0] == "done\n" and process.returncode == 0
    assert _whole(project, "new") is not None and not (project / "new.partial").exists()


def test_many_at_once_leave_one_whole_run(project: Path) -> None:
    processes = [_start(project, "new", 0.0) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=30)
    assert 0 in [process.returncode for process in processes]
    assert _whole(project, "new") is not None
    assert not list(project.glob("new.*"))


# ---- from code -----------------------------------------------------------------------------------------


def _agent(**sections: Any) -> Agent:
    stub = Stub([{"calls": [{"tool": "probe", "arguments": {}}]}, {"answer": "done"}])
    return Agent(stub, [tool(), tool("echo")], Policy.from_dict(policy_data(**sections)))


def test_record_leaves_four_files(tmp_path: Path) -> None:
    result = record(_agent(), "What now?", tmp_path / "a" / "run", run_id="r")
    written = (tmp_path / "a/run/state.jsonl").read_text().splitlines()[1:-1]
    assert [dict(step) for step in result.steps] == [json.loads(line) for line in written] != []
    assert result.ok
    assert _whole(tmp_path, "a/run") is not None
    first = tree(tmp_path)
    record(_agent(), "What now?", tmp_path / "a" / "run", run_id="r")
    assert tree(tmp_path) == first
    record(_agent(), "What else?", tmp_path / "a" / "run", run_id="r")
    assert (tmp_path / "a" / "run" / "state.jsonl").read_bytes() != first["a/run/state.jsonl"]


def test_record_after_ctrl_c_is_whole_and_raises_again(tmp_path: Path) -> None:
    attend_to_ctrl_c()

    def listener(notice: Any) -> None:
        if notice.what == "decided":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        record(_agent(), "What now?", tmp_path / "run", listeners=[listener])
    lines, _ = well_formed((tmp_path / "run" / "state.jsonl").read_bytes())
    assert lines[-1]["terminal_reason"] == "cancelled"


def test_record_of_bad_input_leaves_no_folder(tmp_path: Path) -> None:
    agent = Agent(Stub([]), [tool(), tool("echo")], Policy.from_dict(policy_data()))
    with pytest.raises(InputError):
        record(agent, "What now?", tmp_path / "a" / "b" / "run")
    with pytest.raises(OutputError):
        record(_agent(), "What now?", Path("/"))
    assert list(tmp_path.iterdir()) == []


def test_a_bug_keeps_what_was_written_and_is_raised(tmp_path: Path) -> None:
    class Bug(Exception):
        pass

    class Clock:
        kind, start = "virtual", "2026-01-01T00:00:00Z"

        def stamp(self) -> int:
            raise Bug

    with pytest.raises(Bug):
        record(_agent(), "What now?", tmp_path / "run", clock=Clock())  # type: ignore[arg-type]
    assert (tmp_path / "run.partial" / "state.jsonl").read_bytes().startswith(b'{"clock"')
    assert not (tmp_path / "run").exists()


def test_a_record_made_from_code_is_not_replaced_unasked(tmp_path: Path) -> None:
    def agent(answer: str, **identity: str) -> Agent:
        model = Stub([{"answer": answer}])
        model.identity = {**model.identity, **identity}
        return Agent(model, [], Policy.shipped())

    out = tmp_path / "run"
    record(agent("first"), "q", out, run_id="a")
    record(agent("second"), "q", out, run_id="a")  # a stub's, under the same id: it can be made again
    with pytest.raises(OutputError, match="already holds the record of run a; give replace=True"):
        record(agent("third"), "q", out, run_id="b")
    assert b'"final_answer":"second"' in (out / "state.jsonl").read_bytes()
    record(agent("live", execution_path="live"), "q", out, run_id="b", replace=True)
    with pytest.raises(OutputError, match="the record of run b;"):
        record(agent("live", execution_path="live"), "q", out, run_id="b")
    (out / "manifest.json").write_text("{}")
    with pytest.raises(OutputError, match="already holds a record that cannot be read;"):
        record(agent("fourth"), "q", out, run_id="b")


def test_a_file_in_the_place_of_a_run_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(OutputError, match="mine: is not a folder; name another place for the run"):
        record(Agent(Stub([{"answer": "At six."}]), []), "When?", tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
