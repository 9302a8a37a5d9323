"""Calls that fail, come short or are interrupted while a run writes itself down."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator

from .kills import converge
from .lab import OPS, Done, Fault, Lab, Point
from .registry import fault
from .scene import RUN

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
MOUNTS = f"{RUN}.partial/mounts"


def of_the_record(points: list[Point]) -> list[Point]:
    """Calls of the record itself: a tool that cannot write has failed, which is no fault of the record."""
    return [point for point in points if not point.path.startswith(MOUNTS)]


def told(done: Done) -> None:
    """A command that met a fault ended in one of our ways, with one line."""
    assert done.code in (0, 2, 3), done
    if done.code:
        assert len(done.err.splitlines()) == 1 and done.said, done


def failing(lab: Lab, act: str, ops: str = OPS, every: int = 1) -> Iterator[str]:
    """A run in which the n-th call fails, for all n, gone on with once nothing fails any more."""
    lab.scene.clear()
    points = of_the_record(lab.points(lambda plan: lab.run(fault=plan), ops=ops, under="runs"))
    stopped = 0
    for place, point in enumerate(points[::every]):
        number = ERRORS[place % len(ERRORS)]
        yield f"call {point.number} fails with {errno.errorcode[number]}: {point.op} {point.path}"
        lab.scene.clear()
        done = lab.run(fault=Fault(point.number, act, number, ops, "runs"))
        told(done)
        stopped += done.code == 3
        if act == "errors" and done.code == 0:
            assert point.path.startswith(("runs/.INDEX", "runs/INDEX")) or point.op == "rmdir", done
        converge(lab)
    assert stopped * every > len(points) // 2, "hardly a fault was met"


@fault("error.once", "each call that changes the record fails once, and the run is gone on with")
def error_once(lab: Lab) -> Iterator[str]:
    yield from failing(lab, "error")


@fault("error.for_good", "from the n-th call on all fail, as on a disk that is full or gone")
def error_for_good(lab: Lab) -> Iterator[str]:
    yield from failing(lab, "errors", every=3)


@fault("error.close", "closing a file of the record fails", "shim")
def error_close(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = of_the_record(lab.points(lambda plan: lab.run(fault=plan), ops="close", under="runs"))
    for point in points:
        yield f"close {point.number}: {point.path}"
        lab.scene.clear()
        told(lab.run(fault=Fault(point.number, "error", errno.EIO, "close", "runs")))
        converge(lab)


@fault("error.resume", "each call of a resume fails once")
def error_resume(lab: Lab) -> Iterator[str]:
    journal = f"{RUN}.partial/journal.jsonl"
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan))
    last = [point.number for point in points if point.op == "write" and point.path == journal][-3]

    def died() -> None:
        lab.scene.clear()
        assert lab.run(fault=Fault(last)).code == -9

    died()
    calls = lab.points(lambda plan: lab.resume(fault=plan), under="runs")
    for point in of_the_record(calls):
        yield f"call {point.number}: {point.op} {point.path}"
        died()
        told(lab.resume(fault=Fault(point.number, "error", errno.EIO, under="runs")))
        converge(lab)


@fault("error.short", "writes that take a part, and are written on")
def error_short(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan), ops="write", under="runs")
    for point in points[::4]:
        yield f"write {point.number} takes 10 bytes"
        lab.scene.clear()
        assert lab.run(fault=Fault(point.number, "short", 10, "write", "runs")).code == 0
        assert lab.scene.files() == lab.whole


@fault("error.interrupted", "calls that a signal interrupts, and are made again", "shim")
def error_interrupted(lab: Lab) -> Iterator[str]:
    for op in ("write", "fsync"):
        lab.scene.clear()
        points = lab.points(lambda plan, op=op: lab.run(fault=plan), ops=op, under="runs")
        for point in points[::6]:
            yield f"{op} {point.number} is interrupted"
            lab.scene.clear()
            assert lab.run(fault=Fault(point.number, "error", errno.EINTR, op, "runs")).code == 0
            assert lab.scene.files() == lab.whole


@fault("error.signal", "SIGTERM in the midst of making something durable")
def error_signal(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan), ops="fsync", under="runs")
    for point in points[::5]:
        yield f"during fsync {point.number}: {point.path}"
        lab.scene.clear()
        done = lab.run(fault=Fault(point.number, "signal", signal.SIGTERM, "fsync", "runs"))
        assert done.code == 143, done
        if lab.scene.partial.exists():  # else it was over by then
            converge(lab)
        assert lab.scene.files() == lab.whole


@fault("error.unlink", "files and folders that cannot be removed when a run is over")
def error_unlink(lab: Lab) -> Iterator[str]:
    """What could not be cleaned up is never put in place: the run waits, and is put in place by a resume."""
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan), ops="unlink,rmdir", under="runs")
    waited = 0
    for point in points:
        for act in ("error", "errors"):
            yield f"{act} at call {point.number}: {point.op} {point.path}"
            lab.scene.clear()
            done = lab.run(fault=Fault(point.number, act, errno.EPERM, "unlink,rmdir", "runs"))
            told(done)
            if done.code:
                assert not lab.scene.run.exists() and f"`tachograph resume {RUN}`" in done.said
                waited += 1
            converge(lab)
    assert waited, "nothing that could not be removed kept the run from its place"


@fault("mount.full", "a disk that is full when a tool writes to a mount, and has room again", "shim")
def mount_full(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan), ops="write", under=MOUNTS)
    assert len(points) > 1
    for point in points:
        for number in (errno.ENOSPC, errno.EDQUOT):
            yield f"write {point.number} fails with {errno.errorcode[number]}: {point.path}"
            lab.scene.clear()
            done = lab.run(fault=Fault(point.number, "error", number, "write", MOUNTS))
            if point is points[0]:
                assert done.code == 2 and "make room and run again" in done.said, "the run did not begin"
            else:
                assert (
                    done.code == 3 and f"make room and go on with `tachograph resume {RUN}`" in done.said
                ), done
            converge(lab)
