"""Two values of a record side by side, cut to where they differ."""

from __future__ import annotations

import json
from typing import Any, Final

from ...evidence.checking.differences.drift import counted
from ...evidence.files.json_diff import ABSENT
from ...runtime.formats.escape import truncate

# (mark, text): "-" is then, "+" is now, " " is in both, "…" says what was left out
Row = tuple[str, str]
WIDTH: Final = 160  # characters of a row
LINES: Final = 3  # lines of each side
_BEFORE: Final = 30  # characters shown before the place where two lines differ


def excerpt(before: Any, after: Any) -> list[Row]:
    """Return both values from shortly before they differ; texts of several lines as lines, as a diff has them."""
    old, new = (list[str]() if side is ABSENT else _text(side).split("\n") for side in (before, after))
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    behind = 0
    while behind < min(len(old), len(new)) - same and old[-1 - behind] == new[-1 - behind]:
        behind += 1
    gone, come = old[same : len(old) - behind], new[same : len(new) - behind]
    start = _start(gone[0], come[0]) if gone and come else 0
    out: list[Row] = [("…", f"{counted(same - 1, 'line')} alike")] if same > 1 else []
    out += [(" ", _window(line, 0)) for line in old[:same][-1:]]
    for mark, lines in (("-", gone), ("+", come)):
        out += [(mark, _window(line, start)) for line in lines[:LINES]]
        if len(lines) > LINES:
            out.append(("…", f"{len(lines) - LINES} more"))
    out += [(" ", _window(line, 0)) for line in old[len(old) - behind :][:1]]
    return out


def _start(old: str, new: str) -> int:
    """Return where a window on two differing lines begins."""
    if max(len(old), len(new)) <= WIDTH:
        return 0
    pairs = enumerate(zip(old, new, strict=False))
    return max(next((i for i, (a, b) in pairs if a != b), min(len(old), len(new))) - _BEFORE, 0)


def _window(line: str, start: int) -> str:
    return truncate(("…" if start else "") + line[start:], WIDTH)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
