"""Tools that hang, fight or lie: cut off, classified, and nothing of them left running."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph import Agent
from tachograph.fail.errors import Cancelled
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Fault, Invoke
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.canonical_json import NotJson
from tachograph.runtime.loop.retry import fault_from_error
from tachograph.runtime.policy.gate import Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools import isolation as worker
from tachograph.runtime.tools.contract import USES
from tachograph.runtime.tools.deadline import deadline
from tachograph.runtime.tools.isolation import WorkerDied, run_isolated
from tachograph.runtime.workspace import tool_io
from tachograph.runtime.workspace.mounts import Host, Mount
from tachograph.runtime.workspace.tool_io import IO
from tachograph.runtime.workspace.workspace import Workspace
from tests.support import ROOT, Script, answer, ask, attend_to_ctrl_c, environment, policy_data, probe
from tests.support import tool as tool_in_code

GATE = Gate(Policy.from_dict(policy_data()), {})

HEAD = '''
import os, signal, sys, time

def note(io, *pids):
    """Tell the test of these processes."""
    io.write("box/pids", " ".join(map(str, (os.getpid(), *pids))))
    io.write("box/home", os.environ["HOME"])

def spawn(leave=None):
    """A process that sleeps, perhaps outside the group or the session, with none of ours as parent."""
    out, into = os.pipe()
    if os.fork() == 0:
        if leave == "group":
            os.setpgid(0, 0)
        if leave == "session":
            os.setsid()
            if os.fork():
                os._exit(0)
        os.write(into, b"%d" % os.getpid())
        time.sleep(99)
    return int(os.read(out, 20))

def say(data):
    """Write to whatever can be written to, our pipe among it."""
    for fd in range(3, 12):
        try:
            os.write(fd, data)
        except OSError:
            pass
'''


def late(check: dict[str, Any], _keep: bool) -> Decision:
    return GATE.decide_late(check)


class Space(Workspace):
    """A mount to write, one to read and a host."""

    def __init__(self, root: Path) -> None:
        for folder in ("box", "books", "site"):
            (root / folder).mkdir(parents=True)
        (root / "books" / "a.md").write_text("é\u2028\U0001f600")
        (root / "site" / "page.md").write_text("page")
        mounts = {"box": Mount(root / "box"), "books": Mount(root / "books", "books")}
        super().__init__(mounts, {"good.test": Host(root / "site", "site", {"/away": "https://evil.test/"})})
        self.box = root / "box"

    def out(self) -> IO:
        return self.io(late, "key", USES["network"])


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with Space(tmp_path / "space") as made:
        yield made


def tool(body: str) -> Any:
    """A tool whose `run` has this body, described as a worker wants it."""
    source = f"{HEAD}\ndef run(args, io):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    names = {"module": "tachograph_tool_t", "label": "tools/t.py", "file": "t.py", "package": None}
    return SimpleNamespace(origin=SimpleNamespace(source=source.encode(), **names))


def inside(made: Any, arguments: dict[str, Any], io: IO) -> Any:
    """The same tool in this process."""
    names: dict[str, Any] = {}
    exec(compile(made.origin.source, "tools/t.py", "exec"), names)
    return names["run"](arguments, io)


def outcome(call: Callable[[], Any], transient: tuple[type[BaseException], ...] = ()) -> Any:
    """A result as the driver reads it: canonical text, why it has none, or a fault."""
    try:
        return canonical_json.freeze(call()).text
    except NotJson as error:
        return error.reason
    except BaseException as error:  # noqa: BLE001
        return fault_from_error(error, transient)


def both(
    body: str, space: Space, transient: tuple[type[BaseException], ...] = (), out: IO | None = None
) -> Any:
    """What comes of a tool in a worker, once it is seen that the very same comes of it here."""
    made, arguments, ios = tool(body), {"n": 1, "list": [1, 2]}, [space.out(), out or space.out()]
    here = outcome(lambda: inside(made, {"n": 1, "list": [1, 2]}, ios[0]), transient)
    there = outcome(lambda: run_isolated(made, arguments, ios[1], 30), transient)
    assert there == here
    for name in ("checks", "reads", "writes", "denied"):
        assert getattr(ios[0], name) == getattr(ios[1], name)
    assert arguments == {"n": 1, "list": [1, 2]}, "a tool that changes its arguments changes its own"
    return there


def gone(pids: list[int]) -> bool:
    """Whether these processes end; one that does not is killed after half a minute."""
    until = time.monotonic() + 30
    while left := [pid for pid in pids if _lives(pid)]:
        if time.monotonic() > until:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.01)
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):  # a zombie that init has not fetched is at its end too
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return True


def ended(body: str, space: Space, timeout_s: float | None = 30, **more: Any) -> Any:
    """What comes of a tool that notes its processes; none of them lives on, and its home is gone."""
    try:
        found = run_isolated(tool(body), {}, space.out(), timeout_s, **more)
    except BaseException as error:  # noqa: BLE001
        found = error
    assert (space.box / "home").exists(), f"the tool did not get far enough: {found!r}"
    assert not Path((space.box / "home").read_text()).exists()
    assert gone([int(pid) for pid in (space.box / "pids").read_text().split()])
    return found


# ---- the same as in this process -----------------------------------------------------------------------

RESULTS = {
    'return {"a": 1.0, "b": [1e-7, None, True], "c": "é\\u2028\\U0001f600\\x00", "args": args}': None,
    "args['list'].clear(); args['n'] = 2; return args": '{"list":[],"n":2}',
    "return None": "null",
    'return {"a": b"bytes"}': "not JSON data",
    'return {"a": float("nan")}': "NaN or infinity",
    "loop = []; loop.append(loop); return loop": "nested too deeply",
    "return {1: 1}": "a key that is no string",
    'return {"\\U0001f600": 1}': "a key beyond U+FFFF",
    "return 2**53": "integer beyond 2^53",
    'return "\\ud800"': "lone surrogate",
}


@pytest.mark.parametrize("body", RESULTS)
def test_a_result_is_the_same(body: str, space: Space) -> None:
    found = both(body, space)
    assert found == RESULTS[body] or RESULTS[body] is None


RAISES = {
    "raise ValueError('x')": Fault("ValueError", "other"),
    "raise ConnectionResetError": Fault("ConnectionResetError", "transient"),
    "raise ConnectionRefusedError": Fault("ConnectionRefusedError", "transient", nothing_happened=True),
    "raise TimeoutError(1, 'x')": Fault("TimeoutError", "timeout"),
    "exit(3)": Fault("SystemExit", "other"),
    "raise MemoryError": Fault("MemoryError", "other"),
    "raise StopIteration": Fault("StopIteration", "other"),
    "return run(args, io)": Fault("RecursionError", "other"),
    "b'\\xff'.decode()": Fault("UnicodeDecodeError", "transient"),
    "import json; json.loads('{')": Fault("JSONDecodeError", "transient"),
    "class Slow(TimeoutError, LookupError): ...\nraise Slow": Fault("Slow", "timeout"),
    "class Stop(BaseException): ...\nraise Stop": Fault("Stop", "other"),
    "raise ExceptionGroup('x', [ValueError()])": Fault("ExceptionGroup", "other"),
    "io.read('nowhere/x')": Fault("PermissionError", "other"),
    "io.read('books/none')": Fault("FileNotFoundError", "other"),
    "io.read(5)": Fault("TypeError", "other"),
}


@pytest.mark.parametrize("body", RAISES)
def test_an_exception_is_the_same_fault(body: str, space: Space) -> None:
    transient = (ConnectionError, UnicodeError) if "decode" in body else (ConnectionError,)
    if "json" in body:
        transient = (ValueError,)
    assert both(body, space, transient) == RAISES[body]


def test_a_keyboard_interrupt_of_a_tool_is_not_the_users(space: Space) -> None:
    error = ended("note(io); raise KeyboardInterrupt", space)
    assert not isinstance(error, KeyboardInterrupt) and fault_from_error(error) == Fault(
        "KeyboardInterrupt", "other"
    )
    assert "tools/t.py" in error.__notes__[0], "a developer sees where"


def test_a_worker_imports_nothing_from_its_folder_or_the_environment(space: Space) -> None:
    """Its folder is one that a tool may write to: a `json.py` there must not be what a later import finds."""
    body = "return {'isolated': sys.flags.isolated, 'folder': '' in sys.path}"
    assert run_isolated(tool(body), {}, space.out(), 30) == {"isolated": 1, "folder": False}


def test_io_is_performed_and_gated_here(space: Space) -> None:
    body = """io.write("box/sub/x.md", text="a\\u00e9")
page = io.get(url="https://good.test/page.md")
return {"list": io.list("books"), "text": io.read("books/a.md"), "key": io.idempotency_key,
        "page": [page.status, page.headers, page.text, page.url]}"""
    assert '"é\u2028\U0001f600"' in both(body, space)
    space.place("box/big", "€" * 2_600_000)
    assert both("return len(io.read('box/big'))", space) == "2600000"
    assert both("io.write('box/x', 'x' * 9_000_000)", space) == Fault("OSError", "other")


@pytest.mark.parametrize(
    "call",
    ["read('etc/passwd')", "write('books/a.md', 'x')", "list('etc')", "get('https://good.test/away')"],
)
def test_what_is_denied_is_denied_in_a_worker_too(call: str, space: Space) -> None:
    swallowed = f"try:\n    io.{call}\nexcept PermissionError as error:\n    return str(error)"
    out = space.out()
    assert both(swallowed, space, out=out).startswith('"denied by')
    assert out.denied and out.checks and not out.writes


def test_a_whole_run_leaves_the_same_bytes(tmp_path: Path) -> None:
    made = tool("""if io.idempotency_key.endswith("/3/0"):
    raise OSError
time.sleep(0.05)
io.write("box/a", "x")
return {"said": io.read("box/a") + str(args["n"])}""")

    def run(isolated: bool) -> list[str]:
        def inject(effect: Any, io: Any, real: Callable[[], Any]) -> Any:
            if isolated and isinstance(effect, Invoke):
                assert effect.call.arguments is not None
                return run_isolated(made, effect.call.arguments.value(), io, 30)
            return real()

        here = tool_in_code(run=lambda args, io: inside(made, args, io))
        script = Script([ask(probe(n=1)), ask(probe(n=2), probe(n=3)), ask(probe(n=4)), answer()])
        agent = Agent(script, [here], Policy.from_dict(policy_data(tool_registry={"allowed": ["probe"]})))
        config = agent.configure_run("q", run_id="r", clock=VirtualClock(), inject=inject)
        texts: list[str] = []
        agent.execute(config, on_line=lambda _line, text: texts.append(text))
        return texts

    there = run(isolated=True)
    assert there == run(isolated=False) and any('"catalogued_unhandled"' in text for text in there)


def test_threads_of_a_tool_share_io(space: Space) -> None:
    for number in range(40):
        space.place(f"box/{number}", f"{number} " * 2000)
    body = """from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-5)
with ThreadPoolExecutor(8) as pool:
    return [text.split()[0] for text in pool.map(lambda n: io.read(f"box/{n}"), range(40))]"""
    found = run_isolated(tool(body), {}, space.out(), 30)
    assert found == [str(number) for number in range(40)]


# ---- cut off -------------------------------------------------------------------------------------------

HANGS = [
    "note(io)\nwhile True: pass",
    "note(io)\npow(7, 10**9)",
    "for n in set(range(1, 32)) - {9, 19}: signal.signal(n, signal.SIG_IGN)\nnote(io); time.sleep(99)",
    "note(io)\nwhile True:\n    try: time.sleep(99)\n    except BaseException: pass",
    "note(io, spawn(), spawn('group'), spawn('session')); time.sleep(99)",
    "note(io); os.kill(os.getpid(), signal.SIGSTOP)",
    "note(io)\nwhile True: io.list('books')",
    "note(io); fd = os.dup(1); os.set_blocking(fd, False); sys.stdin.read(); signal.pause()",
]


def test_hanging_tools_are_cut_off_and_all_they_started(tmp_path: Path) -> None:
    """All at once, each in a thread of its own."""

    def cut(body: str) -> type[BaseException]:
        with Space(tmp_path / str(HANGS.index(body))) as space:
            return type(ended(body, space, 4))

    with ThreadPoolExecutor(len(HANGS)) as pool:
        assert list(pool.map(cut, HANGS)) == [TimeoutError] * len(HANGS)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are caught on Linux only")
@pytest.mark.parametrize("then", ["return 1", "os._exit(0)", "raise ValueError", "os.kill(os.getpid(), 9)"])
def test_nothing_a_tool_started_outlives_it(then: str, space: Space) -> None:
    ended(f"note(io, spawn(), spawn('group'), spawn('session')); {then}", space)


def test_a_tool_that_hangs_while_it_is_loaded_or_ends(space: Space) -> None:
    made = tool("import atexit, threading\nthreading.Thread(target=time.sleep, args=(99,)).start()\n"
                "atexit.register(time.sleep, 99)\nreturn 1")  # fmt: skip
    assert run_isolated(made, {}, space.out(), 30) == 1
    for timeout_s in (0.001, 0.3):
        made.origin.source = b"import time; time.sleep(99)"
        with pytest.raises(TimeoutError):
            run_isolated(made, {}, space.out(), timeout_s)


DEATHS = {
    "os._exit(0)": "ended without",
    "os.kill(os.getpid(), signal.SIGKILL)": "ended without",
    "import ctypes; ctypes.string_at(0)": "ended without",
    "os.closerange(0, 50); time.sleep(99)": "ended without",
    "os.kill(os.getppid(), signal.SIGKILL); time.sleep(99)": "ended without",
    "say(b'x' * 100_000_000); time.sleep(99)": "too much",
    "say(b'\\0' * 100_000_000); time.sleep(99)": "no message",
}


@pytest.mark.parametrize("body", DEATHS)
def test_a_worker_that_dies_or_lies_is_no_more_than_a_failed_tool(body: str, space: Space) -> None:
    started = "" if "closerange" in body else "spawn()"  # another that holds the pipe might still speak
    error = ended(f"note(io, {started}); {body}", space)
    assert type(error) is WorkerDied and DEATHS[body] in str(error)
    assert fault_from_error(error, (ConnectionError, OSError)) == Fault("WorkerDied", "other")


def test_a_result_that_is_too_large_is_refused(space: Space) -> None:
    with pytest.raises(NotJson, match="text too long"):
        run_isolated(tool("return {'a': 'x' * 100_000_000}"), {}, space.out(), 60)


def test_a_keeper_that_is_stopped_is_not_waited_for(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE_S", 0.1)
    body = "note(io, os.getppid(), spawn()); os.kill(os.getppid(), signal.SIGSTOP); time.sleep(99)"
    assert type(ended(body, space, 1)) is TimeoutError


class _Told:
    """Says that the run is to stop once the tool has begun."""

    def __init__(self, space: Space, how: BaseException) -> None:
        self.space, self.how = space, how

    def raise_pending(self) -> None:
        if (self.space.box / "home").exists():
            raise self.how


@pytest.mark.parametrize("how", [Cancelled(), KeyboardInterrupt()])
def test_what_stops_the_run_ends_the_worker(how: BaseException, space: Space) -> None:
    assert ended("note(io, spawn()); time.sleep(99)", space, None, interrupts=_Told(space, how)) is how


@pytest.mark.parametrize("how", [KeyboardInterrupt, Cancelled])
def test_so_does_what_stops_it_within_io(how: type[BaseException], space: Space) -> None:
    attend_to_ctrl_c()
    out = space.out()
    stop: Any = {KeyboardInterrupt: lambda _mount: signal.raise_signal(signal.SIGINT)}
    out.list = stop.get(how, lambda _mount: _raise(how()))  # type: ignore[method-assign]
    with pytest.raises(how):
        run_isolated(tool("note(io, spawn()); io.list('box'); time.sleep(99)"), {}, out, 30)
    assert gone([int(pid) for pid in (space.box / "pids").read_text().split()])


def test_a_worker_does_not_outlive_us(space: Space) -> None:
    code = """import sys
from pathlib import Path
from tests.runtime.tools.test_isolation import Space, run_isolated, tool
with Space(Path(sys.argv[1])) as space:
    run_isolated(tool("note(io, os.getppid(), spawn(), spawn('session')); time.sleep(99)"), {}, space.out(), None)"""
    place = space.box / "deeper"
    us = subprocess.Popen([sys.executable, "-c", code, str(place)], cwd=ROOT, env=environment())
    until = time.monotonic() + 20
    while not (place / "box" / "home").exists() and us.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    us.kill()
    us.wait()
    assert gone([int(pid) for pid in (place / "box" / "pids").read_text().split()])
    assert not Path((place / "box" / "home").read_text()).exists()


FRAMES: dict[str, list[str]] = {
    "nothing": [],
    "an unknown word": ["open", "x"],
    "a call with too few arguments": ["write", "box/x"],
    "a call of what io does not offer": ["_resolve", "box/x"],
    "a result that is no JSON": ["result", "{'a': 1}"],
    "a key twice": ["result", '{"a":1,"a":2}'],
    "NaN": ["result", "NaN"],
    "two results": ["result", "1", "2"],
    "two reasons": ["invalid", "lone surrogate", "text too long"],
    "no reason": ["invalid"],
    "no exception": ["raised", "int", "", "", "int", "object"],
    "an exception without a base": ["raised", "Mine", "", ""],
    "bases that do not go together": ["raised", "Mine", "", "", "OSError", "ImportError"],
    "a name that no class has": ["raised", "a\0b", "", "", "Exception"],
    "a name without end": ["raised", "x" * 999, "", "", "Exception"],
    "half an exception": ["raised", "Mine"],
}


def heard(space: Space, monkeypatch: pytest.MonkeyPatch, *fields: str) -> Any:
    """What comes of a frame that a tool could write to our pipe itself."""
    fed = worker._Worker.__new__(worker._Worker)
    monkeypatch.setattr(fed, "_read", io.BytesIO(worker._pack(*fields)).read)
    return fed.converse(space.out())


@pytest.mark.parametrize("fields", FRAMES.values(), ids=FRAMES)
def test_what_is_no_message_is_no_result(
    fields: list[str], space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heard(space, monkeypatch, "result", "1") == 1
    with pytest.raises(WorkerDied, match="no message"):
        heard(space, monkeypatch, *fields)


@given(st.lists(st.text(), max_size=64))
def test_fields_arrive_as_they_were(fields: list[str]) -> None:
    frame = worker._pack(*fields, "\ud800")
    assert struct.unpack(">I", frame[:4]) == (len(frame) - 4,)
    if len(fields) < 64:
        assert worker._unpack(frame[4:]) == [*fields, "\ud800"]
    else:
        with pytest.raises(ValueError, match="no frame"):
            worker._unpack(frame[4:])


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_fields_or_refused(body: bytes) -> None:
    try:
        fields = worker._unpack(body)
    except (ValueError, struct.error):
        return
    assert worker._pack(*fields)[4:] == body


# ---- what a worker is given ----------------------------------------------------------------------------


def test_a_worker_has_nothing_of_ours(
    space: Space, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    ours = os.open(ROOT, os.O_RDONLY)
    os.set_inheritable(ours, True)
    body = """print("out"); sys.stderr.write("err"); os.system("echo out; echo err >&2"); os.write(1, b"x")
import resource
fds = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
return {"env": dict(os.environ), "cwd": os.getcwd(), "here": os.listdir(), "core": resource.getrlimit(4)[0],
        "fds": fds, "session": [os.getsid(0), os.getpgid(0), os.getpid()]}"""
    found = run_isolated(tool(body), {}, space.out(), 30)
    os.close(ours)
    assert set(found["env"]) == {"PATH", "LANG", "HOME", "TMPDIR"}
    assert found["cwd"] == found["env"]["HOME"] and found["here"] == [] and found["core"] == 0
    assert str(ROOT) not in found["fds"]
    session, group, process = found["session"]
    assert group == process and session not in (os.getsid(0), process)
    assert capfd.readouterr() == ("", "")


def test_an_imported_module_finds_its_neighbours(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kit"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("WORD = 'found'")
    monkeypatch.syspath_prepend(tmp_path)
    made = tool("from .words import WORD\nreturn sys.modules[__name__].__name__ + WORD")
    made.origin.module, made.origin.package = "kit.t", "kit"
    assert run_isolated(made, {}, space.out(), 30) == "kit.tfound"


def test_another_function_of_the_module(space: Space) -> None:
    made = tool("return 1")
    made.origin.source += b"\ndef probe(args, io): return args['n']"
    assert run_isolated(made, {"n": "done"}, space.out(), 30, name="probe") == "done"


def test_a_worker_that_cannot_be_started(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(WorkerDied, match="could not be started"):
        run_isolated(tool("return 1"), {}, space.out(), 30)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerDied, match="ended without"):
        run_isolated(tool("return 1"), {}, space.out(), 30)


def test_a_reason_that_is_not_ours_is_not_passed_on(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*RESULTS.values(), "text too long"} >= set(worker._REASONS)
    with pytest.raises(NotJson) as caught:
        heard(space, monkeypatch, "invalid", "call the author at 555")
    assert caught.value.reason == "not JSON data"


# ---- in this process -----------------------------------------------------------------------------------


def late_after(seconds: float, tool: Callable[[], Any], *passing: type[BaseException]) -> Any:
    """Return what comes of `tool` under a deadline, after which no alarm may be left."""
    try:
        with deadline(seconds, *passing):
            found = tool()
    except BaseException as error:  # noqa: BLE001
        found = error
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    return found


def _spin() -> None:
    while True:
        pass


def _catch(what: type[BaseException], then: Callable[[], Any]) -> Any:
    try:
        time.sleep(9)
    except what:
        return then()


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "tool",
    [
        lambda: time.sleep(9),
        _spin,
        lambda: _catch(Exception, lambda: "swallowed"),
        lambda: _catch(BaseException, lambda: "swallowed"),
        lambda: _catch(BaseException, lambda: time.sleep(9)),
        lambda: _catch(BaseException, lambda: _raise(ValueError())),
        lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 400_000),  # in C: noticed when it returns
        lambda: time.sleep(0.2) or _raise(SystemExit()),
    ],
)
def test_a_tool_in_this_process_is_cut_off(tool: Callable[[], Any]) -> None:
    error = late_after(0.05, tool)
    assert type(error) is TimeoutError and fault_from_error(error) == Fault("TimeoutError", "timeout")


def test_a_tool_that_keeps_its_time_is_left_alone() -> None:
    assert late_after(5, lambda: 3) == 3
    error = ValueError()
    assert late_after(5, lambda: _raise(error)) is error
    with deadline(None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Cancelled(), GeneratorExit()])
def test_what_ends_the_run_passes_even_when_late(error: BaseException) -> None:
    assert late_after(0.02, lambda: _catch(BaseException, lambda: _raise(error)), GeneratorExit) is error


def test_in_another_thread_lateness_is_noticed_afterwards() -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(late_after(1, lambda: "done"))
        found.append(late_after(0.02, lambda: time.sleep(0.1)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0] == "done" and type(found[1]) is TimeoutError


def test_an_alarm_that_was_set_before_is_kept() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60, 7)
        with pytest.raises(TimeoutError), deadline(0.05):
            _spin()
        left, again = signal.getitimer(signal.ITIMER_REAL)
        assert 50 < left < 60 and again == 7 and not rung
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with deadline(5):
            time.sleep(0.06)
        time.sleep(0.05)
        assert rung == [1], "put off, not lost"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_io_is_never_torn(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    real, whole = tool_io.read_file, []

    def slow(*arguments: Any) -> bytes:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        whole.append(1)
        return real(*arguments)

    monkeypatch.setattr(tool_io, "read_file", slow)
    out = space.out()
    assert type(late_after(0.05, lambda: (out.read("books/a.md"), time.sleep(9)))) is TimeoutError
    assert whole == [1] and len(out.reads) == 1


def test_the_block_itself_is_not_broken_off() -> None:
    """Its last instruction may lie outside of what its end catches."""
    done = False
    with pytest.raises(TimeoutError), deadline(0.02):
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        done = True
    assert done


def test_an_alarm_of_another_is_no_time_out() -> None:
    assert late_after(5, lambda: signal.raise_signal(signal.SIGALRM)) is None


def test_no_alarm_escapes_the_block() -> None:
    """Tools that end at the very moment their time is up, called by the block and within it."""

    def spin(until: float) -> None:
        while time.monotonic() < until:
            pass

    late = 0
    for number in range(400):
        until = time.monotonic() + 0.001 + (number % 20 - 10) * 1e-5
        try:
            with deadline(0.001):
                if number % 2:
                    spin(until)
                while time.monotonic() < until:
                    pass
        except TimeoutError:
            late += 1
    assert 0 < late < 400 and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
