"""Numbers, times and long texts as a reader sees them: the filters of the templates."""

from __future__ import annotations

import json
from typing import Any, Final

from ..runtime.formats.escape import escape_terminal

HEAD_LINES, HEAD_CHARS = 10, 700  # of a long text, what is shown before the rest is unfolded
_SLACK_LINES, _SLACK_CHARS = 4, 300  # a text that is longer by no more than this is shown whole
CLIP: Final = 72


def duration(ns: int) -> str:
    """Return a time given in nanoseconds with a fitting unit: `5.02 s`, `200 ms`, `40 µs`."""
    if ns >= 10_000_000_000:
        return f"{ns / 1e9:,.1f} s"
    if ns >= 1_000_000_000:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1_000_000 or ns == 0:
        return f"{ns / 1e6:.0f} ms"
    return f"{ns / 1e3:.0f} µs"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 step`, `1,200 steps`."""
    return f"{number:,} " + (noun if number == 1 else plural or f"{noun}s")


def percent(part: int, total: int) -> str:
    """Return the share of `part` in `whole`, as `40 %` or `< 1 %`."""
    share = 100 * part / total
    return f"{share:.0f} %" if share >= 1 or part == 0 else "< 1 %"


def clip(text: str, width: int = CLIP) -> str:
    """Return the beginning of a text on one line of at most `width` characters."""
    return escape_terminal(text, width)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON with sorted keys."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent)


def head_and_rest(text: str) -> tuple[str, str]:
    """Split a long text at the end of a line where possible; the rest of a short one is empty."""
    if len(text) <= HEAD_CHARS + _SLACK_CHARS and text.count("\n") <= HEAD_LINES + _SLACK_LINES:
        return text, ""
    at = 0
    for _ in range(HEAD_LINES):
        end = text.find("\n", at, HEAD_CHARS) + 1
        if not end:
            break
        at = end
    at = at or HEAD_CHARS
    return text[:at], text[at:]
