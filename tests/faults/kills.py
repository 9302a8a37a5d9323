"""SIGKILL wherever a run, a resume or a finish changes a file."""

from __future__ import annotations

import random
from collections.abc import Iterator

from .lab import Fault, Lab
from .registry import fault
from .scene import ONCE, PROBED, RUN


def converge(lab: Lab, what: str = "") -> list[str]:
    """Go on with a run that died until it is whole, and hold it against the one that nothing disturbed.

    Returns what a person had to say on the way.
    """
    whole, scene = lab.whole, lab.scene
    done, said = lab.go_on()
    if done.code == 2 and not scene.run.exists():
        assert "no unfinished run" in done.said or "holds nothing" in done.said, done
        assert not scene.deeds(), "something was done that nothing is left of"
        done = lab.run()
    elif done.code == 2:
        assert "no unfinished run" in done.said, done  # it was in place before it died
    else:
        assert done.code == 0, done
    found, unseen = scene.files(), scene.unseen()
    if unseen:
        scene.sound()  # a result that was lost is told to the model as such
        person = [word.split()[1] for word in said if word.startswith("done")]
        assert unseen == (person or [PROBED]), (unseen, said)
    else:
        changed = [name for name in found if found[name] != whole[name]]
        assert not changed, f"{what}: other bytes in {', '.join(changed)}"
    assert scene.deeds() == lab.deeds, f"{what}: {scene.deeds()}"
    left = [path.name for path in scene.run.parent.iterdir() if path.name != scene.run.name]
    assert not left, f"{what}: {left} left over"
    return said


def at_all(lab: Lab, *, durability: str = "effect", every: int = 1) -> Iterator[str]:
    """A run killed before each call, resumed, compared."""
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan, durability=durability))
    in_doubt = 0
    for number in range(1, len(points) + 2, every):
        where = points[number - 1] if number <= len(points) else None
        yield f"before call {number}: {where.op} {where.path}" if where else "after the last call"
        lab.scene.clear()
        done = lab.run(fault=Fault(number), durability=durability)
        assert done.code == (-9 if where else 0), done
        in_doubt += bool(converge(lab))
    assert in_doubt >= len(ONCE) / every, "no call was ever in doubt: the kills missed the effects"


@fault("kill.run", "SIGKILL before each call of a run that changes a file, and resumed")
def kill_run(lab: Lab) -> Iterator[str]:
    yield from at_all(lab)


@fault("kill.step", "the same where only each step is made durable")
def kill_step(lab: Lab) -> Iterator[str]:
    yield from at_all(lab, durability="step", every=4)


@fault("kill.resume", "a run killed, its resume killed, that one's resume killed, and resumed")
def kill_resume(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    total = len(lab.points(lambda plan: lab.run(fault=plan)))
    for number in range(5, total, 3):
        draw = random.Random(number)
        lab.scene.clear()
        lab.run(fault=Fault(number))
        places = []
        for _ in range(2):
            places.append(draw.randrange(1, 40))
            lab.resume(fault=Fault(places[-1]))
        yield f"before call {number} of the run, then {places[0]} and {places[1]} of the resumes"
        converge(lab)


@fault("kill.resume.all", "a run killed in the middle, its resume killed before each of its calls, twice")
def kill_resume_all(lab: Lab) -> Iterator[str]:

    def died() -> None:
        lab.scene.clear()
        lab.run(fault=Fault(lab.middle))

    died()
    for number in range(1, len(lab.points(lambda plan: lab.resume(fault=plan))) + 1, 2):
        yield f"before call {number} of both resumes"
        died()
        for _ in range(2):
            lab.resume(fault=Fault(number))
        converge(lab)


@fault("kill.replace", "SIGKILL while a finished run takes the place of an earlier one")
def kill_replace(lab: Lab) -> Iterator[str]:
    """At no time is there half a run: the old one or the new one, or the old one aside for a moment."""
    lab.scene.clear()
    changed = lab.scene.root / "site" / "page.md"
    before = changed.read_bytes()

    def earlier() -> None:
        lab.scene.clear()
        changed.write_bytes(b"an earlier page")
        assert lab.run().code == 0
        changed.write_bytes(before)
        lab.scene.log.unlink()

    try:
        earlier()
        old = lab.scene.files()
        points = lab.points(lambda plan: lab.run(fault=plan))
        first = next(point.number for point in points if point.path.endswith(".partial/manifest.json"))
        for number in range(first, len(points) + 1):
            yield f"before call {number}: {points[number - 1].op} {points[number - 1].path}"
            earlier()
            assert lab.run(fault=Fault(number)).code == -9
            if lab.scene.run.exists():
                assert lab.scene.files() in (old, lab.whole)
            converge(lab)
    finally:
        changed.write_bytes(before)


@fault("kill.torn", "SIGKILL in the middle of a write to the journal")
def kill_torn(lab: Lab) -> Iterator[str]:
    journal = f"{RUN}.partial/journal.jsonl"
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan), ops="write", under="runs")
    for point in points:
        if point.path != journal:
            continue
        draw = random.Random(point.number)
        size = draw.choice((1, 2, draw.randrange(3, 99), 100))
        yield f"write {point.number} after {size} bytes"
        lab.scene.clear()
        assert lab.run(fault=Fault(point.number, "tear", size, "write", "runs")).code == -9
        resumed = lab.resume()
        if point.size:  # else nothing of the run is left, which is said in other words
            assert f"its last {size} bytes are torn and were cut off" in resumed.err, resumed
        if resumed.code != 0:
            converge(lab)
