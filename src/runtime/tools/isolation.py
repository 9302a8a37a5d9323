"""Run a tool in a worker process that can be ended when its time is up.

`run_isolated` calls a tool in a worker: a keeper and, below it, the tool's process, in a session of their
own, with a small fixed environment, an empty folder as home, no descriptor of ours and no output. Each call
of the tool's `io` is a message and is performed here, on the real one: the gate never leaves this process.

However a call ends, and when this process dies, SIGKILL ends what the tool left running: its process group
at once, for a tool has nothing to tidy up; on Linux also what left the group or the session. Only a tool that
ends its keeper can leave such a process behind. There is no limit on memory, files or processes, as each
can break an honest tool; where memory runs out, Linux ends the tool first.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from ...fail.errors import Cancelled
from ..formats import canonical_json

MAX_FRAME: Final = 40_000_000  # the largest result or file, at four bytes a character
GRACE_S: Final = 5.0  # for the keeper to end everything
_AGAIN_S: Final = 0.1  # between looks at whether the run is to stop
_IO: Final = {"read": 1, "write": 2, "list": 1, "get": 1, "request": 4}  # how many arguments
_REASONS: Final = (
    "lone surrogate|integer beyond 2^53|nested too deeply|not JSON data|a key that is no string|"
    "a key beyond U+FFFF|NaN or infinity|text too long"
).split("|")


class WorkerDied(Exception):
    """A worker that could not be started, ended without a result, or sent what is no message."""


def run_isolated(
    tool: Any, arguments: Any, io: Any, timeout_s: float | None, *, interrupts: Any = None, name: str = "run"
) -> Any:
    """Return what the function `name` of a tool's module (`tool.origin` describes it) returns in a worker.

    What the tool raised is raised here: a builtin, or a stand-in with the name and the builtin bases of its
    class (also for a KeyboardInterrupt, which is the tool's own). Cancelled and KeyboardInterrupt raised here,
    or by `interrupts.raise_pending()`, which is called ten times a second, end the worker and pass. The time of
    an `io` call counts, but none is interrupted.

    Raises:
        NotJson: The result has no canonical form, or more than 8,000,000 characters.
        TimeoutError: `timeout_s` seconds are over, start included.
        WorkerDied: The worker could not be started, or ended without a result.
    """
    origin, path = tool.origin, [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    start = [origin.module, origin.label, origin.file, origin.package, name, io.idempotency_key, path]
    code = inspect.getsource(canonical_json), origin.source.decode("latin-1")
    with tempfile.TemporaryDirectory(prefix="tachograph-worker-", ignore_cleanup_errors=True) as home:
        worker = _Worker(home, timeout_s, interrupts)
        try:
            worker.send(*code, canonical_json.encode(arguments), json.dumps(start))
            return worker.converse(io)
        finally:
            worker.end()


class _Worker:
    """This side of a worker: its pipes, its deadline, its end."""

    def __init__(self, home: str, timeout_s: float | None, interrupts: Any) -> None:
        self._until = None if timeout_s is None else time.monotonic() + timeout_s
        self._interrupts = interrupts
        self._pipes: list[Any]
        command = [sys.executable, "-I", "-B", *["-O"] * sys.flags.optimize, "-c", _shipped()]
        given: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"bufsize": 0}
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home}
        try:
            popen = subprocess.Popen(command, cwd=home, env=env, start_new_session=True, **given)  # noqa: S603
        except OSError as error:
            raise WorkerDied(f"could not be started ({type(error).__name__})") from error
        self._process, self._pipes = popen, [popen.stdin, popen.stdout, popen.stderr]
        self._in, self._out, self._status = (pipe.fileno() for pipe in self._pipes)
        for fd in (self._in, self._out, self._status):
            os.set_blocking(fd, False)

    def converse(self, io: Any) -> Any:
        """Perform the tool's calls of `io` until it returns or raises."""
        while True:
            (size,) = struct.unpack(">I", self._read(4))
            if size > MAX_FRAME:
                raise WorkerDied("sent too much at once")
            message = self._read(size)
            try:
                kind, *fields = _unpack(message)
                if kind == "result":
                    return canonical_json.parse(*fields).value()
                if kind == "raised":
                    error = _rebuilt(*fields)
                elif kind == "invalid":
                    error = canonical_json.NotJson(*fields if fields[0] in _REASONS else ["not JSON data"])
                elif len(fields) != _IO[kind]:
                    raise ValueError("no call")
            except (ValueError, TypeError, LookupError, struct.error):  # NotJson is a ValueError
                raise WorkerDied("sent what is no message") from None
            if kind not in _IO:
                raise error
            self.send(*_performed(io, kind, fields))

    def send(self, *fields: str) -> None:
        """Send one message."""
        view = memoryview(_pack(*fields))
        while view:
            self._wait(self._in, select.POLLOUT)
            with contextlib.suppress(BrokenPipeError):  # the next look says so
                view = view[os.write(self._in, view[:65536]) :]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(self._out, select.POLLIN)
            piece = os.read(self._out, min(size - len(data), 1 << 20))
            if not piece:
                raise WorkerDied("closed its pipe")
            data += piece
        return bytes(data)

    def _wait(self, fd: int, event: int) -> None:
        """Wait until `fd` is ready. Raises WorkerDied where the keeper ended or a pipe of the tool closed."""
        poll = select.poll()
        for one in (self._in, self._out, self._status):
            poll.register(one, event if one == fd else 0)
        while True:
            left = _AGAIN_S if self._until is None else min(self._until - time.monotonic(), _AGAIN_S)
            if left <= 0:
                raise TimeoutError("the attempt took longer than it may")
            ready = dict(poll.poll(left * 1000))
            if ready.get(fd, 0) & event and not ready[fd] & select.POLLERR:
                return
            if ready:
                raise WorkerDied("ended without a result")
            if self._interrupts is not None:
                self._interrupts.raise_pending()

    def end(self) -> None:
        """End and reap all of the worker; a WorkerDied being raised gets a note of how the tool's process ended."""
        report, died = [""], sys.exception()
        try:
            self._pipes[0].close()  # which the keeper waits for
            poll = select.poll()
            poll.register(self._status, 0)
            poll.poll(GRACE_S * 1000)
        finally:
            with contextlib.suppress(BlockingIOError):
                report = os.read(self._status, 4096).decode("ascii", "replace").split("\n")
            # a keeper that came to its end left nothing; of another, the groups are ended from here
            for group in (report[0], str(self._process.pid)) if len(report) != 3 else ():
                if group.isdecimal() and int(group) > 1:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(int(group), signal.SIGKILL)
            self._process.wait()
            for pipe in self._pipes[1:]:
                pipe.close()
        if isinstance(died, WorkerDied):
            died.add_note(f"the tool's process and how it ended: {' '.join(report)}")


def _performed(io: Any, method: str, fields: list[str]) -> list[str]:
    """Perform one call on the real `io` and return the fields of the answer."""
    try:
        if method == "request":
            name, url, headers, body = fields
            result = io.request(name, url, json.loads(headers), body[1:] if body else None)
        else:
            result = getattr(io, method)(*fields)
    except Cancelled:
        raise
    except Exception as error:  # noqa: BLE001 - the tool's to handle
        return _described(error, "")
    return ["ok", json.dumps(asdict(result) if method in ("get", "request") else result, ensure_ascii=False)]


# ---- shipped to the worker as text: these functions use each other and the imports below, nothing else


@lru_cache(maxsize=1)
def _shipped() -> str:
    head = "from __future__ import annotations; import builtins, contextlib, json, os, resource, select\n"
    head += "import signal, struct, sys, threading, types"
    parts: Any = (_pack, _unpack, _described, _rebuilt, _serve, _children, _keep)
    return "\n\n".join((head, *map(inspect.getsource, parts), "_keep()"))


def _pack(*fields: str) -> bytes:
    """Return a frame: its length, then the fields, each after its length; lone surrogates are kept."""
    parts = [field.encode("utf-8", "surrogatepass") for field in fields]
    body = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return struct.pack(">I", len(body)) + body


def _unpack(body: bytes) -> list[str]:
    fields: list[str] = []
    at = 0
    while at < len(body) and len(fields) < 64:
        (size,) = struct.unpack_from(">I", body, at)
        at += 4 + size
        fields.append(body[at - size : at].decode("utf-8", "surrogatepass"))
    if at != len(body):
        raise ValueError("no frame")
    return fields


def _described(error: BaseException, trace: str) -> list[str]:
    """Return an exception as fields: class, text, traceback, and its builtin classes, nearest first."""
    kinds = [kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
    try:
        text = str(error)[:2000]
    except Exception:  # noqa: BLE001 - foreign code
        text = ""
    return ["raised", type(error).__name__, text, trace[-10_000:], *(kind.__name__ for kind in kinds[:-1])]


def _rebuilt(name: str, text: str, trace: str, *bases: str) -> BaseException:
    """Return the exception that such fields describe. Raises ValueError or TypeError if they describe none."""
    out = ("KeyboardInterrupt", "ExceptionGroup", "BaseExceptionGroup")  # ends the run; are no mere text
    named: list[Any] = [getattr(builtins, base, None) for base in bases if base not in out]
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, BaseException)]
    if not kinds or len(kinds) < len(named) or len(name) > 200:
        raise ValueError("no exception")
    kind: Any = kinds[0]
    if kind.__name__ != name:
        nearest = [one for one in kinds if not any(o is not one and issubclass(o, one) for o in kinds)]
        kind = type(name, tuple(nearest), {"__module__": "tool"})
    error: BaseException = kind.__new__(kind, text)  # a call would want more than a text of some
    if trace:
        error.add_note(trace)
    return error


def _serve() -> None:
    """Run the tool's process: make the module, call it, report."""
    source, sink, null = os.fdopen(os.dup(0), "rb"), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)

    def take() -> list[str]:
        return _unpack(source.read(*struct.unpack(">I", source.read(4))))

    def send(*fields: str) -> None:
        view = memoryview(_pack(*fields))
        while view:
            view = view[os.write(sink, view) :]

    def call(method: str, *texts: str) -> Any:
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("io takes text")
        with lock:
            send(method, *(text[:8_000_001] for text in texts))  # a longer one is refused anyway
            kind, *fields = take()
        if kind == "raised":
            raise _rebuilt(*fields)
        return json.loads(*fields)

    def request(method: str, url: str, headers: Any = None, body: Any = None) -> Any:
        if not isinstance(body, str | None):
            raise TypeError("a request body is text")
        if len(body or "") > 8_000_000:  # before it is cut
            raise ValueError("the request body is too large")
        given = json.dumps(None if headers is None else dict(headers))
        return types.SimpleNamespace(
            **call("request", method, url, given, "" if body is None else f"={body}")
        )

    lock = threading.Lock()
    text, code, arguments, start = take()
    canonical: Any = types.ModuleType("canonical_json")
    exec(text, canonical.__dict__)  # noqa: S102 - our own module
    name, label, file, package, function, key, sys.path[:] = json.loads(start)
    io = types.SimpleNamespace(
        idempotency_key=key,
        read=lambda path: call("read", path),
        write=lambda path, text: call("write", path, text),
        list=lambda mount: call("list", mount),
        get=lambda url: types.SimpleNamespace(**call("get", url)),
        request=request,
    )
    module = types.ModuleType(name)
    module.__file__, module.__package__ = file, package
    if package is not None:
        sys.modules[name] = module
    try:
        exec(compile(code.encode("latin-1"), label, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        result = canonical.freeze(getattr(module, function)(json.loads(arguments), io)).text
        report = ["result", result] if len(result) <= canonical.MAX_TEXT else ["invalid", "text too long"]
    except canonical.NotJson as error:
        report = ["invalid", error.reason]
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises is reported
        import traceback

        report = _described(error, "".join(traceback.format_exception(error)))
    send(*report)
    os._exit(0)


def _children() -> list[int]:
    """Return the processes whose parent is this one, as far as `/proc` tells."""
    children = []
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                children.append(int(name))
    return children


def _keep() -> None:
    """Run the keeper: start the tool's process; when that ends, or our side hangs up, end all below."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ImportError, OSError, AttributeError):
        __import__("ctypes").CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come here
    tool = os.fork()
    if tool == 0:
        try:
            os.setpgid(0, 0)
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
            _serve()
        finally:
            os._exit(70)
    with contextlib.suppress(OSError):
        os.setpgid(tool, tool)
    os.write(2, b"%d\n" % tool)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    hung_up = select.poll()
    hung_up.register(0, 0)
    ended = status = 0
    while not ended and not hung_up.poll(20):
        ended, status = os.waitpid(tool, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(tool, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(tool, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] or not select.select((), (), (), 0.001)[0]:
            for child in _children():
                os.kill(child, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.rmdir(os.getcwd())  # its home, which nobody else removes where our side died
    os.write(2, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)
