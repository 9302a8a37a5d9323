"""Runs whose process ends itself, and processes that outlive a run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tests.support import FILES, ROOT, environment

from .lab import Lab
from .registry import fault
from .scene import TASK

_ORPHAN = (
    "import subprocess; child = subprocess.Popen(['sleep', '600'], start_new_session=True); "
    "fd = os.open(LOG.parent / 'orphans', os.O_WRONLY | os.O_CREAT | os.O_APPEND); "
    "os.write(fd, b'%d\\n' % child.pid); os.close(fd)"
)


@contextmanager
def changed(lab: Lab, tool: str, old: str, new: str) -> Iterator[None]:
    """Let a tool of the scene do something else in the block."""
    file = lab.scene.root / "tools" / f"{tool}.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    try:
        yield
    finally:
        file.write_text(text)


def orphans(lab: Lab) -> list[str]:
    """The processes that tools left running, the first one first."""
    file = lab.scene.root / "outside/orphans"
    return file.read_text().split() if file.exists() else []


def end_orphans(lab: Lab) -> None:
    for pid in orphans(lab):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def own_process(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as at a shell."""
    return subprocess.run(
        [sys.executable, "-m", "tachograph", *words],
        cwd=lab.scene.root,
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@fault("exit.tool", "a tool that ends the process of the run, by itself or by a crash")
def exit_tool(lab: Lab) -> Iterator[str]:
    """A parent process writes the record of what was done by then."""
    for tool, at in (("look", "said = said.upper()"), ("pay", "deed(io, said)"), ("book", "deed(io, said)")):
        for body in ("os._exit(0)", "os._exit(3)", "os.kill(os.getpid(), 11)"):
            yield f"{tool}: {body}"
            lab.scene.clear()
            with changed(lab, tool, at, f"{at}; {body}"):
                done = own_process(lab, "run", TASK, "--quiet", "--durability", "effect")
                assert done.returncode == 1 and "its record is written from its journal" in done.stderr, done
                assert not lab.scene.partial.exists()
                left = lab.scene.rejected
                assert sorted(path.name for path in left.iterdir()) == sorted(FILES)
                assert [line for line in verify(left, lab.scene.root) if "index" not in line] == []
                assert replayed(left, root=lab.scene.root).ok
                assert set(lab.scene.deeds().values()) <= {1}


@fault("orphan.probe", "a process that outlives the run, where a probe would tell what became of an effect")
def orphan_probe(lab: Lab) -> Iterator[str]:
    try:
        yield "the tool ran in the run's process: nobody is asked while what it started is alive"
        lab.scene.clear()
        with changed(lab, "book", "deed(io, said)", f"{_ORPHAN}; os.kill(os.getpid(), 9)"):
            done = lab.run()
            assert done.code == -signal.SIGKILL, done
            done = lab.resume("--not-done", "tc_3_0")
            assert done.code == 2, "it is not the one in doubt"
            for _ in range(2):
                done = lab.resume()
                assert done.code == 3 and "still alive, so the tool's probe was not asked" in done.said, done
                found = re.search(r"process (\d+), which the run started", done.said)
                assert found and [found[1]] == orphans(lab)
            end_orphans(lab)
            done = lab.resume()  # the probe says that it was not done: it is done again, and kills again
            assert done.code == -signal.SIGKILL, done
            end_orphans(lab)
        yield "the tool ran in a process of its own, whose keeper ended everything"
        lab.scene.clear()
        isolated = changed(lab, "book", "IDEMPOTENT = False", "IDEMPOTENT = False\nISOLATE = True")
        held = changed(lab, "book", "deed(io, said)", "hold(); deed(io, said)")
        with changed(lab, "pay", "hold(); deed(io, said)", f"deed(io, said); {_ORPHAN}"), isolated, held:
            lab.scene.hold.touch()
            done = lab.run(send=[{"when": str(lab.scene.held), "signal": signal.SIGKILL}])
            assert done.code == -signal.SIGKILL, done
            lab.scene.hold.unlink()
            done = lab.resume()
            assert done.code == 0, done
            assert lab.scene.deeds()["faults-ten-s3/4/0"] == 1
            assert Path(f"/proc/{orphans(lab)[0]}").exists(), "it was alive all the time"
    finally:
        end_orphans(lab)
