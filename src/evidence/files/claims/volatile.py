"""The volatile keys of a manifest: what it claims of its recording, and nothing else in the run confirms.

They do not follow from ledger and inputs, so only their shape can be checked. Whoever reads them reads a claim of the
manifest, unless a seal covers it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from ....runtime.core.clock import epoch_ns
from ....runtime.core.lines import Line
from ....runtime.journal.journal import DURABILITY

_MOST: Final = 200  # characters of a text
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA: Final = re.compile(r"[0-9a-f]{64}")


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        epoch_ns(value)
    except ValueError:
        return False
    return True


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type,operator]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MOST and value.isprintable()


def _is_fact(value: object) -> bool:
    """Return whether a value is a text, or names of texts, such as packages and their versions."""
    if isinstance(value, dict):
        return all(_is_text(key) and (item is None or _is_text(item)) for key, item in value.items())
    return _is_text(value)


# JSON Pointer -> what must stand there, and the test of it
_CLAIMS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "/timestamp": ("a time in UTC", _is_time),
    "/wall_clock_seconds": ("a number of seconds", _is_seconds),
    "/code/git_sha": ("a commit or null", lambda value: value is None or _matches(_COMMIT, value)),
    "/code/package": ("a SHA-256", lambda value: _matches(_SHA, value)),
    "/environment/python": ("a text", _is_text),
    "/environment/platform": ("a text", _is_text),
    "/environment/packages": ("names of packages and their versions", lambda value: _are_versions(value)),
    "/environment/durability": (f"one of {', '.join(DURABILITY)}", lambda value: value in DURABILITY),
}
_OPTIONAL: Final = frozenset({"/environment/packages"})


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _part(manifest: Line, key: str) -> Line:
    """Return an object of a manifest, empty where something else stands."""
    part = manifest.get(key)
    return part if isinstance(part, dict) else {}


def _are_versions(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_text, (*value, *value.values())))


def misshapen_claims(manifest: Line) -> list[str]:
    """Return one line for each volatile key of a manifest that does not have the shape it must have."""
    out = []
    for pointer, (wanted, holds) in _CLAIMS.items():
        key, _, inner = pointer[1:].partition("/")
        value = _part(manifest, key).get(inner, ...) if inner else manifest.get(key)
        if not holds(value) and (value is not ... or pointer not in _OPTIONAL):
            out.append(f"{pointer} is not {wanted}")
    for key in ("code", "environment"):
        for name, value in _part(manifest, key).items():
            if f"/{key}/{name}" not in _CLAIMS and not _is_fact(value):
                out.append(f"/{key}/{str(name)[:40]} is no text and no names of texts")
    return out
