"""Making the evidence: by kind and by name, nothing written in vain, a missed run kept aside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dev import build, docs
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.recording import index
from tests.evidence.project import DENIED, FEW, RETRIED, copy_inputs, replaced
from tests.support import CANONICAL, FILES, ROOT, attend_to_ctrl_c, environment, tree

KIND, NAME = "policy_gates", "pg5_arg_schema"
REJECTED = f".tachograph/rejected/{KIND}-{NAME}"
Make = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", FEW)


@pytest.fixture
def make(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Make:
    """Exit code, lines of output and the complaint of a build in the project."""
    monkeypatch.chdir(project)

    def main(*words: str) -> tuple[int, list[str], str]:
        capsys.readouterr()
        code = build.main(words)
        out, err = capsys.readouterr()
        assert str(project) not in out + err
        return code, out.splitlines(), err

    return main


def _settle(project: Path) -> None:
    """Nothing in the project is newer than an hour, so that any write shows."""
    past = time.time() - 3600
    for path in project.rglob("*"):
        os.utime(path, (past, past))


# ---- what is chosen ------------------------------------------------------------------------------------


def test_all_of_a_kind_or_one_of_them(make: Make) -> None:
    assert make("policy_gates", NAME) == (
        0,
        [
            f"failure_mode_terminal   tasks/{KIND}/{NAME}.yaml",
            f"policy_gates-{NAME}: 1 of 1 runs as expected",
        ],
        "",
    )
    code, lines, _ = make("failure_modes")
    assert code == 0 and lines[-1] == "failure_modes: 1 of 1 runs as expected"
    code, lines, _ = make()
    assert code == 0 and lines[-1] == "evidence: 3 of 3 runs as expected" and len(lines) == 4
    assert make("policy_gates", "")[1][-1] == "policy_gates: 1 of 1 runs as expected"
    code, lines, _ = make("--check")
    assert (code, lines[-1]) == (0, "evidence: 3 of 3 runs identical")


@pytest.mark.parametrize(
    "words",
    [
        *[
            ("policy_gates", name)
            for name in ("pg9", "*", "pg5*", "../canonical/v1", "/etc/passwd", "**", "[")
        ],
        *[("nothing",), ("/etc",), ("..",), ("*",), ("**", "v1"), ("canonical", NAME), ("\x1b[31m",)],
    ],
    ids=repr,
)
@pytest.mark.parametrize("flag", [(), ("--check",)], ids=["make", "check"])
def test_an_unknown_scenario_is_one_line(
    words: tuple[str, ...], flag: tuple[str, ...], make: Make, project: Path
) -> None:
    before = tree(project)
    code, lines, complaint = make(*flag, *words)
    assert (code, lines) == (2, [])
    assert complaint.count("\n") == 1 and complaint.startswith("tachograph: tasks/")
    assert "there is no such task; known: " in complaint and "\x1b" not in complaint
    assert tree(project) == before


def test_what_is_known_is_told(make: Make) -> None:
    assert make(KIND, "pg9")[2].endswith(f"known: {NAME}\n")
    assert make("nothing")[2].endswith("known: canonical, failure_modes, policy_gates\n")


def test_a_project_without_tasks(make: Make, project: Path) -> None:
    shutil.rmtree(project / "tasks")
    assert make() == (2, [], "tachograph: tasks: there is no such task; known: none\n")


# ---- nothing in vain -----------------------------------------------------------------------------------


def test_recording_again_leaves_every_file_as_it_is(make: Make, project: Path) -> None:
    _settle(project)
    before = tree(project)
    for words in ((), (KIND,), (KIND, NAME)):
        assert make(*words)[0] == 0
        assert tree(project) == before


def test_index_and_pages_of_the_project_are_what_a_build_writes(tmp_path: Path) -> None:
    copy = copy_inputs(tmp_path / "copy")
    _settle(copy)
    before = tree(copy)
    assert not index.update(copy)
    docs.write(copy)
    assert tree(copy) == before and docs.stale(copy) == []


def test_checking_writes_nothing(make: Make, project: Path) -> None:
    replaced(project / "data/corpus/v1/op-a4.md", "20 minutes", "21 minutes")
    (project / DENIED / "trace.json").write_text("{}")
    (project / index.INDEX).unlink()
    (project / docs.GATES).unlink()
    _settle(project)
    before = tree(project)
    code, lines, complaint = make("--check")
    assert (code, complaint, lines[-1]) == (1, "", "evidence: 0 of 3 runs identical")
    heads = [line for line in lines[:-1] if not line.startswith("  ")]
    assert heads == [f"{'EFFECT'.ljust(24)}{run}" for run in (CANONICAL, RETRIED)] + [
        f"{'BROKEN'.ljust(24)}{DENIED}"
    ]
    assert f'  accept it: tachograph accept {CANONICAL} --reason "..."' in lines
    assert tree(project) == before


def test_what_changed_is_recorded_and_nothing_else(make: Make, project: Path) -> None:
    replaced(project / f"tasks/{KIND}/{NAME}.yaml", "Arguments of the wrong shape", "A wrong argument")
    _settle(project)
    before = tree(project)
    assert make()[0] == 0
    after = tree(project)
    changed = {name for name in after if before.get(name) != after[name]}
    written = {f"{DENIED}/{file}" for file in ("state.jsonl", "run_report.md", "manifest.json")}
    assert changed - {f"{DENIED}/trace.json"} == written | {index.INDEX, docs.GATES, docs.CAPABILITIES}
    assert set(after) == set(before)
    assert make("--check")[0] == 0 and index.problems(project) == [] and docs.stale(project) == []


def test_everything_can_be_made_from_nothing(make: Make, project: Path) -> None:
    before = tree(project)
    shutil.rmtree(project / "runs")
    for page in (docs.GATES, docs.MODES_PAGE):
        (project / page).unlink()
    assert make()[0] == 0
    after = tree(project)
    assert set(after) == set(before)
    for name, kept in before.items():
        if kept is not None and not name.endswith(("manifest.json", "INDEX.json")):
            now = after[name]
            assert now is not None and now[0] == kept[0], name


# ---- what is refused -----------------------------------------------------------------------------------


def test_a_run_that_misses_what_is_expected_is_kept_aside(make: Make, project: Path) -> None:
    replaced(project / f"tasks/{KIND}/{NAME}.yaml", "tool_call: 0", "tool_call: 2")
    _settle(project)
    before = tree(project)
    for _ in range(2):
        code, lines, complaint = make()
        assert (code, complaint) == (1, "")
        assert f"{'missed'.ljust(24)}tasks/{KIND}/{NAME}.yaml" in lines
        assert "  spans tool_call: expected 2, found 0" in lines
        assert f"  the committed run stays; this one is kept in {REJECTED}" in lines
        assert lines[-1] == "evidence: 2 of 3 runs as expected"
        assert sorted(path.name for path in (project / REJECTED).iterdir()) == sorted(FILES)
        assert verify(project / REJECTED, project) == []
        shutil.rmtree(project / ".tachograph")
        assert tree(project) == before


def test_a_first_run_that_misses_leaves_no_run(make: Make, project: Path) -> None:
    shutil.rmtree(project / "runs")
    for task in (project / "tasks").glob("*/*.yaml"):
        replaced(task, "agent_step: ", "agent_step: 4")
    code, lines, complaint = make()
    assert (code, complaint, lines[-1]) == (1, "", "evidence: 0 of 3 runs as expected")
    assert not (project / "runs").exists()


def test_bad_input_is_refused_before_anything_is_recorded(make: Make, project: Path) -> None:
    replaced(project / "data/corpus/v1/op-a4.md", "20 minutes", "21 minutes")
    replaced(project / f"tasks/{KIND}/{NAME}.yaml", "schema: task/v1", "schema: task/v9")
    before = tree(project)
    code, lines, complaint = make()
    assert (code, lines) == (2, [])
    assert complaint.startswith(f"tachograph: tasks/{KIND}/{NAME}.yaml:1:9: ") and complaint.count("\n") == 1
    assert tree(project) == before


def test_bad_input_that_shows_in_the_run_leaves_a_true_index(make: Make, project: Path) -> None:
    replaced(project / "data/corpus/v1/op-a4.md", "20 minutes", "21 minutes")
    task = project / f"tasks/{KIND}/{NAME}.yaml"
    replaced(task, "arguments: {query: 17, top_k: 3}", "arguments: {query: {$result: 4}, top_k: 3}")
    code, lines, complaint = make()
    assert code == 2 and len(lines) == 2 and "$result 4 does not exist" in complaint
    assert index.problems(project) == []
    assert examine(project / CANONICAL, root=project).ok


def test_a_stale_run_is_named_by_the_pages(make: Make, project: Path) -> None:
    shutil.copytree(project / DENIED, project / f"runs/{KIND}/stale")
    code, _, complaint = make()
    assert code == 2 and complaint.startswith(
        f"tachograph: runs/{KIND}/stale: there is no task tasks/{KIND}/stale.yaml; "
    )


# ---- interrupted ---------------------------------------------------------------------------------------

_BUILD = """
import sys, time
from dev import build
from tachograph.runtime.core.clock import VirtualClock
spend = VirtualClock.spend
def slowly(self, what):
    print("busy", file=sys.stderr, flush=True)
    time.sleep(1)
    spend(self, what)
VirtualClock.spend = slowly
sys.exit(build.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [(), ("--check",)], ids=["make", "check"])
def test_ctrl_c_ends_the_build_and_is_no_drift(words: tuple[str, ...], project: Path) -> None:
    before = tree(project / "runs")
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD, *words],
        cwd=project,
        env=environment({"PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=attend_to_ctrl_c,
    )
    assert process.stderr is not None and process.stderr.readline() == "busy\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, ""), (out, err)
    assert err.splitlines()[-1] == "tachograph: interrupted" and "Traceback" not in err
    assert tree(project / "runs") == before
