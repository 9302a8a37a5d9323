"""What the shim does, without a compiler: the calls of the module `os` are counted and broken.

It sees fewer calls, since files that are written through `open` go by it.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

# function of `os` -> name of the call, place of the descriptor or the path that counts
_CALLS = {
    "write": ("write", 0),
    "fsync": ("fsync", 0),
    "ftruncate": ("ftruncate", 0),
    "open": ("open", 0),
    "rename": ("rename", 1),
    "replace": ("rename", 1),
    "unlink": ("unlink", 0),
    "remove": ("unlink", 0),
    "mkdir": ("mkdir", 0),
    "rmdir": ("rmdir", 0),
}


def arm(under: str, ops: str, at: int, act: str, arg: int, log: str) -> None:
    """Count, log and break calls from now on; the arguments are those of the shim's `fault_arm`."""
    wanted, seen = ops.split(","), [0]
    real = {name: getattr(os, name) for name in _CALLS}
    note = real["open"](log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else -1

    def met(op: str, path: str | None, *call: Any) -> None:
        if path is None or not path.startswith(f"{under}/"):
            return
        seen[0] += 1
        if note >= 0:
            size = os.fstat(call[0]).st_size if isinstance(call[0], int) else 0
            real["write"](note, f"{seen[0]} {op} {size} {path}\n".encode())
        if at and (seen[0] == at or (act in ("errors", "signals") and seen[0] >= at)):
            _break(act, arg, real["write"], op, call)

    def counted(name: str) -> Callable[..., Any]:
        op, place = _CALLS[name]

        @functools.wraps(real[name])
        def call(*args: Any, **more: Any) -> Any:
            if op in wanted and (op != "open" or _changes(args)):
                short = None
                try:
                    met(op, _path(args[place], more), *args)
                except _Short as found:
                    short = found.size
                return (
                    real[name](args[0], args[1][:short]) if short is not None else real[name](*args, **more)
                )
            return real[name](*args, **more)

        return call

    for name in _CALLS:
        setattr(os, name, counted(name))


class _Short(Exception):
    def __init__(self, size: int) -> None:
        self.size = size


def _break(act: str, arg: int, write: Callable[[int, bytes], int], op: str, call: tuple[Any, ...]) -> None:
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if act in ("signal", "signals"):
        os.kill(os.getpid(), arg)
    if act in ("error", "errors"):
        raise OSError(arg, os.strerror(arg))
    if op == "write" and act == "tear":
        write(call[0], call[1][:arg])
        os.kill(os.getpid(), signal.SIGKILL)
    if op == "write" and act == "short":
        raise _Short(arg)


def _changes(args: tuple[Any, ...]) -> bool:
    return len(args) > 1 and args[1] & os.O_ACCMODE != os.O_RDONLY


def _path(what: Any, more: dict[str, Any]) -> str | None:
    """The path behind a descriptor or a name, as far as it can be told."""
    try:
        if isinstance(what, int):
            return os.readlink(f"/proc/self/fd/{what}")
        name = os.fsdecode(what)
        folder = more.get("dir_fd", more.get("dst_dir_fd"))
        base = os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}")
        return os.path.join(base, name)
    except OSError:
        return None
