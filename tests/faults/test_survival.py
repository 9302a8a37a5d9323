"""A sample of the fault suite: runs killed for real, broken, interrupted. `make faults` does all of it."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator

import pytest

from tests.faults.accepting import killed
from tests.faults.breaks import of_the_record, told
from tests.faults.kills import converge
from tests.faults.lab import Fault, Lab, Point, lab
from tests.faults.run import FAULTS  # which imports all modules that register faults
from tests.faults.scene import ONCE, RUN
from tests.faults.signals import stopped, suspended
from tests.faults.together import hooks, together


@pytest.fixture(scope="module")
def one() -> Iterator[Lab]:
    """One lab for all, where the module `os` is broken: no compiler is needed."""
    with lab(shim=False) as made:
        assert made.whole and made.ready == {"ready": True, "shim": False}
        yield made


@pytest.fixture(scope="module")
def points(one: Lab) -> list[Point]:
    one.scene.clear()
    return one.points(lambda plan: one.run(fault=plan))


def test_there_is_enough_to_be_killed_at(points: list[Point]) -> None:
    assert len(points) > 100
    assert {point.op for point in points} >= {"write", "fsync", "rename", "unlink", "mkdir", "open"}
    assert sum(point.path == "outside/log" and point.op == "write" for point in points) == 5


def test_a_kill_at_a_call_is_survived(one: Lab, points: list[Point]) -> None:
    """Before and after each effect, at each call that ends a run, and at some of the others."""
    effects = [
        n for p in points if p.path == "outside/log" and p.op == "write" for n in (p.number, p.number + 1)
    ]
    finish = [p.number for p in points if p.number > len(points) - 16]
    said = []
    for number in sorted({*effects, *finish, *range(1, len(points) - 16, 17)}):
        one.scene.clear()
        assert one.run(fault=Fault(number)).code == -9
        said += converge(one, f"before call {number}")
    # of one the probe knows, whatever the moment
    assert len(said) >= 2 * (len(ONCE) - 1)
    assert {word.split()[0] for word in said} == {"done", "not-done"}


def test_kills_of_a_resume_are_survived(one: Lab) -> None:
    for first in (4, 9, 17):
        one.scene.clear()
        assert one.run(fault=Fault(one.middle)).code == -9
        for number in (first, 2 * first, first // 2):
            one.resume(fault=Fault(number))
        converge(one)


def test_kills_with_several_calls_open_and_with_hooks_are_survived(one: Lab) -> None:
    assert len(list(together(one, every=11))) > 6
    assert len(list(hooks(one, every=23))) > 4


def test_calls_that_fail_are_survived(one: Lab, points: list[Point]) -> None:
    for place, point in enumerate(of_the_record(points)[5::12]):
        number = (errno.EIO, errno.ENOSPC)[place % 2]
        one.scene.clear()
        told(one.run(fault=Fault(point.number, ("error", "errors")[place % 2], number)))
        converge(one, str(point))


def test_a_torn_line_is_cut_off_and_reported(one: Lab, points: list[Point]) -> None:
    writes = [point for point in points if point.path.endswith("journal.jsonl") and point.op == "write"]
    for point in (writes[4], writes[-1]):
        one.scene.clear()
        assert one.run(fault=Fault(point.number, "tear", 60)).code == -9
        assert "its last 60 bytes are torn and were cut off" in one.resume().err
        assert one.scene.files() == one.whole


def test_a_signal_suspends_or_ends_a_run(one: Lab) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        one.scene.clear()
        one.scene.hold.touch()
        done = one.run(send=[{"when": str(one.scene.held), "signal": number}])
        assert done.code == code
        suspended(one)
        one.scene.clear()
        one.scene.hold.touch()
        done = one.run("--on-signal", "cancel", send=[{"when": str(one.scene.held), "signal": number}])
        assert done.code == code
        stopped(one.scene.rejected)


def test_a_second_signal_leaves_at_once_and_the_run_is_gone_on_with(one: Lab, points: list[Point]) -> None:
    fsyncs = [point for point in points if point.path.endswith("journal.jsonl") and point.op == "fsync"]
    one.scene.clear()
    place = next(n for n, point in enumerate(fsyncs) if point.number > one.middle)
    one.scene.clear()
    done = one.run(fault=Fault(place, "signals", signal.SIGTERM, "fsync", f"{RUN}.partial"))
    assert done.code == 143 and one.scene.journal.exists()
    done, _ = one.go_on()
    assert done.code == 0
    assert one.scene.files() == one.whole


def test_an_accept_that_is_killed_loses_no_reason(one: Lab) -> None:
    assert len(list(killed(one, every=3))) > 10


@pytest.mark.parametrize(
    "name",
    [
        "place.swapped",
        "place.meanwhile",
        "run.deadline",
        "signal.hangup",
        "journal.lines",
        "orphan.probe",
        "error.unlink",
    ],
)
def test_faults_that_cost_little_are_made_as_a_whole(one: Lab, name: str) -> None:
    assert not FAULTS[name].needs
    assert len(list(FAULTS[name].cases(one))) >= 1
