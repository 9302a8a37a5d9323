"""Whole processes: the canonical run, and importing the package. CPU time of the child."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import Row, children_take_turns, peak_memory

ROOT = Path(__file__).resolve().parent.parent
TASK = ROOT / "tasks" / "canonical" / "v1.yaml"
# heavy or networked, and in no part of a run
UNWANTED = ("asyncio", "google.protobuf", "grpc", "opentelemetry", "requests", "urllib3")
# the scenarios run again and nothing else: no comparison, no index
SCENARIOS = """
from pathlib import Path
from tachograph.evidence.tasks.task import build, load_task
from tachograph.evidence.files.writer import derive
for path in sorted(Path("tasks").glob("*/*.yaml")):
    task = load_task(path, root=Path())
    if task.is_scripted:  # a live model is not asked
        derive(*build(task))
"""


def code(text: str) -> Callable[[], Sequence[str]]:
    return lambda: [sys.executable, "-c", text]


# a run to check again and again, and the call that `policy decide` is asked for
RUN = "runs/canonical/v1"
CALL = '{"tool": "fetch", "arguments": {"url": "https://corpus.test/op-a4.md"}}'


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tachograph", *words]


def check(times: int) -> list[str]:
    """Return the command that checks one recorded run so many times, in one process."""
    return command("check", "--jobs", "1", *[RUN] * times)


def rows(*, quick: bool) -> list[Row]:
    fresh = itertools.count()
    more = 20 if quick else 50
    with tempfile.TemporaryDirectory() as folder:
        call = Path(folder) / "call.json"
        call.write_text(CALL, encoding="utf-8")

        def canonical() -> Sequence[str]:
            out = f"{folder}/{next(fresh)}"
            return command("run", str(TASK), "--out", out, "--quiet")

        turns = children_take_turns(
            {
                "pass": code("pass"),
                "json": code("import json"),
                "import": code("import tachograph"),
                "libraries": code("import jsonschema, yaml"),
                "canonical": canonical,
                "help": lambda: command("--help"),
                "decide": lambda: command("policy", "decide", str(call)),
                "check one": lambda: check(1),
                "check more": lambda: check(1 + more),
                "evidence-check": lambda: command("check", "--json"),
                "scenarios": code(SCENARIOS),
                "its imports": code(
                    "import tachograph.cli.main, tachograph.evidence.checking.check, jsonschema, sqlite3"
                ),
            },
            2 if quick else 30,
        )
    modules = _modules("import tachograph")
    found = sorted(name for name in UNWANTED if name in modules)
    return [
        Row(
            "import tachograph : an empty Python", turns.ratio("import", "pass"), note=_ms(turns.us("import"))
        ),
        Row("import tachograph : import json", turns.ratio("import", "json")),
        Row(
            "unwanted modules after import tachograph",
            len(found),
            0,
            unit="",
            note=", ".join(found) or f"of {len(modules)}",
        ),
        Row(
            "canonical run as a process : an empty Python",
            turns.ratio("canonical", "pass"),
            note=_ms(turns.us("canonical")),
        ),
        Row(
            "canonical run as a process : import jsonschema, yaml",
            turns.ratio("canonical", "libraries"),
            1.25,
            note=f"libraries {_ms(turns.us('libraries'))}",
        ),
        Row(
            "tachograph --help : import jsonschema, yaml",
            turns.ratio("help", "libraries"),
            0.5,
            note=_ms(turns.us("help")),
        ),
        Row(
            "tachograph policy decide : import jsonschema, yaml",
            turns.ratio("decide", "libraries"),
            1.0,
            note=_ms(turns.us("decide")),
        ),
        Row(
            "check, one run more : import jsonschema, yaml",
            turns.difference("check more", "check one", "libraries") / more,
            0.053,  # 0.35 of 15 ms, where the libraries take 100 ms
            note=f"{(turns.us('check more') - turns.us('check one')) / more / 1000:.1f} ms",
        ),
        Row(
            f"memory of a check of {4 * more} runs : of {more} runs",
            peak_memory(check(4 * more)) / peak_memory(check(more)),
            1.05,
        ),
        Row(
            "evidence-check : its imports and the scenarios run again",
            turns.ratio("evidence-check", "scenarios"),
            1.5,
            note=f"{_ms(turns.us('evidence-check'))}, imports alone {_ms(turns.us('its imports'))}, "
            f"scenarios with them {_ms(turns.us('scenarios'))}",
        ),
    ]


def _ms(us: float) -> str:
    return f"{us / 1000:.0f} ms"


def _modules(statement: str) -> set[str]:
    text = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)
    return set(json.loads(done.stdout))
