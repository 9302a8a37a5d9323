"""Many runs at once: `check` and `policy diff --runs` against the loops of these runs and nothing else.

The pure cost is every run made again in one process and nothing compared: for a check from its task, which is
loaded, performed and written as four files in memory; for a diff from its record, which is read and held against
its chain, its loop performed under both policies. Wall time on all cores counts, against that cost divided by the
cores; and CPU time of all processes, start included, which says the same where nothing else uses the cores. The
rows of loops alone leave out files on both sides.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from measure import Row

from tachograph import Policy
from tachograph.evidence.checking.workers import cores
from tachograph.evidence.files.writer import derive
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.recorded import open_record
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.driver.driver import drive
from tachograph.runtime.journal.cassette import Cassette, ReplayExecutor
from tachograph.runtime.journal.recorded_clock import RecordedClock
from tachograph.runtime.loop.loop import run_loop
from tachograph.runtime.loop.retry import Schedule
from tachograph.runtime.loop.state import RunSpec
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.loader import load_named

ROOT = Path(__file__).resolve().parent.parent


def rows(*, quick: bool) -> list[Row]:
    count = 100 if quick else 1000
    with tempfile.TemporaryDirectory() as folder:
        project = _project(Path(folder) / "project", count)
        new = project / "policy" / "new.yaml"
        text = (project / "policy/v1.yaml").read_text(encoding="utf-8")
        new.write_text(text.replace("max_tool_calls: 40", "max_tool_calls: 3"), encoding="utf-8")
        check = _command(project, 0, "check")
        diff = _command(project, 0, "policy", "diff", "policy/v1.yaml", "policy/new.yaml", "--runs", "runs")
        times = _turns(
            {
                "check": check,
                "diff": diff,
                "made": lambda: _made(project, whole=True),
                "loops": lambda: _made(project, whole=False),
                "tapes": lambda: _tapes(project, new, reading=True),
                "bare": lambda: _tapes(project, new, reading=False),
            },
            1 if quick else 3,
        )
    return [
        *_both(f"check of {count} runs : made again", times["check"], times["made"], count),
        *_both(f"check of {count} runs : loops alone", times["check"], times["loops"], count, None),
        *_both(f"policy diff --runs of {count} : records read, loops", times["diff"], times["tapes"], count),
        *_both(f"policy diff --runs of {count} : loops alone", times["diff"], times["bare"], count, None),
    ]


def _both(
    name: str, whole: Sequence[Times], pure: Sequence[Times], count: int, target: float | None = 2.0
) -> list[Row]:
    wall = median(a.wall / (b.cpu / cores()) for a, b in zip(whole, pure, strict=True))
    cpu = median(a.cpu / b.cpu for a, b in zip(whole, pure, strict=True))
    of_one = [median(times.cpu for times in case) / count * 1000 for case in (whole, pure)]
    return [
        Row(
            f"{name} / cores, wall",
            wall,
            target,
            note=f"{median(a.wall for a in whole):.1f} s on {cores()} cores",
        ),
        Row(f"{name}, CPU", cpu, target, note=f"{of_one[0]:.1f} : {of_one[1]:.1f} ms a run"),
    ]


@dataclass(frozen=True)
class Times:
    """Seconds."""

    wall: float
    cpu: float


def _turns(cases: dict[str, Callable[[], Times]], rounds: int) -> dict[str, list[Times]]:
    """Time each case, in alternation."""
    times: dict[str, list[Times]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(case())
    return times


def _command(project: Path, wanted: int, *words: str) -> Callable[[], Times]:
    def run() -> Times:
        begun, before = time.perf_counter(), _children()
        done = subprocess.run([sys.executable, "-m", "tachograph", *words], cwd=project, capture_output=True)
        assert done.returncode == wanted, (words, done.stdout[-500:], done.stderr[-500:])
        return Times(time.perf_counter() - begun, _children() - before)

    return run


def _children() -> float:
    """CPU seconds of the processes that ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _project(to: Path, count: int) -> Path:
    """Make a project with `count` runs of the canonical task, each of another seed."""
    for name in ("policy", "tools", "data"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    (to / "tasks/many").mkdir(parents=True)
    text = (ROOT / "tasks/canonical/v1.yaml").read_text(encoding="utf-8")
    for number in range(count):
        own = re.sub(
            r"(?m)^id: .*$", f"id: many-v{number}", re.sub(r"(?m)^seed: .*$", f"seed: {number}", text)
        )
        task = to / f"tasks/many/v{number}.yaml"
        task.write_text(own, encoding="utf-8")
        record_run(*build(load_task(task, root=to)), to / f"runs/many/v{number}")
    index.update(to)
    return to


def _made(project: Path, *, whole: bool) -> Times:
    """Every run made by its script: as four files in memory, or its loop alone. Nothing is compared."""
    spent = 0.0
    for task in sorted((project / "tasks/many").glob("*.yaml")):
        begun = time.process_time()
        agent, setting = build(load_task(task, root=project))
        if whole:
            derive(agent, setting)
        else:
            begun = time.process_time()
            agent.execute(setting, keep_steps=False)
        spent += time.process_time() - begun
    return Times(spent, spent)


def _tapes(project: Path, new: Path, *, reading: bool) -> Times:
    """Every run answered from its record under both policies; nothing is compared."""
    tools = {path.stem: load_named(path.stem, project / "tools") for path in (project / "tools").glob("*.py")}
    policies = [Policy.load(file, root=project) for file in (project / "policy/v1.yaml", new)]
    spent = 0.0
    for folder in sorted((project / "runs/many").iterdir()):
        begun = time.process_time()
        lines = open_record(folder, project).lines
        begun = begun if reading else time.process_time()
        for policy in policies:
            _tape(lines, policy, tools)
        spent += time.process_time() - begun
    return Times(spent, spent)


def _tape(lines: list[dict[str, Any]], policy: Policy, tools: dict[str, Tool]) -> None:
    run = lines[0]
    gate, schedule = Gate(policy, tools), Schedule.of(policy.section("retry"))
    clock = RecordedClock.of(lines)
    executor = ReplayExecutor(Cassette.of(lines[1:-1], counterfactual=True), clock)
    loop = run_loop(RunSpec(run["run_id"], run["question"], run["seed"], gate, schedule, ()))
    drive(loop, executor, clock, lambda _line: None, lambda _item, _outcome: None)
