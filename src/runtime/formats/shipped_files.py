"""Find the files that ship with the package, in a checkout and in an installed wheel."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


def shipped(relative: str) -> Path:
    """Return the path of a shipped file or folder such as `policy/v1.yaml` or `tools`, whether or not it exists."""
    inside = _PACKAGE / "_shipped"
    return (inside if inside.is_dir() else _PACKAGE.parent) / relative


def project_root(start: Path) -> Path | None:
    """Return the nearest folder at or above `start` that holds `policy/`, or None."""
    for folder in (start, *start.parents):
        if (folder / "policy").is_dir():
            return folder
    return None


def relative_to_root(path: Path, root: Path) -> str:
    """Return a path as a record names it: relative to the root with `/`, or the bare name if it is outside."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except (ValueError, OSError, RuntimeError):  # outside, or no place at all: a loop of links
        return path.name


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Return the SHA-256 over the sources that decide how a run goes: `fail`, `runtime` and what they rest on."""
    sources = hashlib.sha256()
    rooms = [sorted((_PACKAGE / room).rglob("*.py")) for room in ("fail", "runtime")]
    for path in (*rooms[0], *rooms[1], _PACKAGE / "light_dataclasses.py"):
        sources.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
        sources.update(hashlib.sha256(path.read_bytes()).digest())
    return sources.hexdigest()
