"""The difference between an input as it was recorded and as it is, for a person."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from ....runtime.formats.read_file import read_unlinked

_MOST_BYTES: Final = 1 << 20
_LINES: Final = 12
_CONTEXT: Final = 1


def input_diff(path: str, then: bytes | None, root: Path) -> list[str]:
    """Return the lines that differ, with `-` and `+` before them, shortened; words where there are none to show."""
    try:
        now: bytes | None = read_unlinked(root / path)
    except FileNotFoundError:
        now = None
    except (OSError, ValueError):
        return ["cannot be read"]
    if then is None or now is None:
        return ["was not there" if then is None else "is not there any more"]
    if then == now:
        return []
    if then.replace(b"\r\n", b"\n") == now.replace(b"\r\n", b"\n"):
        return ["differs in line endings alone"]
    if max(len(then), len(now)) > _MOST_BYTES:
        return ["is too large to be shown"]
    try:
        before, after = then.decode("utf-8").splitlines(), now.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return ["is no text"]
    lines = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]
    more = [f"and {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []
    return lines[:_LINES] + more
