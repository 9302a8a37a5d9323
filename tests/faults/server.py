"""Runs the command line in forks of one warm process, each fork with a fault of its own.

    python server.py TASK

Reads one JSON object a line and answers each with one; TASK is loaded first, for the warmth. A fork costs a
hundredth of a second, a new interpreter a quarter: that is what lets a suite kill a run at every single call.
The forks die for real, by SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import points

Request = dict[str, Any]


def main() -> int:
    sys.path.insert(0, os.getcwd())
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # for code that needs the tests' own
    from tachograph import record  # noqa: F401 - warm, as is what follows
    from tachograph.evidence.files.claims.package_digest import package_digest
    from tachograph.evidence.recording import resume  # noqa: F401
    from tachograph.evidence.sending import seal  # noqa: F401
    from tachograph.evidence.tasks.task import build, load_task
    from tachograph.runtime.tools import isolation as worker  # noqa: F401

    package_digest()
    build(load_task(sys.argv[1]))
    time.strptime("2026", "%Y")
    shim = _shim()
    print(json.dumps({"ready": True, "shim": shim is not None}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line), shim)), flush=True)
    return 0


def _shim() -> Any:
    """The shim that this process was loaded with, None without."""
    path = os.environ.pop("LD_PRELOAD", None)
    return ctypes.CDLL(path) if path else None


def _serve(request: Request, shim: Any) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _child(request, shim, out.fileno(), err.fileno())
        status, unsent = _watch(pid, request)
        texts = [os.pread(file.fileno(), 1 << 20, 0).decode("utf-8", "replace") for file in (out, err)]
    return {
        "code": os.waitstatus_to_exitcode(status),
        "out": texts[0],
        "err": texts[1],
        "unsent": unsent,
    }


def _watch(pid: int, request: Request) -> tuple[int, int]:
    """Wait for a fork to end; meanwhile send it the signals that were asked for.

    Returns its status, and how many signals were not sent before it ended.
    """
    until = time.monotonic() + request.get("timeout_s", 60)
    sends = [dict(item) for item in request.get("send", ())]
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what it left running
            return status, len(sends)
        now = time.monotonic()
        for item in sends[:1]:
            item.setdefault("at", now + item.get("after_s", 0) if Path(item["when"]).exists() else None)
            if item["at"] is None:
                del item["at"]
            elif now >= item["at"]:
                os.kill(pid, item["signal"])
                sends.pop(0)
        if now > until:
            os.killpg(pid, signal.SIGKILL)
            until = now + 60
        time.sleep(0.002)


def _child(request: Request, shim: Any, out: int, err: int) -> None:
    """The fork: never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(_stdout(request.get("stdout"), out), 1)
        os.dup2(err, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        os.chdir(request["cwd"])
        code = _act(request, shim)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
    finally:
        os._exit(code)


def _stdout(kind: str | None, out: int) -> int:
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    if kind == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return out


def _act(request: Request, shim: Any) -> int:
    from tachograph.cli import main as cli

    for name, limit in request.get("limits", {}).items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    for fd in request.get("close", ()):
        os.close(fd)
        setattr(sys, ("stdin", "stdout", "stderr")[fd], None)  # as an interpreter does that is born so
    if "user" in request:
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    if request.get("wall"):
        shim.fault_wall(ctypes.c_longlong(request["wall"]))
    fault = request.get("fault")
    if fault is not None:
        values = fault["under"], fault["ops"], fault["at"], fault["act"], fault["arg"], fault["log"]
        if shim is not None:
            texts = [value.encode() if isinstance(value, str) else ctypes.c_long(value) for value in values]
            shim.fault_arm(*texts)
        else:
            points.arm(*values)
    try:
        if "code" in request:
            exec(compile(request["code"], "<code>", "exec"), {"__name__": "__main__"})
            return 0
        return cli.main(request["words"])
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
