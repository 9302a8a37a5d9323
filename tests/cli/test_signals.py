"""Ctrl-C and SIGTERM: a command leaves all as it was, or done whole, and says one line."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tachograph.cli import main as command_line
from tachograph.evidence.files import accepted
from tachograph.evidence.recording import index
from tests.evidence.project import copy_inputs, replaced
from tests.review.drift_changes import REMARK
from tests.support import ROOT, attend_to_ctrl_c, environment, tree, well_formed

SOME = ("canonical/v1", "policy_gates/pg5_arg_schema", "failure_modes/tool_call_failure")
WAIT_S = 30
ENDED = {signal.SIGINT: 130, signal.SIGTERM: 143}
SAID = {signal.SIGINT: "tachograph: interrupted\n", signal.SIGTERM: ""}  # at a terminal somebody reads it
# says that it is there, and waits to be told to end; `around` puts that before the real thing
HOOK = f"""
import os, sys, time

def here():
    print("here", flush=True)
    time.sleep({WAIT_S})

def briefly():
    print("here", flush=True)
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        time.sleep(0.01)

def around(owner, name, before):
    real = getattr(owner, name)
    def hooked(*given, **more):
        before()
        return real(*given, **more)
    setattr(owner, name, hooked)
"""
RUN = "\nfrom tachograph.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
BY_PATH = {"PYTHONPATH": str(ROOT)}


def ignore_ctrl_c() -> None:
    """As a shell starts a job in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def started(
    command: Sequence[str], cwd: Path, *, env: Mapping[str, str] | None = None, ignores: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A child that has said `here`. It is killed in the end, if it is still there."""
    settings = {key: value for key, value in environment({**BY_PATH, **(env or {})}).items() if key != "CI"}
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=ignore_ctrl_c if ignores else attend_to_ctrl_c,
    ) as process:
        late = threading.Timer(WAIT_S, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("here\n"):
                    break
            yield process
        finally:
            late.cancel()
            process.kill()


def told(
    hook: str, words: Sequence[str], cwd: Path, signum: int, *, ignores: bool = False
) -> tuple[int, str]:
    """Exit code and standard error of a command that was sent a signal where the hook waits."""
    with started([sys.executable, "-c", HOOK + hook + RUN, *words], cwd, ignores=ignores) as process:
        process.send_signal(signum)
        _, said = process.communicate(timeout=WAIT_S)
    return process.returncode, said


WAYS = [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]


# ---- init ----------------------------------------------------------------------------------------------

RECORDING = "from tachograph.scaffold import new_project as begin\naround(begin, '_record', here)\n"
IN_A_RUN = "from tachograph.runtime.driver.live_executor import LiveExecutor\naround(LiveExecutor, '_perform', here)\n"
MOVING = """
from tachograph.scaffold import new_project as begin
done = []
def waits():
    done.append(1)
    if len(done) == 3:
        briefly()
around(begin.os, "link", waits)
"""


@pytest.mark.parametrize(("signum", "ignores"), WAYS)
@pytest.mark.parametrize("hook", [RECORDING, IN_A_RUN], ids=["between", "in a run"])
def test_init_leaves_nothing(tmp_path: Path, hook: str, signum: int, ignores: bool) -> None:
    (tmp_path / "mine").write_text("mine")
    before = tree(tmp_path)
    assert told(hook, ["init", "deep/desk"], tmp_path, signum, ignores=ignores) == (
        ENDED[signum],
        SAID[signum],
    )
    assert tree(tmp_path) == before


def test_init_moves_all_or_nothing(tmp_path: Path) -> None:
    """A signal while files go to their places waits until all are there."""
    assert told(MOVING, ["init", "desk"], tmp_path, signal.SIGTERM) == (143, "")
    desk = tmp_path / "desk"
    assert not list(desk.glob(".tachograph-init-*"))
    assert (desk / ".github/workflows/tachograph.yml").is_file() and (desk / "tools/read.py").is_file()


def test_init_clears_what_a_killed_one_left_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(RECORDING, ["init", "desk"], tmp_path, signal.SIGKILL)[0] == -signal.SIGKILL
    (stale,) = (tmp_path / "desk").glob(".tachograph-init-*")
    busy = tmp_path / "desk" / ".tachograph-init-busy1234"
    busy.mkdir()
    lock = os.open(busy, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    theirs = tmp_path / "desk" / ".tachograph-init-of-somebody"
    theirs.mkdir()
    monkeypatch.chdir(tmp_path)
    try:
        assert command_line.main(["init", "desk"]) == 0
    finally:
        os.close(lock)
    assert not stale.exists() and busy.is_dir() and theirs.is_dir()


# ---- accept --------------------------------------------------------------------------------------------

ACCEPT = ("accept", "--all", "--reason", "so", "--jobs", "1")
WRITTEN = """
from tachograph.review.drift import accept
around(accept, "_written", briefly)
"""
# between two runs that are put in place
PLACING = """
from tachograph.evidence.files.folder import Folder
done = []
def waits():
    done.append(1)
    if len(done) == 2:
        briefly()
around(Folder, "finish", waits)
"""
# the old folder is aside, the new one not in its place
KILLED = """
import signal
from pathlib import Path
real = Path.rename
def rename(self, to):
    if self.name.endswith(".partial"):
        here()
    return real(self, to)
Path.rename = rename
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = copy_inputs(tmp_path_factory.mktemp("signals") / "project", SOME)
    replaced(project / REMARK[0], *REMARK[1:])
    return project


@pytest.fixture
def project(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "project"))


@pytest.mark.parametrize(("signum", "ignores"), WAYS)
def test_accept_before_anything_is_in_place_leaves_all_as_it_was(
    project: Path, signum: int, ignores: bool
) -> None:
    before = tree(project)
    assert told(WRITTEN, ACCEPT, project, signum, ignores=ignores) == (ENDED[signum], SAID[signum])
    assert tree(project) == before


@pytest.mark.parametrize(("signum", "ignores"), WAYS)
def test_accept_goes_through_once_runs_are_put_in_place(project: Path, signum: int, ignores: bool) -> None:
    assert told(PLACING, ACCEPT, project, signum, ignores=ignores) == (ENDED[signum], SAID[signum])
    assert len((project / accepted.ACCEPTED).read_text().splitlines()) == len(SOME)
    assert index.problems(project) == []
    assert not [path for path in (project / "runs").rglob("*") if path.suffix in (".partial", ".old")]


def test_accept_puts_right_what_a_killed_one_left(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(KILLED, ACCEPT, project, signal.SIGKILL)[0] == -signal.SIGKILL
    (old,) = (project / "runs").glob("*/*.old")
    assert not old.with_suffix("").exists()
    monkeypatch.chdir(project)
    monkeypatch.delenv("CI", raising=False)
    assert command_line.main([*ACCEPT]) == 0
    assert f"{len(SOME)} runs recorded anew" in capsys.readouterr().out
    assert index.problems(project) == [] and command_line.main(["check"]) == 0
    assert not [path for path in (project / "runs").rglob("*") if path.suffix in (".partial", ".old")]


# ---- a run, and work on all cores ----------------------------------------------------------------------

IN_A_TOOL = """
from tachograph.runtime.driver.live_executor import LiveExecutor
around(LiveExecutor, '_run', here)
"""
# where the run must not be torn: the next effect hears of it
IN_THE_LEDGER = """
from tachograph.evidence.files.writer import Writer
done = []
def waits():
    done.append(1)
    if len(done) == 2:
        briefly()
around(Writer, "line", waits)
"""
MANY = """
from tachograph.evidence.checking import check
main_pid, real = os.getpid(), check.examine
def examine(folder, **more):
    if os.getpid() != main_pid:
        os.write(1, b"here\\n")
        time.sleep(30)
    return real(folder, **more)
check.examine = examine
"""


@pytest.mark.parametrize(("signum", "ignores"), WAYS)
@pytest.mark.parametrize("hook", [IN_A_TOOL, IN_THE_LEDGER], ids=["tool", "ledger"])
def test_a_run_ends_with_its_whole_record(project: Path, hook: str, signum: int, ignores: bool) -> None:
    task = project / "tasks/canonical/v1.yaml"
    text = task.read_text(encoding="utf-8")
    task.write_text(text[: text.index("expected:")], encoding="utf-8")
    code, said = told(hook, ["run", str(task), "--quiet"], project, signum, ignores=ignores)
    assert code == ENDED[signum] and "Traceback" not in said
    lines, _ = well_formed((project / "runs/canonical/v1/state.jsonl").read_bytes())
    assert lines[-1]["failure_mode"] == "interrupted"
    assert not [path for path in (project / "runs").rglob("*") if path.suffix in (".partial", ".old")]


def test_a_run_that_a_signal_ended_is_told_in_one_line(project: Path) -> None:
    """A script's run without a journal cannot go on: it is kept aside, and not told as a run that went wrong."""
    code, said = told(IN_A_TOOL, ["run", "canonical/v1", "--quiet"], project, signal.SIGINT)
    kept = (
        "the committed run stays; this one is kept in .tachograph/rejected/canonical-v1; run the task again"
    )
    assert (code, said) == (130, f"tachograph: interrupted; {kept}\n")


@pytest.mark.parametrize(("signum", "ignores"), WAYS)
def test_workers_end_with_their_command(signum: int, ignores: bool) -> None:
    words = ["check", "--jobs", "2"]
    with started([sys.executable, "-c", HOOK + MANY + RUN, *words], ROOT, ignores=ignores) as process:
        process.send_signal(signum)
        _, said = process.communicate(timeout=WAIT_S)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # nobody is left in its session
    assert (process.returncode, said) == (ENDED[signum], SAID[signum])


FORKS = """
import signal
from tachograph.cli import parser
def forks():
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, b"up")
        time.sleep(20)
        os._exit(0)
    os.read(ours, 2)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
around(parser, "_version", forks)
"""


def test_a_child_that_a_tool_forked_is_ended_by_sigterm() -> None:
    command = [sys.executable, "-c", HOOK + FORKS + RUN, "--version"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert (done.stdout.splitlines()[0], done.stderr) == (str(-signal.SIGTERM), "")


# ---- the start -----------------------------------------------------------------------------------------

# waits where a module is about to be loaded
SITE = (
    HOOK
    + """
class Waits:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["AT"]:
            os.environ["AT"] = ""
            here()

sys.meta_path.insert(0, Waits)
"""
)


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize(
    "module",
    [
        "argparse",
        "tachograph.cli.console",
        "tachograph.cli.commands.views.show",
        "tachograph.evidence.queries.show",
    ],
)
def test_ctrl_c_while_it_starts(tmp_path: Path, module: str, script: bool) -> None:
    """From `python -m tachograph` and from the script that pip writes, whatever is loaded at that moment."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    entry = "import sys\nfrom tachograph.cli.main import main\nsys.exit(main())\n"
    command = [sys.executable, *(["-c", entry] if script else ["-m", "tachograph"])]
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "AT": module}
    with started([*command, "show", "runs/canonical/v1"], ROOT, env=env) as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said) == (130, SAID[signal.SIGINT])


def test_the_package_has_its_names_without_loading_them() -> None:
    code = (
        "import sys, tachograph\n"
        "early = [name for name in sys.modules if name.startswith('tachograph.')]\n"
        "every = [getattr(tachograph, name) for name in tachograph.__all__]\n"
        "print(early, len(every), set(tachograph.__all__) <= set(dir(tachograph)))\n"
        "from tachograph import Agent\n"
        "print(Agent.__module__, hasattr(tachograph, 'nothing'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    import tachograph

    assert done.stdout.splitlines() == [
        f"[] {len(tachograph.__all__)} True",
        "tachograph.runtime.agent False",
    ]


def test_the_names_are_those_that_a_type_checker_reads() -> None:
    import ast

    import tachograph

    text = (ROOT / "src/__init__.py").read_text(encoding="utf-8")
    read = {
        name.name: node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in node.names
    }
    assert read == tachograph._PLACES
    assert sorted([*read, "__version__"]) == sorted(tachograph.__all__)


def test_a_command_gives_the_signals_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert command_line.main(["--version"]) == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
