"""Measure what governing costs, in CPU time, as ratios of things that take turns in this very process.

    make bench [ROUNDS=50]

The parts of a step are the least that a step with four files can be made of, done with the libraries alone. A bound is
what must hold on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from jsonschema_rs import Draft202012Validator
from msgspec import structs

from tachograph import Agent, LLMInput, LLMOutput, Policy, ToolCall, WindowLimits
from tachograph.evidence.check import replay
from tachograph.evidence.record import record
from tachograph.evidence.run_source import drive
from tachograph.evidence.tasks import Task, load_task
from tachograph.runtime.log.events import Arrived, Event, TurnEnded
from tachograph.runtime.log.journal import Journal
from tachograph.runtime.run import head_of, make_run
from tachograph.runtime.world.virtual import Virtual, run_now

ROOT = Path(__file__).resolve().parent.parent
SHORT, LONG = 20, 220  # steps; their difference leaves out what a run costs once
LINE_BYTES, LINE_VALUES = 1545, 73  # of the line of a step, when the bound was set
RUNS, RUN_STEPS = 5000, 10
MANY = 1_000_000_000
POLICY: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["page"]},
    "sandbox": {"mounts": {"corpus": "read"}},
    "loop_budget": dict.fromkeys(
        ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"), MANY
    ),
    "cycle_detection": {"max_repeats": 1_000_000},
}
INPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "note"],
    "properties": {
        "path": {"type": "string", "maxLength": 512, "x-resource": "path:read"},
        "note": {"type": "string", "maxLength": 200},
    },
}
OUTPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string", "maxLength": 8000}},
}
TOOL = f"""
DESCRIPTION = "Read a page."
INPUT_SCHEMA = {INPUT!r}
OUTPUT_SCHEMA = {OUTPUT!r}
EFFECT = "read"
IDEMPOTENT = True


def run(args, io):
    return {{"text": io.read(args["path"])}}
"""


def main() -> None:
    """Print each ratio, and what it may be at most."""
    rounds = int(os.environ.get("ROUNDS") or 50)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a command as people run it has its bytecode on the disk
    print(f"{'':58} {'measured':>9} {'bound':>6}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        step(folder / "steps", rounds)
        replays(folder / "replays", rounds)
        together(folder / "together")
        children()
        turns()
        processes(folder / "processes", max(2, rounds // 2))


def say(name: str, measured: float, bound: float | None = None, note: str = "") -> None:
    """Print a line of the table; a bound is the most, of what is a rate the least."""
    limit = "" if bound is None else f"{bound:g}"
    print(f"{name:58} {measured:9.2f} {limit:>6}  {note}".rstrip(), flush=True)


def project(root: Path, *steps: int) -> list[Task]:
    """Make a project with a task for each number of steps: a call in each but the last, no two alike."""
    for name in ("policy", "tools", "tasks/s", "corpus"):
        (root / name).mkdir(parents=True)
    (root / "policy/v1.yaml").write_text(json.dumps(POLICY))
    (root / "tools/page.py").write_text(TOOL)
    for n in range(LONG):
        page = root / page_of(n)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"document {n}: ".ljust(270, "a"))
    for count in steps:
        calls = [{"tool": "page", "arguments": arguments(n)} for n in range(count - 1)]
        usage = {"input_tokens": 100, "output_tokens": 20}
        turns = [{"say": "I go on.", "calls": [call], "usage": usage} for call in calls]
        task = {
            "schema": "task/v1",
            "id": f"s-t{count}",
            "title": "a run to measure",
            "question": "How far?",
            "policy": {"file": "policy/v1.yaml"},
            "tools": ["page"],
            "mounts": {"corpus": "corpus"},
            "llm": {"stub": {"turns": [*turns, {"answer": "done", "usage": usage}]}},
            "expected": {"ending": "final_answer"},
        }
        (root / f"tasks/s/t{count}.yaml").write_text(json.dumps(task))
    return [load_task(root / f"tasks/s/t{count}.yaml") for count in steps]


def page_of(n: int) -> str:
    """Return the path of a page, two folders down."""
    return f"corpus/{n % 10}/page-{n}.md"


def arguments(n: int) -> dict[str, str]:
    """Return the arguments of a call that no other step has."""
    return {"path": page_of(n), "note": f"step {n} of a run"}


def cpu_ns(do: Callable[[Any], object], inputs: Sequence[Any]) -> float:
    """Return the CPU time of `do` for each of its inputs; the garbage of before is collected first."""
    gc.collect()
    begun = time.process_time_ns()
    for item in inputs:
        do(item)
    return (time.process_time_ns() - begun) / len(inputs)


def values_in(data: Any) -> int:
    """Return how many values there are in JSON data, with itself."""
    below = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return 1 + sum(map(values_in, below))


def step(root: Path, rounds: int) -> None:
    """Compare a governed step, recorded as four files, with its parts."""
    short, long = project(root, SHORT, LONG)
    record(long, root / "whole")
    (traced,) = json.loads((root / "whole/trace.json").read_bytes())["resourceSpans"]
    spans = traced["scopeSpans"][0]["spans"]
    compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    line = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode
    lines = [json.loads(text) for text in (root / "whole/state.jsonl").read_bytes().splitlines()]
    objects = [
        {"step": n, "events": [e for e in lines if e["at"].startswith(f"{n}.")]} for n in range(1, 100)
    ]
    for item in objects:  # one line of that size in the place of the several of a step
        item["more"] = {f"key_{n}": "" for n in range(LINE_VALUES - values_in(item) - 1)}
        item["more"]["key_0"] = "a" * (LINE_BYTES - len(line(item)))
    validator = Draft202012Validator(INPUT)
    with open(root / "lines", "wb") as file:
        parts: dict[str, tuple[Callable[[Any], object], Sequence[Any]]] = {
            "schema": (validator.is_valid, [arguments(n) for n in range(100)]),
            "path": (os.path.realpath, [root / page_of(n) for n in range(100)]),
            "read": (lambda path: path.read_bytes(), [root / page_of(n) for n in range(100)]),
            "line": (lambda item: file.write(line(item).encode() + b"\n"), objects),
            "digest": (lambda data: hashlib.sha256(data).digest(), [line(item).encode() for item in objects]),
            "spans": (lambda some: [compact(span) for span in some], [spans[n : n + 5] for n in range(100)]),
        }
        ratios, steps, sums = [], [], []
        for n in range(rounds + 1):
            least = sum(cpu_ns(do, inputs) for do, inputs in parts.values())
            took = {task: cpu_ns(lambda t: record(t, root / "out"), [task]) for task in (short, long)}
            shutil.rmtree(root / "out")
            if n:  # the first round does not count
                steps.append((took[long] - took[short]) / (LONG - SHORT))
                sums.append(least)
                ratios.append(steps[-1] / least)
    note = f"{median(steps) / 1000:.0f} us : {median(sums) / 1000:.0f} us"
    say("governed step with four files : sum of its parts", median(ratios), 2.0, note)


def replays(root: Path, rounds: int) -> None:
    """Measure how many runs of five steps are replayed in a second of CPU time."""
    (task,) = project(root, 5)
    record(task, root / "run")
    took = [
        cpu_ns(lambda _: replay(task, root / "run", "run"), range(20)) for _ in range(max(3, rounds // 5))
    ]
    say("replays of five steps a second and core (at least)", 1e9 / median(took), 400)


def together(root: Path) -> None:
    """Compare a step of many runs at once in an event loop with one of runs made one after another."""
    (task,) = project(root, RUN_STEPS)

    async def one() -> Journal:
        with task.workspace(lambda path, sha256: None) as workspace:
            made = await make_run(task.run_spec(), task.head(), task.world(workspace))
        return made.journal

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(RUNS)))

    drive(task, one())
    alone = cpu_ns(lambda _: drive(task, one()), range(RUNS // 10)) / RUN_STEPS
    at_once = cpu_ns(asyncio.run, [many()]) / RUNS / RUN_STEPS
    note = f"{at_once / 1000:.0f} us : {alone / 1000:.0f} us"
    say(f"a step of {RUNS:,} runs at once : of runs one by one", at_once / alone, 1.3, note)


def lead(children: int) -> Agent:
    """Return an agent that starts so many others, 64 at a time, each of which answers at once."""
    child = Agent(lambda asked: LLMOutput(final_answer="found it"), [], Policy.from_dict(POLICY))

    def model(asked: LLMInput) -> LLMOutput:
        left = children - 64 * (asked.step_index - 1)
        if left <= 0:
            return LLMOutput(final_answer="done")
        calls = [ToolCall("look", {"task": f"number {left - n}"}) for n in range(min(64, left))]
        return LLMOutput(tool_calls=calls)

    policy = {**POLICY, "tool_registry": {"allowed": ["look"]}}
    policy["agents"] = {"max_depth": 1, "max_children": MANY, "max_parallel": 64}
    return Agent(model, [child.as_tool("look", "Look.")], Policy.from_dict(policy))


def children() -> None:
    """Compare what one of 1,000 agents costs that another one starts with one of 250."""

    def run(agent: Agent) -> Any:
        spec = agent.spec("How many?", run_id="bench", key=b"")
        with agent.workspace() as workspace:
            made = run_now(make_run(spec, head_of(spec), Virtual(workspace)))
        return made.journal

    few, many = lead(250), lead(1000)
    run(few)
    took = [cpu_ns(run, [agent]) / count for agent, count in ((few, 250), (many, 1000))]
    size = len(run(many).data) / (1000 + 1000)  # each child takes one step
    say("one of 1,000 children : of 250", took[1] / took[0], 1.2, f"{took[1] / 1000:.0f} us")
    say("kB of log for a step and a child", size / 1000, 4)


def turns() -> None:
    """Compare a turn of a conversation late with one early; what the model is shown is bounded."""
    ends: list[int] = []

    def note(event: Event) -> None:
        if isinstance(event, TurnEnded):
            ends.append(time.process_time_ns())

    def model(asked: LLMInput) -> LLMOutput:
        return LLMOutput(final_answer="x" * 200)

    agent = Agent(model, [], Policy.from_dict(POLICY), window=WindowLimits(20_000))
    spec = structs.replace(agent.spec("", run_id="bench", key=b""), is_session=True)
    said = [Arrived(at="", text=f"turn {n}: " + "y" * 200) for n in range(220)]
    late, early, sizes = [], [], []
    for _ in range(15):
        ends.clear()
        with agent.workspace() as workspace:
            made = run_now(make_run(spec, head_of(spec), Virtual(workspace, turns=said), listen=note))
        took = [b - a for a, b in pairwise(ends)]
        early.append(median(took[1:20]))
        late.append(median(took[190:210]))
        sizes.append(len(made.journal.data) / 220)
    say("a step in turn 200 : in turn 2", median(late) / median(early), 1.2, f"{median(late) / 1000:.0f} us")
    say("kB of log for a turn", median(sizes) / 1000, 4)


def processes(root: Path, rounds: int) -> None:
    """Compare whole commands with the import of two libraries."""
    ignored = shutil.ignore_patterns(".*", "src", "tachograph", "tests")
    shutil.copytree(ROOT, root, ignore=ignored)
    (root / "tachograph").symlink_to(ROOT / "src")
    commands = {
        "libraries": [sys.executable, "-c", "import yaml, jsonschema"],
        "run": [sys.executable, "-m", "tachograph", "run", "canonical/v1"],
        "help": [sys.executable, "-m", "tachograph", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    for name, words, bound in (("run", "cold canonical run", 1.2), ("help", "--help", 0.6)):
        ratio = median(a / b for a, b in zip(times[name][1:], times["libraries"][1:], strict=True))
        note = f"{median(times[name][1:]) * 1000:.0f} ms : {median(times['libraries'][1:]) * 1000:.0f} ms"
        say(f"{words} : import yaml, jsonschema", ratio, bound, note)


if __name__ == "__main__":
    main()
