"""`manifest.json`: digests of the other three files and of every input, the model, and how the run was made."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ..fail.errors import RecordError
from ..runtime.formats.documents import read_plain
from ..runtime.formats.strict_json import canonical, digest
from ..runtime.log.events import Event, RunStarted

MANIFEST: Final = "manifest.json"
_MOST_BYTES: Final = 1 << 30
# path and SHA-256 of each input that was read; policy and task count by what they say, all else by its bytes
Inputs = Mapping[str, str]


def manifest(
    events: Sequence[Event], files: Mapping[str, bytes], inputs: Inputs, made: Mapping[str, Any]
) -> bytes:
    """Return the manifest.

    Args:
        events: The log.
        files: The other three files.
        inputs: Every input.
        made: How the run was made, the only part that is not compared: `python`, `platform` and `time`.
    """
    head = events[0]
    assert isinstance(head, RunStarted)
    data = {
        "artifacts": {name: digest(content) for name, content in files.items()},
        "inputs": [{"path": path, "sha256": inputs[path]} for path in sorted(inputs)],
        "made": dict(made),
        "model": {"name": head.model.name, "path": head.model.path, "provider": head.model.provider},
        "policy_version": head.policy.version,
        "run_id": head.run_id,
        "schema": "manifest/v3",
    }
    return msgspec.json.format(canonical(data), indent=2) + b"\n"


class _Held(msgspec.Struct):
    inputs: list[dict[str, str]]
    made: dict[str, Any]


def read_manifest(content: bytes, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return inputs and `made` of a manifest. Raises RecordError for anything else."""
    try:
        held = msgspec.json.decode(content, type=_Held)
        return {item["path"]: item["sha256"] for item in held.inputs}, held.made
    except (ValueError, KeyError, RecursionError):
        raise RecordError("is not a manifest", file=name, remedy="restore it from git") from None


class InputLog:
    """`inputs.jsonl`, the side file of an open run: one line for each input, written when it is read.

    Args:
        folder: The folder of the open run.

    Attributes:
        inputs: The inputs so far.
    """

    def __init__(self, folder: Path) -> None:
        self.inputs: dict[str, str] = {}
        self._lock = threading.Lock()
        if (folder / MANIFEST).exists():  # the run had ended, and its side file may be gone
            name = f"{folder.name}/{MANIFEST}"
            self.inputs |= read_manifest(read_plain(folder / MANIFEST, _MOST_BYTES), name)[0]
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(folder / "inputs.jsonl", flags, 0o644)
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        # a line that was cut short is of an effect without an outcome
        os.ftruncate(self._fd, data.rfind(b"\n") + 1)
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            try:
                path, sha256 = msgspec.json.decode(line, type=tuple[str, str])
            except ValueError:
                self.close()
                place, remedy = f"{folder.name}/inputs.jsonl", "remove the folder and begin anew"
                raise RecordError("is not an input", file=place, line=number, remedy=remedy) from None
            self.inputs[path] = sha256

    def add(self, path: str, sha256: str) -> None:
        """Note an input. Called from any thread. Raises OSError, and notes nothing then."""
        line = canonical([path, sha256]) + b"\n"
        with self._lock:
            if self.inputs.get(path) == sha256:
                return
            written = os.write(self._fd, line)
            if written != len(line):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)  # other threads may still write
                raise OSError(errno.ENOSPC, "a line was only partly written")
            self.inputs[path] = sha256

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
