"""The power fails: what no fsync had asked for is gone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from .kills import converge
from .lab import Fault, Lab
from .mounts import image, make_image
from .registry import fault
from .scene import RUN, Scene

JOURNAL = f"{RUN}.partial/journal.jsonl"
INDEX = "runs/INDEX.json"  # follows from the runs, and is made anew


def synced(log: Path) -> dict[str, int]:
    """Path -> how many of its bytes had been made durable before the last call of a log."""
    found: dict[str, int] = {}
    for line in log.read_text().splitlines()[:-1]:
        _, op, size, path = line.split(" ", 3)
        if op == "fsync":
            found[path] = int(size)
        elif op == "unlink":
            found.pop(path, None)
        elif op == "rename":  # of a file that was made durable, or of a folder
            found.pop(path, None)
            before = f"{path}.partial/"
            found |= {f"{path}/{p.removeprefix(before)}": n for p, n in found.items() if p.startswith(before)}
    return found


def lose(root: Path, durable: dict[str, int]) -> None:
    """Take from each file what had not been made durable."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and path != root / INDEX:
            size = durable.get(str(path), 0)
            if path.stat().st_size > size:
                os.truncate(path, size)


@fault(
    "power.unsynced",
    "the power fails before each call, on a disk that wrote no more than it must",
)
def power_unsynced(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan))
    log = lab.place / "power"
    for point in points:
        if point.path.startswith(("runs/.INDEX", INDEX)):
            continue
        yield f"before call {point.number}: {point.op} {point.path}"
        log.unlink(missing_ok=True)
        lab.scene.clear()
        assert lab.run(fault=Fault(point.number, log=str(log))).code == -9
        lose(lab.scene.root / "runs", synced(log))
        converge(lab)


@fault("power.tail", "the same, with zeros in place of the line that was being written")
def power_tail(lab: Lab) -> Iterator[str]:
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan))
    for before, point in pairwise(points):
        if before.op != "write" or before.path != JOURNAL or not before.size:
            continue
        lab.scene.clear()
        assert lab.run(fault=Fault(point.number)).code == -9
        whole = lab.scene.journal.read_bytes()
        for name, zeros in (
            ("all of it", slice(before.size, None)),
            ("its middle", slice(before.size + 40, -20)),
        ):
            yield f"{name}, after {before.size} bytes"
            torn = bytearray(whole)
            torn[zeros] = bytes(len(torn[zeros]))
            lab.scene.clear()
            assert lab.run(fault=Fault(point.number)).code == -9
            lab.scene.journal.write_bytes(torn)
            done = lab.resume()
            assert "are torn and were cut off" in done.err, done
            if done.code:
                converge(lab)


@fault("power.cut", "an image of the disk taken in the middle of a run, mounted as after a power cut", "loop")
def power_cut(lab: Lab) -> Iterator[str]:
    whole, disk = lab.whole, lab.scene
    lab.scene.clear()
    points = lab.points(lambda plan: lab.run(fault=plan))
    with tempfile.TemporaryDirectory(prefix="tachograph-faults-") as folder:
        place = Path(folder).resolve()
        for point in points[12::11]:
            yield f"before call {point.number}: {point.op} {point.path}"
            make_image(place / "disk")
            try:
                with image(place / "live", place / "disk") as live:
                    lab.scene = Scene(live / "project")
                    os.sync()
                    assert lab.run(fault=Fault(point.number)).code == -9
                    shutil.copyfile(place / "disk", place / "cut")  # as the disk has it at this very moment
                with image(place / "after", place / "cut") as after:
                    lab.scene = Scene(after / "project")
                    converge(lab)
            finally:
                lab.scene = disk
            assert lab.whole is whole
