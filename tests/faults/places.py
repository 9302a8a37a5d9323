"""Places that cannot be written to, that are full, that are someone else's, or that change hands meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import environment

from .kills import converge
from .lab import Fault, Lab
from .mounts import read_only, small
from .registry import fault
from .scene import RUN, TASK

PIPES: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
KEPT = ("run", TASK, "--quiet", "--durability", "effect")


def refused(lab: Lab, *words: str, said: str = "", **request: object) -> None:
    """A command ends with exit code 2 and one line, and has done nothing."""
    before = lab.scene.deeds()
    done = lab.do(*words, **request)
    assert done.code == 2 and said in done.said, done
    assert lab.scene.deeds() == before


def died(lab: Lab) -> None:
    """A run that died in its middle."""
    number = lab.middle
    lab.scene.clear()
    assert lab.run(fault=Fault(number)).code == -9
    assert lab.scene.journal.exists()


@fault("place.read_only", "a folder on a filesystem that is mounted read-only", "mounts")
def place_read_only(lab: Lab) -> Iterator[str]:
    yield "of a new run"
    lab.scene.clear()
    with read_only(lab.scene.root / "runs"):
        refused(lab, *KEPT, said="check the folder and its permission")
    yield "of a run that died"
    died(lab)
    before = lab.scene.journal.read_bytes()
    with read_only(lab.scene.root / "runs"):
        refused(lab, "resume", RUN)
    assert lab.scene.journal.read_bytes() == before
    converge(lab)


@fault("place.user", "a folder of another user", "user")
def place_user(lab: Lab) -> Iterator[str]:
    lab.place.chmod(0o711)
    yield "of a new run"
    lab.scene.clear()
    refused(lab, *KEPT, said="check the folder and its permission", user=65534)
    yield "of a run that died"
    died(lab)
    before = lab.scene.journal.read_bytes()
    refused(lab, "resume", RUN, user=65534)
    assert lab.scene.journal.read_bytes() == before
    converge(lab)


@fault("place.full", "a disk that is full after so many pages, and gets room again", "mounts")
def place_full(lab: Lab) -> Iterator[str]:
    for pages in range(1, 28, 2):
        yield f"{pages} pages"
        lab.scene.clear()
        with small(lab.scene.root / "runs", f"{pages * 4096}") as place:
            done = lab.run()
            assert done.code in (0, 1, 2, 3), done
            if done.code in (2, 3):
                assert done.said
            resize = ["mount", "-o", "remount,size=8m", str(place)]
            subprocess.run(resize, check=True, timeout=60)
            if done.code == 3:
                done, _ = lab.go_on()
            if done.code == 1:  # a tool could not write, and that was the end of the run
                assert "found failure_mode_terminal" in done.err, done
            else:
                converge(lab)


@fault("place.limit", "files that may not grow beyond so many bytes, and then may")
def place_limit(lab: Lab) -> Iterator[str]:
    for size in (1000, 4096, 6000, 9000, 12_000, 15_000, 18_000, 30_000):
        yield f"{size} bytes"
        lab.scene.clear()
        done = lab.run(limits={"FSIZE": size})
        assert done.code in (2, 3) and done.said, done
        converge(lab)


@fault("place.swapped", "a folder that is something else before a run begins")
def place_swapped(lab: Lab) -> Iterator[str]:
    other = lab.scene.root / "elsewhere"
    for name in ("a link to a folder", "a link to nowhere", "a file", "a folder with files of someone"):
        yield f"DIR.partial is {name}"
        lab.scene.clear()
        other.mkdir()
        lab.scene.partial.parent.mkdir()
        if name == "a file":
            lab.scene.partial.write_text("mine")
        elif name.startswith("a link"):
            lab.scene.partial.symlink_to(other if "folder" in name else other / "gone")
        else:
            lab.scene.partial.mkdir()
            (lab.scene.partial / "thesis.txt").write_text("mine")
        refused(lab, *KEPT)
        refused(lab, "resume", RUN)
        assert list(other.iterdir()) == [] and not lab.scene.run.exists()
    yield "the journal is a link"
    died(lab)
    other.mkdir()
    lab.scene.journal.rename(other / "journal")
    lab.scene.journal.symlink_to(other / "journal")
    before = (other / "journal").read_bytes()
    assert lab.resume().code in (2, 3)
    assert (other / "journal").read_bytes() == before


@fault("place.meanwhile", "a folder that is removed, moved or swapped while a tool runs")
def place_meanwhile(lab: Lab) -> Iterator[str]:
    scene, other = lab.scene, lab.scene.root / "elsewhere"

    def remove() -> None:
        for path in sorted(scene.partial.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        scene.partial.rmdir()

    def swap() -> None:
        scene.partial.rename(scene.root / "elsewhere" / "moved")
        scene.partial.symlink_to(other)

    def replace() -> None:
        scene.partial.rename(scene.root / "elsewhere" / "moved")
        scene.partial.mkdir()

    for act in (remove, swap, replace):
        yield act.__name__
        scene.clear()
        other.mkdir()
        done = lab.meanwhile(act, *KEPT)
        assert done.code in (2, 3) and done.said, done
        assert not scene.run.exists()
        for folder in filter(Path.is_dir, (scene.partial, other)):
            assert [path.name for path in folder.iterdir()] in ([], ["moved"])
        if act is remove:
            assert not scene.deeds()["faults-ten-s3/4/0"], "it went on without a journal"


@fault("place.two", "two processes at one run")
def place_two(lab: Lab) -> Iterator[str]:
    def other(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tachograph", *words]
        env = environment({"PYTHONPATH": str(lab.place / "package")})
        return subprocess.Popen(command, cwd=lab.scene.root, env=env, text=True, **PIPES)

    for words in (KEPT, ("resume", RUN)):
        yield f"{words[0]} while another runs"
        lab.scene.clear()
        said = []

        def rival(words: tuple[str, ...] = words, said: list[str] = said) -> None:
            said.append(other(*words).communicate(timeout=60)[1])

        done = lab.meanwhile(rival, *KEPT)
        assert done.code == 0 and "another process is recording there" in said[0], (done, said)
        assert lab.scene.files() == lab.whole and lab.scene.deeds() == lab.deeds
    yield "the lock of one that died is free at once"
    died(lab)
    converge(lab)
    yield "two resumes of one run at the same moment"
    died(lab)
    both = [other("resume", RUN, "--quiet") for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in both) in ([0, 2], [0, 0]), both
    assert lab.scene.files() == lab.whole and lab.scene.deeds() == lab.deeds
