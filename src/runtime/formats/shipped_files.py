"""Find the files that ship with the package, in a checkout and in an installed wheel."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

_PACKAGE = Path(__file__).resolve().parents[2]

# what shapes the four files of a run; a test follows the imports of what records them
_SHAPING: Final = (
    "adapters",
    "evidence/files",
    "evidence/recording",
    "evidence/tasks",
    "fail",
    "light_dataclasses.py",
    "runtime",
    "tracing",
)
_COUNTED: Final = (".py", ".json", ".yaml")


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


def package_place() -> Path:
    """Return the folder of this package."""
    return _PACKAGE


def shapes_runs(inside: str) -> bool:
    """Return whether a file of this package shapes the four files of a run, given its path in the package."""
    return inside.endswith(_COUNTED) and any(f"{inside}/".startswith(f"{name}/") for name in _SHAPING)


def package_files() -> list[Path]:
    """Return the files of this package that shape the four files of a run, in the order in which they count."""
    places = [_PACKAGE / name for name in _SHAPING]
    found = (path for place in places for path in (place.rglob("*") if place.is_dir() else [place]))
    return sorted(path for path in found if path.name.endswith(_COUNTED))


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Return the SHA-256 over the files that shape the four files of a run, with their names."""
    sources = hashlib.sha256()
    for path in package_files():
        sources.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
        sources.update(hashlib.sha256(path.read_bytes()).digest())
    return sources.hexdigest()
