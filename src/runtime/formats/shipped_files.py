"""Find the files that ship with the package, in a checkout and in an installed wheel."""

from __future__ import annotations

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


def package_place() -> Path:
    """Return the folder of this package."""
    return _PACKAGE
