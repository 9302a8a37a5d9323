"""An accept that is killed: no run is replaced without its reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from tachograph.evidence.files import accepted
from tachograph.evidence.files.manifest import MANIFEST
from tachograph.evidence.recording import index

from .lab import Fault, Lab
from .registry import fault
from .scene import TASK

REASON = "the page was written anew"
OTHER = "tasks/faults/other.yaml"
ACCEPT = ("accept", "--all", "--jobs", "1", "--reason", REASON)


class Drifted:
    """Two recorded runs that a changed page lets drift; `prepare` puts them back, as often as it is called."""

    def __init__(self, lab: Lab) -> None:
        self.root = lab.scene.root
        self.runs = [self.root / "runs/faults" / name for name in ("ten", "other")]
        self.kept = lab.place / "drifted"
        self.page = self.root / "site/page.md"
        self.before = self.page.read_bytes()
        (self.root / OTHER).write_text((self.root / TASK).read_text().replace("faults-ten", "faults-other"))
        lab.scene.clear()
        for task in (TASK, OTHER):
            done = lab.do("run", task, "--quiet")
            assert done.code == 0, done
        self.page.write_bytes(b"another page")
        shutil.copytree(self.root / "runs", self.kept, dirs_exist_ok=True)
        self.old = self.digests()

    def prepare(self) -> None:
        shutil.rmtree(self.root / "runs")
        shutil.copytree(self.kept, self.root / "runs")

    def digests(self) -> list[str]:
        return [accepted.digest_of((run / MANIFEST).read_bytes()) for run in self.runs]

    def lines(self) -> dict[str, str]:
        """Run -> the manifest that a line says it was accepted as, where it gives the reason."""
        file = self.root / accepted.ACCEPTED
        entries = map(json.loads, file.read_bytes().splitlines()) if file.exists() else ()
        return {one["run"]: one["manifest"]["after"] for one in entries if one["reason"] == REASON}

    def clear(self) -> None:
        self.page.write_bytes(self.before)
        (self.root / OTHER).unlink()


@fault("kill.accept", "SIGKILL before each call of an accept that changes a file, and its completion")
def kill_accept(lab: Lab) -> Iterator[str]:
    yield from killed(lab, every=1)


def killed(lab: Lab, every: int) -> Iterator[str]:
    """An accept killed before each of its calls, or before some of them, and completed."""
    drifted = Drifted(lab)
    try:
        points = lab.points(lambda plan: lab.do(*ACCEPT, fault=plan), under="runs")[::every]
        new = drifted.digests()
        assert all(before != after for before, after in zip(drifted.old, new, strict=True))
        completed = 0
        for point in points:
            yield f"before call {point.number}: {point.op} {point.path}"
            drifted.prepare()
            done = lab.do(*ACCEPT, fault=Fault(point.number, under="runs"))
            assert done.code == -9, done
            assert lab.do("index").code == 0
            completed += _holds(drifted, new)
            assert lab.do(*ACCEPT).code == 0
            assert _holds(drifted, new) == 2, "accepted once more, all is done"
        assert 0 < completed < 2 * len(points), "the kills missed the moments that count"
    finally:
        drifted.clear()


def _holds(drifted: Drifted, new: list[str]) -> int:
    """Return how many runs are accepted; each of them has its line, and the others stand as before."""
    assert index.problems(drifted.root) == []
    left = [
        path.name
        for path in Path(drifted.root / "runs").rglob("*")
        if path.suffix in (".tmp", ".old", ".partial")
    ]
    assert left == []
    lines = drifted.lines()
    found = drifted.digests()
    for run, before, after, now in zip(drifted.runs, drifted.old, new, found, strict=True):
        name = run.relative_to(drifted.root).as_posix()
        assert now in (before, after)
        assert (lines.get(name) == after) == (now == after), name
    return sum(now == after for now, after in zip(found, new, strict=True))
