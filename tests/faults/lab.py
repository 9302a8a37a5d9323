"""Where faults are made: a warm server that runs commands in forks, and a scene to run them in."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support import ROOT, attend_to_ctrl_c

from .kept import in_memory
from .scene import RUN, TASK, Scene

HERE = Path(__file__).resolve().parent
# every call that changes something
OPS = "open,write,ftruncate,fsync,rename,unlink,mkdir,rmdir"


@dataclass(frozen=True)
class Fault:
    """One broken call; see `shim.c`. `under` is a path below the project, all of it by default."""

    at: int = 0
    act: str = "kill"
    arg: int = 0
    ops: str = OPS
    under: str = ""
    log: str = ""


@dataclass(frozen=True)
class Done:
    """What came of a command: its exit code (a signal is negative), its two outputs."""

    code: int
    out: str
    err: str
    unsent: int  # signals that were asked for and not sent

    @property
    def said(self) -> str:
        """Its one line of complaint; fails where that is a traceback or more than a line."""
        lines = self.err.splitlines()
        assert lines and lines[-1].startswith("tachograph: "), self.err
        assert "Traceback" not in self.err, self.err
        return lines[-1]


@dataclass(frozen=True)
class Point:
    """One call that a run made: its number, its name, the file."""

    number: int
    op: str
    size: int
    path: str


def build_shim(place: Path) -> Path | None:
    """The shim as a shared object; None where there is no compiler that makes one."""
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None or sys.platform != "linux":
        return None
    made = place / "shim.so"
    command = [found, "-shared", "-fPIC", "-O1", "-o", str(made), str(HERE / "shim.c"), "-ldl"]
    return made if subprocess.run(command, capture_output=True, check=False).returncode == 0 else None


def _hears() -> None:
    """Started in the background, a process ignores these, and so does every one below it."""
    attend_to_ctrl_c()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Lab:
    """A server and a scene; use it as a context manager. With `shim` the C library is broken, else `os`."""

    def __init__(self, place: Path, *, shim: Path | None = None) -> None:
        self.place = place
        self.shim = shim
        package = place / "package"
        package.mkdir(parents=True)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", package / "tachograph", ignore=ignore)
        for name in ("tools", "policy"):  # what `shipped` looks for
            shutil.copytree(ROOT / name, package / name, ignore=ignore)
        self.scene = Scene(place / "project")
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}  # where nothing is accepted
        if shim is not None:
            env["LD_PRELOAD"] = str(shim)
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "server.py"), str(self.scene.root / TASK)],
            cwd=package,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_hears,
        )
        self.ready = self._read()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()

    def _read(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the server of the fault suite ended"
        found: dict[str, Any] = json.loads(line)
        return found

    # ---- commands ----------------------------------------------------------------------------------------

    def do(self, *words: str | Path, fault: Fault | None = None, **request: Any) -> Done:
        """One command in the project, perhaps with a fault; `code` instead of words is Python."""
        asked: dict[str, Any] = {"cwd": str(self.scene.root), **request}
        if words:
            asked["words"] = [str(word) for word in words]
        if fault is not None:
            under = str(self.scene.root / fault.under) if fault.under else str(self.scene.root)
            asked["fault"] = {**fault.__dict__, "under": under}
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        found = self._read()
        return Done(found["code"], found["out"], found["err"], found["unsent"])

    def run(self, *more: str, durability: str = "effect", fault: Fault | None = None, **request: Any) -> Done:
        words = ("run", TASK, "--quiet", "--durability", durability, *more)
        return self.do(*words, fault=fault, **request)

    def resume(self, *more: str, fault: Fault | None = None, **request: Any) -> Done:
        return self.do("resume", RUN, "--quiet", *more, fault=fault, **request)

    def go_on(self, *more: str) -> tuple[Done, list[str]]:
        """Resume to the end. Where a call is in doubt, a person looks at what was done and says so.

        Returns the last command and what was said: `done CALL` or `not-done CALL`.
        """
        said = []
        done = self.resume(*more)
        while done.code == 3 and (found := re.search(r"--done (tc_(\d+)_(\d+)) ", done.said)):
            key = f"faults-ten-s3/{found[2]}/{found[3]}"  # of the call, as a tool is given it
            word = "done" if self.scene.deeds()[key] else "not-done"
            said.append(f"{word} {found[1]}")
            assert len(said) < 9, said
            done = self.resume(f"--{word}", found[1])
        return done, said

    def meanwhile(self, act: Callable[[], object], *words: str | Path, **request: Any) -> Done:
        """A command whose first tool is held up while `act` is done."""
        self.scene.hold.touch()
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(self.do, *words, **request)
            try:
                while not self.scene.held.exists():
                    assert not doing.done(), doing.result()
                    time.sleep(0.005)
                act()
            finally:
                self.scene.hold.unlink()
            return doing.result()

    def points(self, command: Any, ops: str = OPS, under: str = "") -> list[Point]:
        """Every call that a command makes, in order. `command` gets the fault to pass on."""
        log = self.place / "log"
        log.unlink(missing_ok=True)
        done = command(Fault(0, ops=ops, under=under, log=str(log)))
        assert done.code == 0, done
        found = []
        for line in log.read_text().splitlines():
            number, op, size, path = line.split(" ", 3)
            found.append(Point(int(number), op, int(size), path.removeprefix(f"{self.scene.root}/")))
        return found

    @cached_property
    def middle(self) -> int:
        """The number of a call in the middle of a run, before which nothing is in doubt."""
        self.scene.clear()
        points = self.points(lambda plan: self.run(fault=plan))
        self.scene.clear()
        return next(p.number for p in points if p.op == "rename" and p.number > len(points) // 2)

    @cached_property
    def whole(self) -> dict[str, bytes]:
        """The files of the run that nothing disturbed."""
        self.scene.clear()
        done = self.run()
        assert done.code == 0, done
        found = self.scene.files()
        self.scene.sound()
        deeds = self.scene.deeds()
        assert len(deeds) == 5 and set(deeds.values()) == {1}, deeds
        self.deeds = deeds
        self.scene.clear()
        return found


@contextmanager
def lab(*, shim: bool = True) -> Iterator[Lab]:
    """A lab in a folder of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tachograph-faults-", dir=in_memory()) as folder:
        place = Path(folder).resolve()
        with Lab(place, shim=build_shim(place) if shim else None) as made:
            yield made
