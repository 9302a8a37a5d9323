"""Signals: one ends a run with a whole record, a second one leaves at once."""

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


def quick(done: Done, code: int) -> None:
    assert done.code == code and "Traceback" not in done.err, done
    assert done.seconds < 60, done


@fault("signal.tool", "a signal while a tool runs, kept in a journal or not")
def signal_tool(lab: Lab) -> Iterator[str]:
    for number, code in CODES.items():
        for durability in ("effect", "off"):
            yield f"{signal.Signals(number).name}, {durability}"
            lab.scene.clear()
            lab.scene.hold.touch()
            send = [{"when": str(lab.scene.held), "signal": number}]
            quick(lab.run(durability=durability, send=send), code)
            stopped(lab.scene.rejected)  # its task expected an answer
            assert not lab.scene.partial.exists() and not lab.scene.deeds()


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
            assert done.seconds < 60 and done.code == (code if number == signal.SIGTERM else 1), done
            stopped(lab.scene.root / "runs/live")
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
            done, _ = lab.go_on()
            if done.code == 130:  # the first one was noted already
                stopped(lab.scene.rejected)
            else:
                converge(lab)


@fault("signal.resume", "a signal while a resumed run goes on")
def signal_resume(lab: Lab) -> Iterator[str]:
    for number in CODES:
        yield signal.Signals(number).name
        lab.scene.clear()
        assert lab.run(fault=Fault(lab.middle)).code == -9
        lab.scene.hold.touch()
        quick(lab.resume(send=[{"when": str(lab.scene.held), "signal": number}]), CODES[number])
        stopped(lab.scene.rejected)


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
    assert done.code == 0 and done.seconds > 1, done
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
