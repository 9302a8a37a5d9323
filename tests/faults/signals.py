"""Signals: one suspends a kept run and ends any other with a whole record, a second one leaves at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support import FILES, well_formed

from .kills import converge
from .lab import HERE, Done, Fault, Lab
from .registry import fault
from .scene import RUN, TASK

KEPT = ("run", TASK, "--quiet", "--durability", "effect")
LIVE = (HERE / "live_agent.py").read_text(encoding="utf-8")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def stopped(folder: Path, mode: str = "interrupted") -> None:
    """A folder holds a whole record of a run that was stopped."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    lines, _ = well_formed((folder / "state.jsonl").read_bytes())
    assert (lines[-1]["terminal_reason"], lines[-1]["failure_mode"]) == ("cancelled", mode)


def suspended(lab: Lab) -> None:
    """A run was stopped, and is kept to go on from; its task was not held against what it expects."""
    assert lab.scene.journal.exists() and not lab.scene.run.exists() and not lab.scene.rejected.exists()


def quick(done: Done, code: int) -> None:
    assert done.code == code and "Traceback" not in done.err, done


@fault("signal.tool", "a signal while a tool runs, kept in a journal or not")
def signal_tool(lab: Lab) -> Iterator[str]:
    for number, code in CODES.items():
        for durability, *more in (("effect",), ("effect", "--on-signal", "cancel"), ("off",)):
            yield f"{signal.Signals(number).name}, {durability} {' '.join(more)}"
            lab.scene.clear()
            lab.scene.hold.touch()
            send = [{"when": str(lab.scene.held), "signal": number}]
            done = lab.run(*more, durability=durability, send=send)
            quick(done, code)
            assert not lab.scene.deeds()
            if durability == "effect" and not more:
                assert f"go on with `tachograph resume {RUN}`" in done.said
                suspended(lab)
                lab.scene.hold.unlink()
                assert converge(lab) == ["not-done tc_3_0"]
                continue
            stopped(lab.scene.rejected)  # its task expected an answer
            assert not lab.scene.partial.exists()


@fault("signal.write", "SIGTERM at each write of a run that is kept, and gone on with")
def signal_write(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan), ops="write", under="runs")
    for point in points:
        yield f"at write {point.number}: {point.path}"
        lab.scene.clear()
        quick(lab.run(fault=Fault(point.number, "signal", signal.SIGTERM, "write", "runs")), 143)
        if lab.scene.run.exists():
            assert lab.scene.files() == lab.whole  # it was over by then
            continue
        suspended(lab)
        assert converge(lab, str(point)) == [], "what a signal stopped before it was begun is not in doubt"


@fault("signal.wait", "a signal while a live run waits before it tries again")
def signal_wait(lab: Lab) -> Iterator[str]:
    for number, code in CODES.items():
        yield signal.Signals(number).name
        lab.scene.clear()
        broken, waiting = lab.scene.root / "broken", lab.scene.root / "waiting"
        broken.touch()
        try:
            send = [{"when": str(waiting), "after_s": 0.1, "signal": number}]
            done = lab.do(code=f"{LIVE}\nmain('record')", send=send)
            assert done.code == (code if number == signal.SIGTERM else 1), done
            assert (lab.scene.root / "runs/live.partial/journal.jsonl").exists()
        finally:
            broken.unlink()
            waiting.unlink(missing_ok=True)


@fault("signal.twice", "a second signal, at each call that makes something durable")
def signal_twice(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    journal = [
        p for p in lab.points(lambda plan: lab.run(fault=plan), ops="fsync") if p.path.endswith("nal.jsonl")
    ]
    for number, code in CODES.items():
        for point in journal[::4]:
            yield f"{signal.Signals(number).name} at fsync {point.number} and the next"
            lab.scene.clear()
            quick(lab.run(fault=Fault(point.number, "signals", number, "fsync")), code)
            if not lab.scene.partial.exists():
                assert lab.scene.run.exists()  # all was over by then
                continue
            suspended(lab)
            converge(lab)


@fault("signal.resume", "a signal while a resumed run goes on")
def signal_resume(lab: Lab) -> Iterator[str]:
    for number in CODES:
        for way in ("suspend", "cancel"):
            yield f"{signal.Signals(number).name}, {way}"
            lab.scene.clear()
            assert lab.run(fault=Fault(lab.middle)).code == -9
            lab.scene.hold.touch()
            send = [{"when": str(lab.scene.held), "signal": number}]
            quick(lab.resume("--on-signal", way, send=send), CODES[number])
            if way == "cancel":
                stopped(lab.scene.rejected)
                continue
            suspended(lab)
            lab.scene.hold.unlink()
            converge(lab)


@fault("signal.stop", "SIGSTOP for a second, then SIGCONT")
def signal_stop(lab: Lab) -> Iterator[str]:
    yield "while a tool runs"
    lab.scene.clear()
    whole = lab.whole
    lab.scene.hold.touch()
    send = [
        {"when": str(lab.scene.held), "signal": signal.SIGSTOP},
        {"when": str(lab.scene.held), "after_s": 1, "signal": signal.SIGCONT},
    ]
    done = lab.meanwhile(lambda: None, *KEPT, send=send)
    assert done.code == 0 and done.unsent == 0, done
    assert lab.scene.files() == whole


@fault("signal.hangup", "SIGHUP ends the process, and the run is gone on with")
def signal_hangup(lab: Lab) -> Iterator[str]:
    yield "while a tool runs"
    lab.scene.clear()
    lab.scene.hold.touch()
    done = lab.run(send=[{"when": str(lab.scene.held), "signal": signal.SIGHUP}])
    assert done.code == -signal.SIGHUP
    lab.scene.hold.unlink()
    assert lab.resume().code == 3
    converge(lab)
    assert lab.scene.run == lab.scene.root / RUN
