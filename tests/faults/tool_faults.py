"""Tools that go wrong in whole runs, those among them that take their time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support import well_formed

from . import rogues
from .lab import Fault, Lab
from .registry import fault
from .scene import TASK

_CODE = "from pathlib import Path\nfrom tests.faults import rogues\n"


@fault("tool.rogue", "each tool that does what none should, in this process and in its own, on both clocks")
def tool_rogue(lab: Lab) -> Iterator[str]:
    yield from _all("ROGUES", live=True, lab=lab)


@fault("tool.heavy", "results of 100 MB, a million keys, three million numbers")
def tool_heavy(lab: Lab) -> Iterator[str]:
    yield from _all("HEAVY", live=False, lab=lab)


def _all(table: str, *, live: bool, lab: Lab) -> Iterator[str]:
    """Each in a fork, since a tool may leave more behind than a record."""
    for number, (name, rogue) in enumerate(getattr(rogues, table).items()):
        for isolate in (False, True):
            if not isolate and not rogue.here:
                continue
            yield f"{name}{', isolated' if isolate else ''}"
            place = str(lab.place / "rogues" / f"{table}{number}{isolate}")
            words = f"rogues.{table}[{name!r}], Path({place!r}), isolate={isolate}, live={live}"
            done = lab.do(code=f"{_CODE}rogues.performed({words})", timeout_s=30)
            assert done.code == 0, done.err[-2000:]


@fault("tool.memory", "a tool that wants more memory than there is, in its own process")
def tool_memory(lab: Lab) -> Iterator[str]:
    """In a worker the tool alone dies; here it gets a MemoryError where the system says no."""
    body = (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "return {'said': 'x' * (1 << 31)}"
    )
    for isolate in (False, True):
        yield "isolated" if isolate else "in this process"
        place = str(lab.place / "rogues" / f"memory{isolate}")
        made = f"rogues.Rogue({body!r}, rogues.FAILED), Path({place!r}), isolate={isolate}"
        done = lab.do(code=f"{_CODE}rogues.performed({made})")
        assert done.code == 0, done.err[-2000:]


@fault("run.deadline", "a run whose time is over, and one that dies before it is")
def run_deadline(lab: Lab) -> Iterator[str]:
    whole, middle, task = lab.whole, lab.middle, lab.scene.root / TASK
    text = task.read_text()
    try:
        yield "over"
        task.write_text(f"{text}deadline_s: 1\n")
        lab.scene.clear()
        assert lab.run().code == 1
        lines, _ = well_formed((lab.scene.rejected / "state.jsonl").read_bytes())
        end = lines[-1]
        assert (end["terminal_reason"], end["failure_mode"]) == ("failure_mode_terminal", "timeout")
        yield "not over, killed and resumed"
        task.write_text(f"{text}deadline_s: 100\n")
        lab.scene.clear()
        assert lab.run().code == 0
        limited = lab.scene.files()
        assert limited != whole
        lab.scene.clear()
        assert lab.run(fault=Fault(middle)).code == -9
        assert lab.resume().code == 0
        assert lab.scene.files() == limited
    finally:
        task.write_text(text)
