"""A kept run has a process of its own: what it leaves behind, and what becomes of it when that vanishes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.runtime.driver.stopping.interrupts import Relay
from tests.faults.scene import RUN, TASK, Scene
from tests.support import FILES, ROOT, environment

KEPT = (sys.executable, "-m", "tachograph", "run", TASK, "--quiet", "--durability", "effect")

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="there is no parent process here")


def _scene(place: Path, tool: str = "", body: str = "", **changes: Any) -> Scene:
    """The scene of the fault suite; `body` is what a tool does once it has done its deed."""
    scene = Scene(place / "project", **changes)
    if tool:
        file = scene.root / "tools" / f"{tool}.py"
        file.write_text(file.read_text().replace("deed(io, said)", f"deed(io, said); {body}"))
    return scene


def _env() -> dict[str, str]:
    return {**environment(), "PYTHONPATH": str(ROOT)}


def _command(scene: Scene, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words or KEPT, cwd=scene.root, env=_env(), capture_output=True, text=True, timeout=60, check=False
    )


def _resume(scene: Scene, *words: str) -> subprocess.CompletedProcess[str]:
    return _command(scene, sys.executable, "-m", "tachograph", "resume", RUN, "--quiet", *words)


def _begun(scene: Scene, **more: Any) -> subprocess.Popen[str]:
    """Begin a run, and return it when a tool is under way."""
    scene.hold.touch()
    run = subprocess.Popen(
        KEPT, cwd=scene.root, env=_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )
    while not scene.held.exists():
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)
    return run


def _child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


FAILED = {"ending": "failure_mode_terminal"}


@pytest.mark.parametrize(
    ("body", "how"), [("os._exit(0)", "exit code 0"), ("os.kill(os.getpid(), 11)", "SIGSEGV")]
)
def test_a_tool_that_ends_the_process_leaves_a_record(tmp_path: Path, body: str, how: str) -> None:
    scene = _scene(tmp_path, "book", body, expected=FAILED)
    done = _command(scene)
    assert done.returncode == 0, "as the task expects"
    assert f"the run's process ended itself ({how}); its record is written from its journal" in done.stderr
    assert sorted(path.name for path in scene.run.iterdir()) == sorted(FILES) and not scene.partial.exists()
    assert verify(scene.run, scene.root) == [], "the index has it"
    assert replayed(scene.run, root=scene.root).ok
    lines = [json.loads(line) for line in (scene.run / "state.jsonl").read_bytes().splitlines()]
    (attempt,) = lines[4]["tool_results"][0]["attempts"]
    assert attempt["fault"] == {"exception": "ProcessEnded", "kind": "other"}
    assert scene.deeds()["faults-ten-s3/4/0"] == 1, "nothing was performed again"


def test_the_exit_code_of_a_vanished_run_is_no_success(tmp_path: Path) -> None:
    scene = _scene(tmp_path, "book", "os._exit(0)", expected={})
    done = _command(scene)
    assert done.returncode == 1 and "ending    failure_mode_terminal" in done.stdout
    assert scene.run.is_dir()


def test_a_resumed_run_that_vanishes_leaves_a_record_too(tmp_path: Path) -> None:
    scene = _scene(tmp_path, "sign", "os._exit(7)", expected=FAILED)
    run = _begun(scene)
    os.kill(run.pid, signal.SIGTERM)
    run.communicate(timeout=30)
    assert run.returncode == 143
    scene.hold.unlink()
    done = _resume(scene, "--not-done", "tc_3_0")
    assert done.returncode == 1 and "ended itself (exit code 7)" in done.stderr, done
    assert sorted(path.name for path in scene.run.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("who", ["child", "parent"])
def test_a_run_that_somebody_kills_is_gone_on_with(tmp_path: Path, who: str) -> None:
    scene = _scene(tmp_path)
    run = _begun(scene)
    child = _child_of(run.pid)
    os.kill(child if who == "child" else run.pid, signal.SIGKILL)
    _, err = run.communicate(timeout=30)
    assert run.returncode == -signal.SIGKILL
    if who == "child":
        assert f"suspended: SIGKILL ended the run's process; go on with `tachograph resume {RUN}`" in err
    for _ in range(1000):
        if not _is_alive(child):
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("it does not die with its parent")
    scene.hold.unlink()
    assert scene.journal.exists() and not scene.deeds()
    assert _resume(scene, "--not-done", "tc_3_0").returncode == 0
    scene.sound()


@pytest.mark.parametrize(
    ("to", "signum"),
    [
        ("parent", signal.SIGINT),
        ("group", signal.SIGTERM),
        ("group", signal.SIGINT),
        ("child", signal.SIGTERM),
    ],
)
def test_a_signal_counts_once_wherever_it_is_sent(tmp_path: Path, to: str, signum: int) -> None:
    """Sent to the group, it comes to the run twice; it must not count as a second one, which would quit at once."""
    scene = _scene(tmp_path)
    run = _begun(scene, start_new_session=True)
    if to == "group":
        os.killpg(run.pid, signum)
    else:
        os.kill(run.pid if to == "parent" else _child_of(run.pid), signum)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 128 + signum, err
    name = signal.Signals(signum).name
    assert err == f"tachograph: suspended: {name} stopped the run; go on with `tachograph resume {RUN}`\n"


def test_a_second_signal_leaves_at_once_and_names_the_way_on(tmp_path: Path) -> None:
    kill = "os.kill(os.getpid(), 15)"
    body = f"pass\n    try: {kill}\n    finally: {kill}"
    done = _command(_scene(tmp_path, "book", body))
    assert done.returncode == 128 + signal.SIGTERM, done
    assert done.stderr == f"tachograph: interrupted; go on with `tachograph resume {RUN}`\n"


def test_ctrl_c_at_a_terminal_counts_once(tmp_path: Path) -> None:
    scene = _scene(tmp_path)
    scene.hold.touch()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(scene.root)
        os.execve(KEPT[0], KEPT, _env())
    while not scene.held.exists():
        time.sleep(0.01)
    os.write(terminal, b"\x03")
    said = b""
    try:
        while piece := os.read(terminal, 4096):
            said += piece
    except OSError:
        pass  # the terminal is closed with its last process
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130, said
    assert b"SIGINT stopped the run; go on with" in said and scene.journal.exists()


def test_threads_and_processes_that_are_left_over_are_ended(tmp_path: Path) -> None:
    body = (
        "import subprocess, threading; threading.Thread(target=time.sleep, args=(300,)).start(); "
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True); "
        "(LOG.parent / 'pid').write_text(str(child.pid))"
    )
    scene = _scene(tmp_path, "book", body)
    done = _command(scene)
    assert done.returncode == 0, done
    scene.sound()
    assert not _is_alive(int((scene.root / "outside/pid").read_text()))


def test_a_run_that_can_be_made_again_has_no_second_process(tmp_path: Path) -> None:
    scene = _scene(tmp_path, "book", "(LOG.parent / 'parent').write_text(str(os.getppid()))", expected={})
    assert _command(scene, *KEPT[:-2]).returncode == 0
    assert int((scene.root / "outside/parent").read_text()) == os.getpid()


def test_a_relay_counts_each_signal_once() -> None:
    """In whatever order the two copies of a signal come: passed on by the parent, with a byte, and directly."""
    read, write = os.pipe()
    relay = Relay(read)
    assert relay.is_new(), "directly"
    os.write(write, b"s")
    assert not relay.is_new(), "the same one, passed on"
    os.write(write, b"s")
    assert relay.is_new(), "a second one, passed on first"
    assert not relay.is_new(), "and directly"
    os.close(read)
    os.close(write)
