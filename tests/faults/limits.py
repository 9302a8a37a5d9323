"""A poor environment: few descriptors, little memory, no output, clocks that jump; and runs on a real clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tachograph.evidence.checking.verify import verify
from tests.support import well_formed

from .kills import converge
from .lab import Done, Fault, Lab
from .registry import fault
from .scene import Scene
from .signals import LIVE

DAY = 86_400


@fault("limit.files", "no more than so many open files, and then enough")
def limit_files(lab: Lab) -> Iterator[str]:
    for number in range(5, 26):
        yield f"{number} descriptors"
        lab.scene.clear()
        done = lab.run(limits={"NOFILE": number})
        assert "Traceback" not in done.err and done.code in (0, 1, 2, 3), done
        if done.code == 3 and lab.scene.deeds():
            done, _ = lab.go_on()
        if done.code == 1:
            assert "failure_mode_terminal" in done.err, done  # a tool could not open what it needs
        else:
            converge(lab)


@fault("output.closed", "standard output, error or all three closed from the start, full, or with no reader")
def output_closed(lab: Lab) -> Iterator[str]:
    loud = ("run", "tasks/faults/ten.yaml", "--durability", "effect")
    for closed in ([1], [2], [1, 2], [0, 1, 2]):
        yield f"closed: {closed}"
        lab.scene.clear()
        done = lab.do(*loud, close=closed)
        assert done.code == 0 and lab.scene.files() == lab.whole, done
    for name, code in (("full", 2), ("pipe", 1)):
        yield f"standard output is a {name}"
        lab.scene.clear()
        done = lab.do(*loud, stdout=name)
        assert done.code == code and lab.scene.files() == lab.whole, done
        assert "Traceback" not in done.err


@fault("clock.jump", "a wall clock that is elsewhere: 1970, 2038, an hour back, a day ahead", "shim")
def clock_jump(lab: Lab) -> Iterator[str]:
    for name, offset in (("1970", -1_700_000_000), ("2038", 500_000_000), ("an hour back", -3600)):
        yield f"{name}, a run on the virtual clock"
        lab.scene.clear()
        assert lab.run(wall=offset).code == 0
        assert lab.scene.files() == lab.whole
    for name, offset in (("a day back", -DAY), ("a day ahead", DAY), ("an hour back", -3600)):
        yield f"{name} between a live run and its resume"
        whole = _live(lab)
        lab.scene.clear()
        code = f"{LIVE}\nmain('record')"
        assert lab.do(code=code, fault=Fault(len(whole) * 3)).code == -9
        done = _go_on(lab, wall=offset)
        assert done.code == 0 and _without_stamps(lab) == whole, done


@fault(
    "live.kill", "a run on the system clock killed before each call, and resumed: other stamps, nothing else"
)
def live_kill(lab: Lab) -> Iterator[str]:
    whole = _live(lab)
    lab.scene.clear()
    code = f"{LIVE}\nmain('record')"
    points = lab.points(lambda plan: lab.do(code=code, fault=plan))
    for point in points[::2]:
        if not point.path.startswith("runs/live"):
            continue
        yield f"before call {point.number}: {point.op} {point.path}"
        lab.scene.clear()
        assert lab.do(code=code, fault=Fault(point.number)).code == -9
        done = _go_on(lab)
        if done.code == 1:  # nothing had begun, or it was over
            assert "no unfinished run" in done.err or "holds nothing" in done.err, done
            continue
        assert done.code == 0, done
        found = _without_stamps(lab)
        assert found == whole or b'"unseen":true' in (lab.scene.root / "runs/live/state.jsonl").read_bytes()
        assert set(_deeds(lab.scene).values()) == {1} and len(_deeds(lab.scene)) == 7


def _live(lab: Lab) -> list[dict[str, Any]]:
    """The lines of a live run that nothing disturbed, without stamps."""
    lab.scene.clear()
    done = lab.do(code=f"{LIVE}\nmain('record')")
    assert done.code == 0, done
    return _without_stamps(lab)


def _go_on(lab: Lab, **request: Any) -> Done:
    """Resume a live run; a person looks at what was done."""
    done = lab.do(code=f"{LIVE}\nmain('resume')", **request)
    if done.code == 3:
        call = done.said.rpartition("--not-done ")[2].split()[0]
        _, step, index = call.split("_")
        word = "done" if _deeds(lab.scene)[f"live-1/{step}/{index}"] else "not_done"
        done = lab.do(code=f"{LIVE}\nmain('resume', {word}=['{call}'])", **request)
    return done


def _deeds(scene: Scene) -> Counter[str]:
    return scene.deeds()


def _without_stamps(lab: Lab) -> list[dict[str, Any]]:
    """The lines of the live run in place, sound and in order, without what the time of day made of them."""
    folder = lab.scene.root / "runs/live"
    lines, _ = well_formed((folder / "state.jsonl").read_bytes())
    assert verify(folder, lab.scene.root) == []
    assert lines[0]["clock"]["kind"] == "system"
    for line in lines:
        for key in ("prev", "stamps", "stamp", "clock"):
            line.pop(key, None)
    return lines


@fault("leak.files", "descriptors of many kept runs, counted")
def leak_files(lab: Lab) -> Iterator[str]:
    yield "five runs in one process"
    lab.scene.clear()
    code = """
import os
from tachograph.cli import main as cli
def count():
    return len(os.listdir("/proc/self/fd"))
numbers = []
for n in range(5):
    assert cli.main(["run", "tasks/faults/ten.yaml", "--quiet", "--durability", "effect", "--out", f"out/{n}"]) == 0
    numbers.append(count())
print(numbers)
raise SystemExit(0 if len(set(numbers)) == 1 else 9)
"""
    done = lab.do(code=code)
    assert done.code == 0, done
